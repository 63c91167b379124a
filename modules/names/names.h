/* names.h: directories: from a directory and a name to an inode's number, and all names in an order
 * that stays while others come and go.
 *
 * The state lives in the region: a table (table.h) with an item for each name of all directories,
 * and for each directory a header and records that follow each other, in memory of the table's
 * heap. A name is any 1 to 255 bytes. A directory is named by a number of its user's (`parent`, its
 * inode) and by its header's offset (`dir`). Finding, adding and removing cost the same however
 * many names there are.
 *
 * A name's place (`at`) never changes while it is there, and a new name takes a place that was
 * freed, or one behind all others. So whoever goes on behind the place where it stopped sees every
 * name that was there all the time exactly once.
 *
 * LAYOUT (little-endian):
 *   item   key: u64 parent, the name. Value, 12 bytes: u64 number | kind << 56, u32 place / 16
 *   dir +   0  count: names, + 8 end: the first place behind all records
 *   dir +  16  free[16]: the first free place for a record of 32, 48 ... 272 bytes, + 1; 0: none
 *   dir + 144  segments[22]: offsets of memory for places: segment 0 has [0, 512), segment n those
 *              from 512 * 2^(n-1) up to 512 * 2^n
 *   record  16 bytes (u64 number, 0 if it is free; u8 kind; u8 length of the name; u16 length of the
 *           record; u32 0), then the name, or u64 the next free place + 1. A multiple of 16; none
 *           reaches over a segment's end.
 */
#ifndef NAMES_H
#define NAMES_H

#include "outboard.h"

#define NAMES_MAX 255u          /* bytes of a name */
#define NAMES_NUMBER_MAX (((uint64_t)1 << 56) - 1)
#define NAMES_DIR_LEN 320u
#define NAMES_SEGMENTS 22u
#define NAMES_FIRST_LEN 512u
#define NAMES_VALUE_LEN 12u

/* Failures: codes of the entries, and of the functions where they say so. */
enum names_error {
    NAMES_E_NAME = 144,   /* a name has 1 to 255 bytes, a number 1 to NAMES_NUMBER_MAX */
    NAMES_E_EXISTS = 145, /* the name is there already */
    NAMES_E_ABSENT = 146, /* the name is not there */
    NAMES_E_FULL = 147,   /* no room for it */
    NAMES_E_IN_USE = 148, /* the directory has names */
};

/* What a name says. */
struct names_entry {
    uint64_t number, at; /* the inode's; the place */
    uint32_t kind;       /* 8 bits of the user's */
    uint32_t name_len;
};

/* Which directory of which table. */
struct names_dir {
    uint64_t table, parent, dir;
};

/* ---- Entries: for tests, and for whoever looks; a name follows the arguments ---------------- */

/* new: result uint64_t offset of a directory without names. Arguments: uint64_t table. */
/* drop: gives back a directory without names. No result. */
/* add: result struct names_entry. set: has the name another number and kind. No result. */
struct names_set_args {
    struct names_dir dir;
    uint64_t number, kind;
};
/* find, read-only: result struct names_entry. remove: result as before it was removed. */
struct names_args {
    struct names_dir dir;
};
/* list, read-only: result for each name from the place `at` on, in order, as far as there is room:
 * struct names_entry, the name, zeroes up to a multiple of 8. count, read-only: `at` is not used;
 * result uint64_t. */
struct names_list_args {
    struct names_dir dir;
    uint64_t at;
};

/* ---- Functions for other modules ---------------------------------------------------------- */

#ifdef NAMES_OWN
#define NAMES_FUNCTION(name) OB_EXPORT(name)
#else
#include "hashes.h"
#define NAMES_FUNCTION(name) OB_IMPORT(OB_MODULE_NAMES, name)
#endif

/* All that take a name may fail with NAMES_E_NAME. */

/* A directory without names: its offset. Fails with NAMES_E_FULL. WRITES. */
NAMES_FUNCTION(names_new) uint64_t names_new(uint64_t table);
/* Gives a directory back. Fails with NAMES_E_IN_USE. WRITES. */
NAMES_FUNCTION(names_drop) void names_drop(const struct names_dir *dir);
/* What a name says; false if it is not there. */
NAMES_FUNCTION(names_find)
bool names_find(const struct names_dir *dir, const void *name, uint64_t len,
                struct names_entry *entry);
/* Adds a name with `number` and `kind` of the entry, and says its place. Fails with NAMES_E_EXISTS,
 * _FULL. WRITES. */
NAMES_FUNCTION(names_add)
void names_add(const struct names_dir *dir, const void *name, uint64_t len,
               struct names_entry *entry);
/* Has a name another number and kind. Fails with NAMES_E_ABSENT. WRITES. */
NAMES_FUNCTION(names_set)
void names_set(const struct names_dir *dir, const void *name, uint64_t len, uint64_t number,
               uint32_t kind);
/* Removes a name, and says what it said. Fails with NAMES_E_ABSENT. WRITES. */
NAMES_FUNCTION(names_remove)
void names_remove(const struct names_dir *dir, const void *name, uint64_t len,
                  struct names_entry *entry);
/* The first name at the place `at` or behind it, up to NAMES_MAX bytes of it, and the place behind;
 * 0 if there is none. */
NAMES_FUNCTION(names_next)
uint64_t names_next(const struct names_dir *dir, uint64_t at, struct names_entry *entry, void *name);
/* How many names there are. */
NAMES_FUNCTION(names_count) uint64_t names_count(const struct names_dir *dir);

#endif
