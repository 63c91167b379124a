//! Names of listings as the kernel is shown them.

use super::lists::{ListOf, ListTaken, ListedAt};
use super::tree::MountedTree;
use crate::client::{FsCaller, FsError};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime};

impl MountedTree {
    /// The number that listings show of the directory above one.
    fn above(&self, caller: &FsCaller, node: u64) -> Result<u64, FsError> {
        let (inode, known) = {
            let inodes = self.inodes();
            (inodes.inode(node), inodes.above(node))
        };
        let root = self.client.root();
        match (inode, known) {
            _ if node == INodeNo::ROOT.0 => Ok(node),
            (_, Some(above)) => Ok(above),
            (None, None) => Err(FsError::of(libc::ESTALE)),
            (Some(inode), None) => {
                let above = self.client.get(caller, inode)?.record.parent;
                Ok(if above == root.number || above == 0 { INodeNo::ROOT.0 } else { above })
            }
        }
    }

    /// Lists a directory's names from an offset on; each but the first two with what it stands for,
    /// and when that was asked for.
    pub(super) fn list(
        &self,
        caller: &FsCaller,
        (node, handle): (u64, u64),
        offset: u64,
        take: &mut dyn FnMut(&FsCaller, ShownName<'_>) -> Result<ListTaken, FsError>,
    ) -> Result<(), FsError> {
        let opened = self.directory(handle)?;
        for (at, name) in [(0, "."), (1, "..")] {
            let number = match at {
                _ if offset > at => continue,
                0 => node,
                _ => self.above(caller, node)?,
            };
            if take(caller, ShownName::Dot(number, at + 1, name))? == ListTaken::Full {
                return Ok(());
            }
        }
        let clock = || self.inodes().now();
        let ask = || self.ask();
        let of = ListOf {
            client: &self.client,
            thread: caller.thread,
            keep: if self.client.is_one_sided() {
                Duration::ZERO
            } else {
                self.options.keep_time()
            },
            clock: &clock,
            ask: &ask,
        };
        opened.names(&of, offset, |listed| take(caller, ShownName::Listed(listed)))
    }
}

/// A name of a listing.
pub(super) enum ShownName<'a> {
    /// One of the first two: its number, the offset behind it.
    Dot(u64, u64, &'static str),
    /// Another one.
    Listed(ListedAt<'a>),
}

pub(super) fn taken(is_full: bool) -> ListTaken {
    if is_full { ListTaken::Full } else { ListTaken::Yes }
}

/// Attributes of `.` and `..` in listings: only the kind counts.
pub(super) fn dot(number: u64) -> FileAttr {
    let zero = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: zero,
        mtime: zero,
        ctime: zero,
        crtime: zero,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
