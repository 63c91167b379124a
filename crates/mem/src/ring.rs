//! Channels between two processes: a ring of messages from one sender to one receiver, in a memfd.
//!
//! Lock-free; neither side ever waits for the other. Messages are copied in and out, or written and
//! read where they lie ([`RingSender::reserve`], [`RingReceiver::peek`]). It never waits and never
//! spins: who has nothing to do says so ([`RingReceiver::before_sleep`]) and sleeps on a descriptor
//! of its own, to which the other side's [`RingWake`] writes.
//!
//! The sides need not trust each other. A side takes the ring's measures from its own
//! [`RingSpec`], and everything that the other side may change (one descriptor or index at a time)
//! is copied once and checked. What cannot be is a [`RingFault`], which ends this ring and nothing
//! else. The other side may change a message's bytes at any time: they are copied, or accessed as
//! all shared memory is.
//!
//! Modules in reading order: `spec` (measures and layout), `protocol` (indices and sleep flags,
//! over any memory: loom runs it too), `words` (the memfd's words), `ends` (the two ends of a
//! ring), `wake`, `fault`.

mod ends;
mod fault;
mod protocol;
mod spec;
mod wake;
mod words;

pub use ends::{IncomingSlot, OutgoingSlot, RingReceiver, RingSender};
pub use fault::{RingError, RingFault};
pub use protocol::BeforeSleep;
pub use spec::RingSpec;
pub use wake::{RingWake, WakeByEventFd, WakeBySocket};

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The receiver will find it.
    Sent,
    /// Nothing was sent: all slots are in use. The caller tries again later, or drops it.
    Full,
    /// Nothing was sent: it is longer than the caller's own [`RingSpec::message_max`].
    TooLong,
}

/// What a look for a message found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// A message, which is in the caller's buffer now.
    Received,
    /// No message.
    Empty,
}

#[cfg(all(test, not(loom)))]
mod tests;
