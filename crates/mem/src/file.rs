//! Files that may be mapped: only those that nobody can shorten any more, because touching a page
//! behind a file's end is a SIGBUS.
//!
//! Looks and never maps; a descriptor is borrowed for the look.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::MemError;

/// The seals without which a file in memory is not steady.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// The length of a file whose bytes can no longer change: one in memory that is sealed, or one
/// on a disk without a name that nobody has open for writing.
pub(crate) fn steady_len(file: BorrowedFd<'_>) -> Result<usize, MemError> {
    let found = status(file)?;
    let is_steady = match seals(file) {
        Some(seals) => seals & SEALS == SEALS,
        None => is_private(file, &found),
    };
    if !is_steady {
        return Err(MemError::Unsteady);
    }
    // Asked again: until a moment ago it could have changed.
    let len = status(file)?.st_size;
    usize::try_from(len).map_err(|_| MemError::Unsteady)
}

fn status(file: BorrowedFd<'_>) -> Result<libc::stat, MemError> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes one `stat` into memory that is ours and large enough.
    let result = unsafe { libc::fstat(file.as_raw_fd(), found.as_mut_ptr()) };
    if result != 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EBADF);
        return Err(MemError::Map { len: 0, errno });
    }
    // SAFETY: zeroes are a valid `stat`, and the kernel has filled it in.
    Ok(unsafe { found.assume_init() })
}

/// The seals of a file in memory; `None` for a file on a disk. The former is not counted as open
/// for writing by who made it, so that only its seals tell.
fn seals(file: BorrowedFd<'_>) -> Option<libc::c_int> {
    // SAFETY: the call takes no pointer and changes nothing.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    (seals >= 0).then_some(seals)
}

/// The kernel grants a read lease only while nobody has the file open for writing. Without a name
/// it is opened again only through /proc of a process that holds it, by who might as well write
/// into that process's memory.
fn is_private(file: BorrowedFd<'_>, found: &libc::stat) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: the call takes no pointer; the lease is taken back before anybody breaks it.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    let nameless = found.st_nlink == 0 && found.st_mode & libc::S_IFMT == libc::S_IFREG;
    nameless && lease(libc::F_RDLCK) && lease(libc::F_UNLCK)
}
