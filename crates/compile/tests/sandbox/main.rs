//! Real compilers in real sandboxes: what they make is what they make at home, and what they must
//! not do they cannot.
//!
//! Started with `anchor` as its argument this program is a sandbox's anchor.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod support;

mod compile;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("anchor") {
        return outboard_compile::sandbox::anchor_main();
    }
    let trials: Vec<Trial> = compile::trials();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
