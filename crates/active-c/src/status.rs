//! Statuses: what a call came to, as a number, and in words.

use outboard_active::{ActiveError, Outcome};
use outboard_cluster::keys::KeysError;
use outboard_verbs::VerbsError;
use std::ffi::{CStr, c_int};

macro_rules! statuses {
    ($($name:ident = $value:literal, $word:literal;)*) => {
        /// The header's `outboard_active_status`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the header says it")]
        pub enum CStatus { $($name = $value,)* }

        impl CStatus {
            /// All, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in the header, without the prefix.
            #[must_use]
            pub fn word(self) -> &'static CStr {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

statuses! {
    Ok = 0, c"OK";
    Failed = 1, c"FAILED";
    Trap = 2, c"TRAP";
    TimeLimit = 3, c"TIME_LIMIT";
    Killed = 4, c"KILLED";
    Conflict = 5, c"CONFLICT";
    Busy = 6, c"BUSY";
    Refused = 7, c"REFUSED";
    NoModule = 8, c"NO_MODULE";
    NoEntry = 9, c"NO_ENTRY";
    Unknown = 10, c"UNKNOWN";
    Node = 11, c"NODE";
    Truncated = 12, c"TRUNCATED";
    Again = 32, c"AGAIN";
    Argument = 33, c"ARGUMENT";
    Closed = 34, c"CLOSED";
    Forked = 35, c"FORKED";
    Unreachable = 36, c"UNREACHABLE";
    TimedOut = 37, c"TIMED_OUT";
    NotLoaded = 38, c"NOT_LOADED";
    Full = 39, c"FULL";
    Outside = 40, c"OUTSIDE";
    File = 41, c"FILE";
    Key = 42, c"KEY";
    Machine = 43, c"MACHINE";
    Bug = 44, c"BUG";
}

impl From<CStatus> for c_int {
    fn from(status: CStatus) -> Self {
        status as Self
    }
}

/// Why a call failed: the status that C gets, and the message.
#[derive(Debug)]
pub struct CFailure {
    /// The status.
    pub status: CStatus,
    /// In words.
    pub message: String,
}

impl CFailure {
    /// A failure.
    pub fn new(status: CStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The program's mistake.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(CStatus::Argument, message)
    }

    /// The same, for a request that may have changed something before its time was over.
    #[must_use]
    pub fn may_be_done(self) -> Self {
        match self.status {
            CStatus::TimedOut => Self { status: CStatus::Unknown, ..self },
            _ => self,
        }
    }
}

impl From<ActiveError> for CFailure {
    fn from(error: ActiveError) -> Self {
        let status = match &error {
            ActiveError::Unreachable { .. } => CStatus::Unreachable,
            ActiveError::TimedOut { .. } => CStatus::TimedOut,
            ActiveError::Interrupted { .. } => CStatus::Unknown,
            ActiveError::Stopped => CStatus::Closed,
            ActiveError::File { .. } => CStatus::File,
            ActiveError::Refused { .. } => CStatus::Refused,
            ActiveError::NotLoaded { .. } => CStatus::NotLoaded,
            ActiveError::WindowFull { .. } => CStatus::Full,
            ActiveError::TooLong { .. }
            | ActiveError::NotOwn { .. }
            | ActiveError::Unaligned { .. } => CStatus::Argument,
            ActiveError::Outside { .. } => CStatus::Outside,
            ActiveError::Machine { .. }
            | ActiveError::Memory(_)
            | ActiveError::Verbs(_)
            | ActiveError::Overflow(_) => CStatus::Machine,
        };
        Self::new(status, error.to_string())
    }
}

impl From<KeysError> for CFailure {
    fn from(error: KeysError) -> Self {
        Self::new(CStatus::Key, error.to_string())
    }
}

impl From<VerbsError> for CFailure {
    fn from(error: VerbsError) -> Self {
        Self::new(CStatus::Machine, error.to_string())
    }
}

/// The result of an execution, or why there is none, and the module's own number.
pub(crate) fn split(outcome: Outcome) -> (Result<Vec<u8>, CFailure>, i32) {
    let message = outcome.failure().unwrap_or_default();
    let (status, code) = match outcome {
        Outcome::Done { result, .. } => return (Ok(result), 0),
        Outcome::Failed { code, .. } => (CStatus::Failed, code),
        Outcome::NoCode(_) => (CStatus::NoModule, 0),
        Outcome::NoEntry(_) => (CStatus::NoEntry, 0),
        Outcome::Trap(_) => (CStatus::Trap, 0),
        Outcome::Timeout(_) => (CStatus::TimeLimit, 0),
        Outcome::Killed => (CStatus::Killed, 0),
        Outcome::Conflict => (CStatus::Conflict, 0),
        Outcome::Busy(_) => (CStatus::Busy, 0),
        Outcome::Refused(_) => (CStatus::Refused, 0),
        Outcome::Unknown => (CStatus::Unknown, 0),
        Outcome::Machine(_) => (CStatus::Node, 0),
    };
    (Err(CFailure::new(status, message)), code)
}
