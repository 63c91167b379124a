//! Extended attributes: asked for, unless it is known that an inode has none. The kernel asks
//! before it writes to a file and before it changes its attributes.

use super::tree::MountedTree;
use crate::client::{FsCaller, FsError};
use crate::protocol::FsInode;
use std::time::Instant;

impl MountedTree {
    /// A value.
    pub(super) fn xattr(
        &self,
        caller: &FsCaller,
        node: u64,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let inode = self.inode(node)?;
        let is_ordinary = name.starts_with(b"user.") || name == b"security.capability";
        match is_ordinary && self.has_no_xattrs(inode) {
            true => Err(FsError::of(libc::ENODATA)),
            false => self.client.xattr(caller, inode, name),
        }
    }

    /// The names, each with a byte of 0.
    pub(super) fn xattr_names(&self, caller: &FsCaller, node: u64) -> Result<Vec<u8>, FsError> {
        let inode = self.inode(node)?;
        match self.has_no_xattrs(inode) {
            true => Ok(Vec::new()),
            false => self.client.xattr_names(caller, inode),
        }
    }

    /// Sets one: name and value.
    pub(super) fn set_xattr(
        &self,
        caller: &FsCaller,
        node: u64,
        pair: (&[u8], &[u8]),
        flags: u32,
    ) -> Result<(), FsError> {
        let inode = self.inode(node)?;
        let set = self.client.set_xattr(caller, inode, pair, flags);
        self.xattrs_changed(inode);
        set
    }

    /// Removes one.
    pub(super) fn remove_xattr(
        &self,
        caller: &FsCaller,
        node: u64,
        name: &[u8],
    ) -> Result<(), FsError> {
        let inode = self.inode(node)?;
        let removed = self.client.remove_xattr(caller, inode, name);
        self.xattrs_changed(inode);
        removed
    }

    fn has_no_xattrs(&self, inode: FsInode) -> bool {
        let known = self.known().record(inode, Instant::now());
        known.is_some_and(|(answer, _)| answer.record.xattrs == 0)
    }

    /// The answer has no record: what it is now is asked for.
    fn xattrs_changed(&self, inode: FsInode) {
        self.known().attributes_changed(inode);
        self.inodes().touch(inode);
    }
}
