//! Directories at the destination that a merge makes writable for the moment, and the list of them
//! in the staging directory, from which they get their modes back whatever becomes of the merge.
//!
//! A mode is changed back only where it still is what the merge has made of it.

use crate::sign::write_all_at;
use crate::tree::{open_beneath, read_exactly_at};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// The list, in the staging directory.
const UNLOCKED: &str = "unlocked";
/// Bytes of the longest list that is read.
const LIST_LEN_MAX: u64 = 256 << 20;
/// What an owner needs in order to put names into a directory.
const OWNER_ALL: Mode = Mode::RWXU;

/// The list of a staging directory that this process has locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnlockedDirectories<'a> {
    pub(super) staging: BorrowedFd<'a>,
    pub(super) destination: BorrowedFd<'a>,
}

impl UnlockedDirectories<'_> {
    /// Makes a directory writable that is this user's, and opens it; one that is so already is only
    /// opened. `path` is relative to the destination, `parent` holds `name`, its last part.
    ///
    /// # Errors
    /// The file system's: [`Errno::PERM`] for another user's that may not be written to.
    pub(super) fn unlock(
        self,
        (parent, name): (BorrowedFd<'_>, &[u8]),
        path: &[u8],
    ) -> Result<OwnedFd, Errno> {
        // Needs no right to read it; what is opened stays the same whatever gets its name.
        let found = open_beneath(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let mode = Mode::from_raw_mode(fs::fstat(&found)?.st_mode & 0o7777);
        if !mode.contains(OWNER_ALL) {
            self.note(mode, path)?;
            let own = format!("/proc/self/fd/{}", found.as_raw_fd());
            fs::chmodat(fs::CWD, own, mode | OWNER_ALL, AtFlags::empty())?;
        }
        open_beneath_itself(&found)
    }

    /// A directory's mode, on disk before it is changed.
    fn note(self, mode: Mode, path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let access = Mode::RUSR | Mode::WUSR;
        let list = open_beneath(self.staging, UNLOCKED.as_bytes(), flags, access)?;
        let end = u64::try_from(fs::fstat(&list)?.st_size).unwrap_or(0);
        let len = u32::try_from(path.len()).map_err(|_| Errno::NAMETOOLONG)?;
        let mut record = mode.as_raw_mode().to_le_bytes().to_vec();
        record.extend_from_slice(&len.to_le_bytes());
        record.extend_from_slice(path);
        write_all_at(&list, &record, end)
    }

    /// All directories have the modes that they shall have.
    pub(super) fn forget(self) {
        // What stays is looked at again, and changes nothing where modes are others by now.
        let _ = fs::unlinkat(self.staging, UNLOCKED, AtFlags::empty());
    }

    /// Gives directories their modes back, the innermost first.
    pub(super) fn lock(self) {
        let Some(list) = self.read() else { return };
        for (mode, path) in records(&list).into_iter().rev() {
            if let Err(error) = self.lock_one(mode, path) {
                let path = String::from_utf8_lossy(path);
                tracing::warn!(%path, %error, "a directory cannot get its mode back");
            }
        }
        self.forget();
    }

    fn lock_one(self, mode: Mode, path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = open_beneath(self.destination, path, flags, Mode::empty())?;
        let now = Mode::from_raw_mode(fs::fstat(&directory)?.st_mode & 0o7777);
        if now == mode | OWNER_ALL { fs::fchmod(&directory, mode) } else { Ok(()) }
    }

    fn read(self) -> Option<Vec<u8>> {
        // Whatever stands there, opening it waits for nothing.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let list = open_beneath(self.staging, UNLOCKED.as_bytes(), flags, Mode::empty()).ok()?;
        let len = u64::try_from(fs::fstat(&list).ok()?.st_size).ok()?.min(LIST_LEN_MAX);
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        read_exactly_at(&list, &mut bytes, 0).ok()?;
        Some(bytes)
    }
}

/// Opens for reading what is open as a path.
fn open_beneath_itself(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    use rustix::fd::AsFd;
    open_beneath(directory.as_fd(), b"", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// The records of a list; a last one that was not written whole counts not.
fn records(mut list: &[u8]) -> Vec<(Mode, &[u8])> {
    let mut found = Vec::new();
    while let Some((mode, rest)) = list.split_first_chunk()
        && let Some((len, rest)) = rest.split_first_chunk()
        && let Some((path, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)
    {
        found.push((Mode::from_raw_mode(u32::from_le_bytes(*mode) & 0o7777), path));
        list = rest;
    }
    found
}
