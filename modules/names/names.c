/* names.c: directories; names.h says how they are laid out. */
#define OB_MODULE names
#define NAMES_OWN
#include "names/names.h"
#include "alloc/alloc.h"
#include "table/table.h"

enum { COUNT = 0, END = 8, FREE = 16, SEGMENTS = 144 };
enum { TABLE_HEAP = 8 };

#define STEP 16u
#define RECORD_HEAD 16u
/* The shortest record that can be in a list of free ones. */
#define RECORD_MIN 32u

struct record {
    uint64_t number;
    uint8_t kind, name_len;
    uint16_t len;
    uint32_t zero;
};
_Static_assert(sizeof(struct record) == RECORD_HEAD, "as names.h has it");

/* ---- The table ---------------------------------------------------------------------------- */

struct key {
    unsigned char bytes[8 + NAMES_MAX];
    uint64_t len;
};

static void key_of(const struct names_dir *dir, const void *name, uint64_t len, struct key *key)
{
    if (len == 0 || len > NAMES_MAX)
        OB_FAIL(NAMES_E_NAME, "a name has 1 to 255 bytes");
    memcpy(key->bytes, &dir->parent, 8);
    memcpy(key->bytes + 8, name, (size_t)len);
    key->len = 8 + len;
}

static void put_item(const struct names_dir *dir, const struct key *key,
                     const struct names_entry *entry)
{
    unsigned char value[NAMES_VALUE_LEN];
    uint64_t word = entry->number | (uint64_t)entry->kind << 56;
    uint32_t place = (uint32_t)(entry->at / STEP);
    memcpy(value, &word, sizeof word);
    memcpy(value + sizeof word, &place, sizeof place);
    table_put(dir->table, key->bytes, key->len, value, sizeof value);
}

static bool find(const struct names_dir *dir, const struct key *key, struct names_entry *entry)
{
    unsigned char value[NAMES_VALUE_LEN];
    uint64_t word, len = table_get(dir->table, key->bytes, key->len, value, sizeof value);
    uint32_t place;
    if (len != sizeof value)
        return false;
    memcpy(&word, value, sizeof word);
    memcpy(&place, value + sizeof word, sizeof place);
    entry->number = word & NAMES_NUMBER_MAX;
    entry->kind = (uint32_t)(word >> 56);
    entry->at = (uint64_t)place * STEP;
    entry->name_len = (uint32_t)(key->len - 8);
    return true;
}

/* ---- Places ------------------------------------------------------------------------------- */

static uint64_t heap_of(uint64_t table) { return ob_get64(table + TABLE_HEAP); }

static uint64_t take(uint64_t table, uint64_t len)
{
    uint64_t block = alloc_take(heap_of(table), len);
    if (block == 0)
        OB_FAIL(NAMES_E_FULL, "the region has no room for more names");
    return block;
}

/* A segment: which one, its first place and its length. */
struct segment {
    uint32_t index;
    uint64_t start, len;
};

static struct segment segment_of(uint64_t at)
{
    if (at < NAMES_FIRST_LEN)
        return (struct segment){0, 0, NAMES_FIRST_LEN};
    uint32_t power = 63 - (uint32_t)__builtin_clzll(at / NAMES_FIRST_LEN);
    uint64_t start = (uint64_t)NAMES_FIRST_LEN << power;
    return (struct segment){power + 1, start, start};
}

static uint64_t offset_of(uint64_t dir, uint64_t at)
{
    struct segment segment = segment_of(at);
    return ob_get64(dir + SEGMENTS + 8 * (uint64_t)segment.index) + (at - segment.start);
}

static uint32_t len_of(uint64_t name_len)
{
    uint64_t len = (RECORD_HEAD + name_len + STEP - 1) / STEP * STEP;
    return (uint32_t)(len < RECORD_MIN ? RECORD_MIN : len);
}

static uint64_t free_list(uint64_t dir, uint32_t len)
{
    return dir + FREE + 8 * (uint64_t)(len / STEP - 2);
}

/* Puts a record without a name; it is found again if it can hold one. */
static void put_free(uint64_t dir, uint64_t at, uint64_t len)
{
    struct record record = {.len = (uint16_t)len};
    uint64_t offset = offset_of(dir, at);
    ob_put(offset, &record, sizeof record);
    if (len < RECORD_MIN)
        return;
    uint64_t list = free_list(dir, (uint32_t)len);
    ob_put64(offset + RECORD_HEAD, ob_get64(list));
    ob_put64(list, at + 1);
}

/* A place for a record behind all others. What is too short for it at a segment's end becomes a
 * record of its own: at most 256 bytes. */
static uint64_t place_behind(const struct names_dir *dir, uint32_t len)
{
    uint64_t at = ob_get64(dir->dir + END);
    struct segment segment = segment_of(at);
    uint64_t rest = segment.start + segment.len - at;
    if (rest < len) {
        put_free(dir->dir, at, rest);
        at += rest;
        segment = segment_of(at);
    }
    if (segment.index >= NAMES_SEGMENTS)
        OB_FAIL(NAMES_E_FULL, "the directory has as many names as it can");
    if (at == segment.start)
        ob_put64(dir->dir + SEGMENTS + 8 * (uint64_t)segment.index, take(dir->table, segment.len));
    ob_put64(dir->dir + END, at + len);
    return at;
}

static uint64_t new_place(const struct names_dir *dir, uint32_t len)
{
    uint64_t list = free_list(dir->dir, len), first = ob_get64(list);
    if (first == 0)
        return place_behind(dir, len);
    ob_put64(list, ob_get64(offset_of(dir->dir, first - 1) + RECORD_HEAD));
    return first - 1;
}

static void put_record(const struct names_dir *dir, const struct key *key,
                       const struct names_entry *entry)
{
    unsigned char bytes[RECORD_HEAD + NAMES_MAX + STEP];
    uint64_t name_len = key->len - 8;
    struct record record = {entry->number, (uint8_t)entry->kind, (uint8_t)name_len,
                            (uint16_t)len_of(name_len), 0};
    memcpy(bytes, &record, sizeof record);
    memcpy(bytes + RECORD_HEAD, key->bytes + 8, (size_t)name_len);
    ob_put(offset_of(dir->dir, entry->at), bytes, RECORD_HEAD + name_len);
}

/* Gives back the memory of a directory without names. */
static void give_segments(const struct names_dir *dir)
{
    for (uint32_t index = 0; index < NAMES_SEGMENTS; index++) {
        uint64_t segment = ob_get64(dir->dir + SEGMENTS + 8 * (uint64_t)index);
        if (segment == 0)
            return;
        alloc_give(heap_of(dir->table), segment);
    }
}

static void clear(uint64_t dir)
{
    unsigned char header[NAMES_DIR_LEN];
    memset(header, 0, sizeof header);
    ob_put(dir, header, sizeof header);
}

/* ---- Functions ---------------------------------------------------------------------------- */

uint64_t names_new(uint64_t table)
{
    uint64_t dir = take(table, NAMES_DIR_LEN);
    clear(dir);
    return dir;
}

void names_drop(const struct names_dir *dir)
{
    if (names_count(dir) != 0)
        OB_FAIL(NAMES_E_IN_USE, "a directory that has names is not dropped");
    give_segments(dir);
    alloc_give(heap_of(dir->table), dir->dir);
}

bool names_find(const struct names_dir *dir, const void *name, uint64_t len,
                struct names_entry *entry)
{
    struct key key;
    key_of(dir, name, len, &key);
    return find(dir, &key, entry);
}

static void check_number(uint64_t number, uint32_t kind)
{
    if (number == 0 || number > NAMES_NUMBER_MAX || kind > 255)
        OB_FAIL(NAMES_E_NAME, "a name says a number from 1 to 2^56 - 1 and a kind below 256");
}

void names_add(const struct names_dir *dir, const void *name, uint64_t len,
               struct names_entry *entry)
{
    struct key key;
    struct names_entry before;
    check_number(entry->number, entry->kind);
    key_of(dir, name, len, &key);
    if (find(dir, &key, &before))
        OB_FAIL(NAMES_E_EXISTS, "the directory has this name already");
    entry->at = new_place(dir, len_of(len));
    entry->name_len = (uint32_t)len;
    put_record(dir, &key, entry);
    put_item(dir, &key, entry);
    ob_put64(dir->dir + COUNT, ob_get64(dir->dir + COUNT) + 1);
}

/* What a name says, which must be there. */
static void get(const struct names_dir *dir, const struct key *key, struct names_entry *entry)
{
    if (!find(dir, key, entry))
        OB_FAIL(NAMES_E_ABSENT, "the directory has no such name");
}

void names_set(const struct names_dir *dir, const void *name, uint64_t len, uint64_t number,
               uint32_t kind)
{
    struct key key;
    struct names_entry entry;
    check_number(number, kind);
    key_of(dir, name, len, &key);
    get(dir, &key, &entry);
    entry.number = number;
    entry.kind = kind;
    put_record(dir, &key, &entry);
    put_item(dir, &key, &entry);
}

void names_remove(const struct names_dir *dir, const void *name, uint64_t len,
                  struct names_entry *entry)
{
    struct key key;
    key_of(dir, name, len, &key);
    get(dir, &key, entry);
    table_delete(dir->table, key.bytes, key.len);
    uint64_t count = ob_get64(dir->dir + COUNT) - 1;
    if (count == 0) {
        give_segments(dir);
        clear(dir->dir);
        return;
    }
    put_free(dir->dir, entry->at, len_of(len));
    ob_put64(dir->dir + COUNT, count);
}

uint64_t names_next(const struct names_dir *dir, uint64_t at, struct names_entry *entry, void *name)
{
    uint64_t end = ob_get64(dir->dir + END);
    struct record record;
    for (; at < end; at += record.len) {
        uint64_t offset = offset_of(dir->dir, at);
        ob_get(offset, &record, sizeof record);
        /* Only a place that nobody was told can be none. */
        if (record.len < STEP || record.len % STEP != 0)
            return 0;
        if (record.number == 0)
            continue;
        *entry = (struct names_entry){record.number, at, record.kind, record.name_len};
        ob_get(offset + RECORD_HEAD, name, record.name_len);
        return at + record.len;
    }
    return 0;
}

uint64_t names_count(const struct names_dir *dir) { return ob_get64(dir->dir + COUNT); }

/* ---- Entries ------------------------------------------------------------------------------ */

OB_ENTRY(new)
{
    uint64_t dir = names_new(*OB_ARGS(uint64_t));
    return ob_result(&dir, sizeof dir);
}

OB_ENTRY(drop)
{
    names_drop(OB_ARGS(struct names_dir));
    return 0;
}

OB_ENTRY(add)
{
    const struct names_set_args *args = OB_ARGS(struct names_set_args);
    struct names_entry entry = {.number = args->number, .kind = (uint32_t)args->kind};
    names_add(&args->dir, args + 1, ob_args_len() - sizeof *args, &entry);
    return ob_result(&entry, sizeof entry);
}

OB_ENTRY(set)
{
    const struct names_set_args *args = OB_ARGS(struct names_set_args);
    uint64_t len = ob_args_len() - sizeof *args;
    names_set(&args->dir, args + 1, len, args->number, (uint32_t)args->kind);
    return 0;
}

OB_ENTRY(find)
{
    const struct names_args *args = OB_ARGS(struct names_args);
    struct names_entry entry;
    if (!names_find(&args->dir, args + 1, ob_args_len() - sizeof *args, &entry))
        OB_FAIL(NAMES_E_ABSENT, "the directory has no such name");
    return ob_result(&entry, sizeof entry);
}

OB_ENTRY(remove)
{
    const struct names_args *args = OB_ARGS(struct names_args);
    struct names_entry entry;
    names_remove(&args->dir, args + 1, ob_args_len() - sizeof *args, &entry);
    return ob_result(&entry, sizeof entry);
}

OB_ENTRY(list)
{
    const struct names_list_args *args = OB_ARGS(struct names_list_args);
    unsigned char *out = ob_out();
    uint64_t cap = ob_out_cap(), len = 0, at = args->at;
    struct {
        struct names_entry entry;
        unsigned char name[NAMES_MAX + 9];
    } one;
    for (;;) {
        memset(&one, 0, sizeof one);
        at = names_next(&args->dir, at, &one.entry, one.name);
        uint64_t one_len = sizeof one.entry + (one.entry.name_len + 7) / 8 * 8;
        if (at == 0 || one_len > cap - len)
            return (int64_t)len;
        memcpy(out + len, &one, (size_t)one_len);
        len += one_len;
    }
}

OB_ENTRY(count)
{
    const struct names_list_args *args = OB_ARGS(struct names_list_args);
    uint64_t count = names_count(&args->dir);
    return ob_result(&count, sizeof count);
}
