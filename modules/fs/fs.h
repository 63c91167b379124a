/* fs.h: a file system's tree: directories, files, links, their owners, rights and times, and where
 * each file's bytes are.
 *
 * Each operation is one execution: all or nothing, and on a tree that no other operation changes
 * meanwhile. Inodes are named by their numbers (inode.h) together with their generations, names are
 * found in directories (names.h). A file's bytes are blocks of a store outside the region
 * (blocks.h, inode.h); this module moves none of them.
 *
 * BYTES. Whoever keeps the store reserves blocks (`take`), writes bytes into them, and then has a
 * file have them (`change`), instead of the blocks that it had there. A reserved block belongs to
 * nobody: after a crash `sweep` makes all of them free. What is behind a file's size in its last
 * block must be zero: whoever keeps the store sees to that.
 *
 * RIGHTS are checked here, with the user that the caller says it works for: whoever may execute
 * these entries may say any. User 0 may everything, unless the file system squashes it; then it is
 * user and group FS_NOBODY. `open`, `create` and `list` check the mode; what they grant, later
 * requests on the same opening have (struct fs_grant), whoever makes them. Without a grant, a
 * file's owner may read and write it whatever its mode says, as with NFS.
 *
 * FAILURES are errno(3)'s numbers of Linux, + FS_ERRNO. Those of the modules below are ENOSPC, if
 * they say full (ALLOC_E_FULL, TABLE_E_FULL, BLOCKS_E_FULL, INODE_E_FULL, NAMES_E_FULL); EMLINK for
 * BLOCKS_E_USERS: copy the bytes instead of sharing them; else damage.
 *
 * HOW MUCH AN EXECUTION WRITES is bounded, for any file: the region must allow 4 MiB. A file with
 * more extents than one execution gives back loses its tree of extents to an inode without names,
 * at once; `reap` gives back what such inodes have, piece by piece. Only a hole or new bytes in the
 * midst of thousands of extents are too much at once (E2BIG): do it in halves.
 *
 * LAYOUT: at FS_ROOT, a multiple of 64:
 *   + 0 magic FS_MAGIC, + 8 flags (16 bits) and, above them, the offset / 16 of the table of tenants,
 *   0 for none: u64 how many there is room for, u64 how many there are, struct fs_tenant[]; + 16
 *   offsets of the state of blocks, + 24 of inodes, + 32 of the table of names; + 40 number of the
 *   root directory; + 48 an inode that is being given back, 0 for none, the next one is its
 *   `parent`; + 56 offset of the names' header of a directory that is nobody's (its number is 0):
 *   inodes that have holders only, by names of 8 bytes, their numbers.
 *   `body` of a directory's inode is the offset of its names' header, that of a symbolic link the
 *   offset of its target. `xattrs` is 0, or the offset of: u64 bytes that follow, then for each
 *   attribute u32 bytes of its name, u32 of its value, the name, the value, zeroes up to a multiple
 *   of 8.
 */
#ifndef FS_H
#define FS_H

#include "outboard.h"
#include "blocks/blocks.h"
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
/* The first time, -2^31 s: nanoseconds since 1970 wrap, and those below it are later than 2262. */
#define FS_TIME_FIRST (-2147483648 * INT64_C(1000000000))
/* Bytes of a file, at most. */
#define FS_SIZE_MAX ((uint64_t)1 << 43)
/* Groups of a user beside its first one; more are not looked at by anybody. */
#define FS_GROUPS_MAX 13u
/* Names that one `walk` takes. */
#define FS_UNLINK_MAX 8u
#define FS_WALK_MAX 256u
/* Tenants, at most; a limit that is none. */
#define FS_TENANTS_MAX 65534u
#define FS_NO_LIMIT UINT64_MAX
/* Bytes of an extended attribute's name and of its value, and of all that an inode has, each with
 * 8 bytes and filled up to a multiple of 8. */
#define FS_XATTR_NAME_MAX 255u
#define FS_XATTR_VALUE_MAX 65536u
#define FS_XATTRS_MAX 66048u

/* Flags of the header. */
#define FS_SQUASH_ROOT 1u
/* Flags of `rename`, as renameat2(2) has them. */
#define FS_NOREPLACE 1u
#define FS_EXCHANGE 2u
/* Flag of `unlink`, `rmdir` and `rename`: somebody has the inode open that loses a name. If that
 * was its last one, it has one holder more, instead of being given back. */
#define FS_HOLD 256u
/* Which members of struct fs_attr_args count; FS_TIME_NOW: the execution's moment instead. */
#define FS_MODE 1u
#define FS_UID 2u
#define FS_GID 4u
#define FS_ATIME 8u
#define FS_MTIME 16u
#define FS_ATIME_NOW 32u
#define FS_MTIME_NOW 64u
/* Of `change`: the size is at least `size` afterwards; it is `size`, and what the file has behind
 * it is gone; times stay as they are; attributes are set, too. */
#define FS_GROW 1u
#define FS_RESIZE 2u
#define FS_KEEP_TIMES 4u
#define FS_SET 8u
/* Of `access`, `open` and `create`. */
#define FS_MAY_EXECUTE 1u
#define FS_MAY_WRITE 2u
#define FS_MAY_READ 4u
/* Of `create`: there must be nothing of that name. */
#define FS_EXCL 8u
/* Of `seek`. */
#define FS_SEEK_DATA 3u
#define FS_SEEK_HOLE 4u
/* Of `set_xattr`: it must not be there yet; it must be there. */
#define FS_XATTR_CREATE 1u
#define FS_XATTR_REPLACE 2u

/* The tenant of the service itself, which is user 0 also where user 0 of clients is nobody. The
 * service writes the tenant of every client. */
#define FS_SERVICE 65535u
/* What an opening was granted when it was made: `rights` (FS_MAY_READ, FS_MAY_WRITE). `proof` is the
 * service's, which clears the rights of a grant that it has not made. */
struct fs_grant {
    uint64_t proof[2];
    uint32_t rights, zero;
};

/* Who asks: the groups beside `gid`, as many as `groups_len` says; the tenant that pays for what is
 * made, 0 for nobody; and what the opening of the inode was granted, if there is one. */
struct fs_who {
    uint32_t uid, gid;
    uint16_t groups_len, tenant;
    uint32_t groups[13];
    struct fs_grant grant;
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

/* ---- Entries: the tree -------------------------------------------------------------------- */

/* init: an empty tree in the region, which must be zero, over `blocks` blocks; the root directory
 * belongs to `uid`, `gid`. No result. */
struct fs_init_args {
    uint64_t blocks, flags, first; /* first: log2 of the buckets that names have at first */
    uint32_t uid, gid, mode, zero;
};
/* get, read-only: result struct fs_answer. hold, release: somebody has it open, has it no longer:
 * it stays without names as long as somebody has. No result.
 * target, read-only: result bytes, a symbolic link's target. */
struct fs_inode_args {
    struct fs_inode inode;
};
/* find, read-only; the name follows: result struct fs_answer. unlink, rmdir; the name follows:
 * result struct fs_answer[2]: what it stood for, as it is then (its mode is 0 if it is gone), and
 * the directory. */
struct fs_name_args {
    struct fs_who who;
    struct fs_inode dir;
    uint32_t flags, zero; /* FS_HOLD */
};
/* unlink_many: `count` names follow, each u16 bytes, then the name. They are removed one after the
 * other as by unlink, up to the first one that cannot be: why, unlink says. Result struct fs_answer,
 * the directory, then for each one that was removed struct fs_removed: what it stood for. */
struct fs_unlink_args {
    struct fs_who who;
    struct fs_inode dir;
    uint32_t flags, count; /* FS_HOLD; FS_UNLINK_MAX at most */
};
struct fs_removed {
    struct fs_inode inode;
    uint64_t blocks;
    uint32_t mode, nlink, holds, zero; /* mode 0: it is gone */
};
/* walk, read-only: `count` names follow, each u16 bytes, then the name: of something in `dir`, of
 * something in that, and so on. Symbolic links are not followed. Result struct fs_walked, then as
 * many struct fs_answer as names were found, in order; `error` is 0 if these are all, else why the
 * next one was not: ENOENT, EACCES, ENAMETOOLONG, EINVAL (no name), ENOTDIR, or ELOOP, if the last
 * one that was found is a symbolic link. Why `dir` itself was not looked into is a failure. */
struct fs_walk_args {
    struct fs_who who;
    struct fs_inode dir;
    uint32_t count, zero; /* FS_WALK_MAX at most */
};
struct fs_walked {
    uint32_t count, error;
};
/* make: a file, directory, symbolic link, fifo, socket or device, as `mode` says; the name follows,
 * and behind it, `target_len` bytes, a symbolic link's target. Result struct fs_answer[2]: it,
 * and the directory. */
struct fs_make_args {
    struct fs_who who;
    struct fs_inode dir;
    uint32_t mode, target_len;
    uint64_t rdev;
};
/* create: a file of that name, which follows, unless there is one, which is opened instead: EACCES
 * if the user may not all of `want`, EEXIST if it is no file, or with FS_EXCL. `opening` is the
 * service's: the number by which the client calls the opening. Result struct fs_answer[2]: it, and
 * the directory. The service adds a struct fs_grant. */
struct fs_create_args {
    struct fs_who who;
    struct fs_inode dir;
    uint64_t opening;
    uint32_t mode, want; /* FS_MAY_READ, FS_MAY_WRITE, FS_EXCL */
};
/* link: one more name, which follows, for an inode. Result struct fs_answer[2]: it, and the
 * directory. */
struct fs_link_args {
    struct fs_who who;
    struct fs_inode dir, inode;
};
/* rename: both names follow. Result struct fs_answer[2]: what was replaced or exchanged, all zero if
 * there was nothing (its mode is 0 if it is gone); and what has the second name now, all zero if
 * both were names of one inode: then both stay. */
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
/* access, read-only: result struct fs_answer, if the user may all of `want`; else EACCES. */
struct fs_access_args {
    struct fs_who who;
    struct fs_inode inode;
    uint32_t want, zero;
};
/* list, read-only: names from the place `at` on, as far as there is room: for each struct
 * fs_listed, the name, zeroes up to a multiple of 8. `.` and `..` are not among them. A directory
 * that has been removed has no names. If `want` is FS_MAY_READ, the service adds a struct fs_grant
 * for those who list the rest. */
struct fs_list_args {
    struct fs_who who;
    struct fs_inode dir;
    uint64_t at;
    uint32_t want, zero;
};
struct fs_listed {
    uint64_t next; /* the place behind it */
    uint32_t name_len, zero;
    struct fs_inode inode;
    struct inode record;
};
/* orphans, read-only: inodes that have holders only, from the place `at` (0 at first) on, as many
 * as there is room for: result struct fs_orphan[]. Whoever begins to serve a tree releases them,
 * each as often as `holds` says. */
struct fs_orphans_args {
    uint64_t at;
};
struct fs_orphan {
    uint64_t next; /* the place behind it */
    struct fs_inode inode;
    uint32_t holds, mode;
};
/* reap: gives back more of what inodes without names have: result uint64_t, 1 if there is more. No
 * arguments. */
/* stats, read-only. No arguments. */
struct fs_stats {
    uint64_t blocks, blocks_free; /* reserved ones are not free */
    uint64_t inodes, heap_bytes;
    uint64_t heap_free_bytes;     /* in pieces of any size */
    uint64_t inodes_free;     /* that could still be made, about */
    uint64_t orphans, dying;  /* inodes that have holders only; 1 if there is something to reap */
    /* What a tenant has and may have: here none, FS_NO_LIMIT; whoever serves a tenant fills it in. */
    uint64_t quota_blocks, quota_inodes, quota_blocks_max, quota_inodes_max;
};

/* ---- Entries: who pays -------------------------------------------------------------------- */

/* A tenant: whoever has a limit of blocks and inodes that it makes, whomever it gives them to. Blocks
 * are a tenant's as long as its file has them, inodes until nobody has them any more. Its number,
 * from 1 on, stays. */
struct fs_tenant {
    uint64_t id[2];
    uint64_t blocks, inodes, blocks_max, inodes_max;
};
/* set_quota: a tenant's limits, which is made if there is none of this id. Result uint64_t, its
 * number. What it has above a limit stays, and nothing comes to it (EDQUOT). */
struct fs_quota_args {
    uint64_t id[2];
    uint64_t blocks_max, inodes_max; /* FS_NO_LIMIT: none */
};
/* tenants, read-only: result struct fs_tenant[], from the number `first` on, as many as there is
 * room for. */
struct fs_tenants_args {
    uint64_t first;
};

/* ---- Entries: bytes ----------------------------------------------------------------------- */

/* take: reserves `want` blocks, 65536 at most: result struct blocks_run[], the free ones at `goal`
 * (BLOCKS_ANYWHERE: behind the last ones that were taken) and behind it, each run of BLOCKS_RUN_MAX
 * blocks at most; less than `want` if no more are free, or there is no room for more runs. If none
 * is free it gives back some of what is dying, as `reap` does. */
struct fs_take_args {
    uint64_t want, goal;
};
/* give: makes reserved blocks free; fails if some are not reserved. Arguments struct blocks_run[].
 * No result. */
/* sweep: makes all reserved blocks of the first `most` from `from` on free: result uint64_t, where
 * to go on, 0 at the end. */
struct fs_sweep_args {
    uint64_t from, most; /* BLOCKS_ALL for all at once, which takes some ms */
};
/* read, read-only; files only (EISDIR, EINVAL): where [offset, offset + len) is, as far as there is
 * such a place. Result struct fs_answer, then struct inode_extent[], in order, no more than the
 * range's blocks; what is between them is zero. If there are as many as there is room for, there
 * may be more: ask for what is behind the last one. Allowed for who may read or execute it. */
struct fs_read_args {
    struct fs_who who;
    struct fs_inode inode;
    uint64_t offset, len;
};
/* open, read-only; files only: as `read` of the first `len` bytes, if the user may all of `want`;
 * else EACCES. A file that may be executed may be read. `opening` is as that of `create`. The
 * service adds a struct fs_grant behind struct fs_answer. */
struct fs_open_args {
    struct fs_who who;
    struct fs_inode inode;
    uint64_t opening;
    uint32_t want, len; /* FS_MAY_READ, FS_MAY_WRITE */
};
/* seek, read-only: result uint64_t, the first place at `offset` or behind it where the file has
 * blocks (FS_SEEK_DATA; ENXIO if there is none) or has none (FS_SEEK_HOLE; at the latest its size).
 * ENXIO if `offset` is not below the size. */
struct fs_seek_args {
    struct fs_who who;
    struct fs_inode inode;
    uint64_t offset, which;
};
/* change: a file has no longer the blocks [cut, cut + cut_len); then it has `count` struct
 * inode_extent, which follow, of reserved blocks, instead of what it had there; then its size
 * changes as `which` says. What it had is given back. Unless FS_KEEP_TIMES: its bytes have changed
 * now. For other users than 0 it is no longer set-uid, nor set-gid if its group may execute it.
 * With FS_SET, then its attributes are set as by `set`: struct fs_attr_args follows the extents,
 * whose `who` and `inode` do not count.
 * EAGAIN if `version` is neither 0 nor the record's; EFBIG beyond FS_SIZE_MAX; E2BIG, see above.
 * Result struct fs_answer. */
struct fs_change_args {
    struct fs_who who;
    struct fs_inode inode;
    uint64_t version, cut, cut_len; /* blocks of the file */
    uint64_t size;
    uint32_t which, count;
};
/* share: the blocks [from_block, from_block + len) of one file are also another's, from `to_block`
 * on, instead of what it had there. Both may be one, in two ranges that do not overlap. The size
 * stays. E2BIG, see above. Result struct fs_answer: `to`. */
struct fs_share_args {
    struct fs_who who;
    struct fs_inode from, to;
    uint64_t from_block, to_block, len;
};

/* ---- Entries: extended attributes --------------------------------------------------------- */

/* set_xattr: the name and the value follow. No result. get_xattr, read-only: the name follows;
 * result the value. list_xattr, read-only: result the names, each with a byte of 0. remove_xattr:
 * the name follows. No result. As xattr(7) says: names begin with `user.` (files and directories;
 * who may write or read it), `trusted.` (user 0) or `security.` (user 0 sets them); others are
 * EOPNOTSUPP. ENODATA, EEXIST, ERANGE (a name), E2BIG (a value), ENOSPC (all together). */
struct fs_xattr_args {
    struct fs_who who;
    struct fs_inode inode;
    uint32_t flags, name_len, value_len, zero;
};

#endif
