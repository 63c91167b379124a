/* blocks.c: which blocks are free, and their users; blocks.h says how they are laid out. */
#define OB_MODULE blocks
#define BLOCKS_OWN
#include "blocks/blocks.h"

enum { MAGIC = 0, COUNT = 8, FREE = 16, NEXT = 24 };

#define ALL_ONES UINT64_MAX
#define NONE UINT64_MAX

/* Where everything is. */
struct store {
    uint64_t root, count, users;
    uint32_t levels;
    uint64_t bits[BLOCKS_LEVELS_MAX]; /* of each level */
    uint64_t at[BLOCKS_LEVELS_MAX];   /* its words */
};

static uint64_t words_of(uint64_t bits) { return (bits + 63) / 64; }

static struct store layout(uint64_t root, uint64_t count)
{
    struct store store = {.root = root, .count = count};
    uint64_t bits = count, at = root + BLOCKS_HEADER_LEN;
    do {
        store.bits[store.levels] = bits;
        store.at[store.levels++] = at;
        bits = words_of(bits);
        at += 8 * bits;
    } while (bits > 1 && store.levels < BLOCKS_LEVELS_MAX);
    store.users = at;
    return store;
}

static struct store store_of(uint64_t root)
{
    if (ob_get64(root + MAGIC) != BLOCKS_MAGIC)
        OB_FAIL(BLOCKS_E_NO_STORE, "there is no store of blocks here: call blocks' init first");
    return layout(root, ob_get64(root + COUNT));
}

uint64_t blocks_len(uint64_t count)
{
    struct store store = layout(0, count);
    return store.users + (count + 7) / 8 * 8;
}

void blocks_init(uint64_t root, uint64_t count)
{
    if (root % 8 != 0 || count == 0 || count > BLOCKS_MAX || !ob_is_inside(root, blocks_len(count)))
        OB_FAIL(BLOCKS_E_RANGE, "the state of so many blocks must lie inside the region");
    struct store store = layout(root, count);
    for (uint32_t level = 0; level < store.levels; level++) {
        uint64_t bits = store.bits[level];
        if (bits % 64 != 0)
            ob_put64(store.at[level] + bits / 64 * 8, ALL_ONES << bits % 64);
    }
    ob_put64(root + COUNT, count);
    ob_put64(root + FREE, count);
    ob_put64(root + NEXT, 0);
    ob_put64(root + MAGIC, BLOCKS_MAGIC);
}

/* The first free block at `from` or behind it. */
static uint64_t next_free(const struct store *store, uint64_t from)
{
    uint64_t at = from;
    uint32_t level = 0;
    while (at < store->bits[level]) {
        uint64_t below = ((uint64_t)1 << at % 64) - 1;
        uint64_t word = ob_get64(store->at[level] + at / 64 * 8) | below;
        if (word != ALL_ONES) {
            at = at / 64 * 64 + (uint64_t)__builtin_ctzll(~word);
            if (level == 0)
                return at;
            /* The word below has a free one. */
            level--, at *= 64;
            continue;
        }
        if (++level == store->levels)
            break;
        at = at / 64 + 1;
    }
    return NONE;
}

/* Puts a word of level 0, and what the levels above say of it. */
static void put_word(const struct store *store, uint64_t index, uint64_t word)
{
    for (uint32_t level = 0;; level++) {
        uint64_t at = store->at[level] + index * 8, before = ob_get64(at);
        ob_put64(at, word);
        if ((before == ALL_ONES) == (word == ALL_ONES) || level + 1 == store->levels)
            return;
        uint64_t above = ob_get64(store->at[level + 1] + index / 64 * 8);
        uint64_t bit = (uint64_t)1 << index % 64;
        word = word == ALL_ONES ? above | bit : above & ~bit;
        index /= 64;
    }
}

/* Blocks of one word of level 0: which word, its first bit and how many. */
struct piece {
    uint64_t index, from, len;
};

static struct piece piece_of(uint64_t start, uint64_t len)
{
    uint64_t from = start % 64, room = 64 - from;
    return (struct piece){start / 64, from, len < room ? len : room};
}

static uint64_t mask_of(struct piece piece)
{
    return (piece.len == 64 ? ALL_ONES : ((uint64_t)1 << piece.len) - 1) << piece.from;
}

/* How many blocks are free from a free one on, at most `want`. */
static uint64_t run_at(const struct store *store, uint64_t start, uint64_t want)
{
    uint64_t len = 0;
    while (len < want) {
        struct piece piece = piece_of(start + len, want - len);
        uint64_t taken = ob_get64(store->at[0] + piece.index * 8) >> piece.from;
        uint64_t free = taken == 0 ? 64 : (uint64_t)__builtin_ctzll(taken);
        if (free < piece.len)
            return len + free;
        len += piece.len;
    }
    return len;
}

static void count_free(const struct store *store, uint64_t change)
{
    ob_put64(store->root + FREE, ob_get64(store->root + FREE) + change);
}

/* Gives each block of a run its first user. */
static void put_users(const struct store *store, uint64_t start, uint64_t len)
{
    unsigned char one[64];
    memset(one, 1, sizeof one);
    for (uint64_t part; len > 0; start += part, len -= part) {
        part = len < sizeof one ? len : sizeof one;
        ob_put(store->users + start, one, part);
    }
}

static void take_run(const struct store *store, uint64_t start, uint64_t len)
{
    count_free(store, (uint64_t)0 - len);
    ob_put64(store->root + NEXT, start + len);
    while (len > 0) {
        struct piece piece = piece_of(start, len);
        uint64_t word = ob_get64(store->at[0] + piece.index * 8);
        put_word(store, piece.index, word | mask_of(piece));
        start += piece.len, len -= piece.len;
    }
}

static uint64_t take(const struct store *store, uint64_t goal, uint64_t want, uint64_t *start)
{
    uint64_t from = goal < store->count ? goal : ob_get64(store->root + NEXT);
    uint64_t found = next_free(store, from);
    if (found == NONE)
        found = next_free(store, 0);
    if (found == NONE || want == 0)
        return 0;
    uint64_t room = store->count - found, most = want < BLOCKS_RUN_MAX ? want : BLOCKS_RUN_MAX;
    uint64_t len = run_at(store, found, most < room ? most : room);
    take_run(store, found, len);
    *start = found;
    return len;
}

uint64_t blocks_take(uint64_t root, uint64_t goal, uint64_t want, uint64_t *start)
{
    struct store store = store_of(root);
    uint64_t len = take(&store, goal, want, start);
    if (len > 0)
        put_users(&store, *start, len);
    return len;
}

uint64_t blocks_reserve(uint64_t root, uint64_t goal, uint64_t want, uint64_t *start)
{
    struct store store = store_of(root);
    return take(&store, goal, want, start);
}

static void check_run(const struct store *store, uint64_t start, uint64_t len)
{
    if (len > BLOCKS_RUN_MAX || start > store->count || len > store->count - start)
        OB_FAIL(BLOCKS_E_RANGE, "these are no blocks of the store, or too many at once");
}

void blocks_share(uint64_t root, uint64_t start, uint64_t len)
{
    struct store store = store_of(root);
    check_run(&store, start, len);
    unsigned char users[64];
    while (len > 0) {
        struct piece piece = piece_of(start, len);
        ob_get(store.users + start, users, piece.len);
        for (uint64_t at = 0; at < piece.len; at++) {
            if (users[at] == 0)
                OB_FAIL(BLOCKS_E_FREE, "a block that is free cannot be shared");
            if (users[at] == BLOCKS_USERS_MAX)
                OB_FAIL(BLOCKS_E_USERS, "a block has as many users as one can have");
            users[at]++;
        }
        ob_put(store.users + start, users, piece.len);
        start += piece.len, len -= piece.len;
    }
}

/* A word that has, at each byte that is 0, 0x80, and else 0. */
static uint64_t zero_bytes(uint64_t word)
{
    uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    return ~(((word & low) + low) | word | low);
}

/* Which of up to 64 blocks have no users. */
static uint64_t unused(const struct store *store, uint64_t start, uint64_t len)
{
    uint64_t words[8], found = 0;
    memset(words, 0xff, sizeof words);
    ob_get(store->users + start, words, len);
    for (uint64_t at = 0; at < 8; at++)
        /* The bits of the eight bytes meet in the uppermost one. */
        found |= (zero_bytes(words[at]) >> 7) * 0x0102040810204080u >> 56 << 8 * at;
    return found;
}

/* The blocks of a piece that nobody uses must be reserved, and be all of it. */
static void must_be_reserved(const struct store *store, uint64_t start, struct piece piece)
{
    uint64_t taken = ob_get64(store->at[0] + piece.index * 8) & mask_of(piece);
    if (taken != mask_of(piece) || unused(store, start, piece.len) != taken >> piece.from)
        OB_FAIL(BLOCKS_E_USED, "some of these blocks are not reserved");
}

void blocks_use(uint64_t root, uint64_t start, uint64_t len)
{
    struct store store = store_of(root);
    check_run(&store, start, len);
    for (uint64_t done = 0; done < len;) {
        struct piece piece = piece_of(start + done, len - done);
        must_be_reserved(&store, start + done, piece);
        done += piece.len;
    }
    put_users(&store, start, len);
}

void blocks_drop(uint64_t root, uint64_t start, uint64_t len)
{
    struct store store = store_of(root);
    check_run(&store, start, len);
    count_free(&store, len);
    while (len > 0) {
        struct piece piece = piece_of(start, len);
        must_be_reserved(&store, start, piece);
        put_word(&store, piece.index, ob_get64(store.at[0] + piece.index * 8) & ~mask_of(piece));
        start += piece.len, len -= piece.len;
    }
}

uint64_t blocks_sweep(uint64_t root, uint64_t from, uint64_t most)
{
    struct store store = store_of(root);
    most = most < 64 ? 64 : most;
    uint64_t end = most < store.count - 1 && from < store.count - most ? from + most : store.count;
    uint64_t index = from / 64, words = words_of(end), freed = 0;
    for (; index < words; index++) {
        uint64_t start = index * 64, word = ob_get64(store.at[0] + index * 8);
        struct piece piece = piece_of(start, store.count - start);
        uint64_t reserved = word & mask_of(piece);
        if (reserved != 0)
            reserved &= unused(&store, start, piece.len);
        if (reserved == 0)
            continue;
        put_word(&store, index, word & ~reserved);
        freed += (uint64_t)__builtin_popcountll(reserved);
    }
    if (freed != 0)
        count_free(&store, freed);
    return index < words_of(store.count) ? index * 64 : 0;
}

/* Which blocks of a piece are free once they have a user less, or are no longer reserved. */
static uint64_t give_piece(const struct store *store, uint64_t start, struct piece piece)
{
    unsigned char users[64];
    uint64_t taken = ob_get64(store->at[0] + piece.index * 8) >> piece.from, free = 0;
    if ((~taken & mask_of((struct piece){0, 0, piece.len})) != 0)
        OB_FAIL(BLOCKS_E_FREE, "a block that is free already cannot be given");
    ob_get(store->users + start, users, piece.len);
    for (uint64_t at = 0; at < piece.len; at++) {
        users[at] -= users[at] != 0;
        free |= (uint64_t)(users[at] == 0) << (piece.from + at);
    }
    ob_put(store->users + start, users, piece.len);
    return free;
}

void blocks_give(uint64_t root, uint64_t start, uint64_t len)
{
    struct store store = store_of(root);
    check_run(&store, start, len);
    uint64_t freed = 0;
    while (len > 0) {
        struct piece piece = piece_of(start, len);
        uint64_t free = give_piece(&store, start, piece);
        if (free != 0)
            put_word(&store, piece.index, ob_get64(store.at[0] + piece.index * 8) & ~free);
        freed += (uint64_t)__builtin_popcountll(free);
        start += piece.len, len -= piece.len;
    }
    if (freed != 0)
        count_free(&store, freed);
}

uint64_t blocks_free(uint64_t root)
{
    struct store store = store_of(root);
    return ob_get64(store.root + FREE);
}

OB_ENTRY(init)
{
    const struct blocks_init_args *args = OB_ARGS(struct blocks_init_args);
    blocks_init(args->root, args->count);
    return 0;
}

static int64_t answer_run(struct blocks_run run)
{
    if (run.len == 0)
        OB_FAIL(BLOCKS_E_FULL, "no block is free");
    return ob_result(&run, sizeof run);
}

OB_ENTRY(take)
{
    const struct blocks_take_args *args = OB_ARGS(struct blocks_take_args);
    struct blocks_run run = {0, 0};
    run.len = blocks_take(args->root, args->goal, args->want, &run.start);
    return answer_run(run);
}

OB_ENTRY(reserve)
{
    const struct blocks_take_args *args = OB_ARGS(struct blocks_take_args);
    struct blocks_run run = {0, 0};
    run.len = blocks_reserve(args->root, args->goal, args->want, &run.start);
    return answer_run(run);
}

OB_ENTRY(use)
{
    const struct blocks_run_args *args = OB_ARGS(struct blocks_run_args);
    blocks_use(args->root, args->start, args->len);
    return 0;
}

OB_ENTRY(drop)
{
    const struct blocks_run_args *args = OB_ARGS(struct blocks_run_args);
    blocks_drop(args->root, args->start, args->len);
    return 0;
}

OB_ENTRY(sweep)
{
    const struct blocks_sweep_args *args = OB_ARGS(struct blocks_sweep_args);
    uint64_t next = blocks_sweep(args->root, args->from, args->most);
    return ob_result(&next, sizeof next);
}

OB_ENTRY(share)
{
    const struct blocks_run_args *args = OB_ARGS(struct blocks_run_args);
    blocks_share(args->root, args->start, args->len);
    return 0;
}

OB_ENTRY(give)
{
    const struct blocks_run_args *args = OB_ARGS(struct blocks_run_args);
    blocks_give(args->root, args->start, args->len);
    return 0;
}

OB_ENTRY(users)
{
    const struct blocks_users_args *args = OB_ARGS(struct blocks_users_args);
    struct store store = store_of(args->root);
    check_run(&store, args->block, 1);
    unsigned char users;
    ob_get(store.users + args->block, &users, 1);
    uint64_t result = users;
    return ob_result(&result, sizeof result);
}

OB_ENTRY(stats)
{
    uint64_t root = *OB_ARGS(uint64_t);
    struct store store = store_of(root);
    struct blocks_stats stats = {store.count, ob_get64(root + FREE), ob_get64(root + NEXT)};
    return ob_result(&stats, sizeof stats);
}
