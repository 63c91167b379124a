//! The words of a ring's memfd: the header and the descriptors.
//!
//! They are mapped apart from the pool and never accessed but as whole words, so that they are
//! ordinary atomics. Where `racy` has assembly, its accesses are used nevertheless: they fail where
//! a page has no memory, instead of ending the process.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

use super::protocol::{RingWords, WordAt};
use super::spec::{HEADER_LEN, RingSpec};
use super::{RingError, RingFault};
use crate::mapping::Mapping;
use crate::racy::Missing;

/// Bytes from one group of words to the next: two cache lines, since processors fetch pairs.
const APART: usize = 128;

/// The mapped words of one side.
#[derive(Debug)]
pub(super) struct MappedWords {
    mapping: Mapping,
    depth_mask: u64,
}

impl MappedWords {
    /// Maps the words of a memfd whose length fits `spec` and is sealed.
    pub(super) fn map(memfd: BorrowedFd<'_>, spec: RingSpec) -> Result<Self, RingError> {
        let mapping = Mapping::shared(memfd, 0, spec.words_len())?;
        Ok(Self { mapping, depth_mask: u64::from(spec.depth() - 1) })
    }

    /// Writes what a new ring begins with.
    pub(super) fn mark(&self, spec: RingSpec) -> Result<(), RingFault> {
        for (word, mark) in spec.marks().into_iter().enumerate() {
            self.store_at(8 * word, mark)?;
        }
        Ok(())
    }

    /// Tells honest mistakes early. It protects from nothing: the words are not looked at again.
    pub(super) fn check_marks(&self, spec: RingSpec) -> Result<(), RingError> {
        for (word, expected) in spec.marks().into_iter().enumerate() {
            let found = self.load_at(8 * word).unwrap_or_default();
            if found != expected {
                return Err(RingError::Header { word, expected, found });
            }
        }
        Ok(())
    }

    /// Where a word is, in bytes from the start: inside the mapping whatever the index.
    #[inline]
    fn offset(&self, at: WordAt) -> usize {
        match at {
            WordAt::Released => APART,
            WordAt::ReceiverSleeps => 2 * APART,
            WordAt::SenderSleeps => 3 * APART,
            WordAt::SenderWants => 3 * APART + 8,
            WordAt::Descriptor(index) => {
                // Below the depth, which has 32 bits.
                #[allow(clippy::cast_possible_truncation)]
                let slot = (index & self.depth_mask) as usize;
                HEADER_LEN + 8 * slot
            }
        }
    }

    #[inline]
    fn load_at(&self, offset: usize) -> Result<u64, Missing> {
        // SAFETY: `offset` is a multiple of 8 inside the mapping: `offset` gives no other, and the
        // marks lie before. Everybody accesses these pages by this module.
        unsafe { imp::load(self.mapping.start().as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn store_at(&self, offset: usize, value: u64) -> Result<(), Missing> {
        // SAFETY: as in `load_at`.
        unsafe { imp::store(self.mapping.start().as_ptr().add(offset).cast(), value) }
    }
}

impl RingWords for MappedWords {
    #[inline]
    fn load(&self, at: WordAt) -> Result<u64, Missing> {
        self.load_at(self.offset(at))
    }

    #[inline]
    fn store(&self, at: WordAt, value: u64) -> Result<(), Missing> {
        self.store_at(self.offset(at), value)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, outboard_bytewise))
))]
mod imp {
    pub(super) use crate::racy::{load_u64 as load, store_u64 as store};
}

/// `racy` would copy words byte by byte here, which another process could see in part.
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, outboard_bytewise))
)))]
mod imp {
    use super::Missing;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Loads a word (acquire).
    ///
    /// # Safety
    /// It is aligned, mapped and accessed by everyone as a whole.
    pub(super) unsafe fn load(word: *const u64) -> Result<u64, Missing> {
        // SAFETY: the caller's contract.
        Ok(unsafe { AtomicU64::from_ptr(word.cast_mut()) }.load(Ordering::Acquire))
    }

    /// Stores a word (release).
    ///
    /// # Safety
    /// As for [`load`].
    pub(super) unsafe fn store(word: *mut u64, value: u64) -> Result<(), Missing> {
        // SAFETY: the caller's contract.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        Ok(())
    }
}
