/* list.h: a singly linked list in a region, as in the paper "Active RDMA": each hop is a dependent
 * access, which costs a client a round trip and an execution a few nanoseconds.
 *
 * LAYOUT (64-bit words, little-endian). The list, at offset `root`, LIST_HEADER_LEN bytes:
 *   root +  0  magic LIST_MAGIC
 *   root +  8  head: offset of the first node, 0 for none. Also a list's only `next` outside nodes
 *   root + 16  end: behind the last byte for nodes
 *   root + 24  fresh: the first byte that never was a node
 *   root + 32  free: first removed node, linked by `next` with LIST_REMOVED set, 0 for none
 *   root + 40  count of nodes that executions have linked and not removed
 * A node, LIST_NODE_LEN = 64 bytes, at a multiple of 64:
 *   + 0  next: offset of the next node, 0 at the end; bit 0 (LIST_REMOVED) if it was removed
 *   + 8  key
 *   + 16 value length, 0..40
 *   + 24 value
 *
 * ONE-SIDED CLIENTS walk by Reads of 64 bytes. To put, they take nodes by entry `take`, Write all
 * but `next` and then `next` = 0 (at the end) or the follower, and CompareSwap the `next` of the
 * node in front, from what they have read. Its bit 0 keeps them from linking behind a node that was
 * removed. Removed nodes become nodes of the same list again, never anything else. Removing is for
 * executions. A walk that meets LIST_REMOVED starts again.
 */
#ifndef LIST_H
#define LIST_H

#include "outboard.h"

#define LIST_MAGIC 0x317473696c626fu /* "oblist1" */
#define LIST_HEADER_LEN 64u
#define LIST_NODE_LEN 64u
#define LIST_VALUE_MAX 40u
#define LIST_REMOVED 1u
/* Hops that lead to the end of any list. */
#define LIST_END UINT64_MAX

enum list_error {
    LIST_E_NO_LIST = 48, /* no list was initialised at this offset */
    LIST_E_FULL = 49,    /* no room for a node */
    LIST_E_RANGE = 50,   /* the place for a list is not in the region, or too small */
    LIST_E_VALUE = 51,   /* the value has more than LIST_VALUE_MAX bytes */
};

struct list_node {
    uint64_t next, key, value_len;
    uint8_t value[LIST_VALUE_MAX];
};

/* init: an empty list in [root, root + len): the header, then room for nodes. No result. */
struct list_init_args {
    uint64_t root, len; /* offset, a multiple of 64; bytes */
};
/* put: a new node behind `hops` nodes: 0 puts it first, LIST_END or any number that is too large
 * puts it last. Behind the structure: the value. Result: uint64_t offset of the node. */
struct list_put_args {
    uint64_t root, hops, key;
};
/* get, read-only: the first node with this key, and how many nodes are in front of it. */
struct list_get_args {
    uint64_t root, key;
};
/* at, read-only: the node behind `hops` nodes. */
struct list_at_args {
    uint64_t root, hops;
};
/* Result of get and at: the structure, then the value if there is such a node. */
struct list_get_result {
    uint64_t found; /* 1, or 0 */
    uint64_t hops;  /* nodes in front of it; all nodes if it was not found */
    uint64_t node;  /* its offset */
    uint64_t key;
};
/* remove: the first node with this key. Result: uint64_t, 1 if there was one. */
struct list_remove_args {
    uint64_t root, key;
};
/* count, read-only. Arguments: uint64_t root. Result: uint64_t nodes, by counting them. */

/* take: nodes for a client to put by one-sided verbs. Result: uint64_t offsets[number]. */
struct list_take_args {
    uint64_t root, number; /* 1..256 */
};

#endif
