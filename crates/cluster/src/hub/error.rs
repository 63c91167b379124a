//! What can be wrong with a hub, and whose fault it is.

use outboard_verbs::{ConnectError, CqOverflow, PostError, Refused, VerbsError};

/// Why a hub cannot do what it was asked for.
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
        /// What this hub was made for.
        limit: usize,
    },
    /// The caller asks for more than the peer takes.
    #[error("{limit} bytes wait for this peer already: it does not take them")]
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
    /// A fault of Outboard: more was under way than the queue was made for.
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
