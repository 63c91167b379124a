//! A farm and a server that talk over loopback: real compilers on the one side, a project on the
//! other, encrypted sessions between them.
//!
//! Started with `anchor` as its argument this program is a sandbox's anchor.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod support;

mod builds;
mod preprocess;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("anchor") {
        return outboard_compile::sandbox::anchor_main();
    }
    let trials: Vec<Trial> = builds::trials().into_iter().chain(preprocess::trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
