//! Errors of making and connecting objects, and who is at fault in each.

use outboard_iwarp::PostError;
use outboard_iwarp::startup::StartupError;
use outboard_mem::MemError;
use outboard_secure::SessionError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Errors of creating and using verbs objects.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The operating system refused something.
    #[error("{what}: {source}{hint}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// Memory could not be allocated or registered.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// An object is not in the state that the call needs.
    #[error("the queue pair is {found}; this call needs it to be {needed} (reset makes it so)")]
    WrongState {
        /// The state it is in.
        found: &'static str,
        /// The state it would have to be in.
        needed: &'static str,
    },
    /// Objects of two contexts do not work together.
    #[error("{what} belongs to another context; make both from the same one")]
    OtherContext {
        /// The object.
        what: &'static str,
    },
    /// A parameter has no sensible meaning.
    #[error("{what} is {found}; it must be {needed}")]
    BadParameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: usize,
        /// Values that are possible.
        needed: &'static str,
    },
}

impl VerbsError {
    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
            Some(libc::EADDRINUSE) => "; choose another port or stop the program that has it",
            Some(libc::EACCES) => "; ports below 1024 need CAP_NET_BIND_SERVICE",
            _ => "",
        };
        Self::System { what, source, hint }
    }
}

/// Why a connection did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer could not be reached.
    #[error("cannot connect to {peer}: {source}; is a server listening there?")]
    Unreachable {
        /// The peer's address.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The peer did not answer in time.
    #[error("{peer} did not answer within {limit:?}: neither TCP nor the MPA start-up was done")]
    TimedOut {
        /// The peer's address.
        peer: SocketAddr,
        /// How long we waited.
        limit: Duration,
    },
    /// The peer closed during start-up: it may not speak MPA, or not this revision.
    #[error("{peer} closed the connection during MPA start-up")]
    Closed {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The queue pair was disconnected, reset or dropped during the attempt.
    #[error("the attempt to connect to {peer} was given up on this side")]
    Cancelled {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer's program refused.
    #[error("{peer} rejected the connection ({} bytes of private data)", private_data.len())]
    Rejected {
        /// The peer's address.
        peer: SocketAddr,
        /// The private data of its program.
        private_data: Vec<u8>,
    },
    /// The start-up broke a rule.
    #[error("MPA start-up with {peer}: {source}")]
    Startup {
        /// The peer's address.
        peer: SocketAddr,
        /// Which rule.
        source: StartupError,
    },
    /// The session under the connection failed.
    #[error("the session with {peer} failed: {source}")]
    SecureSession {
        /// The peer's address.
        peer: SocketAddr,
        /// What is wrong.
        source: SessionError,
    },
    /// The caller's or this machine's fault.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// A request that a queue refused, unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused<T> {
    /// Why it was refused.
    pub error: PostError,
    /// The request.
    pub request: T,
}

impl<T> From<(PostError, T)> for Refused<T> {
    fn from((error, request): (PostError, T)) -> Self {
        Self { error, request }
    }
}

/// A completion queue that lost completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the completion queue overflowed at {capacity} entries and its queue pairs were ended; \
     make it as deep as all queues that complete on it together"
)]
pub struct CqOverflow {
    /// Entries it has room for.
    pub capacity: usize,
}
