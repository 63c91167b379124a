//! Errors of tests, and who is at fault in each.

use outboard_verbs::{ConnectError, CqOverflow, MemError, PostError, Status, VerbsError};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Errors of tests.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The caller asked for something that no test can do.
    #[error("{what} is {found}; it must be {needed}")]
    BadParameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: String,
        /// Values that are possible.
        needed: String,
    },
    /// The server refused.
    #[error("{peer} refused: {why}")]
    Refused {
        /// The peer's address.
        peer: SocketAddr,
        /// What it says.
        why: String,
    },
    /// The peer does not talk as a server does.
    #[error(
        "{peer} does not answer as `outboard perf serve` of this version does; \
         look at what listens there"
    )]
    NotAServer {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer's message is invalid.
    #[error("not understood: {0}; both sides must be of the same version")]
    NotUnderstood(#[from] serde_json::Error),
    /// The peer speaks another version of the tests' protocol.
    #[error("the client speaks version {found} of the tests' protocol, the server {needed}")]
    Version {
        /// The client's.
        found: u32,
        /// The server's.
        needed: u32,
    },
    /// The server has no room for another test.
    #[error("{limit} tests run already; try again when one of them has ended")]
    Busy {
        /// Tests at a time.
        limit: usize,
    },
    /// A test that has a port of its own was asked for on the server's.
    #[error("{test} runs on a port of its own, not on the server's")]
    HasPort {
        /// Which test.
        test: crate::plan::Test,
    },
    /// The other side ended the connection.
    #[error("the other side ended the connection during the test; look whether it still runs")]
    PeerLeft,
    /// The other side is silent.
    #[error(
        "the other side has not answered for {}s; look whether it still runs and is reachable",
        limit.as_secs()
    )]
    Silent {
        /// How long we waited.
        limit: Duration,
    },
    /// The user interrupted the test while it warmed up.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// The server was told to stop.
    #[error("stopped")]
    Stopped,
    /// An operation failed.
    #[error("an operation ended with {status:?}; this is a bug in either side")]
    Operation {
        /// How it ended.
        status: Status,
    },
    /// No connection came about.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Verbs objects could not be made.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A request was not taken.
    #[error(transparent)]
    Post(PostError),
    /// Completions were lost.
    #[error(transparent)]
    CqOverflow(#[from] CqOverflow),
    /// Memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl PerfError {
    /// For `map_err`: what was tried when the system refused.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}

impl From<PostError> for PerfError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::NotConnected => Self::PeerLeft,
            error => Self::Post(error),
        }
    }
}

impl From<Status> for PerfError {
    fn from(status: Status) -> Self {
        match status {
            Status::Flushed => Self::PeerLeft,
            status => Self::Operation { status },
        }
    }
}
