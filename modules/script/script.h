/* script.h: what Redis scripts are mostly written for, on a table of table.h.
 *
 * All entries work on a table at `root`, which `init` makes. A value has 8 bytes in front: when it
 * expires, in ns since 1970 by the node's wall clock, or 0 for never. What has expired is not there
 * any more for get, cas and incr; its memory is used again after `sweep`, or when the key is put.
 * The time is one moment for a whole execution.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include "outboard.h"

#define SCRIPT_VALUE_MAX 65528u /* bytes of a value */
#define SCRIPT_KEYS_MAX 64u     /* keys of one cas */

enum script_error {
    SCRIPT_E_ARGS = 96,   /* the lengths in the arguments do not fit them */
    SCRIPT_E_NUMBER = 97, /* incr: the value is no number of 8 bytes */
    SCRIPT_E_VALUE = 98,  /* the value has more than SCRIPT_VALUE_MAX bytes */
};

/* init: an empty table in [root, root + len), as table's own init. No result. */
struct script_init_args {
    uint64_t root, len, first; /* see struct table_init_args */
};
/* set: stores a value. Behind the structure: key, then value.
 * Result: uint64_t, 1 if it replaced a value that had not expired. */
struct script_set_args {
    uint64_t root;
    uint64_t ttl_ns; /* how long it is there; 0 for ever */
    uint32_t key_len, value_len;
};
/* get, read-only. Behind the structure: the key. */
struct script_get_args {
    uint64_t root;
};
struct script_get_result {
    uint64_t found;     /* 1: the value follows; 0: it is not there, or has expired */
    uint64_t expiry_ns; /* since 1970; 0: never */
};
/* delete. Behind the structure: the key. Result: uint64_t, 1 if it was there. */
struct script_delete_args {
    uint64_t root;
};
/* incr: adds to a number of 8 bytes, which is 0 if it is not there; its expiry stays as it is.
 * Behind the structure: the key. Result: uint64_t, the sum. */
struct script_incr_args {
    uint64_t root, delta;
};
/* limit: a rate limiter, at most `limit` in each window of `window_ns`, which begins with the first
 * call after the one before has ended. Behind the structure: the key. */
struct script_limit_args {
    uint64_t root, limit, window_ns;
    uint64_t cost; /* how many at once, usually 1 */
};
struct script_limit_result {
    uint64_t allowed;  /* 1: counted; 0: it would be too many, nothing is counted */
    uint64_t left;     /* how many more in this window */
    uint64_t reset_ns; /* nanoseconds until the window ends */
};
/* cas: stores several values if all keys have the values that are expected, or none. Behind the
 * structure: `number` of struct script_cas_key, then for each its key, expected value, new value,
 * one behind the other. */
struct script_cas_args {
    uint64_t root, number; /* 1..SCRIPT_KEYS_MAX, all keys different */
};
struct script_cas_key {
    uint32_t key_len;
    uint32_t expected_len; /* SCRIPT_ABSENT: the key must not be there */
    uint32_t value_len;    /* SCRIPT_ABSENT: the key is deleted */
    uint32_t unused;
    uint64_t ttl_ns;
};
#define SCRIPT_ABSENT UINT32_MAX
struct script_cas_result {
    uint64_t stored; /* 1: all; 0: none */
    uint64_t failed; /* the first key that is not as expected; number if all are */
};
/* sweep: deletes what has expired, in some of the table's buckets from a cursor on. */
struct script_sweep_args {
    uint64_t root, cursor; /* 0 at first, then `next` of the result before */
    uint64_t items;        /* look at about so many, up to 1000 */
};
struct script_sweep_result {
    uint64_t next;    /* UINT64_MAX: that was the last bucket */
    uint64_t deleted;
};

#endif
