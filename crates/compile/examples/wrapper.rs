//! The wrapper as a helper of this crate's tests, which start it under compilers' names.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    outboard_cc::wrapper::run()
}
