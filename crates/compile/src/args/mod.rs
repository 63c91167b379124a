//! Whether a compiler's command line may run on another machine, and what it needs there.
//!
//! Knows words, not files: it opens nothing but the response files (`@file`) that a command line
//! names. What it does not know for certain runs at home, with the reason for the statistics.
//!
//! Modules in reading order: `job` (what comes out), `reason` (why not), `table` (every known
//! option), `classify` (from words to a plan), `words` (response files), `language`, `outputs`
//! (names of what is made), `environment`, `halves` (preprocessing apart from the rest).

mod classify;
mod environment;
mod halves;
mod job;
mod language;
mod outputs;
mod reason;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use classify::{Call, Plan, classify};
pub use halves::Halves;
pub use job::{Directory, Job, Language, Output, Role};
pub use language::is_compiler;
pub use reason::{Cause, Reason};
