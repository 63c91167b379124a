//! The program `outboard-cc`, and everything that links to it by a compiler's name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    outboard_cc::wrapper::run()
}
