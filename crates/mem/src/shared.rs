//! Remotely accessible memory: copied in and out, never seen as a `&[u8]`.
//!
//! Any number of threads and our engine (for the peers) may access a region at the same time;
//! bytes may then be a mixture of old and new, as RDMA has it (RFC 5040 §5.5 orders nothing
//! before completion), but never undefined behaviour: all accesses go through `racy`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use crate::error::MemError;
use crate::file::{provide, steady_len};
use crate::mapping::Mapping;
use crate::racy;
use crate::slice::{SharedSlice, check, range_len};

pub mod backed;
mod gate;
mod lazy;
pub use backed::Space;
use gate::Gate;
pub use gate::{ClosedGate, DirectWrite};
use lazy::Lazy;
pub use lazy::LazyFill;

/// Memory that peers may be allowed to read and write. Cloning it shares the same bytes.
#[derive(Clone, Debug)]
pub struct SharedRegion {
    start: NonNull<u8>,
    len: usize,
    /// What clones and slices have in common, and no other region over the same bytes has.
    owner: Arc<Owner>,
}

/// What keeps the bytes mapped; all absent for the caller's memory of `from_raw`.
#[derive(Debug, Default)]
struct Owner {
    /// The region's own pages, if any.
    _pages: Option<Mapping>,
    backing: Option<Backing>,
    gate: OnceLock<Gate>,
    lazy: OnceLock<Arc<Lazy>>,
}

impl Owner {
    fn of(pages: Option<Mapping>, backing: Option<Backing>) -> Arc<Self> {
        Arc::new(Self { _pages: pages, backing, ..Self::default() })
    }

    fn lazy(&self) -> Option<&Lazy> {
        self.lazy.get().map(Arc::as_ref)
    }

    #[inline]
    fn gate(&self) -> Option<&Gate> {
        self.gate.get()
    }
}

/// The descriptor that the pages are mapped from, shared.
#[derive(Debug)]
struct Backing {
    file: OwnedFd,
    /// Where in the file the region starts.
    offset: libc::off_t,
}

// SAFETY: the bytes are accessed only through `racy`, that is by (a model of) atomic accesses,
// which any thread may do; they stay valid while any clone lives (mapping, or `from_raw`).
unsafe impl Send for SharedRegion {}
// SAFETY: as for `Send`; no method needs exclusive access.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// `len` zero bytes, page-aligned; `len` may be 0.
    ///
    /// # Errors
    /// [`MemError::Map`] if this machine has no such memory.
    pub fn zeroed(len: usize) -> Result<Self, MemError> {
        if len == 0 {
            let owner = Owner::of(None, None);
            return Ok(Self { start: NonNull::dangling(), len, owner });
        }
        Ok(Self::of_mapping(Mapping::anonymous(len)?))
    }

    /// As [`zeroed`](Self::zeroed), for memory of which all will be used: in large pages where the
    /// kernel gives them, which costs a fault for each of those instead of for each small one.
    ///
    /// # Errors
    /// [`MemError::Map`] if this machine has no such memory.
    pub fn zeroed_in_large_pages(len: usize) -> Result<Self, MemError> {
        if len == 0 { Self::zeroed(0) } else { Ok(Self::of_mapping(Mapping::in_large_pages(len)?)) }
    }

    /// The bytes of a file that can no longer change: one in memory with the seals against
    /// shrinking, growing and writing, or one on a disk without a name that no process has open for
    /// writing. Its pages are shared until they are written; what is written stays here. The
    /// descriptor may be closed.
    ///
    /// # Errors
    /// [`MemError::Unsteady`] for any other file; [`MemError::Map`] if this machine refuses.
    pub fn of_file(file: impl AsFd) -> Result<Self, MemError> {
        let len = steady_len(file.as_fd())?;
        if len == 0 {
            return Self::zeroed(0);
        }
        Ok(Self::of_mapping(Mapping::private(file.as_fd(), 0, len)?))
    }

    /// The bytes `range` of a regular file that is open for reading, as they are: other programs
    /// may change them at any time. What is written into the region stays here. The descriptor may
    /// be closed. Where the file is shortened, accesses fail with [`MemError::Missing`] on x86-64
    /// and aarch64, and end the process elsewhere.
    ///
    /// # Errors
    /// [`MemError::FileRange`], [`MemError::Pages`] if the range starts inside a page,
    /// [`MemError::NotRegular`]; [`MemError::Map`] if this machine refuses.
    pub fn view_file(file: impl AsFd, range: Range<u64>) -> Result<Self, MemError> {
        let (offset, len) = provide(file.as_fd(), range, Space::OnDemand)?;
        if len == 0 {
            return Self::zeroed(0);
        }
        Ok(Self::of_mapping(Mapping::private(file.as_fd(), offset, len)?))
    }

    fn of_mapping(mapping: Mapping) -> Self {
        let (start, len) = (mapping.start(), mapping.len());
        let owner = Owner::of(Some(mapping), None);
        Self { start, len, owner }
    }

    /// Adopts memory that the caller allocated, such as a C program's buffer.
    ///
    /// # Safety
    /// Until the last clone, slice, registration and [`Span`] of it is gone: `ptr` is valid for
    /// reads of `len` bytes (at most `isize::MAX`), and for writes if anything writes, from any
    /// thread; and no Rust code accesses the bytes other than through clones of this region. If
    /// `len` is 0, `ptr` may be anything. Pages may be missing: accesses to them fail with
    /// [`MemError::Missing`] on x86-64 and aarch64, and end the process elsewhere.
    #[must_use]
    pub unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        racy::expect_missing();
        let (start, len) = match NonNull::new(ptr) {
            Some(start) => (start, len),
            None => (NonNull::dangling(), 0),
        };
        Self { start, len, owner: Owner::of(None, None) }
    }

    /// Appends a copy of memory that the caller allocated and that peers may be writing, as
    /// [`append_to`](Self::append_to) does, without adopting it.
    ///
    /// # Safety
    /// `from` is valid for reads of `len` bytes (at most `isize::MAX`) until the call returns, or
    /// missing, and until then no Rust code writes the bytes other than through regions over them.
    ///
    /// # Errors
    /// [`MemError::Missing`]; then nothing is appended.
    #[inline]
    pub unsafe fn append_raw(
        from: *const u8,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), MemError> {
        out.reserve(len);
        let old = out.len();
        // SAFETY: the source is valid by the caller's contract; the reserved spare capacity of
        // `out` holds `len` more bytes and is ours alone; after the copy the `len` bytes behind
        // `old` are initialised.
        unsafe {
            racy::load(from, out.as_mut_ptr().add(old), len).map_err(|_| missing(from, len))?;
            out.set_len(old + len);
        }
        Ok(())
    }

    /// True for a clone of the same region. Regions made by separate calls are different, even
    /// over the same bytes: a caller that adopts memory twice may drop one of the two.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// True when there is no other clone of the region, no slice and no second mapping of it: no
    /// other thread reaches the bytes through it, and earlier accesses by other threads are
    /// complete.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        let sole = Arc::strong_count(&self.owner) == 1;
        // Pairs with the release of the count when a clone is dropped.
        fence(Ordering::Acquire);
        sole
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte (for alignment and logs).
    #[must_use]
    pub fn addr(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Copies `into.len()` bytes from `offset` out of the region.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied. [`MemError::Missing`].
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), MemError> {
        let from = self.check(offset, into.len())?;
        // SAFETY: `check` put the range inside the region; `into` is ours alone, thus disjoint.
        unsafe { racy::load(from, into.as_mut_ptr(), into.len()) }
            .map_err(|_| missing(from, into.len()))
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied. [`MemError::Missing`].
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        let _under_way = self.enter();
        self.copy_in_behind_gate(offset, bytes)
    }

    #[inline]
    fn copy_in_behind_gate(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: `check` put the range inside the region; no code writes `bytes` while it is
        // borrowed, thus it is not region memory.
        unsafe { racy::store(to, bytes.as_ptr(), bytes.len()) }
            .map_err(|_| missing(to, bytes.len()))
    }

    /// A copy of the bytes of `range`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn snapshot(&self, range: Range<usize>) -> Result<Vec<u8>, MemError> {
        let mut bytes = Vec::new();
        self.append_to(range, &mut bytes)?;
        Ok(bytes)
    }

    /// Appends a copy of the bytes of `range` to `out`. Checksums are computed over the copy: the
    /// bytes themselves may change at any time.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Missing`]; then nothing is appended.
    pub fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<(), MemError> {
        let len = range_len(&range, self.len)?;
        let from = self.check(range.start, len)?;
        // SAFETY: the source is inside the checked range, which lives as long as the region.
        unsafe { Self::append_raw(from, len, out) }
    }

    /// Writes the bytes of `range` to a file, from its byte `at` on. Bytes that change meanwhile
    /// are written as they were or as they are.
    ///
    /// # Errors
    /// EINVAL for a range that is not inside; the file's.
    pub fn write_to(&self, range: Range<usize>, file: impl AsFd, at: u64) -> io::Result<()> {
        let outside = |_: MemError| io::Error::from_raw_os_error(libc::EINVAL);
        let mut left = range_len(&range, self.len).map_err(outside)?;
        let mut from = self.check(range.start, left).map_err(outside)?.cast_const();
        let mut at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        while left > 0 {
            // SAFETY: `from` and `left` stay inside the checked range, which lives as long as the
            // region; the kernel reads it, as a peer may.
            let count = unsafe { libc::pwrite(file.as_fd().as_raw_fd(), from.cast(), left, at) };
            let Ok(count) = usize::try_from(count) else {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            // SAFETY: the kernel has read `count` bytes, at most `left`, all of the range.
            from = unsafe { from.add(count) };
            left -= count;
            at += libc::off_t::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
        }
        Ok(())
    }

    /// Loads the 64-bit word at `offset` (native order) without tearing; acquire ordering.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`], [`MemError::Missing`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemError> {
        let word = self.word(offset)?;
        // SAFETY: `word` checked bounds and alignment.
        unsafe { racy::load_u64(word) }.map_err(|_| missing(word.cast(), 8))
    }

    /// Stores the 64-bit word at `offset` (native order) without tearing; release ordering.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`], [`MemError::Missing`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemError> {
        let _under_way = self.enter();
        self.store_u64_behind_gate(offset, value)
    }

    fn store_u64_behind_gate(&self, offset: usize, value: u64) -> Result<(), MemError> {
        let word = self.word(offset)?;
        // SAFETY: `word` checked bounds and alignment.
        unsafe { racy::store_u64(word, value) }.map_err(|_| missing(word.cast(), 8))
    }

    /// Replaces the 64-bit word at `offset` by `f` of it, atomically among 64-bit accesses, and
    /// returns the original. `f` runs again when another thread was faster.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`], [`MemError::Missing`].
    pub fn fetch_update_u64(
        &self,
        offset: usize,
        mut f: impl FnMut(u64) -> u64,
    ) -> Result<u64, MemError> {
        let word = self.word(offset)?;
        // SAFETY: `word` checked bounds and alignment.
        let mut current = unsafe { racy::load_u64(word) }.map_err(|_| missing(word.cast(), 8))?;
        loop {
            let new = f(current);
            // Not around `f`, which may itself write into the region, or take its time.
            let _under_way = self.enter();
            // SAFETY: as above.
            let found = unsafe { racy::compare_exchange_u64(word, current, new) }
                .map_err(|_| missing(word.cast(), 8))?;
            if found == current {
                return Ok(found);
            }
            current = found;
        }
    }

    /// The raw address of `range`, for one system call. Safe to make; using it is not.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn span(&self, range: Range<usize>) -> Result<Span, MemError> {
        let len = range_len(&range, self.len)?;
        Ok(Span { ptr: self.check(range.start, len)?, len })
    }

    /// A handle to the bytes of `range` only.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn slice(&self, range: Range<usize>) -> Result<SharedSlice, MemError> {
        let len = range_len(&range, self.len)?;
        SharedSlice::new(self.clone(), range.start, len)
    }

    /// The address of `offset`, if `len` bytes from there lie inside the region.
    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<*mut u8, MemError> {
        check(offset, len, self.len)?;
        // SAFETY: `offset <= self.len`, so the result is inside the region or just behind it.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }

    #[allow(clippy::cast_ptr_alignment)] // checked here
    fn word(&self, offset: usize) -> Result<*mut u64, MemError> {
        let word = self.check(offset, 8)?.cast::<u64>();
        if !word.is_aligned() {
            return Err(MemError::Unaligned { offset, addr: word.addr() });
        }
        Ok(word)
    }
}

fn missing(from: *const u8, len: usize) -> MemError {
    MemError::Missing { addr: from.addr(), len }
}

/// A raw piece of memory for one system call, which must finish before its source is dropped,
/// changed or deregistered. Not `Send`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

#[cfg(all(test, not(loom)))]
mod tests;
