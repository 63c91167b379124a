/* topk.h: the k records with the largest values, of an array in a region, that a predicate selects.
 *
 * A record has 16 to 64 bytes, a multiple of 8: u64 key, u64 value, then anything. The scan reads
 * the region's own pages; it does not wait for peers, and can see half of what one Writes.
 */
#ifndef TOPK_H
#define TOPK_H

#include "outboard.h"

#define TOPK_K_MAX 1000u

enum topk_error {
    TOPK_E_ARGS = 80, /* record length, number or k is out of range */
};

/* Which records are selected. */
enum topk_predicate {
    TOPK_ALL = 0,
    TOPK_KEY_RANGE = 1,   /* a <= key <= b */
    TOPK_VALUE_BELOW = 2, /* value < a */
    TOPK_KEY_MASK = 3,    /* (key & a) == b */
};

/* top, read-only. */
struct topk_args {
    uint64_t offset, number; /* of the first record, a multiple of 8; how many there are */
    uint32_t record_len;     /* bytes: 16, 24 ... 64 */
    uint32_t k;              /* 1..TOPK_K_MAX */
    uint32_t predicate, unused;
    uint64_t a, b;
};
/* Result: the structure, then `count` of struct topk_record, the largest value first; of equal
 * values the earlier record first. */
struct topk_result {
    uint64_t count, selected; /* how many follow; how many the predicate selects */
};
struct topk_record {
    uint64_t key, value, index; /* index: its place in the array */
};

#endif
