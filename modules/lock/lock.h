/* lock.h: locks by name, with leases and fencing tokens.
 *
 * A lock is held until it is released or its lease has passed by the node's wall clock, which an
 * execution sees as one moment. Each grant of a lock has a token that is larger than all before:
 * give it to whatever the lock protects, which refuses smaller ones, because the holder of a lease
 * cannot know how long it was asleep. Tokens are never given twice, names never forgotten.
 *
 * LAYOUT (64-bit words, little-endian). The locks, at `root` (a multiple of 128):
 *   root +  0  magic LOCK_MAGIC
 *   root +  8  entries: a power of two
 *   root + 16  used: entries with a name
 *   root + 128 entry[entries], LOCK_ENTRY_LEN = 128 bytes each
 * An entry:
 *   +  0 word: bits 0..39 expiry, in ms since LOCK_EPOCH_MS, 0 when it was released;
 *              bits 40..63 the token's 24 low bits
 *   +  8 token: of the latest grant, or a little less, see below
 *   + 16 owner: of the latest grant, for people
 *   + 24 hash: ob_hash(LOCK_SEED, name, len), 0 for an unused entry
 *   + 32 u16 name length, 1..94; then the name
 * A name is in the first entry from hash % entries on, going round, that has it, before any
 * unused one. Entries are made by executions only (entry `locate` does nothing else).
 *
 * ONE-SIDED CLIENTS take a lock by a Read of its entry and a CompareSwap of its word. The token of
 * the latest grant is the smallest number >= token whose low 24 bits are the word's. To acquire
 * when the expiry is in the past (their clock must be near the node's): CompareSwap to the new
 * expiry and the next token; then Write token and owner, in this order. To renew: CompareSwap to a
 * later expiry. To release: CompareSwap the expiry to 0.
 */
#ifndef LOCK_H
#define LOCK_H

#include "outboard.h"

#define LOCK_MAGIC 0x316b636f6c626fu /* "oblock1" */
#define LOCK_SEED 0x6c6f636bu
#define LOCK_HEADER_LEN 128u
#define LOCK_ENTRY_LEN 128u
#define LOCK_NAME_MAX 94u
/* 2020-01-01 00:00 UTC, in ms since 1970. Expiries reach to 2054. */
#define LOCK_EPOCH_MS 1577836800000u
/* The longest lease, in ns: 24 hours. */
#define LOCK_LEASE_MAX 86400000000000u

enum lock_error {
    LOCK_E_NO_LOCKS = 64, /* no locks were initialised at this offset */
    LOCK_E_FULL = 65,     /* no entry is left for another name */
    LOCK_E_RANGE = 66,    /* the place for locks is not in the region, or their number is wrong */
    LOCK_E_NAME = 67,     /* the name has 0 bytes, or more than LOCK_NAME_MAX */
    LOCK_E_LEASE = 68,    /* the lease is 0, or more than LOCK_LEASE_MAX */
};

/* init: locks for so many names. Forgets what was there. No result. */
struct lock_init_args {
    uint64_t root, entries; /* offset, a multiple of 128; a power of two up to 16384 */
};
/* acquire: takes a lock that is free or whose lease has passed. Behind the structure: the name. */
struct lock_acquire_args {
    uint64_t root, owner; /* owner: any number, for people */
    uint64_t lease_ns;    /* rounded up to ms */
};
/* renew: makes the lease end `lease_ns` from now. Behind the structure: the name. */
struct lock_renew_args {
    uint64_t root, token, lease_ns;
};
/* release. Behind the structure: the name. */
struct lock_release_args {
    uint64_t root, token;
};
/* Result of acquire, renew, release and look. */
struct lock_result {
    uint64_t status;    /* enum lock_status */
    uint64_t token;     /* of the latest grant */
    uint64_t owner;     /* of the latest grant */
    uint64_t expiry_ms; /* when its lease ends, since 1970; 0 if it was released */
};
enum lock_status {
    LOCK_FREE = 0,    /* look: nobody holds it */
    LOCK_GRANTED = 1, /* acquire, renew: it is yours; release: it was, until now */
    LOCK_HELD = 2,    /* acquire, look: somebody holds it */
    LOCK_LOST = 3,    /* renew, release: the lease of this token has passed, or was released */
};
/* look, read-only. Behind the structure: the name. */
struct lock_look_args {
    uint64_t root;
};
/* locate: makes an entry for a name. Behind the structure: the name.
 * Result: uint64_t offset of the entry. */
struct lock_locate_args {
    uint64_t root;
};

#endif
