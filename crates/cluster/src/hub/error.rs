//! A hub's errors, and who is at fault in each.

use outboard_verbs::{ConnectError, CqOverflow, PostError, Refused, VerbsError};

/// Why a hub's method failed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The caller names a peer that is gone; its event may still be waiting.
    #[error("that peer is gone")]
    NoPeer,
    /// The caller's message is too long.
    #[error("a message of {found} bytes is too long: at most {limit} are possible")]
    TooLong {
        /// Its length.
        found: usize,
        /// The limit of this hub.
        limit: usize,
    },
    /// The caller queues more than the peer accepts.
    #[error("{limit} bytes are queued for this peer, which does not accept them")]
    TooMuch {
        /// How many may wait.
        limit: usize,
    },
    /// The connection was not set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection does not take a request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// This machine's, or a fault of Outboard.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A fault of Outboard: more requests were under way than the completion queue holds.
    #[error(transparent)]
    Overflow(#[from] CqOverflow),
    /// This machine refuses a system call.
    #[error("this machine refuses a descriptor: {0}")]
    System(#[from] rustix::io::Errno),
}

impl<T> From<Refused<T>> for HubError {
    fn from(refused: Refused<T>) -> Self {
        Self::Post(refused.error)
    }
}
