//! What happened: counters for a user's statistics, and the last jobs for a timeline.
//!
//! The manager adds up in memory and writes when builds pause; a file is never more than a minute
//! behind. Nothing in here decides anything.
//!
//! Modules in reading order: `record` (one job), `counters` (sums), `journal` (both, and their
//! file), `timeline` (jobs as a picture).

mod counters;
mod journal;
mod record;
mod timeline;

pub use counters::{Counters, Server};
pub(crate) use journal::HomeJob;
pub use journal::{Journal, Saved, state_directory};
pub use record::{How, Phase, Record, Stage};
pub use timeline::{html, svg};
