//! What clients of a file system and its service say: arguments and answers of the entries, their
//! failures, and notes beside them.
//!
//! Everything is a value: nothing here asks, answers or waits. What comes from the other side is
//! taken apart without trust: what is too short, too long or unknown is not there.
//!
//! Modules in reading order: `layout` (structures as C has them), `structures` (those of the
//! module's headers), `places` (where these are in a region), `bytes` (reads and changes as clients
//! ask for them), `batch` (many changes by one request), `lists` (answers with names), `walks`
//! (answers of the module `find`), `scans` (files looked through line by line), `errno` (failures),
//! `times` (what a time is), `touched` (which inodes a change is about), `serving` (what a server
//! says of itself), `locks` and `ranges` (locks of files), `notes` (messages beside executions),
//! `volatile` (where there are none).

mod batch;
mod bytes;
mod errno;
mod layout;
mod lists;
mod locks;
mod notes;
pub mod places;
mod ranges;
mod scans;
mod serving;
mod structures;
mod times;
mod touched;
pub mod volatile;
mod walks;

pub use batch::{
    BATCH_GOES_ON, BATCH_MAX, BATCH_QUIET, BatchChange, BatchDone, BatchHead, BatchItem, batch_of,
    parse_batch, parse_batch_done,
};
pub use bytes::{
    APPEND, FROM_HERE, FROM_MEMORY, FsChangeArgs, FsSource, LOCK_GONE, LOCKED, MEMORY_GONE, PUNCH,
    SYNC,
};
pub use errno::{ERRNO, errno_of_failure, failure_of_errno};
pub use layout::FsLayout;
pub use lists::{FsName, is_name, is_target, parse_list, parse_walk};
pub use locks::{
    EXCLUSIVE, FsLockAnswer, FsLockArgs, GRANTED, LockKind, QUEUED, RECLAIM, SHARED, TAKEN,
};
pub use notes::{FsNote, FsNotice, HERE, LEASE, NOTES, StalePart};
pub use ranges::{ByteRange, LockRanges};
pub use scans::{
    SCAN_CLIENT, SCAN_CONTEXT, SCAN_DONE, SCAN_ENTRY, SCAN_FAILED, SCAN_FILES_MAX, SCAN_FIRST,
    SCAN_HASH, SCAN_HASH_LEN, SCAN_HASHED, SCAN_INVERT, SCAN_LINE, SCAN_LINES, SCAN_MORE,
    SCAN_NUMBERS, SCAN_PARAMS, SCAN_PARAMS_LEN, SCAN_PIECE, SCAN_PIECE_LEN, SCAN_SKIP_BINARY,
    SCAN_TEXT, ScanArgs, ScanCursor, ScanRecord, ScanTold, parse_scan, parse_scan_args, scan_args,
};
pub use serving::{FsEndedRun, FsServing, ServedReplica};
pub use structures::{
    FsAccessArgs, FsAnswer, FsAttrArgs, FsBlocksRun, FsCreateArgs, FsExtent, FsGrant, FsInitArgs,
    FsInode, FsInodeArgs, FsLinkArgs, FsListArgs, FsListed, FsMakeArgs, FsMapArgs, FsNameArgs,
    FsOpenArgs, FsOrphan, FsOrphansArgs, FsQuotaArgs, FsReadArgs, FsRecord, FsRemoved,
    FsRenameArgs, FsSeekArgs, FsShareArgs, FsStats, FsSweepArgs, FsTakeArgs, FsTenant,
    FsTenantsArgs, FsTreeEntry, FsUnlinkArgs, FsWalkArgs, FsWalked, FsWho, FsXattrArgs, GROUPS_MAX,
    NO_LIMIT, RECORD_ENTRIES,
};
pub use times::{seconds_of, time_ns};
pub use touched::TouchedInodes;
pub use walks::{
    FIND_APART, FIND_ATTRIBUTES, FIND_IS_APART, FIND_IS_ENTERED, FIND_IS_ERROR, FIND_IS_LEFT,
    FIND_IS_MATCH, FIND_LEVELS_MAX, FIND_PATH_MAX, FIND_PROGRAM_MAX, FIND_SUMS, FindArgs,
    FindAttributes, FindLevel, FindResult, FindSums, WalkAnswer, WalkRecord, parse_tree_walk,
};

/// The region that has a file system.
pub const REGION: &str = "fs";
/// What a region with a file system has at [`ROOT`].
pub const MAGIC: u64 = 0x0031_7366_626f_626f;
/// Where a file system begins in its region.
pub const ROOT: u64 = 64;
/// Bytes of a region that every client may read one-sided: all in front of the tree's structures.
pub const HEADER_SHOWN: usize = 128;
/// Where its root directory's number is, from there.
pub const ROOT_NUMBER: u64 = 40;
/// Who user 0 is where the file system squashes it.
pub const NOBODY: u32 = 65534;
/// Bytes of a name, at most.
pub const NAME_MAX: usize = 255;
/// Bytes of a symbolic link's target, at most.
pub const TARGET_MAX: usize = 4095;
/// Bytes of a block, as numbers of the protocol and as those of memory.
pub const BLOCK_LEN: u64 = BLOCK_BYTES as u64;
/// See [`BLOCK_LEN`].
pub const BLOCK_BYTES: usize = 4096;

/// A flag of a file system: user 0 is [`NOBODY`].
pub const SQUASH_ROOT: u64 = 1;
/// A flag of `rename`: the second name must be free.
pub const NOREPLACE: u32 = 1;
/// A flag of `rename`: both names change places.
pub const EXCHANGE: u32 = 2;
/// A flag of `unlink`, `rmdir` and `rename`: an inode that loses its last name gets a holder. The
/// service sets it, which knows who has what open; clients do not.
pub const HOLD: u32 = 256;
/// Of [`FsAccessArgs::want`].
pub const MAY_EXECUTE: u32 = 1;
/// Of [`FsAccessArgs::want`].
pub const MAY_WRITE: u32 = 2;
/// Of [`FsAccessArgs::want`].
pub const MAY_READ: u32 = 4;
/// Of [`FsGrant::rights`]: the file may be mapped shared and writable.
pub const MAY_MAP: u32 = 16;
/// Of [`FsCreateArgs::want`]: there must be nothing of that name.
pub const EXCL: u32 = 8;
/// Of [`FsSeekArgs::which`]: where bytes are.
pub const SEEK_DATA: u64 = 3;
/// Where none are.
pub const SEEK_HOLE: u64 = 4;
/// Of [`FsXattrArgs::flags`]: it must not be there yet.
pub const XATTR_CREATE: u32 = 1;
/// It must be there.
pub const XATTR_REPLACE: u32 = 2;
/// Bytes of a file, at most.
pub const SIZE_MAX: u64 = 1 << 43;
/// Names of one `walk`, at most.
pub const WALK_MAX: usize = 256;
/// Bytes of an extended attribute's value, at most.
pub const XATTR_VALUE_MAX: usize = 65536;
/// Bytes of all extended attributes of an inode, at most.
pub const XATTRS_MAX: usize = 66048;
/// Of [`FsAttrArgs::which`]: the rights.
pub const SET_MODE: u32 = 1;
/// The owner.
pub const SET_UID: u32 = 2;
/// The group.
pub const SET_GID: u32 = 4;
/// The last access.
pub const SET_ATIME: u32 = 8;
/// The last change.
pub const SET_MTIME: u32 = 16;
/// The last access is now.
pub const SET_ATIME_NOW: u32 = 32;
/// The last change is now.
pub const SET_MTIME_NOW: u32 = 64;

/// Of [`FsChangeArgs::which`]: the file's size grows to where the bytes end.
pub const GROW: u32 = 1;
/// The file's size becomes what is said; there are no bytes.
pub const RESIZE: u32 = 2;
/// Times stay as they are.
pub const KEEP_TIMES: u32 = 4;
/// Names that one `unlink_many` removes, at most.
pub const UNLINK_MAX: usize = 8;
/// Of [`FsMapArgs::which`]: attributes are set, too; [`FsAttrArgs`] follow the extents.
pub const SET: u32 = 8;

/// Failures of the modules below.
const ALLOC_FULL: i32 = 17;
const TABLE_FULL: i32 = 35;
const BLOCKS_FULL: i32 = 113;
const BLOCKS_USERS: i32 = 116;
const INODE_NONE: i32 = 129;
const INODE_FULL: i32 = 130;
const INODE_RANGE: i32 = 131;
const NAMES_FULL: i32 = 147;

#[cfg(test)]
mod tests;
