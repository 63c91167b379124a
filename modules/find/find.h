/* find.h: walks a file system's tree (fs.h) next to it: what find(1), du(1) and rm -r ask for, many
 * names by one execution.
 *
 * A walk goes through a directory in the order of its names' places, and through each directory
 * below as soon as it comes to its name. An execution looks at a bounded number of names and says
 * where it stopped: the cursor, which its caller hands to the next one. Names that come and go
 * meanwhile are seen or are not; all others are seen once. What was removed or replaced below the
 * cursor is left out.
 *
 * For each name a program is run, which the caller has made of find's expression. It says whether
 * anything is to be told of the name, and whether the walk goes below it.
 *
 * RIGHTS as in fs.h: only directories are entered that the user may read and search. A cursor may
 * name any directory, as `list` of fs may.
 *
 * LIMITS: 1024 directories below each other, paths of 4607 bytes with the one that was asked for:
 * what is below is told as an error, ENAMETOOLONG.
 *
 * PROGRAMS: instructions, each a byte that says which, and operands without gaps. There is one truth
 * value, true at first, which tests set. Jumps go forward only.
 *   0  end               1  true              2  false             3  not
 *   4  u16: goes on so many bytes behind, if it is false           5  the same, if it is true
 *   6  u8 flags, u16 bytes, a pattern as of fnmatch(3): of the name
 *   7  the same of the path              8  the same of a symbolic link's target
 *   9  u16: kinds, a bit each: 1 << (mode >> 12)
 *   10 u8 field, u8 comparison, u64 unit, u64 number: the field in units, each that has begun counts
 *   11 u8 field, i64 from, i64 to: a time in ns, behind `from`, and not behind `to`
 *   12 u8 comparison, u32 bits: rights: exactly these, all of these, any of these
 *   13 a file of no bytes, or a directory without names
 *   14 u32: rights that the user has of FS_MAY_*
 *   15 u8: an action below 32 is to be told; true
 *   16 the walk does not go below this name; true
 *   17 nothing is looked at behind this name; ends the program
 */
#ifndef FIND_H
#define FIND_H

#include "outboard.h"
#include "fs/fs.h"

#define FIND_LEVELS_MAX 1024u
#define FIND_PATH_MAX 4607u
#define FIND_PROGRAM_MAX 16384u

enum find_op {
    FIND_END, FIND_TRUE, FIND_FALSE, FIND_NOT, FIND_JUMP_FALSE, FIND_JUMP_TRUE, FIND_NAME, FIND_PATH,
    FIND_TARGET, FIND_KIND, FIND_NUMBER, FIND_TIME, FIND_RIGHTS, FIND_EMPTY, FIND_MAY, FIND_ACTION,
    FIND_PRUNE, FIND_QUIT,
};
enum find_field { FIND_SIZE, FIND_LINKS, FIND_INODE, FIND_UID, FIND_GID, FIND_BLOCKS };
enum find_time { FIND_ATIME, FIND_MTIME, FIND_CTIME, FIND_BTIME };
enum find_comparison { FIND_LESS, FIND_EQUAL, FIND_MORE };
enum find_rights { FIND_EXACTLY, FIND_ALL_OF, FIND_ANY_OF };
/* Flags of patterns: letters' cases are the same; characters are those of UTF-8, if all are. */
#define FIND_FOLD 1u
#define FIND_UTF8 2u

/* Flags of a walk. Attributes of what is told. */
#define FIND_ATTRIBUTES 1u
/* Nothing is told of each name, only sums. */
#define FIND_SUMS 2u
/* Of those, files with several names are told one by one, and not added. */
#define FIND_APART 4u

/* walk, read-only. `levels` struct find_level, the program, and the path follow. At first there are
 * no levels, and the path is what was asked for, as whoever asked wrote it; later both are those of
 * the cursor. Result struct find_result, then records, levels, and the path. */
struct find_args {
    struct fs_who who;
    struct fs_inode root;     /* where the walk begins */
    uint32_t flags, most;     /* of names that it looks at, at least 1 */
    uint32_t min_depth, max_depth;
    uint32_t sum_depth;       /* directories down to there have sums of their own */
    uint32_t levels, program_len;
    uint32_t root_len;        /* bytes of the path that was asked for */
    uint32_t name_at, name_len; /* the name in it */
};
struct find_level {
    uint64_t number;
    uint32_t generation, at;
};

/* What a walk with FIND_SUMS has added up since the record before. */
struct find_sums {
    uint64_t files, directories, links, others;
    uint64_t size, blocks; /* bytes; blocks of INODE_BLOCK_LEN bytes */
};
struct find_result {
    uint32_t records_len, levels, path_len, is_over;
    struct find_sums rest;
};

/* What a record tells: an action was reached; the records behind are below this directory; what was
 * told by FIND_ENTER is over (with FIND_SUMS only); this was not entered, `error` says why, and the
 * name is a whole path; a file with several names. */
#define FIND_IS_MATCH 1u
#define FIND_IS_ENTERED 2u
#define FIND_IS_LEFT 4u
#define FIND_IS_ERROR 8u
#define FIND_IS_APART 16u

/* A record: the name follows, with FIND_SUMS a struct find_sums, and with FIND_ATTRIBUTES, or if it is
 * FIND_IS_APART, struct find_attributes, except with FIND_IS_LEFT and FIND_IS_ERROR. No gaps. */
struct find_record {
    uint16_t depth, name_len;
    uint8_t kind, what, error, zero;
    uint32_t actions; /* a bit each */
};
struct find_attributes {
    struct fs_inode inode;
    uint32_t mode, uid, gid, nlink;
    uint64_t size, blocks;
    int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
    uint64_t rdev;
};

#endif
