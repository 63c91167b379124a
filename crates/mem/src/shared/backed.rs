//! Regions whose pages have a descriptor: memfds, which processes hand to each other, and files
//! that are mapped shared. Such a region can be mapped a second time.
//!
//! The only way to the bytes is the one that all regions have (copies and 64-bit accesses); a
//! second mapping gives its address and no reference.
//!
//! What can make a page of a mapping missing, and what prevents it:
//! - A memfd cannot be shortened: its seals forbid it to every process.
//! - Linux has no lock against shortening an ordinary file (`flock` and `fcntl` locks are advisory,
//!   a lease only delays), so a process that may write the file can take pages away. Accesses to
//!   them then fail with [`MemError::Missing`] on x86-64 and aarch64, and end the process elsewhere
//!   (SIGBUS).
//! - [`Space::Reserved`] excludes that pages are missing because the file system or the memory is
//!   full.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use super::{Backing, Owner, SharedRegion};
use crate::error::MemError;
use crate::file;
use crate::mapping::{Mapping, Rights, SecondMapping};
use crate::slice::range_len;

/// When the blocks or pages of a region are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// When it is made: then a full file system or memory is an error of the constructor.
    Reserved,
    /// At first use: then it is a [`MemError::Missing`] of an access.
    OnDemand,
}

impl SharedRegion {
    /// `len` zero bytes in a memfd, sealed against shrinking and growing. The `name` is for
    /// debugging: `/proc/PID/maps` shows it. [`Space::Reserved`] refuses more than this machine's
    /// whole memory; how much of it others leave, the caller must know.
    ///
    /// # Errors
    /// [`MemError::Map`], [`MemError::Reserve`] if this machine has no such memory.
    pub fn memfd(name: &CStr, len: usize, space: Space) -> Result<Self, MemError> {
        let memfd = file::new_memfd(name, len, space)?;
        Self::shared(memfd, 0, len)
    }

    /// The bytes of a memfd that another process made (or this one did before), whole.
    ///
    /// # Errors
    /// [`MemError::Seals`] unless it is sealed as [`memfd`](Self::memfd) does it;
    /// [`MemError::Map`] if this machine refuses.
    pub fn from_memfd(memfd: impl Into<OwnedFd>) -> Result<Self, MemError> {
        let memfd = memfd.into();
        let len = file::sealed_len(memfd.as_fd())?;
        Self::shared(memfd, 0, len)
    }

    /// The bytes `range` of a regular file that is open for reading and writing. What is written
    /// into the region is written into the file. With [`Space::Reserved`] a file that is too short
    /// grows; when that fails, it may have grown in part.
    ///
    /// Shorten the file only when the region is gone: see [the module](crate::shared::backed).
    ///
    /// # Errors
    /// [`MemError::FileRange`], [`MemError::Pages`] if the range starts inside a page,
    /// [`MemError::NotRegular`]; [`MemError::Reserve`] if the file system has no such space;
    /// [`MemError::Map`] if this machine refuses.
    pub fn map_file(file: impl AsFd, range: Range<u64>, space: Space) -> Result<Self, MemError> {
        let file = file.as_fd();
        let (offset, len) = file::provide(file, range, space)?;
        let duplicate = duplicate(file, len)?;
        Self::shared(duplicate, offset, len)
    }

    /// A part of a memfd whose length is sealed and reaches as far; `offset` is a multiple of the
    /// page size.
    pub(crate) fn of_memfd_part(
        memfd: impl AsFd,
        offset: usize,
        len: usize,
    ) -> Result<Self, MemError> {
        let memfd = duplicate(memfd.as_fd(), len)?;
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| MemError::Map { len, errno: libc::EOVERFLOW })?;
        Self::shared(memfd, offset, len)
    }

    fn shared(file: OwnedFd, offset: libc::off_t, len: usize) -> Result<Self, MemError> {
        let pages = match len {
            0 => None,
            _ => Some(Mapping::shared(file.as_fd(), offset, len)?),
        };
        let start = pages.as_ref().map_or(NonNull::dangling(), Mapping::start);
        let backing = Some(Backing { file, offset });
        Ok(Self { start, len, owner: Owner::of(pages, backing) })
    }

    /// A descriptor of the memfd or the file, to hand to another process or to
    /// [`from_memfd`](Self::from_memfd).
    ///
    /// # Errors
    /// [`MemError::NotShared`] if the region has none; [`MemError::Map`] if this process has too
    /// many descriptors.
    pub fn descriptor(&self) -> Result<OwnedFd, MemError> {
        duplicate(self.backing()?.file.as_fd(), self.len())
    }

    /// Maps the pages of `range` a second time, from `addr` on: for code that can access only
    /// addresses of its own, such as a WebAssembly module's linear memory. It sees what is written
    /// through the region at once, and the other way round.
    ///
    /// # Safety
    /// - The addresses are the caller's alone: `range.len()` bytes from `addr` are one or more
    ///   mappings (usually a reservation without access) that no Rust value lies in.
    /// - Until the result is dropped, the caller neither unmaps the addresses nor maps anything
    ///   there; then, or after [`MemError::Map`], they are mapped without access, and the caller
    ///   unmaps them.
    /// - Peers and other processes may change the bytes at any time. No reference to them may
    ///   exist; the code that accesses them must be correct for memory that races, as compiled
    ///   WebAssembly and a region [`from_raw`](Self::from_raw) are.
    /// - Where pages can be missing (see [the module](crate::shared::backed)), such an access is a
    ///   SIGBUS that the caller handles; accesses through the region return an error as before.
    ///
    /// # Errors
    /// [`MemError::NotShared`] for a region that has no descriptor, [`MemError::OutOfBounds`],
    /// [`MemError::Pages`] if `addr` or an end of the range lies inside a page or the range is
    /// empty: then nothing has changed. [`MemError::Map`] if this machine refuses.
    pub unsafe fn map_again_at(
        &self,
        addr: NonNull<u8>,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<SecondMapping, MemError> {
        let len = range_len(&range, self.len)?;
        self.check(range.start, len)?;
        // SAFETY: the caller's contract; the range is inside.
        unsafe { self.map_pages_again_at(addr, range.start, len, rights) }
    }

    /// As [`map_again_at`](Self::map_again_at), whole pages, of which the last may reach behind the
    /// region's end.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn map_pages_again_at(
        &self,
        addr: NonNull<u8>,
        start: usize,
        len: usize,
        rights: Rights,
    ) -> Result<SecondMapping, MemError> {
        let backing = self.backing()?;
        let page = file::page_size();
        let at = addr.as_ptr().addr();
        if len == 0 || [at, start, len].iter().any(|number| number % page != 0) {
            return Err(MemError::Pages { addr: at, offset: start as u64, len, page });
        }
        let offset = start;
        let start = libc::off_t::try_from(start)
            .map_err(|_| MemError::Map { len, errno: libc::EOVERFLOW })?;
        let source = (backing.file.as_fd(), backing.offset + start);
        // SAFETY: the caller's contract; page alignment was checked.
        let mapping = unsafe { SecondMapping::new(self.clone(), (addr, len), source, rights) }?;
        if let Some(lazy) = self.owner.lazy() {
            lazy.watch(at, len, offset, rights)?;
        }
        Ok(mapping)
    }

    pub(super) fn backing(&self) -> Result<&Backing, MemError> {
        self.owner.backing.as_ref().ok_or(MemError::NotShared)
    }
}

fn duplicate(file: BorrowedFd<'_>, len: usize) -> Result<OwnedFd, MemError> {
    file.try_clone_to_owned()
        .map_err(|error| MemError::Map { len, errno: error.raw_os_error().unwrap_or(libc::EMFILE) })
}
