//! C programs of ours, compiled against the distribution's headers: one passes nonsense to every
//! entry, one uses every entry under AddressSanitizer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pair::Bench;
use super::process::Process;
use super::told;
use crate::command::{self, root};
use crate::test::Count;

/// For one program.
const LIMIT: Duration = Duration::from_secs(60);

/// Sources, and options of the compiler.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("nonsense", &["-O1"]),
    ("every_entry", &["-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]),
];

/// Compiles and runs all of them on either personality.
pub(super) fn run(bench: &Bench) -> Result<Count> {
    let mut total = Count::default();
    for (name, options) in PROGRAMS {
        let program = compile(bench.scratch(), name, options)?;
        for personality in ["iwarp", "roce"] {
            let began = Instant::now();
            let result = start(bench, &program, personality)
                .and_then(|mut process| process.finish(Instant::now() + LIMIT).map(drop));
            total += told(&format!("{name}.c ({personality})"), began, result);
        }
    }
    Ok(total)
}

fn compile(scratch: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let source = root().join(format!("crates/ibverbs/tests/c/{name}.c"));
    let program = scratch.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"]).args(options);
    cc.arg(source).arg("-o").arg(&program).args(["-lrdmacm", "-libverbs", "-lpthread"]);
    command::run(&mut cc)?;
    Ok(program)
}

fn start(bench: &Bench, program: &Path, personality: &str) -> Result<Process> {
    let mut log = program.to_owned();
    log.set_extension(format!("{personality}.log"));
    let words = [&*program.to_string_lossy()];
    Process::start(&mut bench.command(personality, "127.0.0.1", &words), &log)
}
