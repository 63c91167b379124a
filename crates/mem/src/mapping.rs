//! Pages from `mmap`: mappings at an address of the kernel's choice, and second mappings of the
//! same pages at an address of the caller's.
//!
//! Maps and unmaps, and never accesses a page.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::error::{MemError, last_errno};
use crate::racy;
use crate::shared::SharedRegion;

/// A mapping that is unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only an address to unmap; nothing is accessed through it.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` zero bytes.
    pub(crate) fn anonymous(len: usize) -> Result<Self, MemError> {
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// As [`anonymous`](Self::anonymous), in large pages where the kernel gives them.
    pub(crate) fn in_large_pages(len: usize) -> Result<Self, MemError> {
        let mapping = Self::anonymous(len)?;
        // SAFETY: it is one whole mapping of this type; the advice changes no byte of it. A kernel
        // without large pages refuses, and the mapping is as good.
        unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    /// `len` bytes of a file from `offset`; what is written stays in this mapping.
    pub(crate) fn private(
        file: BorrowedFd<'_>,
        offset: libc::off_t,
        len: usize,
    ) -> Result<Self, MemError> {
        // Its disk may fail; unless it is steady (`steady_len`), it may be shortened.
        racy::expect_missing();
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_NORESERVE, file.as_raw_fd(), offset)
    }

    /// `len` bytes of a file from `offset`, which every mapping of the file has in common.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: libc::off_t,
        len: usize,
    ) -> Result<Self, MemError> {
        // The file may be shortened, its file system may be full, its disk may fail.
        racy::expect_missing();
        Self::new(len, libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    fn new(
        len: usize,
        flags: libc::c_int,
        file: libc::c_int,
        offset: libc::off_t,
    ) -> Result<Self, MemError> {
        if isize::try_from(len).is_err() {
            return Err(MemError::Map { len, errno: libc::ENOMEM });
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces no other.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, file, offset) };
        match NonNull::new(start.cast()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Ok(Self { start, len }),
            _ => Err(MemError::Map { len, errno: last_errno() }),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are one whole mapping of this type, and no owner is left that
        // could access it.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert_eq!(result, 0, "munmap of our own mapping");
    }
}

/// What the code at the caller's address may do with a second mapping. The region it was made of
/// stays readable and writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Loads; a store is a SIGSEGV.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

impl Rights {
    pub(crate) fn protection(self) -> libc::c_int {
        match self {
            Self::ReadOnly => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Pages of a region that are mapped a second time, made by
/// [`SharedRegion::map_again_at`]. Offers no access to the bytes: the code that the caller runs at
/// this address has it. When this is dropped, pages without access take the mapping's place, so
/// that the kernel never gives the addresses to another mapping; the caller unmaps them.
#[derive(Debug)]
pub struct SecondMapping {
    start: NonNull<u8>,
    len: usize,
    /// Not sole while its pages are reached another way.
    region: SharedRegion,
}

// SAFETY: only an address to map something else at; nothing is accessed through it.
unsafe impl Send for SecondMapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for SecondMapping {}

impl SecondMapping {
    /// Replaces what is mapped at `start` by `len` bytes of `file` from `offset`, which is a
    /// multiple of the page size, as `start` and `len` are.
    ///
    /// # Safety
    /// That of [`SharedRegion::map_again_at`].
    pub(crate) unsafe fn new(
        region: SharedRegion,
        (start, len): (NonNull<u8>, usize),
        (file, offset): (BorrowedFd<'_>, libc::off_t),
        rights: Rights,
    ) -> Result<Self, MemError> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = start.as_ptr().cast();
        // SAFETY: the caller owns these addresses, and nothing else that they stand for.
        let mapped =
            unsafe { libc::mmap(at, len, rights.protection(), flags, file.as_raw_fd(), offset) };
        if mapped != libc::MAP_FAILED {
            return Ok(Self { start, len, region });
        }
        let errno = last_errno();
        // The kernel may have unmapped what was there before it failed.
        // SAFETY: as above.
        unsafe { take_access(start, len) };
        Err(MemError::Map { len, errno })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Length in bytes, a multiple of the page size.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for SecondMapping {
    fn drop(&mut self) {
        self.region.forget_lazy(self.start.as_ptr().addr());
        // SAFETY: the caller of `map_again_at` has left these addresses to this mapping.
        unsafe { take_access(self.start, self.len) };
    }
}

/// Replaces what is mapped by pages without access, in one step. Where the kernel has no
/// room for another mapping (it looks before it unmaps), the pages stay and lose their rights.
///
/// # Safety
/// The addresses are the caller's, and nothing accesses them any more except accesses that may
/// fault.
unsafe fn take_access(start: NonNull<u8>, len: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let start = start.as_ptr().cast();
    // SAFETY: by the caller's contract.
    let is_done = unsafe {
        libc::mmap(start, len, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED
            || libc::mprotect(start, len, libc::PROT_NONE) == 0
    };
    debug_assert!(is_done, "a mapping of the caller's keeps its place");
}
