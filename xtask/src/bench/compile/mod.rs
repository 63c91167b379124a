//! `cargo xtask bench compile`: `outboard cc` beside distcc and icecream, on emulated servers.
//!
//! Reading order: `work` (what is compiled), `recorder` and `watch` (what the real compiler did).

mod recorder;
mod watch;
mod work;

use anyhow::Result;

use super::report::Report;
use crate::command;

pub(super) fn run() -> Result<Report> {
    let base = command::target_dir().join("bench/compile");
    let project = base.join("project");
    if !project.is_dir() {
        work::make_project(&project)?;
    }
    let mut jobs = work::redis(&project)?;
    jobs.push(work::wide());
    recorder::record(&project, &jobs, &base.join("record"))?;
    anyhow::bail!("{} jobs", jobs.len())
}
