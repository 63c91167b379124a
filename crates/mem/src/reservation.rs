//! Addresses for code that can access only addresses of its own, such as compiled WebAssembly:
//! reserved as a whole, accessible in part.
//!
//! One part is private: zeroed memory for that code and the reservation's holder. Besides, regions
//! are mapped in, whose bytes anybody may change; this file never accesses those. Everything else
//! has no access: reaching it, or storing to a region that is mapped read-only, is a SIGSEGV, which
//! the one who runs the code handles. Copies in and out are made as for shared memory, so that code
//! on other threads can at worst make them see a mixture.

use crate::error::{MemError, last_errno};
use crate::file::page_size;
use crate::mapping::{Rights, SecondMapping};
use crate::racy::{self, Missing};
use crate::shared::SharedRegion;
use crate::slice::{check, range_len};
use std::ops::Range;
use std::ptr::NonNull;

/// What [`Reservation::zero`] copies from.
static ZEROES: [u8; 4096] = [0; 4096];

/// See this file's first lines.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    len: usize,
    /// Empty until there is a private part.
    private: Range<usize>,
    /// Offsets where something is mapped; no two overlap.
    taken: Vec<Range<usize>>,
    /// Dropped before the addresses are unmapped.
    regions: Vec<SecondMapping>,
}

// SAFETY: the addresses belong to this value alone, on whatever thread it is; it accesses them only
// by `racy`, that is by (a model of) atomic accesses, which any thread may do.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`; what needs exclusive access takes `&mut self`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes of addresses, without access: they cost no memory. For WebAssembly,
    /// 4 GiB and the guard that its engine asks for.
    ///
    /// # Errors
    /// [`MemError::Map`]: this process has no addresses left, or a limit (`ulimit -v`); or `len`
    /// is 0.
    pub fn new(len: usize) -> Result<Self, MemError> {
        if isize::try_from(len).is_err() {
            return Err(MemError::Map { len, errno: libc::ENOMEM });
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, where the kernel has room for it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        match NonNull::new(at.cast()) {
            Some(start) if at != libc::MAP_FAILED => {
                Ok(Self { start, len, private: 0..0, taken: Vec::new(), regions: Vec::new() })
            }
            _ => Err(MemError::Map { len, errno: last_errno() }),
        }
    }

    /// Bytes of addresses.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first address, a multiple of the page size. The code that runs there, and the one who
    /// runs it, must be correct for memory that others change; they keep no reference into it.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes `len` zero bytes at the offset `at` accessible, both multiples of the page size: the
    /// private part, of which there is one.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Pages`]; [`MemError::Occupied`] if something is
    /// mapped there or there is a private part; [`MemError::Map`] if this machine refuses.
    pub fn map_private(&mut self, at: usize, len: usize) -> Result<(), MemError> {
        let start = self.place(at, len)?;
        if !self.private.is_empty() {
            return Err(MemError::Occupied { offset: at, len });
        }
        // SAFETY: the addresses are reserved by this value and nothing is mapped there.
        let changed =
            unsafe { libc::mprotect(start.cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
        if changed != 0 {
            return Err(MemError::Map { len, errno: last_errno() });
        }
        self.private = at..at + len;
        self.taken.push(at..at + len);
        Ok(())
    }

    /// Maps the pages of `range` of a region at the offset `at`, until the reservation is dropped;
    /// `at` and the range's start are multiples of the page size. Where the range ends inside a
    /// page, the rest of that page is there too: bytes of the region, or, behind the region's end,
    /// those of its file, which for a memfd are zero until somebody with [`Rights::ReadWrite`] or
    /// the descriptor stores there. Nothing is mapped behind that page.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Pages`] (also for an empty range),
    /// [`MemError::Occupied`] if something is mapped there, [`MemError::NotShared`] for a region
    /// without a descriptor; [`MemError::Map`] if this machine refuses.
    pub fn map_region(
        &mut self,
        at: usize,
        region: &SharedRegion,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<(), MemError> {
        check(range.start, range_len(&range, region.len())?, region.len())?;
        // The region is mapped, so that its last page's end is an address.
        let len = range.end.next_multiple_of(page_size()) - range.start;
        let start = self.place(at, len)?;
        let start = NonNull::new(start).unwrap_or(self.start);
        // SAFETY: the addresses are reserved by this value, which has nothing else mapped there,
        // unmaps them only after the second mapping is gone, and offers no access to them. Code
        // that accesses them is told at `base` that anybody may change the bytes.
        let mapping = unsafe { region.map_pages_again_at(start, range.start, len, rights) }?;
        self.regions.push(mapping);
        self.taken.push(at..at + len);
        Ok(())
    }

    /// Copies bytes into the private part, at an offset of the reservation.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]: some of it is not the private part; then nothing is copied.
    #[inline]
    pub fn copy_in(&self, at: usize, bytes: &[u8]) -> Result<(), MemError> {
        let to = self.in_private(at, bytes.len())?;
        // SAFETY: the private part is mapped for reads and writes as long as this value lives, and
        // no reference into it exists, so that `bytes` is not of it.
        unsafe { racy::store(to, bytes.as_ptr(), bytes.len()) }.map_err(|_| gone(to, bytes.len()))
    }

    /// Copies bytes out of the private part.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]: some of it is not the private part; then nothing is copied.
    #[inline]
    pub fn copy_out(&self, at: usize, into: &mut [u8]) -> Result<(), MemError> {
        let from = self.in_private(at, into.len())?;
        // SAFETY: as in `copy_in`; `into` is the caller's alone.
        unsafe { racy::load(from, into.as_mut_ptr(), into.len()) }
            .map_err(|_| gone(from, into.len()))
    }

    /// Loads an aligned word of the private part (native order), at once.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn load_u64(&self, at: usize) -> Result<u64, MemError> {
        let word = self.word(at)?;
        // SAFETY: `word` checked bounds and alignment; mapped as in `copy_in`.
        unsafe { racy::load_u64(word) }.map_err(|_: Missing| gone(word.cast(), 8))
    }

    /// Stores an aligned word of the private part (native order), at once.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn store_u64(&self, at: usize, value: u64) -> Result<(), MemError> {
        let word = self.word(at)?;
        // SAFETY: as in `load_u64`.
        unsafe { racy::store_u64(word, value) }.map_err(|_| gone(word.cast(), 8))
    }

    /// Makes the bytes of `range`, offsets of the reservation, zero; they are of the private part.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]: some of it is not the private part; then nothing is changed.
    pub fn zero(&self, range: Range<usize>) -> Result<(), MemError> {
        self.in_private(range.start, range_len(&range, self.len)?)?;
        range.clone().step_by(ZEROES.len()).try_for_each(|at| {
            let len = ZEROES.len().min(range.end - at);
            self.copy_in(at, &ZEROES[..len])
        })
    }

    #[allow(clippy::cast_ptr_alignment)] // checked here
    fn word(&self, at: usize) -> Result<*mut u64, MemError> {
        let word = self.in_private(at, 8)?.cast::<u64>();
        if !word.is_aligned() {
            return Err(MemError::Unaligned { offset: at, addr: word.addr() });
        }
        Ok(word)
    }

    /// The address of whole pages inside the reservation, where nothing is mapped yet.
    fn place(&self, at: usize, len: usize) -> Result<*mut u8, MemError> {
        check(at, len, self.len)?;
        let page = page_size();
        if len == 0 || !at.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(MemError::Pages { addr: at, offset: 0, len, page });
        }
        let wanted = at..at + len;
        if self.taken.iter().any(|taken| taken.start < wanted.end && wanted.start < taken.end) {
            return Err(MemError::Occupied { offset: at, len });
        }
        // SAFETY: `at` is inside the reservation.
        Ok(unsafe { self.start.as_ptr().add(at) })
    }

    #[inline]
    fn in_private(&self, at: usize, len: usize) -> Result<*mut u8, MemError> {
        let Range { start, end } = self.private;
        if at < start || at > end || len > end - at {
            return Err(MemError::OutOfBounds { offset: at, len, size: end });
        }
        // SAFETY: `at` is inside the private part, thus the reservation.
        Ok(unsafe { self.start.as_ptr().add(at) })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.regions.clear();
        // SAFETY: `start` and `len` are this value's own addresses, all of whose mappings are its.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert_eq!(result, 0, "munmap of our own addresses");
    }
}

/// The private part is always there, unless code that is not of this crate has unmapped it.
fn gone(at: *const u8, len: usize) -> MemError {
    MemError::Missing { addr: at.addr(), len }
}

#[cfg(all(test, not(loom)))]
mod tests;
