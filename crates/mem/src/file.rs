//! Files to be mapped: whether a file may be, and making a memfd or room in a file for it. An
//! access to a page behind a file's end is a SIGBUS, so the length of a file matters most.
//!
//! Never maps.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::error::{MemError, last_errno};
use crate::shared::Space;

/// The seals of a memfd whose length is fixed.
const FIXED_LENGTH: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// The seals of a memfd whose bytes are fixed as well.
const FIXED_BYTES: libc::c_int = FIXED_LENGTH | libc::F_SEAL_WRITE;
/// The seals of a memfd that cannot be mapped for writing.
const READ_ONLY: libc::c_int = libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE;
/// After a signal, space is reserved in pieces of this many bytes: a signal makes the kernel free
/// all that it has allocated in the call, so that a large call might never finish.
const PIECE: libc::off_t = 16 << 20;

/// The length of a file whose bytes can no longer change: one in memory that is sealed, or one on a
/// disk without a name that no process has open for writing.
pub(crate) fn steady_len(file: BorrowedFd<'_>) -> Result<usize, MemError> {
    let found = status(file)?;
    let is_steady = match seals(file) {
        Some(seals) => seals & FIXED_BYTES == FIXED_BYTES,
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
        return Err(MemError::Map { len: 0, errno: last_errno() });
    }
    // SAFETY: zeroes are a valid `stat`, and the kernel has filled it in.
    Ok(unsafe { found.assume_init() })
}

/// The seals of a memfd; `None` for any other file. The kernel does not count the process that
/// made a memfd as a writer of it, so that only its seals tell. A file of a tmpfs has a seal as
/// well, and its writers are counted.
fn seals(file: BorrowedFd<'_>) -> Option<libc::c_int> {
    // SAFETY: the call takes no pointer and changes nothing.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let is_memfd = || {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Where /proc is missing the stricter rule applies.
        name.map_or(true, |name| name.as_os_str().as_bytes().starts_with(b"/memfd:"))
    };
    (seals >= 0 && (seals != libc::F_SEAL_SEAL || is_memfd())).then_some(seals)
}

/// The kernel grants a read lease only while no process has the file open for writing. A file
/// without a name can be opened again only through /proc of a process that holds it, by a process
/// that may write into the memory of that one anyway.
fn is_private(file: BorrowedFd<'_>, found: &libc::stat) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: the call takes no pointer; the lease is taken back before anybody breaks it.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    let nameless = found.st_nlink == 0 && found.st_mode & libc::S_IFMT == libc::S_IFREG;
    nameless && lease(libc::F_RDLCK) && lease(libc::F_UNLCK)
}

/// A memfd of `len` bytes, which keeps that length.
pub(crate) fn new_memfd(name: &CStr, len: usize, space: Space) -> Result<OwnedFd, MemError> {
    let failed = |errno| MemError::Map { len, errno };
    let end = libc::off_t::try_from(len).map_err(|_| failed(libc::ENOMEM))?;
    // The kernel would allocate page by page, and kill processes when none is left.
    if space == Space::Reserved && len as u64 > memory_of_machine() {
        return Err(MemError::Reserve { len: len as u64, errno: libc::ENOMEM });
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in a zero byte; the new descriptor has no other owner.
    let memfd = unsafe {
        let memfd = libc::memfd_create(name.as_ptr(), flags);
        if memfd < 0 {
            return Err(failed(last_errno()));
        }
        OwnedFd::from_raw_fd(memfd)
    };
    // SAFETY: the call takes no pointer.
    if unsafe { libc::ftruncate(memfd.as_raw_fd(), end) } != 0 {
        return Err(failed(last_errno()));
    }
    if space == Space::Reserved {
        reserve(memfd.as_fd(), 0, end)?;
    }
    // SAFETY: the call takes no pointer.
    if unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, FIXED_LENGTH) } != 0 {
        return Err(failed(last_errno()));
    }
    Ok(memfd)
}

/// The length of a memfd that is sealed as [`new_memfd`] does it.
pub(crate) fn sealed_len(memfd: BorrowedFd<'_>) -> Result<usize, MemError> {
    match seals(memfd) {
        Some(seals) if seals & FIXED_LENGTH == FIXED_LENGTH && seals & READ_ONLY == 0 => {}
        found => return Err(MemError::Seals { found }),
    }
    let len = status(memfd)?.st_size;
    usize::try_from(len).map_err(|_| MemError::Map { len: usize::MAX, errno: libc::EOVERFLOW })
}

/// Checks that a regular file has the bytes of `range`, after making it have them if space is to be
/// reserved. Gives where the range starts, and its length.
pub(crate) fn provide(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    space: Space,
) -> Result<(libc::off_t, usize), MemError> {
    let before = status(file)?;
    if before.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(MemError::NotRegular);
    }
    let outside = |size: libc::off_t| MemError::FileRange {
        start: range.start,
        end: range.end,
        size: u64::try_from(size).unwrap_or_default(),
    };
    let ends = (range.start.try_into(), range.end.try_into());
    let (Ok(start), Ok(end)) = ends else { return Err(outside(before.st_size)) };
    let len = range.end.checked_sub(range.start).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or_else(|| outside(before.st_size))?;
    let page = page_size();
    if !range.start.is_multiple_of(page as u64) {
        return Err(MemError::Pages { addr: 0, offset: range.start, len, page });
    }
    if space == Space::Reserved {
        reserve(file, start, end)?;
    }
    let size = status(file)?.st_size;
    if end > size { Err(outside(size)) } else { Ok((start, len)) }
}

/// Has the file system allocate the bytes `start..end` of a file, which grows if it is shorter.
fn reserve(file: BorrowedFd<'_>, start: libc::off_t, end: libc::off_t) -> Result<(), MemError> {
    let (mut at, mut piece) = (start, end - start);
    while at < end {
        let len = piece.min(end - at);
        // SAFETY: the call takes no pointer.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, at, len) } == 0 {
            at += len;
            continue;
        }
        match last_errno() {
            libc::EINTR => piece = PIECE,
            errno => return Err(MemError::Reserve { len: (end - start).unsigned_abs(), errno }),
        }
    }
    Ok(())
}

/// Bytes of memory that this machine has, used or not.
fn memory_of_machine() -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel writes one `sysinfo` into memory that is ours and large enough; zeroes
    // are one as well.
    let found = unsafe {
        libc::sysinfo(found.as_mut_ptr());
        found.assume_init()
    };
    found.totalram.saturating_mul(u64::from(found.mem_unit))
}

/// Length of a page in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
