/* table.h: a hash table in a region: keys of 1..1024 bytes, values of 0..65536 bytes.
 *
 * Executions use the entries, other modules the functions below. A client can also work on it by
 * one-sided verbs, at the same time: a get takes one Read for a small item and two for others, a
 * put that replaces an item a Write and a CompareSwap. All of these together are linearizable.
 *
 * THE HEADER, at the offset `root` (a multiple of 64), TABLE_HEADER_LEN bytes of 64-bit words:
 *   root +  0  magic TABLE_MAGIC
 *   root +  8  heap: offset of the allocator's state (alloc.h) that items come from
 *   root + 16  count of items. A client that inserts or removes one adds to it by FetchAdd
 *   root + 24  geometry: bits 0..7 level, 8..15 first level, 16..63 how many buckets were split
 *   root + 32  0, to root + 64
 *   root + 64  segments[40]: offsets of arrays of buckets
 *
 * WHICH BUCKET. hash = ob_hash(TABLE_SEED, key, len) (outboard.h). Linear hashing: with the
 * geometry's level L and split count S, the index is the hash's L low bits, or its L + 1 low bits
 * if the former is below S. With first level F: indexes below 2^F are in segments[0]; others, with
 * P = floor(log2(index)), in segments[P - F + 1] at index - 2^P. Segments never move, so a client
 * keeps header and segments, and reads them again when a bucket says that they are old:
 *
 * A BUCKET: TABLE_BUCKET_LEN = 128 bytes.
 *   + 0   meta: bits 0..7 depth, bits 8..35 link: offset / 16 of the next bucket of the chain, or 0
 *   + 8   slot[3], 64 bits each
 *   + 32  cell[3], 32 bytes each; cell i belongs to slot i
 * The bucket is the right one for a key if the hash's `depth` low bits are the bucket's index;
 * otherwise the table has grown: read the header again. All buckets of a chain have the first
 * one's depth: a client that finds another depth behind a link starts again.
 *
 * A SLOT holds one item or none; its two low bits say how:
 *   0 TABLE_EMPTY   bits 2..63 anything; changed whenever the slot becomes empty
 *   1 TABLE_ITEM    bits 2..9 fingerprint, 10..22 nonce, 23..35 units: the item's bytes / 16,
 *                   rounded up; 36..63 the item's offset / 16
 *   2 TABLE_INLINE  bits 2..9 fingerprint, 10..63 check of the cell
 * fingerprint = hash >> 56. The home slot of a key is (hash >> 40) % 3, in the first bucket.
 *
 * A CELL: u8 key length, u8 value length, key, value; 30 bytes of both at most.
 * check = ob_hash(TABLE_SEED, cell, 2 + key length + value length) >> 10.
 *
 * AN ITEM, at a multiple of 16: u64 check, u16 nonce, u16 key length, u32 value length, key, value.
 * check = ob_hash(ob_hash(the second word, key, key length), value, value length).
 *
 * A CLIENT'S GET. Read the bucket (128 bytes). For each slot of the key's fingerprint: inline: the
 * cell's check must fit, otherwise the Read was torn: read again; compare the key. Item: Read
 * 16 * units bytes at its offset; nonce and check must fit, otherwise the slot is old: start again;
 * compare the key. Follow the link. Not found, and no link was followed: the key was not there at
 * the time of the Read. Otherwise read the first bucket's meta again: if it is what it was, the key
 * was not there at some time during the Reads; if not, start again.
 *
 * A CLIENT'S PUT. Take memory for items from entry `take` beforehand. Find the key as above. Write
 * the item, with the next nonce if it replaces one, else with a random one; then, on the same
 * connection, CompareSwap the slot from what was read to TABLE_ITEM (a connection that was made
 * again may have lost the Write: the client library's write_then_swap does both on one). It was
 * there: the old item's memory (if it was one) is now the client's, for entry `give` or its next
 * put. The key was not there: only its home slot may be used, and only if it was read as empty;
 * otherwise execute entry `put`. The CompareSwap found something else: start again.
 *
 * A CLIENT'S REMOVAL. CompareSwap the slot to TABLE_EMPTY with random upper bits.
 *
 * Cells, links, geometry and everything else are changed by executions only.
 */
#ifndef TABLE_H
#define TABLE_H

#include "outboard.h"

#define TABLE_MAGIC 0x31656c626174626fu /* "obtable1" */
#define TABLE_SEED 0x7461626c65u
#define TABLE_HEADER_LEN 384u
#define TABLE_BUCKET_LEN 128u
#define TABLE_SLOTS 3u
#define TABLE_CELL_LEN 32u
#define TABLE_CELL_MAX 30u /* bytes of key and value in a cell, at most */
#define TABLE_KEY_MAX 1024u
#define TABLE_VALUE_MAX 65536u
#define TABLE_FIRST_MAX 14u /* log2 of the buckets that a table has at first, at most */
#define TABLE_SEGMENTS 40u
#define TABLE_SPLITS_MAX 500u

enum table_kind { TABLE_EMPTY = 0, TABLE_ITEM = 1, TABLE_INLINE = 2 };

enum table_error {
    TABLE_E_NO_TABLE = 32, /* no table was initialised at this offset */
    TABLE_E_KEY = 33,      /* the key has 0 bytes, or more than TABLE_KEY_MAX */
    TABLE_E_VALUE = 34,    /* the value has more than TABLE_VALUE_MAX bytes */
    TABLE_E_FULL = 35,     /* no room for the item */
    TABLE_E_RANGE = 36,    /* the place for a table is not in the region, or too small */
    TABLE_E_BROKEN = 37,   /* a chain has no end: bytes of the table were overwritten */
    TABLE_E_CHANGED = 38,  /* peers change the item faster than it can be read: try again */
};

/* ---- Entries ------------------------------------------------------------------------------ */

/* init: an empty table in [root, root + len): header, allocator's state, then everything else.
 * Forgets what was there. No result. */
struct table_init_args {
    uint64_t root, len; /* offset, a multiple of 64; bytes */
    uint64_t first;     /* log2 of the number of buckets at first, 0..TABLE_FIRST_MAX */
};
/* get, read-only. Behind the structure: the key. */
struct table_get_args {
    uint64_t root;
};
struct table_get_result {
    uint64_t found; /* 1: the value's bytes follow; 0: there is no such key */
};
/* put: inserts or replaces. Behind the structure: key, then value.
 * Result: uint64_t, 1 if an item was replaced. */
struct table_put_args {
    uint64_t root;
    uint32_t key_len, value_len; /* bytes */
};
/* delete. Behind the structure: the key. Result: uint64_t, 1 if there was one. */
struct table_delete_args {
    uint64_t root;
};
/* scan, read-only: items of whole buckets, from a bucket on. What is there all the time is
 * returned once or, if the table grows meanwhile, twice. */
struct table_scan_args {
    uint64_t root, cursor; /* 0 at first, then `next` of the result before */
    uint64_t limit;        /* stop behind the bucket with so many items in all */
};
struct table_scan_result {
    uint64_t next;  /* TABLE_SCAN_END: there are no more */
    uint64_t count; /* items that follow: u32 key length, u32 value length, key, value */
};
#define TABLE_SCAN_END UINT64_MAX
/* count, read-only. Arguments: uint64_t root. */
struct table_count_result {
    uint64_t items, buckets;
};
/* grow: splits so many buckets, as inserting does by and by. Result: uint64_t buckets now. */
struct table_grow_args {
    uint64_t root, splits; /* 0..TABLE_SPLITS_MAX */
};
/* take: memory for a client's own items. Result: uint64_t offsets[number]. */
struct table_take_args {
    uint64_t root, len, number; /* bytes of each, with key, value and 16 more; 1..256 of them */
};
/* give: a client gives back memory of an item. No result. */
struct table_give_args {
    uint64_t root, item; /* offset */
};

/* ---- Functions for other modules ---------------------------------------------------------- */

#ifdef TABLE_OWN
#define TABLE_FUNCTION(name) OB_EXPORT(name)
#else
#include "hashes.h"
#define TABLE_FUNCTION(name) OB_IMPORT(OB_MODULE_TABLE, name)
#endif

/* Where an item was found. */
struct table_place {
    uint64_t slot, word, cell; /* the slot's offset, what it holds, its cell's offset */
    uint64_t value, value_len; /* offset, bytes */
    uint64_t first, hash;      /* offset of the chain's first bucket; hash of the key */
};

/* Makes an empty table, as entry `init`. WRITES. */
TABLE_FUNCTION(table_init) void table_init(uint64_t root, uint64_t len, uint64_t first);
/* Finds an item; false if there is none. Fails with TABLE_E_NO_TABLE, _KEY, _BROKEN. */
TABLE_FUNCTION(table_find)
bool table_find(uint64_t root, const void *key, uint64_t key_len, struct table_place *place);
/* Finds an item and copies its value, whole even while peers change it: `cap` bytes at most.
 * Returns the value's length, or TABLE_NONE. Fails as table_find, and with TABLE_E_CHANGED. */
TABLE_FUNCTION(table_get)
uint64_t table_get(uint64_t root, const void *key, uint64_t key_len, void *value, uint64_t cap);
#define TABLE_NONE UINT64_MAX
/* The same, and names what was found (or that nothing was): if a peer changes it before this
 * execution commits, the execution is run again. For entries that write; in others it costs a
 * commit. */
TABLE_FUNCTION(table_get_named)
uint64_t table_get_named(uint64_t root, const void *key, uint64_t key_len, void *value,
                         uint64_t cap);
/* Inserts or replaces; true if it replaced. Fails with any of table_error. WRITES. */
TABLE_FUNCTION(table_put)
bool table_put(uint64_t root, const void *key, uint64_t key_len, const void *value,
               uint64_t value_len);
/* Removes; true if there was one. WRITES. */
TABLE_FUNCTION(table_delete)
bool table_delete(uint64_t root, const void *key, uint64_t key_len);
/* Copies items of whole buckets, as entry `scan`, to `out`; returns bytes with the result's
 * structure in front. */
TABLE_FUNCTION(table_scan)
uint64_t table_scan(uint64_t root, uint64_t cursor, uint64_t limit, void *out, uint64_t cap);

#endif
