//! An empty tree in the staging directory, with the space for its data reserved.
//!
//! Everything is the receiver's alone until it is sealed: directories 0700, files 0600. Holes stay
//! holes. On file systems without fallocate(2) nothing is reserved, only counted before.

use super::error::ReceiveError;
use super::options::{Destination, PublishMode, SecurityXattrs};
use crate::tree::{ParentCursor, TreeEntry, TreeManifest, TreeNode, open_beneath, shown};
use rustix::fd::BorrowedFd;
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// Refuses what could not be published in the end, before anything is transferred.
pub(super) fn check_destination(
    destination: &Destination,
    manifest: &TreeManifest,
    mode: PublishMode,
) -> Result<(), ReceiveError> {
    let mut names = manifest.tops().iter().map(|top| manifest.entry(*top).name);
    if let Some(name) = names.find(|name| destination.is_reserved(name)) {
        return Err(ReceiveError::Reserved { path: shown(name) });
    }
    if mode != PublishMode::New {
        return Ok(());
    }
    for &top in manifest.tops() {
        let name = manifest.entry(top).name;
        match fs::statat(destination.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) if destination.is_link(destination.fd(), name) => {}
            Ok(_) => return Err(ReceiveError::Exists { path: shown(name) }),
            Err(errno) => return Err(ReceiveError::write(name, errno)),
        }
    }
    Ok(())
}

/// Makes all entries in the empty directory `tree`, unless one has an attribute that is not kept.
/// Tells of each: millions take a while.
pub(super) fn make_tree(
    tree: BorrowedFd<'_>,
    manifest: &TreeManifest,
    security: SecurityXattrs,
    made_one: impl Fn(),
) -> Result<(), ReceiveError> {
    check_room(tree, manifest)?;
    let mut parents = ParentCursor::new(tree, manifest);
    for index in 0..manifest.len() {
        let entry = manifest.entry(index);
        if security == SecurityXattrs::Refuse {
            refuse_security_xattrs(manifest, index, &entry)?;
        }
        let made = parents.of(index).and_then(|parent| make(parent, &entry));
        made.map_err(|errno| ReceiveError::write(&manifest.path(index), errno))?;
        made_one();
    }
    Ok(())
}

/// A source sends attributes of the kernel's only on request: dropped, they would be missed.
fn refuse_security_xattrs(
    manifest: &TreeManifest,
    index: u32,
    entry: &TreeEntry<'_>,
) -> Result<(), ReceiveError> {
    match entry.xattrs.iter().find(|xattr| xattr.name.starts_with(b"security.")) {
        None => Ok(()),
        Some(xattr) => Err(ReceiveError::SecurityXattr {
            path: shown(&manifest.path(index)),
            name: String::from_utf8_lossy(xattr.name).into_owned(),
        }),
    }
}

/// A quick look, so that what cannot fit at all is refused at once.
fn check_room(tree: BorrowedFd<'_>, manifest: &TreeManifest) -> Result<(), ReceiveError> {
    let Ok(room) = fs::fstatvfs(tree) else { return Ok(()) };
    let data_len = manifest.stream_len() - manifest.bytes().len() as u64;
    // File systems without a limit tell of no blocks, or of no inodes.
    let free_len = match room.f_blocks {
        0 => u64::MAX,
        _ => room.f_bfree.saturating_mul(room.f_frsize),
    };
    let free_entries = if room.f_files == 0 { u64::MAX } else { room.f_ffree };
    let needs = [
        (data_len, free_len, "bytes"),
        (u64::from(manifest.len()), free_entries, "files and directories"),
    ];
    match needs.into_iter().find(|(needed, free, _)| needed > free) {
        Some((needed, free, what)) => Err(ReceiveError::NoRoom { needed, free, what }),
        None => Ok(()),
    }
}

fn make(parent: BorrowedFd<'_>, entry: &TreeEntry<'_>) -> Result<(), Errno> {
    match &entry.node {
        TreeNode::Directory => fs::mkdirat(parent, entry.name, Mode::RWXU),
        TreeNode::Symlink(target) => fs::symlinkat(*target, parent, entry.name),
        TreeNode::File { size, .. } => make_file(parent, entry, *size),
    }
}

fn make_file(parent: BorrowedFd<'_>, entry: &TreeEntry<'_>, size: u64) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = open_beneath(parent, entry.name, flags, Mode::RUSR | Mode::WUSR)?;
    if size > 0 {
        fs::ftruncate(&file, size)?;
    }
    for extent in entry.extents() {
        let reserve = || fs::fallocate(&file, FallocateFlags::empty(), extent.offset, extent.len);
        match retry_on_intr(reserve) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            reserved => reserved?,
        }
    }
    Ok(())
}
