/* alloc.h: memory inside a region, for other modules and for clients.
 *
 * The allocator's state lives in the region, at an offset that the caller chooses (`heap`), and so
 * survives whatever the region survives. A block is named by its offset, is a multiple of 16, and
 * has 16 bytes of its own in front. Sizes are rounded up to classes, four to each power of two:
 * at most a fifth of a block is lost. Freed blocks wait in a list for their class; they are not
 * joined. Taking and giving cost the same however much is taken.
 *
 * LAYOUT, for clients that look by one-sided Reads (all words 64 bits, little-endian):
 *   heap +  0  magic ALLOC_MAGIC
 *   heap +  8  end: behind the last byte that it hands out
 *   heap + 16  next: first byte that was never handed out
 *   heap + 24  blocks: how many are taken now
 *   heap + 32  bytes: how many are taken now, with their 16 bytes each
 *   heap + 40  0
 *   heap + 48  free[ALLOC_CLASSES]: first free block of each class (its offset), 0 for none
 *   block - 16 tag: tells taken from free and from no block at all, by block and class
 *   block -  8 while free: the next free block of the class, 0 for none
 */
#ifndef ALLOC_H
#define ALLOC_H

#include "outboard.h"

#define ALLOC_MAGIC 0x31636f6c6c616f62u /* "oballoc1" */
/* Blocks of 16, 32, 48, 64 bytes, then four sizes for each power of two: 80, 96, 112, 128 ... */
#define ALLOC_CLASSES 112u
/* Bytes of the state. */
#define ALLOC_STATE_LEN (48u + 8u * ALLOC_CLASSES)
/* Bytes of the largest block. */
#define ALLOC_MAX (1ull << 31)

/* Failures: codes of the entries, and of the functions where they say so. */
enum alloc_error {
    ALLOC_E_NO_HEAP = 16,   /* no allocator was initialised at this offset */
    ALLOC_E_FULL = 17,      /* no room for a block of this size */
    ALLOC_E_NO_BLOCK = 18,  /* no block begins at this offset (foreign, or in the middle of one) */
    ALLOC_E_FREE = 19,      /* the block is free already */
    ALLOC_E_RANGE = 20,     /* the heap's range is no range of the region, or too small */
};

/* ---- Entries ------------------------------------------------------------------------------ */

/* init: an empty heap with its state at `heap`, handing out [start, end). Forgets what was there.
 * The state may lie in front of the range, never inside. No result. */
struct alloc_init_args {
    uint64_t heap, start, end; /* offsets */
};
/* take: result uint64_t offset of a new block; its bytes are whatever they were. */
struct alloc_take_args {
    uint64_t heap, len; /* bytes, 1..ALLOC_MAX */
};
/* give: frees a block. No result. */
struct alloc_give_args {
    uint64_t heap, block; /* offset, as `take` returned it */
};
/* stats, read-only. Arguments: uint64_t heap. */
struct alloc_stats {
    uint64_t blocks, bytes;   /* taken now; bytes with the 16 of each block */
    uint64_t untouched_bytes; /* never handed out so far */
};

/* ---- Functions for other modules ---------------------------------------------------------- */

#ifdef ALLOC_OWN
#define ALLOC_FUNCTION(name) OB_EXPORT(name)
#else
#include "hashes.h"
#define ALLOC_FUNCTION(name) OB_IMPORT(OB_MODULE_ALLOC, name)
#endif

/* Makes an empty heap. Fails with ALLOC_E_RANGE. WRITES. */
ALLOC_FUNCTION(alloc_init) void alloc_init(uint64_t heap, uint64_t start, uint64_t end);
/* A block's offset; 0 if there is no room. Fails with ALLOC_E_NO_HEAP. WRITES. */
ALLOC_FUNCTION(alloc_take) uint64_t alloc_take(uint64_t heap, uint64_t len);
/* Frees a block. Fails with ALLOC_E_NO_HEAP, _NO_BLOCK, _FREE. WRITES. */
ALLOC_FUNCTION(alloc_give) void alloc_give(uint64_t heap, uint64_t block);
/* Bytes that a taken block can hold. Fails with ALLOC_E_NO_BLOCK, _FREE. */
ALLOC_FUNCTION(alloc_len) uint64_t alloc_len(uint64_t heap, uint64_t block);

#endif
