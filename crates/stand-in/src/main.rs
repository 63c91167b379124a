//! The stand-in as a program: `DIR/bin/gcc`, with what it replays in `DIR/record`.
//!
//! What is not a compilation (`-E`, `--version`, linking) the real compiler does in its stead.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use outboard_stand_in::command::Command;
use outboard_stand_in::place::{Fault, Place};
use outboard_stand_in::play;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(fault) => {
            // Nobody is left to tell when this cannot be written.
            let _ = writeln!(io::stderr(), "stand-in compiler: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Fault> {
    let mut words = env::args_os();
    let program = words.next().unwrap_or_default();
    let place = Place::of(&program)?;
    let words: Vec<_> = words.collect();
    match Command::parse(&words) {
        Some(command) => play::play(&place, &command).map(|()| ExitCode::SUCCESS),
        None => Err(place.become_real(&program, &words)),
    }
}
