/* table.c: the hash table; table.h says how it is laid out, and how clients work on it. */
#define OB_MODULE table
#define TABLE_OWN
#include "table/table.h"
#include "alloc/alloc.h"

enum { MAGIC = 0, HEAP = 8, COUNT = 16, GEOMETRY = 24, SEGMENTS = 64 };

/* Buckets of a chain, at most. */
#define CHAIN_MAX 64u
/* How often an item is read that peers change meanwhile. */
#define READS_MAX 32u
/* Bytes in front of an item's key. */
#define ITEM_HEAD 16u

/* A bucket as it is in the region. */
struct bucket {
    uint64_t meta, slot[TABLE_SLOTS];
    unsigned char cell[TABLE_SLOTS][TABLE_CELL_LEN];
};
_Static_assert(sizeof(struct bucket) == TABLE_BUCKET_LEN, "as table.h has it");

struct key {
    const unsigned char *at;
    uint64_t len, hash;
};

/* The level, its first value, and how many buckets were split at this level. */
struct geometry {
    uint32_t level, first;
    uint64_t split;
};

static uint64_t offset_of_slot(uint64_t bucket, uint32_t slot) { return bucket + 8 + 8 * slot; }
static uint64_t offset_of_cell(uint64_t bucket, uint32_t slot)
{
    return bucket + 32 + TABLE_CELL_LEN * slot;
}

static uint32_t kind_of(uint64_t word) { return word & 3; }
static uint64_t item_of(uint64_t word) { return (word >> 36) * 16; }
static uint32_t home_of(uint64_t hash) { return (uint32_t)(hash >> 40 & 0xffffff) % TABLE_SLOTS; }
static uint64_t link_of(uint64_t meta) { return (meta >> 8 & 0xfffffff) * 16; }
/* The depth of a bucket that was given back: no hash has its index. */
#define NO_DEPTH 63u

static uint64_t meta_of(uint64_t depth, uint64_t link) { return depth | link / 16 << 8; }

static uint64_t random_bits(uint64_t salt) { return ob_mix(ob_seed() + salt, salt); }
/* An empty slot that was never empty in this way before. */
static uint64_t empty_slot(uint64_t slot, uint64_t before)
{
    return random_bits(slot ^ ob_mix(before, slot)) << 2 | TABLE_EMPTY;
}

static void check_table(uint64_t root)
{
    if (ob_get64(root + MAGIC) != TABLE_MAGIC)
        OB_FAIL(TABLE_E_NO_TABLE, "there is no table at this offset: call table's init first");
}

static struct key key_of(uint64_t root, const void *at, uint64_t len)
{
    check_table(root);
    if (len == 0 || len > TABLE_KEY_MAX)
        OB_FAIL(TABLE_E_KEY, "a key has 1 to 1024 bytes");
    return (struct key){at, len, ob_hash(TABLE_SEED, at, len)};
}

static struct geometry geometry_of(uint64_t root)
{
    uint64_t word = ob_get64(root + GEOMETRY);
    return (struct geometry){word & 63, word >> 8 & 63, word >> 16};
}

static uint64_t index_of(struct geometry geometry, uint64_t hash)
{
    uint64_t index = hash & (((uint64_t)1 << geometry.level) - 1);
    return index >= geometry.split ? index : hash & (((uint64_t)2 << geometry.level) - 1);
}

static uint32_t log2_of(uint64_t number) { return 63 - (uint32_t)__builtin_clzll(number); }

static uint64_t bucket_at(uint64_t root, uint32_t first, uint64_t index)
{
    if (index >> first == 0)
        return ob_get64(root + SEGMENTS) + index * TABLE_BUCKET_LEN;
    uint32_t power = log2_of(index);
    uint64_t segment = ob_get64(root + SEGMENTS + 8 * (uint64_t)(power - first + 1));
    return segment + (index - ((uint64_t)1 << power)) * TABLE_BUCKET_LEN;
}

static uint64_t next_of(uint64_t bucket, uint32_t *hops)
{
    if (++*hops > CHAIN_MAX)
        OB_FAIL(TABLE_E_BROKEN, "a chain of buckets has no end");
    return link_of(ob_get64(bucket));
}

/* ---- Finding ------------------------------------------------------------------------------ */

static bool is_cell(uint64_t cell, const struct key *key, struct table_place *place)
{
    uint64_t first = ob_get64(cell);
    if ((first & 0xff) != key->len || !ob_equals(cell + 2, key->at, key->len))
        return false;
    place->value = cell + 2 + key->len;
    place->value_len = first >> 8 & 0xff;
    return true;
}

static bool is_item(uint64_t item, const struct key *key, struct table_place *place)
{
    uint64_t lengths = ob_get64(item + 8);
    if ((lengths >> 16 & 0xffff) != key->len || !ob_equals(item + ITEM_HEAD, key->at, key->len))
        return false;
    place->value = item + ITEM_HEAD + key->len;
    place->value_len = lengths >> 32;
    return true;
}

/* Whether what is found is named for the commit: in executions that write. */
enum naming { UNNAMED, NAMED };

/* Whether a slot holds the key. */
static bool is_slot(uint64_t bucket, uint32_t slot, const struct key *key, enum naming naming,
                    struct table_place *place)
{
    place->slot = offset_of_slot(bucket, slot);
    place->cell = offset_of_cell(bucket, slot);
    for (uint32_t reads = 0; reads < READS_MAX; reads++) {
        uint64_t word = place->word = ob_get64(place->slot);
        if (kind_of(word) == TABLE_EMPTY || (word >> 2 & 0xff) != key->hash >> 56)
            return false;
        if (naming == NAMED)
            ob_name64(place->slot, word);
        if (kind_of(word) == TABLE_INLINE)
            return is_cell(place->cell, key, place);
        if (is_item(item_of(word), key, place))
            return true;
        /* An item's memory is used again only after its slot was changed. */
        if (ob_load64(place->slot) == word)
            return false;
    }
    OB_FAIL(TABLE_E_CHANGED, "peers change the item faster than it can be read: try again");
}

static bool find(uint64_t root, const struct key *key, enum naming naming,
                 struct table_place *place)
{
    struct geometry geometry = geometry_of(root);
    uint64_t bucket = bucket_at(root, geometry.first, index_of(geometry, key->hash));
    uint64_t home = offset_of_slot(bucket, home_of(key->hash)), before = ob_get64(home);
    uint32_t hops = 0;
    place->first = bucket;
    place->hash = key->hash;
    for (; bucket != 0; bucket = next_of(bucket, &hops))
        for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++)
            if (is_slot(bucket, slot, key, naming, place))
                return true;
    /* Peers insert into home slots only. */
    if (naming == NAMED)
        ob_name64(home, before);
    return false;
}

bool table_find(uint64_t root, const void *at, uint64_t len, struct table_place *place)
{
    struct key key = key_of(root, at, len);
    return find(root, &key, UNNAMED, place);
}

static uint64_t get(uint64_t root, const struct key *key, enum naming naming, void *value,
                    uint64_t cap)
{
    struct table_place place;
    for (uint32_t reads = 0; reads < READS_MAX; reads++) {
        if (!find(root, key, naming, &place))
            return TABLE_NONE;
        bool fits = place.value_len <= cap;
        if (fits)
            ob_get(place.value, value, place.value_len);
        if (ob_load64(place.slot) != place.word)
            continue;
        if (fits)
            return place.value_len;
        OB_FAIL(OB_E_RESULT, "there is no room for the value");
    }
    OB_FAIL(TABLE_E_CHANGED, "peers change the item faster than it can be read: try again");
}

uint64_t table_get(uint64_t root, const void *at, uint64_t len, void *value, uint64_t cap)
{
    struct key key = key_of(root, at, len);
    return get(root, &key, UNNAMED, value, cap);
}

uint64_t table_get_named(uint64_t root, const void *at, uint64_t len, void *value, uint64_t cap)
{
    struct key key = key_of(root, at, len);
    return get(root, &key, NAMED, value, cap);
}

/* ---- Items -------------------------------------------------------------------------------- */

static bool is_small(uint64_t key_len, uint64_t value_len)
{
    return key_len + value_len <= TABLE_CELL_MAX;
}

/* Fills a cell, and returns the slot's word for it. */
static uint64_t fill_cell(unsigned char *cell, const struct key *key, const void *value,
                          uint64_t value_len)
{
    memset(cell, 0, TABLE_CELL_LEN);
    cell[0] = (unsigned char)key->len;
    cell[1] = (unsigned char)value_len;
    memcpy(cell + 2, key->at, (size_t)key->len);
    memcpy(cell + 2 + key->len, value, (size_t)value_len);
    uint64_t check = ob_hash(TABLE_SEED, cell, 2 + key->len + value_len) >> 10;
    return check << 10 | key->hash >> 56 << 2 | TABLE_INLINE;
}

/* Writes a new item, and returns the slot's word for it. */
static uint64_t put_item(uint64_t root, const struct key *key, const void *value,
                         uint64_t value_len)
{
    uint64_t len = ITEM_HEAD + key->len + value_len;
    uint64_t item = alloc_take(ob_get64(root + HEAP), len);
    if (item == 0)
        OB_FAIL(TABLE_E_FULL, "the table has no room for the item");
    uint64_t nonce = random_bits(item) & 0x1fff;
    uint64_t second = nonce | key->len << 16 | value_len << 32;
    uint64_t check = ob_hash(ob_hash(second, key->at, key->len), value, value_len);
    uint64_t head[2] = {check, second};
    ob_put(item, head, sizeof head);
    ob_put(item + ITEM_HEAD, key->at, key->len);
    ob_put(item + ITEM_HEAD + key->len, value, value_len);
    return item / 16 << 36 | (len + 15) / 16 << 23 | nonce << 10 | key->hash >> 56 << 2
           | TABLE_ITEM;
}

/* Puts an item into a slot that holds `before`. */
static void fill_slot(uint64_t root, uint64_t slot, uint64_t cell, const struct key *key,
                      const void *value, uint64_t value_len)
{
    if (!is_small(key->len, value_len)) {
        ob_put64(slot, put_item(root, key, value, value_len));
        return;
    }
    unsigned char bytes[TABLE_CELL_LEN];
    uint64_t word = fill_cell(bytes, key, value, value_len);
    ob_put64(slot, word);
    ob_put(cell, bytes, sizeof bytes);
}

static void give_item(uint64_t root, uint64_t word)
{
    if (kind_of(word) == TABLE_ITEM)
        alloc_give(ob_get64(root + HEAP), item_of(word));
}

/* ---- Growing ------------------------------------------------------------------------------ */

/* Where buckets of a chain are rebuilt. */
struct chain {
    uint64_t root, at, rest; /* the bucket that is filled; old buckets behind it, to be used */
    uint32_t used;           /* slots of it */
    struct bucket image;
};

static void begin_image(struct chain *chain, uint64_t depth)
{
    memset(&chain->image, 0, sizeof chain->image);
    chain->image.meta = meta_of(depth, 0);
    for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++)
        chain->image.slot[slot] = empty_slot(offset_of_slot(chain->at, slot), chain->used);
    chain->used = 0;
}

static uint64_t new_bucket(uint64_t root)
{
    return alloc_take(ob_get64(root + HEAP), TABLE_BUCKET_LEN);
}

/* Ends the bucket with a link to the next one, which is an old one or a new one. */
static void extend_chain(struct chain *chain)
{
    uint64_t next = chain->rest;
    if (next != 0)
        chain->rest = link_of(ob_get64(next));
    else
        next = new_bucket(chain->root);
    if (next == 0)
        OB_FAIL(TABLE_E_FULL, "the table has no room to grow");
    uint64_t depth = chain->image.meta & 0xff;
    chain->image.meta = meta_of(depth, next);
    ob_put(chain->at, &chain->image, sizeof chain->image);
    chain->at = next;
    begin_image(chain, depth);
}

static void append(struct chain *chain, const struct bucket *from, uint32_t slot)
{
    if (chain->used == TABLE_SLOTS)
        extend_chain(chain);
    chain->image.slot[chain->used] = from->slot[slot];
    memcpy(chain->image.cell[chain->used], from->cell[slot], TABLE_CELL_LEN);
    chain->used++;
}

/* Has clients that have read a bucket find that it is no bucket any more: none can change a slot
 * of it, and whoever reads it reads the header again. */
static void end_bucket(uint64_t bucket)
{
    ob_put64(bucket, meta_of(NO_DEPTH, 0));
    for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++) {
        uint64_t at = offset_of_slot(bucket, slot);
        ob_put64(at, empty_slot(at, ob_get64(at)));
    }
}

/* Writes the last bucket; old buckets that are not needed are given back. */
static void end_chain(struct chain *chain)
{
    ob_put(chain->at, &chain->image, sizeof chain->image);
    while (chain->rest != 0) {
        uint64_t next = link_of(ob_get64(chain->rest));
        end_bucket(chain->rest);
        alloc_give(ob_get64(chain->root + HEAP), chain->rest);
        chain->rest = next;
    }
}

/* The hash of the key in a slot. */
static uint64_t hash_in(const struct bucket *bucket, uint32_t slot)
{
    uint64_t word = bucket->slot[slot];
    if (kind_of(word) == TABLE_INLINE)
        return ob_hash(TABLE_SEED, bucket->cell[slot] + 2, bucket->cell[slot][0]);
    uint64_t item = item_of(word), len = ob_get64(item + 8) >> 16 & 0xffff;
    unsigned char key[TABLE_KEY_MAX];
    /* Longer only if a peer has changed the slot meanwhile, which is noticed at commit. */
    len = len < sizeof key ? len : sizeof key;
    ob_get(item + ITEM_HEAD, key, len);
    return ob_hash(TABLE_SEED, key, len);
}

/* Divides the chain of a bucket between it and a new one. */
static void divide(uint64_t root, uint64_t bucket, uint64_t fresh, uint32_t depth)
{
    struct bucket image;
    uint32_t hops = 0;
    uint64_t next = bucket;
    struct chain low = {.root = root, .at = bucket}, high = {.root = root, .at = fresh};
    begin_image(&low, depth + 1);
    begin_image(&high, depth + 1);
    while (next != 0) {
        uint64_t at = next;
        ob_get(at, &image, sizeof image);
        next = next_of(at, &hops);
        /* The chain's first bucket is already `low`'s; each further one is free to be used, when
         * it has been read. */
        if (at != bucket) {
            image.meta = meta_of(depth, low.rest);
            ob_put64(at, image.meta);
            low.rest = at;
        }
        for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++) {
            ob_name64(offset_of_slot(at, slot), image.slot[slot]);
            if (kind_of(image.slot[slot]) != TABLE_EMPTY)
                append(hash_in(&image, slot) >> depth & 1 ? &high : &low, &image, slot);
        }
    }
    end_chain(&low);
    end_chain(&high);
}

/* The place of a bucket that does not exist yet; 0 if there is no memory for it. */
static uint64_t fresh_bucket(uint64_t root, struct geometry geometry, uint64_t index)
{
    uint32_t power = log2_of(index);
    if (index == (uint64_t)1 << power && power >= geometry.first) {
        uint64_t place = root + SEGMENTS + 8 * (uint64_t)(power - geometry.first + 1);
        uint64_t len = (TABLE_BUCKET_LEN << power) + 48;
        bool is_place = place < root + TABLE_HEADER_LEN;
        uint64_t block = is_place ? alloc_take(ob_get64(root + HEAP), len) : 0;
        if (block == 0)
            return 0;
        ob_put64(place, (block + 63) & ~(uint64_t)63);
    }
    return bucket_at(root, geometry.first, index);
}

/* Splits the next bucket; false if there is no memory for it. */
static bool split(uint64_t root)
{
    struct geometry geometry = geometry_of(root);
    uint64_t index = geometry.split, all = (uint64_t)1 << geometry.level;
    uint64_t fresh = fresh_bucket(root, geometry, index + all);
    if (fresh == 0)
        return false;
    divide(root, bucket_at(root, geometry.first, index), fresh, geometry.level);
    bool is_last = index + 1 == all;
    uint64_t level = geometry.level + (is_last ? 1 : 0);
    ob_put64(root + GEOMETRY,
             level | (uint64_t)geometry.first << 8 | (is_last ? 0 : index + 1) << 16);
    return true;
}

static uint64_t buckets_of(uint64_t root)
{
    struct geometry geometry = geometry_of(root);
    return ((uint64_t)1 << geometry.level) + geometry.split;
}

/* ---- Changing ----------------------------------------------------------------------------- */

/* A slot for a key that is not there: its home slot, or any other empty one of the chain, or one
 * of a new bucket. Names what the choice depends on. */
static uint64_t choose_slot(uint64_t root, const struct table_place *place, uint64_t *cell)
{
    uint32_t home = home_of(place->hash), hops = 0;
    uint64_t bucket = place->first, last = bucket;
    uint64_t word = ob_get64(offset_of_slot(bucket, home));
    ob_name64(offset_of_slot(bucket, home), word);
    *cell = offset_of_cell(bucket, home);
    if (kind_of(word) == TABLE_EMPTY)
        return offset_of_slot(bucket, home);
    for (; bucket != 0; last = bucket, bucket = next_of(bucket, &hops))
        for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++) {
            uint64_t at = offset_of_slot(bucket, slot), found = ob_get64(at);
            if (kind_of(found) != TABLE_EMPTY)
                continue;
            ob_name64(at, found);
            *cell = offset_of_cell(bucket, slot);
            return at;
        }
    uint64_t depth = ob_get64(last) & 0xff;
    struct chain chain = {.root = root, .at = new_bucket(root)};
    if (chain.at == 0 || hops >= CHAIN_MAX)
        OB_FAIL(TABLE_E_FULL, "the table has no room for the item");
    begin_image(&chain, depth);
    ob_put(chain.at, &chain.image, sizeof chain.image);
    ob_put64(last, meta_of(depth, chain.at));
    *cell = offset_of_cell(chain.at, 0);
    return offset_of_slot(chain.at, 0);
}

bool table_put(uint64_t root, const void *at, uint64_t len, const void *value, uint64_t value_len)
{
    struct key key = key_of(root, at, len);
    struct table_place place;
    if (OB_RARELY(value_len > TABLE_VALUE_MAX))
        OB_FAIL(TABLE_E_VALUE, "a value has at most 65536 bytes");
    if (find(root, &key, NAMED, &place)) {
        fill_slot(root, place.slot, place.cell, &key, value, value_len);
        give_item(root, place.word);
        return true;
    }
    uint64_t cell;
    uint64_t slot = choose_slot(root, &place, &cell);
    fill_slot(root, slot, cell, &key, value, value_len);
    uint64_t count = ob_add64(root + COUNT, 1) + 1, buckets = buckets_of(root);
    if (count > buckets + buckets / 4)
        split(root);
    return false;
}

bool table_delete(uint64_t root, const void *at, uint64_t len)
{
    struct key key = key_of(root, at, len);
    struct table_place place;
    if (!find(root, &key, NAMED, &place))
        return false;
    ob_put64(place.slot, empty_slot(place.slot, place.word));
    give_item(root, place.word);
    ob_add64(root + COUNT, (uint64_t)-1);
    return true;
}

static void init_buckets(uint64_t at, uint64_t count, uint64_t depth)
{
    struct bucket image;
    memset(&image, 0, sizeof image);
    image.meta = meta_of(depth, 0);
    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++)
            image.slot[slot] = empty_slot(offset_of_slot(at, slot), i);
        ob_put(at, &image, sizeof image);
        at += TABLE_BUCKET_LEN;
    }
}

void table_init(uint64_t root, uint64_t len, uint64_t first)
{
    uint64_t own = TABLE_HEADER_LEN + (ALLOC_STATE_LEN + 63) / 64 * 64;
    if (root % 64 != 0 || len < own || !ob_is_inside(root, len) || first > TABLE_FIRST_MAX)
        OB_FAIL(TABLE_E_RANGE, "a table's place must be a multiple of 64, inside the region, with "
                               "room; log2 of its buckets is at most 14");
    uint64_t heap = root + TABLE_HEADER_LEN, header[TABLE_HEADER_LEN / 8];
    alloc_init(heap, root + own, root + len);
    uint64_t block = alloc_take(heap, (TABLE_BUCKET_LEN << first) + 48);
    if (block == 0)
        OB_FAIL(TABLE_E_RANGE, "the table's place has no room for its buckets");
    uint64_t buckets = (block + 63) & ~(uint64_t)63;
    memset(header, 0, sizeof header);
    header[MAGIC / 8] = TABLE_MAGIC;
    header[HEAP / 8] = heap;
    header[GEOMETRY / 8] = first | first << 8;
    header[SEGMENTS / 8] = buckets;
    ob_put(root, header, sizeof header);
    init_buckets(buckets, (uint64_t)1 << first, first);
}

/* ---- Scanning ----------------------------------------------------------------------------- */

/* Where copied items go. */
struct sink {
    unsigned char *at;
    uint64_t left, count;
};

/* Copies the item of a slot; false if there is no room. */
static bool copy_item(uint64_t slot, uint64_t cell, struct sink *sink)
{
    for (uint32_t reads = 0; reads < READS_MAX; reads++) {
        uint64_t word = ob_get64(slot), from, key_len, value_len;
        if (kind_of(word) == TABLE_EMPTY)
            return true;
        if (kind_of(word) == TABLE_INLINE) {
            uint64_t lengths = ob_get64(cell);
            from = cell + 2, key_len = lengths & 0xff, value_len = lengths >> 8 & 0xff;
        } else {
            uint64_t lengths = ob_get64(item_of(word) + 8);
            from = item_of(word) + ITEM_HEAD;
            key_len = lengths >> 16 & 0xffff, value_len = lengths >> 32;
        }
        uint64_t len = 8 + key_len + value_len;
        bool fits = len <= sink->left;
        if (fits) {
            uint32_t lengths[2] = {(uint32_t)key_len, (uint32_t)value_len};
            memcpy(sink->at, lengths, sizeof lengths);
            ob_get(from, sink->at + 8, key_len + value_len);
        }
        if (ob_load64(slot) != word)
            continue;
        if (fits)
            sink->at += len, sink->left -= len, sink->count++;
        return fits;
    }
    OB_FAIL(TABLE_E_CHANGED, "peers change an item faster than it can be read: try again");
}

static bool copy_chain(uint64_t bucket, struct sink *sink)
{
    uint32_t hops = 0;
    for (; bucket != 0; bucket = next_of(bucket, &hops))
        for (uint32_t slot = 0; slot < TABLE_SLOTS; slot++)
            if (!copy_item(offset_of_slot(bucket, slot), offset_of_cell(bucket, slot), sink))
                return false;
    return true;
}

uint64_t table_scan(uint64_t root, uint64_t cursor, uint64_t limit, void *out, uint64_t cap)
{
    check_table(root);
    struct table_scan_result *result = out;
    if (cap < sizeof *result)
        OB_FAIL(OB_E_RESULT, "there is no room for the result");
    struct sink sink = {(unsigned char *)(result + 1), cap - sizeof *result, 0};
    uint64_t buckets = buckets_of(root), index = cursor;
    uint32_t first = geometry_of(root).first;
    for (; index < buckets && (index == cursor || sink.count < limit); index++) {
        struct sink before = sink;
        if (copy_chain(bucket_at(root, first, index), &sink))
            continue;
        if (index == cursor)
            OB_FAIL(OB_E_RESULT, "there is no room for the items of one bucket");
        sink = before;
        break;
    }
    result->next = index < buckets ? index : TABLE_SCAN_END;
    result->count = sink.count;
    return (uint64_t)(sink.at - (unsigned char *)out);
}

/* ---- Entries ------------------------------------------------------------------------------ */

/* What follows the structure of arguments, to their end. */
#define KEY_BEHIND(args) (args) + 1, ob_args_len() - sizeof *(args)

static int64_t number(uint64_t value) { return ob_result(&value, sizeof value); }

OB_ENTRY(init)
{
    const struct table_init_args *args = OB_ARGS(struct table_init_args);
    table_init(args->root, args->len, args->first);
    return 0;
}

OB_ENTRY(get)
{
    const struct table_get_args *args = OB_ARGS(struct table_get_args);
    struct table_get_result *result = ob_out_of(sizeof *result);
    uint64_t len = table_get(args->root, KEY_BEHIND(args), result + 1,
                             ob_out_cap() - sizeof *result);
    result->found = len != TABLE_NONE;
    return (int64_t)(sizeof *result + (len == TABLE_NONE ? 0 : len));
}

OB_ENTRY(put)
{
    const struct table_put_args *args = OB_ARGS(struct table_put_args);
    ob_args_of(sizeof *args + (uint64_t)args->key_len + args->value_len);
    const unsigned char *key = (const unsigned char *)(args + 1);
    return number(table_put(args->root, key, args->key_len, key + args->key_len,
                            args->value_len));
}

OB_ENTRY(delete)
{
    const struct table_delete_args *args = OB_ARGS(struct table_delete_args);
    return number(table_delete(args->root, KEY_BEHIND(args)));
}

OB_ENTRY(scan)
{
    const struct table_scan_args *args = OB_ARGS(struct table_scan_args);
    return (int64_t)table_scan(args->root, args->cursor, args->limit, ob_out(), ob_out_cap());
}

OB_ENTRY(count)
{
    uint64_t root = *OB_ARGS(uint64_t);
    check_table(root);
    struct table_count_result result = {ob_get64(root + COUNT), buckets_of(root)};
    return ob_result(&result, sizeof result);
}

OB_ENTRY(grow)
{
    const struct table_grow_args *args = OB_ARGS(struct table_grow_args);
    check_table(args->root);
    if (args->splits > TABLE_SPLITS_MAX)
        OB_FAIL(OB_E_ARGS, "at most 500 buckets are split at once");
    for (uint64_t i = 0; i < args->splits; i++)
        if (!split(args->root))
            OB_FAIL(TABLE_E_FULL, "the table has no room to grow");
    return number(buckets_of(args->root));
}

OB_ENTRY(take)
{
    const struct table_take_args *args = OB_ARGS(struct table_take_args);
    check_table(args->root);
    if (args->number > 256)
        OB_FAIL(OB_E_ARGS, "at most 256 pieces of memory at once");
    uint64_t *items = ob_out_of(args->number * sizeof *items);
    uint64_t heap = ob_get64(args->root + HEAP);
    for (uint64_t i = 0; i < args->number; i++) {
        items[i] = alloc_take(heap, args->len);
        if (items[i] == 0)
            OB_FAIL(TABLE_E_FULL, "the table has no room for the items");
    }
    return (int64_t)(args->number * sizeof *items);
}

OB_ENTRY(give)
{
    const struct table_give_args *args = OB_ARGS(struct table_give_args);
    check_table(args->root);
    alloc_give(ob_get64(args->root + HEAP), args->item);
    return 0;
}
