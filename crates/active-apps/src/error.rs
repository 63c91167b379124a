//! Why a method of a structure's client has no result.

use outboard_active::{ActiveError, Outcome};

/// Why an operation on a structure failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The connection, the node, or this machine.
    #[error(transparent)]
    Active(#[from] ActiveError),
    /// The caller's or the structure's: the module says why. Nothing has changed.
    #[error("{entry} is refused by its module (code {code}): {text}")]
    Failed {
        /// What it is about.
        kind: FailureKind,
        /// The entry.
        entry: &'static str,
        /// The module's number, as its header has it.
        code: i32,
        /// The module's words.
        text: String,
    },
    /// Nobody's: others were faster each time, or the node has too much to do. Nothing has changed
    /// that others see.
    #[error("{entry} was not executed: {why}; nothing has changed, try again")]
    Crowded {
        /// The entry.
        entry: &'static str,
        /// The node's reason.
        why: String,
    },
    /// The node's: the entry was not executed to its end, and nothing has changed.
    #[error("{entry} was not executed, nothing has changed: {why}")]
    NotExecuted {
        /// The entry.
        entry: &'static str,
        /// The node's reason.
        why: String,
    },
    /// Nobody's: the service was killed so long ago, in calls, that its answer is not kept.
    #[error("whether {entry} was executed is not known: read before you repeat it")]
    Unknown {
        /// The entry.
        entry: &'static str,
    },
    /// Whoever has written here: the region's bytes are no such structure.
    #[error("{what}: {found} was found, {expected} was expected; its bytes were overwritten")]
    Broken {
        /// What is wrong.
        what: &'static str,
        /// The number that was found.
        found: u64,
        /// What it should be, or the most that it may be.
        expected: u64,
    },
    /// Peers': they change it faster than it can be read.
    #[error("{what} was changed by others during each of {tries} attempts: try again")]
    Changing {
        /// What.
        what: &'static str,
        /// Attempts that were made.
        tries: usize,
    },
    /// The caller's: an argument is out of its range.
    #[error("{what} is {found}: {limit} is the most that is possible")]
    TooMuch {
        /// Which.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The most that is possible.
        limit: u64,
    },
}

/// What a module's failure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no such structure at this offset: create it.
    NoStructure,
    /// The structure has no room left.
    Full,
    /// The place for a new structure is outside the region, not aligned, or too small.
    Place,
    /// An argument is out of its range.
    Argument,
    /// A value is not of the kind that the entry works on.
    WrongValue,
    /// The structure's bytes were overwritten.
    Broken,
    /// Others changed it faster than it could be read.
    Changing,
    /// A code that this crate does not know.
    Other,
}

impl FailureKind {
    /// Codes of `modules/*/*.h` and `modules/include/outboard.h`.
    fn of(code: i32) -> Self {
        match code {
            16 | 32 | 48 | 64 => Self::NoStructure,
            17 | 35 | 49 | 65 => Self::Full,
            20 | 36 | 50 | 66 => Self::Place,
            1 | 2 | 33 | 34 | 51 | 67 | 68 | 80 | 96 | 98 => Self::Argument,
            97 => Self::WrongValue,
            18 | 19 | 37 => Self::Broken,
            38 => Self::Changing,
            _ => Self::Other,
        }
    }
}

impl AppError {
    /// Whether the operation may have taken effect, or may still: a caller that repeats it must be
    /// able to bear that.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::Active(error) => matches!(
                error,
                ActiveError::Interrupted { .. }
                    | ActiveError::TimedOut { .. }
                    | ActiveError::Stopped
            ),
            _ => false,
        }
    }

    /// What became of an entry, as a result.
    pub(crate) fn check(entry: &'static str, outcome: Outcome) -> Result<Vec<u8>, Self> {
        let why = outcome.failure().unwrap_or_default();
        Err(match outcome {
            Outcome::Done { result, .. } => return Ok(result),
            Outcome::Failed { code, text } => {
                Self::Failed { kind: FailureKind::of(code), entry, code, text }
            }
            Outcome::Unknown => Self::Unknown { entry },
            Outcome::Conflict | Outcome::Busy(_) => Self::Crowded { entry, why },
            _ => Self::NotExecuted { entry, why },
        })
    }
}
