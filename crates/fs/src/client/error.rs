//! Why a file system's request failed: an error number for the program that asked, and words for
//! people.

use crate::protocol::errno_of_failure;
use outboard_active::{ActiveError, Outcome};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The file system says no: nothing was changed.
    #[error("{text} (error {errno})")]
    Failed {
        /// The error number.
        errno: i32,
        /// The module's words.
        text: String,
    },
    /// The service does not answer as this client's release expects: one of the two is another.
    #[error("the service answers {entry} with what is no answer: install the same release on both")]
    Answer {
        /// What was asked.
        entry: &'static str,
    },
    /// Reads one-sided were asked for, and the service's operator has not allowed them.
    #[error(
        "the server does not show its metadata to one-sided Reads: start it with outboard fs serve \
         --one-sided (in a node's table: one_sided = true), or mount without --one-sided"
    )]
    NotShown,
    /// A volatile file system was asked for, and the service has another one.
    #[error(
        "the server's file system is none that clients change by one-sided verbs: start one with \
         outboard fs serve --volatile, or mount without --variant rdma"
    )]
    NotVolatile,
    /// The service says no, whatever is asked.
    #[error("the server: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// The service has not executed it, or does not say.
    #[error("the service: {outcome:?}")]
    Service {
        /// What it says.
        outcome: Outcome,
    },
    /// No answer within the mount's limit. It may have been done.
    #[error("no answer in time: the service is not reached, or overloaded")]
    TimedOut,
    /// The program that asked was killed, or the client is being ended. It may have been done.
    #[error("given up: whoever asked is gone")]
    Interrupted,
    /// The connection, or this machine.
    #[error(transparent)]
    Active(#[from] ActiveError),
    /// This machine gives no memory, or no descriptor.
    #[error("this machine: {0}")]
    Machine(String),
}

impl FsError {
    /// A failure with an error number, as the file system would say it.
    #[must_use]
    pub fn of(errno: i32) -> Self {
        Self::Failed { errno, text: String::new() }
    }

    /// The error number for the program that asked.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Failed { errno, .. } => *errno,
            Self::Service { outcome: Outcome::Refused(_) } | Self::Refused { .. } => libc::EACCES,
            Self::Service { outcome: Outcome::NoEntry(_) } => libc::EOPNOTSUPP,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Interrupted => libc::EINTR,
            Self::Machine(_) | Self::Active(ActiveError::Memory(_)) => libc::ENOMEM,
            Self::Active(ActiveError::TooLong { .. }) => libc::EMSGSIZE,
            Self::Active(ActiveError::TimedOut { .. } | ActiveError::Unreachable { .. }) => {
                libc::ETIMEDOUT
            }
            _ => libc::EIO,
        }
    }
}

/// The result of an execution.
pub(super) fn result_of(outcome: Outcome) -> Result<Vec<u8>, FsError> {
    match outcome {
        Outcome::Done { result, .. } => Ok(result),
        outcome => Err(failure_of(outcome)),
    }
}

/// Why an execution has failed.
pub(super) fn failure_of(outcome: Outcome) -> FsError {
    match outcome {
        Outcome::Failed { code, text } => FsError::Failed { errno: errno_of_failure(code), text },
        outcome => FsError::Service { outcome },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_an_error_number() {
        let failed = |code| Outcome::Failed { code, text: String::new() };
        for (outcome, errno) in [
            (failed(1017), libc::EEXIST),
            (failed(130), libc::ENOSPC),
            (failed(7), libc::EIO),
            (Outcome::Refused("no".into()), libc::EACCES),
            (Outcome::NoEntry("walk".into()), libc::EOPNOTSUPP),
            (Outcome::Unknown, libc::EIO),
            (Outcome::Trap("bad".into()), libc::EIO),
        ] {
            let found = result_of(outcome.clone()).map_err(|error| error.errno());
            assert_eq!(found, Err(errno), "{outcome:?}");
        }
        assert_eq!(FsError::TimedOut.errno(), libc::ETIMEDOUT);
    }
}
