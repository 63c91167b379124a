//! One job as the timeline shows it.

use serde::{Deserialize, Serialize};

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The source's name, or what is linked.
    pub name: String,
    /// Where it ran: `home`, or the server.
    pub place: String,
    /// The slot there, counted from 0.
    pub slot: u32,
    /// When its wrapper came, in microseconds since 1970.
    pub began_us: u64,
    /// What it went through, in order.
    pub phases: Vec<Phase>,
    /// How it ended.
    pub how: How,
}

/// A stretch of a job's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// What went on.
    pub stage: Stage,
    /// How long, in microseconds.
    pub us: u64,
}

/// What goes on in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It waits for a slot.
    Queued,
    /// A server has claimed it and prepares.
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
    /// At home, for this reason.
    Home(String),
}

impl Record {
    /// When it ended, in microseconds since 1970.
    #[must_use]
    pub fn ended_us(&self) -> u64 {
        self.phases.iter().fold(self.began_us, |at, phase| at.saturating_add(phase.us))
    }
}
