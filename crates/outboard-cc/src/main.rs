//! The program `outboard-cc`, also under the names of compilers by links to it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    outboard_cc::wrapper::run()
}
