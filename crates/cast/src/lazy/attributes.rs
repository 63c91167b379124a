//! Inode numbers and attributes of a view's files, as they will be when they are published.
//!
//! The top directory is the view's own. It lies one level deeper than the destination, so a
//! relative symbolic link at the top leads one level up first.

use crate::receive::StagedView;
use crate::tree::{TreeEntry, TreeNode};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Entry 0 has the number after the top directory's.
const ENTRIES_FROM: u64 = INodeNo::ROOT.0 + 1;
/// The I/O size that `stat` recommends to programs.
const BLOCK_LEN: u32 = 128 << 10;
/// Bytes of the unit in which `stat` tells the room that a file takes.
const SECTOR_LEN: u64 = 512;

/// The inode of an entry, or of the top directory.
pub(super) fn inode(entry: Option<u32>) -> INodeNo {
    INodeNo(entry.map_or(INodeNo::ROOT.0, |entry| ENTRIES_FROM + u64::from(entry)))
}

/// The entry of an inode; `Some(None)` for the top directory.
pub(super) fn entry_of(inode: INodeNo, entries: u32) -> Option<Option<u32>> {
    if inode == INodeNo::ROOT {
        return Some(None);
    }
    let entry = u32::try_from(inode.0.checked_sub(ENTRIES_FROM)?).ok()?;
    (entry < entries).then_some(Some(entry))
}

pub(super) fn kind(entry: &TreeEntry<'_>) -> FileType {
    match entry.node {
        TreeNode::Directory => FileType::Directory,
        TreeNode::File { .. } => FileType::RegularFile,
        TreeNode::Symlink(_) => FileType::Symlink,
    }
}

/// What a symbolic link says.
pub(super) fn link_target(entry: &TreeEntry<'_>) -> Option<Vec<u8>> {
    let TreeNode::Symlink(target) = entry.node else { return None };
    match entry.depth == 0 && !target.starts_with(b"/") {
        true => Some([b"../", target].concat()),
        false => Some(target.to_vec()),
    }
}

/// The attributes of an entry, or of the top directory.
pub(super) fn attributes(staged: &StagedView, entry: Option<u32>) -> FileAttr {
    match entry {
        Some(number) => of_entry(staged, number),
        None => top(),
    }
}

/// Those of the top directory, which is there before the manifest is.
pub(super) fn top() -> FileAttr {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    attr(inode(None), FileType::Directory, (0o755, own), (0, UNIX_EPOCH))
}

fn of_entry(staged: &StagedView, number: u32) -> FileAttr {
    let entry = staged.manifest().entry(number);
    let size = match (&entry.node, link_target(&entry)) {
        (TreeNode::File { size, .. }, _) => *size,
        (_, Some(target)) => target.len() as u64,
        _ => 0,
    };
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let owner = staged.owner(&entry).unwrap_or(own);
    let mode = match entry.node {
        TreeNode::Symlink(_) => 0o777,
        _ => staged.mode(&entry),
    };
    let time = time(entry.modified_ns);
    let mut attr = attr(inode(Some(number)), kind(&entry), (mode, owner), (size, time));
    let here: u64 = entry.extents().iter().map(|extent| extent.len).sum();
    attr.blocks = here.div_ceil(SECTOR_LEN);
    attr
}

fn attr(
    ino: INodeNo,
    kind: FileType,
    (perm, (uid, gid)): (u16, (u32, u32)),
    (size, time): (u64, SystemTime),
) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid,
        gid,
        rdev: 0,
        blksize: BLOCK_LEN,
        flags: 0,
    }
}

fn time(modified_ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(modified_ns.unsigned_abs());
    let time = match modified_ns < 0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    time.unwrap_or(UNIX_EPOCH)
}
