//! A ring's measures, and where its parts lie in the memfd.
//!
//! Never looks at the memory: both sides compute the layout from measures of their own.

use super::RingError;
use crate::file::page_size;

/// Marks a ring's memfd, with the version of its layout.
pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"ringOB01");
/// Bytes before the descriptors: the words of the header, each group on cache lines of its own.
pub(super) const HEADER_LEN: usize = 1024;
/// Slots begin at multiples of this many bytes: no two share a pair of cache lines, which
/// processors fetch together.
const SLOT_ALIGN: usize = 128;

/// A ring's measures, the same on both sides: each takes them from a source that it trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    depth: u32,
    message_max: u32,
}

impl RingSpec {
    /// Most slots of a ring.
    pub const DEPTH_MAX: u32 = 65_536;
    /// Most bytes of a message.
    pub const MESSAGE_MAX: u32 = 64 << 20;
    /// Most bytes of all slots together.
    pub const POOL_MAX: u64 = 1 << 30;

    /// A ring of `depth` slots, a power of two, for messages of up to `message_max` bytes.
    ///
    /// # Errors
    /// [`RingError::Spec`].
    pub fn new(depth: u32, message_max: u32) -> Result<Self, RingError> {
        let spec = Self { depth, message_max };
        let is_legal = depth.is_power_of_two()
            && depth <= Self::DEPTH_MAX
            && (1..=Self::MESSAGE_MAX).contains(&message_max)
            && spec.slot_len() as u64 * u64::from(depth) <= Self::POOL_MAX;
        if is_legal { Ok(spec) } else { Err(RingError::Spec { depth, message_max }) }
    }

    /// How many messages it holds.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Most bytes of a message.
    #[must_use]
    pub fn message_max(self) -> u32 {
        self.message_max
    }

    /// Bytes from the start of one slot of the pool to the next one's.
    #[must_use]
    pub fn slot_len(self) -> usize {
        (self.message_max as usize).next_multiple_of(SLOT_ALIGN)
    }

    /// Where in the pool the slot of the message `index` starts.
    #[inline]
    pub(super) fn slot_start(self, index: u64) -> usize {
        let slot = index & u64::from(self.depth - 1);
        // A slot's number is below the depth, which has 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        let slot = slot as usize;
        slot * self.slot_len()
    }

    /// Bytes before the pool: the header and a descriptor of eight bytes for each slot; whole
    /// pages, so that the pool can be mapped alone.
    pub(super) fn words_len(self) -> usize {
        (HEADER_LEN + 8 * self.depth as usize).next_multiple_of(page_size())
    }

    /// Bytes of the pool: whole pages.
    pub(super) fn pool_len(self) -> usize {
        (self.slot_len() * self.depth as usize).next_multiple_of(page_size())
    }

    /// Bytes of the memfd.
    #[must_use]
    pub fn file_len(self) -> usize {
        self.words_len() + self.pool_len()
    }

    /// What the first words of the header are.
    pub(super) fn marks(self) -> [u64; 3] {
        [MAGIC, u64::from(self.depth), u64::from(self.message_max)]
    }
}
