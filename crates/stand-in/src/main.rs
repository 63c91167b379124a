//! The stand-in as a program: `DIR/bin/gcc`, which replays the records in `DIR/record`.
//!
//! Commands that are no compilation (`-E`, `--version`, linking) are passed to the real compiler.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use outboard_stand_in::command::Command;
use outboard_stand_in::place::{Fault, ReplayDir};
use outboard_stand_in::play;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(fault) => {
            // If standard error cannot be written, the error cannot be reported.
            let _ = writeln!(io::stderr(), "stand-in compiler: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Fault> {
    let mut words = env::args_os();
    let program = words.next().unwrap_or_default();
    let place = ReplayDir::of(&program)?;
    let words: Vec<_> = words.collect();
    match Command::parse(&words) {
        Some(command) => play::play(&place, &command).map(|()| ExitCode::SUCCESS),
        None => Err(place.become_real(&program, &words)),
    }
}
