//! Statistics: counters over all jobs of a user, and the last jobs for a timeline.
//!
//! The manager adds up in memory and writes the file when builds pause, and at least once a minute.
//! Nothing depends on these figures.
//!
//! Modules in reading order: `record` (one job), `counters` (sums), `journal` (both, and their
//! file), `timeline` (jobs as a picture).

mod counters;
mod journal;
mod record;
mod timeline;

pub use counters::{JobCounters, ServerTotals};
pub(crate) use journal::LocalJob;
pub use journal::{Journal, SavedJournal, state_directory};
pub use record::{How, JobPhase, JobRecord, PhaseKind};
pub use timeline::{html, svg};
