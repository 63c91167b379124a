/* fs.h: a file system's tree: directories, files, links, their owners, rights and times.
 *
 * Each operation is one execution: all or nothing, and on a tree that no other operation changes
 * meanwhile. Inodes are named by their numbers (inode.h) together with their generations, names are
 * found in directories (names.h). A file's bytes are blocks of a store outside the region
 * (blocks.h, inode.h); this module moves none of them.
 *
 * RIGHTS are checked here, with the user that the caller says it works for: whoever may execute
 * these entries may say any. User 0 may everything, unless the file system squashes it; then it is
 * user and group FS_NOBODY.
 *
 * FAILURES are errno(3)'s numbers of Linux, + FS_ERRNO.
 *
 * LAYOUT: at FS_ROOT, a multiple of 64:
 *   + 0 magic FS_MAGIC, + 8 flags, + 16 offsets of the state of blocks, + 24 of inodes, + 32 of the
 *   table of names; + 40 number of the root directory; + 48 an inode that is being given back, 0
 *   for none, the next one is its `parent`; to + 64 zero. `body` of a directory's inode
 *   is the offset of its names' header, that of a symbolic link the offset of its target.
 */
#ifndef FS_H
#define FS_H

#include "outboard.h"
#include "inode/inode.h"

#define FS_MAGIC 0x317366626f626fu /* "obobfs1" */
#define FS_ROOT 64u
#define FS_HEADER_LEN 64u
#define FS_ERRNO 1000
#define FS_NOBODY 65534u
#define FS_LINKS_MAX 65000u
#define FS_TARGET_MAX 4095u
/* Directories above one that is moved, at most. */
#define FS_DEPTH_MAX 4096u

/* Flags of the header. */
#define FS_SQUASH_ROOT 1u
/* Flags of `rename`, as renameat2(2) has them. */
#define FS_NOREPLACE 1u
#define FS_EXCHANGE 2u
/* Which members of struct fs_attr_args count; FS_TIME_NOW: the execution's moment instead. */
#define FS_MODE 1u
#define FS_UID 2u
#define FS_GID 4u
#define FS_ATIME 8u
#define FS_MTIME 16u
#define FS_ATIME_NOW 32u
#define FS_MTIME_NOW 64u

/* Who asks. */
struct fs_who {
    uint32_t uid, gid;
};

/* An inode: the generation says whether its number was used again since. */
struct fs_inode {
    uint64_t number, generation;
};

/* What most entries answer. */
struct fs_answer {
    struct fs_inode inode;
    struct inode record;
};

/* ---- Entries ------------------------------------------------------------------------------ */

/* init: an empty tree in the region, which must be zero, over `blocks` blocks; the root directory
 * belongs to `uid`, `gid`. No result. */
struct fs_init_args {
    uint64_t blocks, flags, first; /* first: log2 of the buckets that names have at first */
    uint32_t uid, gid, mode, zero;
};
/* get, read-only: result struct fs_answer. hold, release: somebody has it open, has it no longer:
 * it stays without names as long as somebody has. No result. */
struct fs_inode_args {
    struct fs_inode inode;
};
/* find, read-only; the name follows: result struct fs_answer. unlink, rmdir; the name follows: result
 * struct fs_answer, as it is then; its mode is 0 if it is gone. */
struct fs_name_args {
    struct fs_who who;
    struct fs_inode dir;
};
/* make: a file, directory, symbolic link, fifo, socket or device, as `mode` says; the name follows,
 * and behind it, `target_len` bytes, a symbolic link's target. Result struct fs_answer. */
struct fs_make_args {
    struct fs_who who;
    struct fs_inode dir;
    uint32_t mode, target_len;
    uint64_t rdev;
};
/* link: one more name, which follows, for an inode. Result struct fs_answer. */
struct fs_link_args {
    struct fs_who who;
    struct fs_inode dir, inode;
};
/* rename: both names follow. Result struct fs_answer: what was replaced or exchanged, all zero if
 * there was nothing; its mode is 0 if it is gone. */
struct fs_rename_args {
    struct fs_who who;
    struct fs_inode from, to;
    uint32_t flags, from_len; /* bytes of the first name */
};
/* set: attributes. Result struct fs_answer. */
struct fs_attr_args {
    struct fs_who who;
    struct fs_inode inode;
    uint32_t which, mode, uid, gid;
    int64_t atime_ns, mtime_ns;
};
/* list, read-only: names from the place `at` on, as far as there is room: for each struct
 * fs_listed, the name, zeroes up to a multiple of 8. `.` and `..` are not among them. */
struct fs_list_args {
    struct fs_who who;
    struct fs_inode dir;
    uint64_t at;
};
struct fs_listed {
    uint64_t next; /* the place behind it */
    uint32_t name_len, zero;
    struct fs_inode inode;
    struct inode record;
};
/* target, read-only: a symbolic link's. Arguments struct fs_inode_args. */
/* reap: gives back more of what inodes without names have: result uint64_t, 1 if there is more. */
/* stats, read-only. No arguments. */
struct fs_stats {
    uint64_t blocks, blocks_free, inodes, heap_bytes, heap_free_bytes;
};

#endif
