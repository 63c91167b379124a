/* blocks.h: which blocks of a store outside the region are free, and how many users each other one
 * has. It moves no bytes: a block is a number below `count`, its size is its users' affair.
 *
 * The state lives in the region, at an offset that the caller chooses (`root`). A block that nobody
 * uses is free; taking it gives it one user, sharing one more, up to BLOCKS_USERS_MAX. Blocks are
 * taken in runs. Taking one costs the same however many there are: above the bits of all blocks
 * there are levels that say where a free one is.
 *
 * A block may also be reserved: taken, but without a user, until it is used, or given. Whoever
 * cannot know any more what was reserved (because it has crashed) sweeps: all of them are free
 * then.
 *
 * LAYOUT (all words 64 bits, little-endian; all offsets from root):
 *   +  0  magic BLOCKS_MAGIC
 *   +  8  count: how many blocks there are
 *   + 16  free: how many of them are free
 *   + 24  next: where the next search without a goal begins
 *   + 32  0 (32 bytes)
 *   + 64  levels: level 0 has a bit for each block, set if it is not free; bit n of each further
 *         level is set if word n of the level below is all ones. The last level has one word. Bits
 *         behind a level's last one are set.
 *   then  users: one byte for each block, 0 if it is free or reserved
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "outboard.h"

#define BLOCKS_MAGIC 0x316b6c626f626fu /* "obolbk1" */
#define BLOCKS_HEADER_LEN 64u
#define BLOCKS_LEVELS_MAX 6u
/* Blocks: 256 TiB of 4 KiB each. */
#define BLOCKS_MAX ((uint64_t)1 << 36)
/* Blocks that one call takes, shares or gives. */
#define BLOCKS_RUN_MAX 4096u
/* Users of one block. */
#define BLOCKS_USERS_MAX 255u

/* Failures: codes of the entries, and of the functions where they say so. */
enum blocks_error {
    BLOCKS_E_NO_STORE = 112, /* no store of blocks was initialised at this offset */
    BLOCKS_E_FULL = 113,     /* no block is free */
    BLOCKS_E_RANGE = 114,    /* no blocks of the store, or more than BLOCKS_RUN_MAX */
    BLOCKS_E_FREE = 115,     /* some of the blocks are free */
    BLOCKS_E_USERS = 116,   /* some of the blocks have as many users as one can have */
    BLOCKS_E_USED = 117,    /* some of the blocks have users, or are free, and are not reserved */
};

/* ---- Entries ------------------------------------------------------------------------------ */

/* init: all blocks are free. The BLOCKS_LEN bytes at root must be zero. No result. */
struct blocks_init_args {
    uint64_t root, count;
};
/* take: result struct blocks_run; as many blocks as there are in one place, at least one. reserve:
 * the same, and they have no users. */
struct blocks_take_args {
    uint64_t root, goal, want; /* where to look first, BLOCKS_ANYWHERE for behind the last one */
};
struct blocks_run {
    uint64_t start, len;
};
/* share: one user more for each block. give: one less; free without any, and if it was reserved.
 * use: the first user for each reserved block. drop: frees reserved blocks. No results. */
struct blocks_run_args {
    uint64_t root, start, len;
};
/* users, read-only: result uint64_t, how many users a block has. */
struct blocks_users_args {
    uint64_t root, block;
};
/* sweep: frees reserved blocks: result uint64_t, where to go on, 0 at the end. */
struct blocks_sweep_args {
    uint64_t root, from, most;
};
/* stats, read-only. Arguments: uint64_t root. */
struct blocks_stats {
    uint64_t count, free, next;
};

#define BLOCKS_ANYWHERE UINT64_MAX
#define BLOCKS_ALL UINT64_MAX

/* ---- Functions for other modules ---------------------------------------------------------- */

#ifdef BLOCKS_OWN
#define BLOCKS_FUNCTION(name) OB_EXPORT(name)
#else
#include "hashes.h"
#define BLOCKS_FUNCTION(name) OB_IMPORT(OB_MODULE_BLOCKS, name)
#endif

/* Bytes of the state for so many blocks. */
BLOCKS_FUNCTION(blocks_len) uint64_t blocks_len(uint64_t count);
/* Makes all blocks free, in bytes that are zero. Fails with BLOCKS_E_RANGE. WRITES. */
BLOCKS_FUNCTION(blocks_init) void blocks_init(uint64_t root, uint64_t count);
/* Takes up to `want` blocks in one place, at `goal` or behind it, else anywhere. Returns how many,
 * and where; 0 if none is free. Fails with BLOCKS_E_NO_STORE. WRITES. */
BLOCKS_FUNCTION(blocks_take)
uint64_t blocks_take(uint64_t root, uint64_t goal, uint64_t want, uint64_t *start);
/* One user more for each. Fails with BLOCKS_E_NO_STORE, _RANGE, _FREE, _USERS. WRITES. */
BLOCKS_FUNCTION(blocks_share) void blocks_share(uint64_t root, uint64_t start, uint64_t len);
/* As blocks_take, and they have no users. WRITES. */
BLOCKS_FUNCTION(blocks_reserve)
uint64_t blocks_reserve(uint64_t root, uint64_t goal, uint64_t want, uint64_t *start);
/* The first user for each reserved block. Fails with BLOCKS_E_NO_STORE, _RANGE, _USED. WRITES. */
BLOCKS_FUNCTION(blocks_use) void blocks_use(uint64_t root, uint64_t start, uint64_t len);
/* Frees reserved blocks. Fails with BLOCKS_E_NO_STORE, _RANGE, _USED. WRITES. */
BLOCKS_FUNCTION(blocks_drop) void blocks_drop(uint64_t root, uint64_t start, uint64_t len);
/* Frees all reserved blocks in [from, from + most), rounded to multiples of 64; returns where to go
 * on, 0 at the end. Fails with BLOCKS_E_NO_STORE. WRITES. */
BLOCKS_FUNCTION(blocks_sweep) uint64_t blocks_sweep(uint64_t root, uint64_t from, uint64_t most);
/* One user less for each; one that is reserved is free. Fails with BLOCKS_E_NO_STORE, _RANGE,
 * _FREE. WRITES. */
BLOCKS_FUNCTION(blocks_give) void blocks_give(uint64_t root, uint64_t start, uint64_t len);
/* How many blocks are free. Fails with BLOCKS_E_NO_STORE. */
BLOCKS_FUNCTION(blocks_free) uint64_t blocks_free(uint64_t root);

#endif
