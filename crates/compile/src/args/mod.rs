//! Whether a compiler's command line may run on another machine, and what it needs there.
//!
//! Knows words, not files: it opens nothing but the response files (`@file`) that a command line
//! names. What it does not know for certain runs at home, with the reason for the statistics.
//!
//! Modules in reading order: `job` (what comes out), `reason` (why not).

mod job;
mod reason;

pub use job::{Directory, Job, Language, Output, Role};
pub use reason::{Cause, Reason};
