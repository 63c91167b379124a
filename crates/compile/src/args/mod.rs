//! Decides whether a compiler's command line may run remotely, and what it needs there.
//!
//! It reads only the response files (`@file`) that a command line names. A command line that it
//! does not understand completely runs locally, with a reason for the statistics.
//!
//! Modules in reading order: `job` (a job that may run remotely), `reason` (why one may not),
//! `table` (all known options), `classify` (decides by the words), `words` (response files),
//! `language`, `outputs` (names of outputs), `environment`, `halves` (splits off preprocessing),
//! `inputs` (checks that look at files).

mod classify;
mod environment;
mod halves;
mod inputs;
mod job;
mod language;
mod outputs;
mod reason;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use classify::{Classification, CompilerCall, classify};
pub use halves::Halves;
pub use inputs::examine;
pub use job::{DirectoryRole, Job, Language, NamedDirectory, Output};
pub use language::is_compiler;
pub use reason::{Cause, Reason};
