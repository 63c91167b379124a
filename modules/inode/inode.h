/* inode.h: inodes and where their bytes are: from a number to a record of 256 bytes, from a file's
 * blocks to blocks of a store outside the region (blocks.h).
 *
 * The state lives in the region, at an offset that the caller chooses (`root`), beside an allocator
 * (`heap`) and a store of blocks (`blocks`) of the caller's. An inode's number is its place, so a
 * client finds the record by one Read; numbers are used again, with another generation. A record
 * is read and put whole: it has a check word over all of it, so that whoever reads it one-sided
 * notices half of a change. What an inode is for (names, rights, times) is its user's affair.
 *
 * A file's bytes are extents: runs of blocks of INODE_BLOCK_LEN bytes, in order, holes between
 * them. Up to eight are in the record; more are in a tree of nodes of 512 bytes whose root is in the
 * record. Whoever maps other blocks into a file gives the old ones back; blocks with several users
 * (files that were copied) have one less. Blocks are reserved (blocks.h) before they are mapped.
 *
 * A file may have more extents than one execution can give back. `inode_cut` counts about how many
 * lines of the region it writes, and stops; `inode_split` moves all that is behind a place into
 * another record's tree, however much it is, along one path from the root to a leaf.
 *
 * LAYOUT (all words 64 bits, little-endian; offsets from root):
 *   +  0  magic INODE_MAGIC
 *   +  8  heap, + 16 blocks: their offsets
 *   + 24  next: the first number that was never used
 *   + 32  free: a number to be used again, 0 for none; the next one is in its record's `parent`
 *   + 40  count: inodes in use
 *   + 64  segments[INODE_SEGMENTS]: offsets of arrays of records. Numbers below 64 are in segment 0;
 *         a number of which bit p is the highest one is in segment p - 5, at number - 2^p.
 *   record: struct inode below.
 *   node: 16 bytes (level u32, count u32, 0 u64), then entries of 16 bytes: first block of the file,
 *         and on level 0 block of the store << 28 | length, above it the offset of a node that has
 *         what begins there or behind: at that very key, but for the first node of each level, which
 *         also has what comes before its entry's.
 */
#ifndef INODE_H
#define INODE_H

#include "outboard.h"

#define INODE_MAGIC 0x31646f6e69626fu /* "obinod1" */
#define INODE_HEADER_LEN 320u
#define INODE_SEGMENTS 32u
/* Bytes of a block, and blocks of one extent at most. */
#define INODE_BLOCK_LEN 4096u
#define INODE_EXTENT_MAX 4096u
#define INODE_ROOT_ENTRIES 8u
#define INODE_NODE_ENTRIES 31u
#define INODE_LEVELS_MAX 12u

/* Failures: codes of the entries, and of the functions where they say so. */
enum inode_error {
    INODE_E_NO_STORE = 128, /* no inodes were initialised at this offset */
    INODE_E_NONE = 129,     /* no inode has this number */
    INODE_E_FULL = 130,     /* the region has no room for it */
    INODE_E_RANGE = 131,    /* no blocks that a file can have */
    INODE_E_MAPPED = 132,   /* the file has blocks there already */
    INODE_E_BROKEN = 133,   /* a tree that no such code has written */
};

/* An entry of a node, or of a record's own. */
struct inode_entry {
    uint64_t key, value;
};

/* A record. Whoever changes it calls inode_put, which sets `check` and counts `version` up. */
struct inode {
    uint64_t check;
    uint32_t generation, mode; /* mode 0: not in use */
    uint32_t uid, gid;
    uint32_t nlink, holds;
    uint64_t size;   /* bytes */
    uint64_t blocks; /* that are mapped */
    int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
    uint64_t version; /* of the record: higher after each change */
    uint64_t parent;  /* of a directory */
    uint64_t rdev, xattrs, body;
    uint16_t level, tenant;  /* level: of the tree's root; tenant: its user's, who pays */
    uint32_t entries;        /* of the tree's root */
    struct inode_entry entry[INODE_ROOT_ENTRIES];
};
_Static_assert(sizeof(struct inode) == 256, "a record");

/* Blocks of a file in one place of the store. */
struct inode_extent {
    uint64_t file, block, len;
};

/* Blocks of one file, and where in another one they go. */
struct inode_run {
    uint64_t file, len, to;
};

/* About how many lines giving an extent of so many blocks back writes, and mapping one. */
#define INODE_CUT_LINES(len) (3 + (len) / 48)
#define INODE_MAP_LINES(len) (12 + (len) / 48)

/* ---- Entries: for tests, and for whoever looks --------------------------------------------- */

/* init: no inodes. No result. */
struct inode_init_args {
    uint64_t root, heap, blocks; /* of alloc and of blocks, which are initialised */
};
/* new: result uint64_t number of an inode of size 0 with this mode (not 0). */
struct inode_new_args {
    uint64_t root, mode;
};
/* get, read-only: result struct inode. drop: gives back all that it has. No result. */
struct inode_args {
    uint64_t root, number;
};
/* map: takes that many blocks for the file from there on, instead of those it has there. No result.
 * cut: no blocks there any more. No result.
 * extents, read-only: result struct inode_extent[], those of these blocks, as far as there is room. */
struct inode_range_args {
    uint64_t root, number, file, len;
};
/* share: has the file `to` these blocks of `number` as well, instead of its own. No result. */
struct inode_share_args {
    uint64_t root, number, file, len, to;
};
/* split: moves what a file has at the block `file` and behind it to the file `to`, which has none.
 * No result. */
struct inode_split_args {
    uint64_t root, number, file, to;
};

/* ---- Functions for other modules ---------------------------------------------------------- */

#ifdef INODE_OWN
#define INODE_FUNCTION(name) OB_EXPORT(name)
#else
#include "hashes.h"
#define INODE_FUNCTION(name) OB_IMPORT(OB_MODULE_INODE, name)
#endif

/* All may fail with INODE_E_NO_STORE, and those that write with INODE_E_FULL. */

/* Makes a store without inodes. WRITES. */
INODE_FUNCTION(inode_init) void inode_init(uint64_t root, uint64_t heap, uint64_t blocks);
/* A new inode's number; `inode` is its record, all 0 but for mode, generation and version. The
 * caller puts it. WRITES. */
INODE_FUNCTION(inode_new) uint64_t inode_new(uint64_t root, uint32_t mode, struct inode *inode);
/* Reads a record; false if no inode has this number. */
INODE_FUNCTION(inode_find) bool inode_find(uint64_t root, uint64_t number, struct inode *inode);
/* Reads a record. Fails with INODE_E_NONE. */
INODE_FUNCTION(inode_get) void inode_get(uint64_t root, uint64_t number, struct inode *inode);
/* Puts a record. WRITES. */
INODE_FUNCTION(inode_put) void inode_put(uint64_t root, uint64_t number, struct inode *inode);
/* Gives back the number of an inode that has no blocks any more. `xattrs` and `body` are the
 * caller's. Fails with INODE_E_MAPPED. WRITES. */
INODE_FUNCTION(inode_drop) void inode_drop(uint64_t root, uint64_t number, struct inode *inode);
/* How many inodes can be made without memory for more records. */
INODE_FUNCTION(inode_room) uint64_t inode_room(uint64_t root);
/* The first extent that ends behind a block of the file, whole; false if there is none. Fails with
 * INODE_E_BROKEN. */
INODE_FUNCTION(inode_extent)
bool inode_extent(const struct inode *inode, uint64_t file, struct inode_extent *extent);
/* Maps reserved blocks, which become the file's, into a hole. The caller puts the record. Fails
 * with INODE_E_RANGE, _MAPPED, BLOCKS_E_USED. WRITES. */
INODE_FUNCTION(inode_map)
void inode_map(uint64_t root, struct inode *inode, const struct inode_extent *extent);
/* Gives back what the file has in [file, file + len), as long as `lines`, from which it takes
 * INODE_CUT_LINES for each extent, lasts. False if there is more, which a further execution may
 * cut. The caller puts the record. WRITES. */
INODE_FUNCTION(inode_cut)
bool inode_cut(uint64_t root, struct inode *inode, uint64_t file, uint64_t len, uint64_t *lines);
/* Moves what the file has at `file` and behind it into the tree of `rest`, which has nothing. The
 * caller puts both records. Reads the smaller one of both trees, to count its blocks. WRITES. */
INODE_FUNCTION(inode_split)
void inode_split(uint64_t root, struct inode *inode, uint64_t file, struct inode *rest);
/* Maps what one file has in a run into another one, too, or the same one elsewhere, which has holes
 * there, as long as `lines` lasts. False if there is more. The caller puts the record of `to`.
 * Fails with INODE_E_RANGE, _MAPPED, BLOCKS_E_USERS. WRITES. */
INODE_FUNCTION(inode_share)
bool inode_share(uint64_t root, const struct inode *from, const struct inode_run *run,
                 struct inode *to, uint64_t *lines);

#endif
