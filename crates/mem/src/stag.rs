//! The STag table: which registered memory a peer may reach, and by which name.
//!
//! An STag is a slot number (20 bits) and a key (12 bits). The key is random at the first use of
//! a slot and changes at every reuse, so that STags are hard to predict (RFC 5040 §8.1.1 item 8)
//! and stale ones do not resolve; it is no secret (RFC 5042 §6.1.1). `resolve` takes no lock. The
//! table never looks into the memory and never blocks a placement; a deregistration waits for
//! placements.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::access::{Access, PdId};
use crate::error::{AccessError, MemError};
use crate::shared::{DirectWrite, Span};
use crate::slice::SharedSlice;
use crate::slot::{Pin, Slot};

const KEY_BITS: u32 = 12;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
/// Slot 0 is never used, so that small numbers never resolve.
const CAPACITY_MAX: u32 = (1 << (32 - KEY_BITS)) - 1;
/// Slots are allocated in blocks of this many when first used.
const BLOCK: usize = 256;
/// A freed slot waits until this many others were freed, unless the table is full: the longer
/// an STag is gone before its slot comes back, the fewer stale requests are still on their way.
const REST: usize = 64;

/// A registration: a domain, its rights, and the memory that they are for.
#[derive(Debug)]
struct Registration {
    pd: PdId,
    access: Access,
    /// Remote offset of the slice's first byte; `base + slice.len()` fits 64 bits.
    base: u64,
    slice: SharedSlice,
}

type Block = Box<[Slot<Registration>]>;

/// The registrations of one software NIC. All methods may be called from any thread.
#[derive(Debug)]
pub struct StagTable {
    blocks: Box<[OnceLock<Block>]>,
    capacity: u32,
    free: Mutex<Free>,
}

/// Which slots can be opened.
#[derive(Debug, Default)]
struct Free {
    /// Slots below or at this number have been used.
    used: u32,
    /// Closed slots with their last key, oldest first.
    closed: VecDeque<(u32, u16)>,
    live: usize,
    random: Random,
}

impl StagTable {
    /// A table for `capacity` registrations at once (at most 2^20 - 1).
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.min(CAPACITY_MAX);
        let blocks = (capacity as usize + 1).div_ceil(BLOCK);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            capacity,
            free: Mutex::default(),
        }
    }

    /// Grants peers in domain `pd` the rights `access` to `slice`, whose first byte gets the remote
    /// offset `base` (the TO of RFC 5041). Returns the STag.
    ///
    /// # Errors
    /// [`MemError::BaseWraps`], [`MemError::TableFull`], [`MemError::Random`].
    pub fn register(
        &self,
        pd: PdId,
        slice: SharedSlice,
        base: u64,
        access: Access,
    ) -> Result<u32, MemError> {
        check_base(base, &slice)?;
        let (number, key) = self.lock().take(self.capacity)?;
        let block = self.blocks[number as usize / BLOCK].get_or_init(new_block);
        let slot = &block[number as usize % BLOCK];
        // SAFETY: `take` gave the number to this thread alone; it is new, or was given back
        // after `close` had returned its value.
        unsafe { slot.open(key, Registration { pd, access, base, slice }) };
        Ok(number << KEY_BITS | u32::from(key))
    }

    /// Ends a registration, also one that was invalidated. Returns only when no placement is
    /// under way; until then it waits, so do not call it while holding a [`Placement`].
    ///
    /// # Errors
    /// [`MemError::UnknownStag`] if it is not registered or another thread deregisters it.
    pub fn deregister(&self, stag: u32) -> Result<(), MemError> {
        let (slot, key) = self.find(stag).ok_or(MemError::UnknownStag { stag })?;
        let entry = slot.close(key).ok_or(MemError::UnknownStag { stag })?;
        self.lock().give_back(stag >> KEY_BITS, key);
        drop(entry); // outside the lock: this may unmap the memory
        Ok(())
    }

    /// Replaces the registration behind an STag, also behind one that was invalidated. Returns
    /// only when no placement into the earlier memory is under way; peers that use the STag during
    /// the call are refused.
    ///
    /// # Errors
    /// [`MemError::BaseWraps`], then nothing has changed; [`MemError::UnknownStag`] as for
    /// [`Self::deregister`].
    pub fn reregister(
        &self,
        stag: u32,
        pd: PdId,
        slice: SharedSlice,
        base: u64,
        access: Access,
    ) -> Result<(), MemError> {
        check_base(base, &slice)?;
        let (slot, key) = self.find(stag).ok_or(MemError::UnknownStag { stag })?;
        let before = slot.close(key).ok_or(MemError::UnknownStag { stag })?;
        // SAFETY: `close` has returned its value, and the number was not given back, so that no
        // other thread opens it.
        unsafe { slot.open(key, Registration { pd, access, base, slice }) };
        drop(before);
        Ok(())
    }

    /// Serves a peer's Send with Invalidate (RFC 5040 §5.3 and §7.2): from now on `stag` does not
    /// resolve. Placements under way in other threads may still finish; the memory stays until
    /// [`Self::deregister`].
    ///
    /// # Errors
    /// [`AccessError::InvalidStag`], [`AccessError::OtherDomain`], and [`AccessError::NoRight`]
    /// without [`Access::REMOTE_INVALIDATE`].
    pub fn invalidate(&self, stag: u32, pd: PdId) -> Result<(), AccessError> {
        let pin = self.pin(stag)?;
        let entry = pin.get();
        if entry.pd != pd {
            return Err(AccessError::OtherDomain);
        }
        if !entry.access.contains(Access::REMOTE_INVALIDATE) {
            return Err(AccessError::NoRight);
        }
        if Slot::shut(&pin) { Ok(()) } else { Err(AccessError::InvalidStag) }
    }

    /// The owner's own invalidation: from now on `stag` does not resolve. As with a peer's,
    /// placements under way may still finish, and the memory stays until [`Self::deregister`].
    ///
    /// # Errors
    /// [`AccessError::InvalidStag`] when it did not resolve before.
    pub fn invalidate_locally(&self, stag: u32) -> Result<(), AccessError> {
        let pin = self.pin(stag)?;
        if Slot::shut(&pin) { Ok(()) } else { Err(AccessError::InvalidStag) }
    }

    /// Checks a peer's access to `len` bytes at remote offset `offset` (RFC 5041 §7.1, RFC 5040
    /// §7.2) and pins the memory until the result is dropped. Empty accesses are checked like
    /// all others; RFC 5041 §7.1 asks for no check of those, so the caller need not come here.
    ///
    /// # Errors
    /// See [`AccessError`], checked in the order: STag, domain, rights, wrap, bounds.
    #[inline]
    pub fn resolve(
        &self,
        stag: u32,
        pd: PdId,
        need: Access,
        offset: u64,
        len: u64,
    ) -> Result<Placement<'_>, AccessError> {
        let pin = self.pin(stag)?;
        let (start, len) = pin.get().check(pd, need, offset, len)?;
        Ok(Placement { pin, start, len })
    }

    /// How many registrations there are, invalidated ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().live
    }

    /// Whether nothing is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn pin(&self, stag: u32) -> Result<Pin<'_, Registration>, AccessError> {
        let (slot, key) = self.find(stag).ok_or(AccessError::InvalidStag)?;
        slot.pin(key).ok_or(AccessError::InvalidStag)
    }

    #[inline]
    fn find(&self, stag: u32) -> Option<(&Slot<Registration>, u16)> {
        let number = (stag >> KEY_BITS) as usize;
        let block = self.blocks.get(number / BLOCK)?.get()?;
        Some((&block[number % BLOCK], key_of(stag)))
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_base(base: u64, slice: &SharedSlice) -> Result<(), MemError> {
    match base.checked_add(slice.len() as u64) {
        Some(_) => Ok(()),
        None => Err(MemError::BaseWraps { base, len: slice.len() }),
    }
}

fn new_block() -> Block {
    (0..BLOCK).map(|_| Slot::free()).collect()
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // 12 bits
fn key_of(word: u32) -> u16 {
    (word & KEY_MASK) as u16
}

impl Registration {
    /// Where in the slice the access starts, and its length.
    #[inline]
    fn check(
        &self,
        pd: PdId,
        need: Access,
        offset: u64,
        len: u64,
    ) -> Result<(usize, usize), AccessError> {
        if self.pd != pd {
            return Err(AccessError::OtherDomain);
        }
        if !self.access.contains(need) {
            return Err(AccessError::NoRight);
        }
        let end = offset.checked_add(len).ok_or(AccessError::Wraps)?;
        if offset < self.base || end > self.base + self.slice.len() as u64 {
            return Err(AccessError::OutOfBounds);
        }
        let start = usize::try_from(offset - self.base).map_err(|_| AccessError::OutOfBounds)?;
        let len = usize::try_from(len).map_err(|_| AccessError::OutOfBounds)?;
        Ok((start, len))
    }
}

impl Free {
    /// A slot for the caller alone, and its key.
    fn take(&mut self, capacity: u32) -> Result<(u32, u16), MemError> {
        let fresh = self.used < capacity;
        let random = self.random.next()?;
        let (number, key) = if fresh && self.closed.len() <= REST {
            self.used += 1;
            (self.used, key_of(random))
        } else {
            self.reuse(random).ok_or(MemError::TableFull { capacity })?
        };
        self.live += 1;
        Ok((number, key))
    }

    /// The slot that was closed first.
    fn reuse(&mut self, random: u32) -> Option<(u32, u16)> {
        let (number, key) = self.closed.pop_front()?;
        Some((number, next_key(key, random)))
    }

    fn give_back(&mut self, number: u32, key: u16) {
        self.closed.push_back((number, key));
        self.live -= 1;
    }
}

/// An odd step never leads back to the same key.
fn next_key(key: u16, random: u32) -> u16 {
    key_of(u32::from(key).wrapping_add(random | 1))
}

/// Random words, fetched from the kernel some at a time.
#[derive(Debug, Default)]
struct Random {
    words: Vec<u32>,
}

impl Random {
    fn next(&mut self) -> Result<u32, MemError> {
        if self.words.is_empty() {
            self.refill()?;
        }
        Ok(self.words.pop().unwrap_or_default())
    }

    fn refill(&mut self) -> Result<(), MemError> {
        let mut words = [0u32; 64];
        let size = size_of_val(&words);
        // SAFETY: `words` is ours and has `size` bytes, any value of which is a valid `u32`.
        let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), size, 0) };
        if usize::try_from(got) != Ok(size) {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(MemError::Random { errno });
        }
        self.words.extend(words);
        Ok(())
    }
}

/// A checked access. The memory stays registered and mapped until this is dropped, so drop it
/// soon: a deregistration waits for it. Offsets are relative to the access.
#[derive(Debug)]
pub struct Placement<'a> {
    pin: Pin<'a, Registration>,
    /// `start + len` lies inside the entry's slice.
    start: usize,
    len: usize,
}

impl Placement<'_> {
    /// Length of the access in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the access covers no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Places `bytes` at `at`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is placed.
    #[inline]
    pub fn copy_in(&self, at: usize, bytes: &[u8]) -> Result<(), MemError> {
        let at = self.at(at, bytes.len())?;
        self.pin.get().slice.copy_in(at, bytes)
    }

    /// Copies `into.len()` bytes from `at` out.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied.
    #[inline]
    pub fn copy_out(&self, at: usize, into: &mut [u8]) -> Result<(), MemError> {
        let at = self.at(at, into.len())?;
        self.pin.get().slice.copy_out(at, into)
    }

    /// See [`SharedRegion::append_to`](crate::SharedRegion::append_to).
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is appended.
    pub fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<(), MemError> {
        self.pin.get().slice.append_to(self.within(range)?, out)
    }

    /// The raw address of `range`, for one system call made before the placement is dropped.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn span(&self, range: Range<usize>) -> Result<Span, MemError> {
        self.pin.get().slice.span(self.within(range)?)
    }

    /// For a system call that writes into it: see [`DirectWrite`].
    #[must_use]
    pub fn write_directly(&self) -> DirectWrite {
        self.pin.get().slice.region().write_directly()
    }

    /// See [`SharedRegion::fetch_update_u64`](crate::SharedRegion::fetch_update_u64).
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn fetch_update_u64(&self, at: usize, f: impl FnMut(u64) -> u64) -> Result<u64, MemError> {
        let at = self.at(at, 8)?;
        self.pin.get().slice.fetch_update_u64(at, f)
    }

    /// Translates an offset of the access into one of the slice.
    #[inline]
    fn at(&self, at: usize, len: usize) -> Result<usize, MemError> {
        crate::slice::check(at, len, self.len)?;
        Ok(self.start + at)
    }

    fn within(&self, range: Range<usize>) -> Result<Range<usize>, MemError> {
        let len = crate::slice::range_len(&range, self.len)?;
        let start = self.at(range.start, len)?;
        Ok(start..start + len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
