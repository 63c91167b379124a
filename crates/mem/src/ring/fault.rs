//! What can go wrong with a ring: [`RingError`] when one is made, [`RingFault`] when the other side
//! breaks the protocol.

use thiserror::Error;

use crate::error::MemError;

/// A ring could not be made or attached to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// Caller: the measures are out of bounds.
    #[error(
        "the caller's ring has {depth} slots of {message_max} bytes; the number must be a power of \
         two up to {}, the length 1 to {} bytes, and all together at most {} bytes",
        super::RingSpec::DEPTH_MAX,
        super::RingSpec::MESSAGE_MAX,
        super::RingSpec::POOL_MAX
    )]
    Spec {
        /// Slots asked for.
        depth: u32,
        /// Length of each in bytes.
        message_max: u32,
    },
    /// The process that made the memfd: it has another length than such a ring.
    #[error(
        "the memfd has {found} bytes, a ring of the caller's measures has {expected}; both sides \
         need the same depth and message_max"
    )]
    Size {
        /// Bytes that the memfd must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// The process that made the memfd: it holds no ring, or one of other measures.
    #[error(
        "the memfd holds no ring of the caller's measures (word {word} is {found:#x}, not \
         {expected:#x}); both sides need the same version, depth and message_max"
    )]
    Header {
        /// Which word of the header.
        word: usize,
        /// What it must be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// This machine, or the memfd's seals.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// The other side has broken the protocol. The ring is of no use from then on: every later call
/// returns the same fault. Nothing else is affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingFault {
    /// A descriptor belongs to neither this round nor the one before.
    #[error("the peer's descriptor {index} says round {found}, not {expected}; drop the channel")]
    Round {
        /// The descriptor's index since the ring was made.
        index: u64,
        /// The round that is due.
        expected: u32,
        /// The round that it says.
        found: u32,
    },
    /// A message is longer than a slot.
    #[error("the peer says that a message has {found} bytes, at most {max} fit; drop the channel")]
    Length {
        /// Length in bytes that the descriptor says.
        found: u32,
        /// Bytes in a slot.
        max: u32,
    },
    /// The receiver says that it has released what it has not, or takes a release back.
    #[error(
        "the peer says that it has released {found} messages, but it was sent {sent} and had \
         released {before}; drop the channel"
    )]
    Released {
        /// Messages that it says it has released.
        found: u64,
        /// Messages sent so far.
        sent: u64,
        /// Messages that it had released before.
        before: u64,
    },
    /// Pages of the ring have no memory: the peer has taken them away and the machine has no more.
    #[error("pages of the ring have gone; the peer took them away, or the machine has no memory")]
    Missing,
}
