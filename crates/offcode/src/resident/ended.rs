//! Why there is no resident, and how one ended.

use super::state::StateError;
use crate::error::LoadError;
use std::time::Duration;

/// Why an entry did not return. But for [`ResidentEnd::InputTooLong`] the resident is dead: every
/// further entry gives the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResidentEnd {
    /// A fault of the module: what it was, and in which function.
    #[error("the offcode trapped: {0}")]
    Trapped(String),
    /// The module said so by the import `fail`.
    #[error("the offcode ended itself: {0}")]
    Failed(String),
    /// An entry took longer than its owner allows.
    #[error(
        "an entry of the offcode took more than {limit:?} of processor time, or ten times as long \
         by the clock: let it do less at once, or raise its limit"
    )]
    OutOfTime {
        /// The limit of processor time.
        limit: Duration,
    },
    /// It was killed, by its owner's [`KillSwitch`](crate::engine::KillSwitch).
    #[error("the offcode was killed")]
    Killed,
    /// The owner's fault: an entry was not called at all, and the resident goes on.
    #[error("an input of {found} bytes for an offcode that takes {limit} at most")]
    InputTooLong {
        /// Bytes of the input.
        found: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
}

impl ResidentEnd {
    /// Whether the resident is dead.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::InputTooLong { .. })
    }
}

/// Why there is no such module or resident.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResidentError {
    /// The module is refused, or this machine cannot compile it.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It imports what an offcode does not have.
    #[error("the offcode imports {module}.{field}{found}: {what}")]
    Import {
        /// The import's module name.
        module: String,
        /// Its field.
        field: String,
        /// The type that the module expects.
        found: String,
        /// What there is, and what to do.
        what: String,
    },
    /// An export is missing, or is not what it must be.
    #[error("the offcode's export `{name}`: {what}")]
    Export {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// It asks for more memory at its beginning than it may have.
    #[error(
        "the offcode's memory has {found} bytes from the beginning, and may have {limit}: raise \
         its memory limit, or link it with less data and stack"
    )]
    Memory {
        /// Bytes that it begins with.
        found: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// The start function ended it.
    #[error("the offcode's start function: {0}")]
    Start(ResidentEnd),
    /// A state from which it cannot go on.
    #[error(transparent)]
    State(#[from] StateError),
    /// This machine's fault: memory or addresses.
    #[error("this machine cannot make an instance of the offcode: {0}")]
    Machine(String),
}
