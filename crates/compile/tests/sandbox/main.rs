//! Real compilers in real sandboxes: what they make is what they make at home, and what they must
//! not do they cannot.
//!
//! Started with `anchor` as its argument this program is a sandbox's anchor, with `cost` it
//! measures what a job costs, with `service` it is a service that somebody kills.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod support;

mod compile;
mod cost;
mod escape;
mod life;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("anchor") => return outboard_compile::sandbox::anchor_main(),
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
