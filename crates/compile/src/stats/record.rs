//! One job as the timeline shows it.

use serde::{Deserialize, Serialize};

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The name of the source, or of the linked program.
    pub name: String,
    /// Where it ran: `local`, or the server.
    pub place: String,
    /// The slot there, counted from 0.
    pub slot: u32,
    /// When its wrapper connected, in microseconds since 1970.
    pub began_us: u64,
    /// Its phases, in order.
    pub phases: Vec<JobPhase>,
    /// How it ended.
    pub how: How,
}

/// A phase of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPhase {
    /// Which phase.
    pub stage: PhaseKind,
    /// How long, in microseconds.
    pub us: u64,
}

/// The kinds of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// It waits for a slot.
    Queued,
    /// A server has claimed it and prepares its sandbox.
    Prepared,
    /// The compiler runs.
    Ran,
    /// Outputs come back and are placed.
    Returned,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// On a server.
    Remote,
    /// Locally, for this reason.
    Local(String),
}

impl JobRecord {
    /// When it ended, in microseconds since 1970.
    #[must_use]
    pub fn ended_us(&self) -> u64 {
        self.phases.iter().fold(self.began_us, |at, phase| at.saturating_add(phase.us))
    }
}
