//! A manager as a helper of this crate's tests: its executor runs on this machine, or there is
//! none.
//!
//! `OUTBOARD_TEST_EXECUTOR` names the executor: `local` runs compilers in child processes,
//! `instant` makes objects of one byte at once, `failing` fails every job, `absent` has many slots
//! and never answers, `stuck` has few and never answers.

#![forbid(unsafe_code)]

#[path = "../tests/support/executors.rs"]
mod executors;

use outboard_compile::manager::{Manager, NoServers, RemoteExecutor, Settings, listen};
use outboard_compile::stats::{Journal, state_directory};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    match &*std::env::var("OUTBOARD_TEST_EXECUTOR").unwrap_or_default() {
        "local" => serve(executors::ProcessExecutor::new(2)?),
        "instant" => serve(executors::Instant::new()?),
        "failing" => serve(executors::Failing::new()?),
        "stuck" => serve(executors::Stuck::new()?),
        "absent" => serve(executors::Absent::new()?),
        _ => serve(NoServers::new("")?),
    }
}

fn serve(executor: impl RemoteExecutor) -> Result<(), Box<dyn Error>> {
    let (listener, place) = listen()?;
    let idle = std::env::var("OUTBOARD_TEST_IDLE_MS").ok().and_then(|text| text.parse().ok());
    let mut settings = Settings::default();
    settings.idle = idle.map(Duration::from_millis).or(settings.idle);
    let journal = Journal::new(state_directory().as_deref());
    Ok(Manager::new(listener, Some(place), executor, settings, journal)?.run()?)
}
