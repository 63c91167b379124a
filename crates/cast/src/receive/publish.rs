//! Publishing: each top-level name appears by one rename.

use super::error::ReceiveError;
use super::files::{StagedTree, TopPlace};
use super::make::check_destination;
use super::merge::merge_tree;
use super::options::{PublishMode, ReceiveOptions};
use super::seeds::unmark_above;
use crate::tree::{open_beneath, shown, unlock_directory};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishReport {
    /// How many top-level names.
    pub names: usize,
    /// The hidden directory, if it could not be removed: old files of other users may be in it.
    pub left_behind: Option<PathBuf>,
}

/// The inodes of the top-level entries, which tell them apart after a broken publication.
pub(super) fn inodes(tree: &StagedTree) -> Result<Vec<u64>, ReceiveError> {
    let manifest = tree.manifest();
    let inode = |(top, &entry): (usize, &u32)| {
        let name = manifest.entry(entry).name;
        let directory = match tree.place(top) {
            TopPlace::Staged => tree.fd(),
            TopPlace::Published | TopPlace::Merging => tree.destination().fd(),
        };
        let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| stat.st_ino).map_err(|_| ReceiveError::Disturbed { path: shown(name) })
    };
    manifest.tops().iter().enumerate().map(inode).collect()
}

/// Moves every staged top-level entry to the destination.
pub(super) fn publish_tops(
    tree: &StagedTree,
    options: &ReceiveOptions,
    staging: BorrowedFd<'_>,
) -> Result<usize, ReceiveError> {
    let mode = options.publish;
    let destination = tree.destination();
    unmark_above(destination.fd(), &options.identity)
        .map_err(|errno| ReceiveError::write(destination.path().as_os_str().as_bytes(), errno))?;
    if mode == PublishMode::Merge {
        merge_tree(tree, options, staging)?;
        return Ok(tree.manifest().tops().len());
    }
    let is_untouched =
        (0..tree.manifest().tops().len()).all(|top| tree.place(top) == TopPlace::Staged);
    if is_untouched {
        check_destination(tree.destination(), tree.manifest(), mode)?;
    }
    for (top, &entry) in tree.manifest().tops().iter().enumerate() {
        if tree.place(top) == TopPlace::Staged {
            let name = tree.manifest().entry(entry).name;
            tree.move_top(top, TopPlace::Published, || publish_top(tree, name, mode))?;
            tree.step();
        }
    }
    Ok(tree.manifest().tops().len())
}

fn publish_top(tree: &StagedTree, name: &[u8], mode: PublishMode) -> Result<(), ReceiveError> {
    let (from, to) = (tree.fd(), tree.destination().fd());
    match rename_into(from, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) if tree.destination().is_link(to, name) => {
            return take_over(tree, name, mode);
        }
        Err(Errno::EXIST) if mode == PublishMode::Replace => {}
        renamed => return renamed.map_err(|errno| refused(name, errno)),
    }
    match rename_into(from, to, name, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL) => Err(ReceiveError::NoExchange { path: shown(name) }),
        renamed => renamed.map_err(|errno| refused(name, errno)),
    }
}

/// A link has shown the name until now.
fn take_over(tree: &StagedTree, name: &[u8], mode: PublishMode) -> Result<(), ReceiveError> {
    let (from, to) = (tree.fd(), tree.destination().fd());
    match rename_into(from, to, name, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL) => {
            // Without an exchange (NFS), a directory has no name for a moment.
            fs::unlinkat(to, name, AtFlags::empty()).map_err(|errno| refused(name, errno))?;
            return rename_into(from, to, name, RenameFlags::NOREPLACE)
                .map_err(|errno| refused(name, errno));
        }
        renamed => renamed.map_err(|errno| refused(name, errno))?,
    }
    if mode == PublishMode::Replace || tree.destination().is_link(from, name) {
        return Ok(());
    }
    // Another process has put something in the link's place just now: it keeps it.
    let back = rename_into(from, to, name, RenameFlags::EXCHANGE);
    back.map_err(|errno| refused(name, errno))?;
    Err(ReceiveError::Exists { path: shown(name) })
}

fn refused(name: &[u8], errno: Errno) -> ReceiveError {
    match errno {
        Errno::EXIST | Errno::NOTEMPTY => ReceiveError::Exists { path: shown(name) },
        errno => ReceiveError::write(name, errno),
    }
}

/// Moves a name from one directory to the other.
pub(super) fn rename_into(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &[u8],
    flags: RenameFlags,
) -> Result<(), Errno> {
    let own = LockedDirectory::unlock(from, name)?;
    // An exchange moves what is there as well.
    let other = match flags == RenameFlags::EXCHANGE {
        true => LockedDirectory::unlock(to, name).unwrap_or(None),
        false => None,
    };
    let mut renamed = fs::renameat_with(from, name, to, name, flags);
    if renamed == Err(Errno::INVAL) && flags == RenameFlags::NOREPLACE {
        renamed = rename_to_free(from, to, name);
    }
    for locked in [own, other].into_iter().flatten() {
        locked.lock()?;
    }
    renamed
}

/// For file systems that know no flags (NFS): another process may come between look and rename.
fn rename_to_free(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => fs::renameat(from, name, to, name),
        Ok(_) => Err(Errno::EXIST),
        Err(errno) => Err(errno),
    }
}

/// A directory that its owner may not write to, and which therefore could not be moved: that
/// changes its `..`.
struct LockedDirectory {
    directory: OwnedFd,
    mode: Mode,
}

impl LockedDirectory {
    fn unlock(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Self>, Errno> {
        let stat = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !is_directory || mode.contains(Mode::WUSR) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = || open_beneath(parent, name, flags, Mode::empty());
        let directory = match open() {
            Err(Errno::ACCESS) => {
                unlock_directory(parent, name)?;
                open()?
            }
            opened => opened?,
        };
        // Another user of the destination may have put something else in its place meanwhile.
        let found = fs::fstat(&directory)?;
        if (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Errno::ACCESS);
        }
        fs::fchmod(&directory, mode | Mode::RWXU)?;
        Ok(Some(Self { directory, mode }))
    }

    fn lock(self) -> Result<(), Errno> {
        fs::fchmod(&self.directory, self.mode)
    }
}
