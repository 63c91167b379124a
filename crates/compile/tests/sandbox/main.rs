//! Real compilers in real sandboxes: their results equal those of local runs, and forbidden
//! operations fail.
//!
//! Started with `supervisor` as its argument this program is a sandbox's supervisor, with `cost` it
//! measures the cost of a job, with `service` it is a service that a test kills.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod support;

mod compile;
mod cost;
mod escape;
mod life;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("supervisor") => return outboard_compile::sandbox::supervisor_main(),
        Some("cost") => {
            cost::measure();
            return ExitCode::SUCCESS;
        }
        Some("service") => life::be_a_service(),
        _ => {}
    }
    let trials: Vec<Trial> = [compile::trials(), cost::trials(), escape::trials(), life::trials()]
        .into_iter()
        .flatten()
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
