//! Removing a tree beneath an open directory, never through a symbolic link, and nothing of what is
//! mounted in it.

use crate::tree::{DEPTH_MAX, open_on_same_mount, unlock_directory};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};

/// What an owner needs in order to remove what is in a directory.
const OWNER_ALL: Mode = Mode::RWXU;

/// Removes what has this name, with everything in it; nothing is no error.
///
/// # Errors
/// The file system's, for what could not be removed; the rest is. [`Errno::NAMETOOLONG`] for
/// directories deeper in one another than a cast can make them twice, [`Errno::BUSY`] for what is
/// mounted there.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    remove(parent, name, 2 * DEPTH_MAX, &|| ())
}

/// Removes everything in an open directory; `goes_on` is called after each name.
pub(super) fn remove_contents(directory: BorrowedFd<'_>, goes_on: &dyn Fn()) -> Result<()> {
    empty(directory, 2 * DEPTH_MAX, goes_on)
}

fn remove(
    parent: BorrowedFd<'_>,
    name: &[u8],
    depth_left: usize,
    goes_on: &dyn Fn(),
) -> Result<()> {
    goes_on();
    let refused = match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(errno @ (Errno::ISDIR | Errno::PERM)) => errno,
        Err(errno) => return Err(errno),
    };
    let depth_left = depth_left.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let directory = open_to_empty(parent, name).map_err(|errno| match errno {
        // A file that is immutable.
        Errno::NOTDIR | Errno::LOOP => refused,
        Errno::XDEV => Errno::BUSY,
        errno => errno,
    })?;
    empty(directory.as_fd(), depth_left, goes_on)?;
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn open_to_empty(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_on_same_mount(parent, name, flags).or_else(|errno| {
        if errno != Errno::ACCESS {
            return Err(errno);
        }
        // The owner may have taken its own rights away.
        unlock_directory(parent, name)?;
        open_on_same_mount(parent, name, flags)
    })
}

fn empty(directory: BorrowedFd<'_>, depth_left: usize, goes_on: &dyn Fn()) -> Result<()> {
    let mut names = Vec::new();
    // The directory may have been read before through the same description.
    fs::seek(directory, fs::SeekFrom::Start(0))?;
    for_each_name(directory, |name| names.push(name.to_owned()))?;
    let mut first = Ok(());
    let mut is_unlocked = false;
    for name in names {
        let mut removed = remove(directory, name.to_bytes(), depth_left, goes_on);
        if removed == Err(Errno::ACCESS) && !is_unlocked {
            is_unlocked = fs::fchmod(directory, OWNER_ALL).is_ok();
            removed = remove(directory, name.to_bytes(), depth_left, goes_on);
        }
        first = first.and(removed);
    }
    first
}
