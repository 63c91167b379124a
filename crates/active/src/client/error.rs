//! Why a client's call has no outcome.

use crate::protocol::{NAME_MAX, UNDER_WAY_MAX};
use outboard_verbs::{CqOverflow, MemError, VerbsError};
use std::path::PathBuf;
use std::time::Duration;

/// Why a call failed, besides what became of an execution.
#[derive(Debug, thiserror::Error)]
pub enum ActiveError {
    /// This machine's fault: no memory, no threads, no descriptors.
    #[error("this machine: {why}")]
    Machine {
        /// What it says.
        why: String,
    },
    /// The node was not reached in time.
    #[error("the node's service active is not reached: {why}")]
    Unreachable {
        /// What the last attempt said.
        why: String,
    },
    /// The node did not answer in time. What was asked may have been done.
    #[error(
        "no answer within {} ms: it may have been done, or may still be; raise the limit, or look \
         at the node's load", limit.as_millis()
    )]
    TimedOut {
        /// The caller's limit.
        limit: Duration,
    },
    /// The connection was lost while a write or an atomic was under way.
    #[error("the connection was lost ({why}): the operation may have been carried out, or not")]
    Interrupted {
        /// How.
        why: String,
    },
    /// The caller's: another thread has [stopped](super::ClientStopper::stop) the client.
    #[error("the client was stopped while the call waited: it may have been done, or may still be")]
    Stopped,
    /// The caller names a file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The node refused.
    #[error("the node refuses: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// A module could not be loaded.
    #[error("module {name} is not loaded: {why}")]
    NotLoaded {
        /// What the caller calls it.
        name: String,
        /// The node's words.
        why: String,
    },
    /// The caller has more under way than it allowed itself.
    #[error(
        "{limit} requests, or {} bytes of arguments, have no outcome taken yet: poll before you \
         submit more",
        UNDER_WAY_MAX
    )]
    WindowFull {
        /// Its own limit of requests.
        limit: usize,
    },
    /// Something of the caller's is too long.
    #[error("{what} of {found} bytes: at most {limit} are possible")]
    TooLong {
        /// What.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// The caller reaches outside a region, or outside its own memory.
    #[error("{len} bytes at {at} are not inside {what}, which has {size}")]
    Outside {
        /// Of what.
        what: String,
        /// Where.
        at: u64,
        /// How many.
        len: u64,
        /// Bytes that there are.
        size: u64,
    },
    /// The caller names a place where no atomic is possible.
    #[error("an atomic at {at}: its place must be a multiple of 8")]
    Unaligned {
        /// Where.
        at: u64,
    },
    /// The caller names what this client does not have.
    #[error("this client has no such {what}")]
    NotOwn {
        /// What.
        what: &'static str,
    },
    /// This machine's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// This machine, or a fault of Outboard.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A fault of Outboard.
    #[error(transparent)]
    Overflow(#[from] CqOverflow),
}

/// Refuses a name that is too long for the protocol.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), ActiveError> {
    match name.len() {
        found if found > NAME_MAX => Err(ActiveError::TooLong { what, found, limit: NAME_MAX }),
        _ => Ok(()),
    }
}
