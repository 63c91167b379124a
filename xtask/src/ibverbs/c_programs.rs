//! The project's C programs, compiled against the distribution's headers: one passes invalid
//! arguments to every function, one uses every function under AddressSanitizer, one forks, one uses
//! MPI.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pair::Bench;
use super::table::Site;
use crate::command::{self, root};
use crate::process::Process;

/// For one program.
const LIMIT: Duration = Duration::from_secs(60);

/// A source, and options of the compiler.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    options: &'static [&'static str],
}

pub(super) const PROGRAMS: &[Program] = &[
    Program { name: "nonsense", options: &["-O1"] },
    Program { name: "fork", options: &["-O1"] },
    Program {
        name: "every_entry",
        options: &["-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
    },
];

/// Compiles and runs one.
pub(super) fn run(bench: &Bench, program: &Program, personality: &str) -> Result<()> {
    let binary = bench.scratch(Site::Loopback).join(format!("{}.{personality}", program.name));
    compile(program, &binary)?;
    let log = bench.scratch(Site::Loopback).join(format!("{}.{personality}.log", program.name));
    let words = [&*binary.to_string_lossy()];
    let mut command = bench.command(personality, "127.0.0.1", &words);
    Process::start(&mut command, &log)?.finish(Instant::now() + LIMIT).map(drop)
}

fn compile(program: &Program, binary: &Path) -> Result<()> {
    let source = root().join(format!("crates/ibverbs/tests/c/{}.c", program.name));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"]).args(program.options);
    cc.arg(source).arg("-o").arg(binary).args(["-lrdmacm", "-libverbs", "-lpthread"]);
    command::run(&mut cc)
}

/// Compiles the program for MPI, under the name that its rows start. Rows may do so at once: each
/// file is whole when it gets its name.
pub(super) fn compile_mpi(bench: &Bench) -> Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (source, binary) =
        (root().join("crates/ibverbs/tests/c/mpi.c"), bench.scratch(Site::Loopback).join("mpi"));
    let mut mpicc = Command::new("mpicc");
    mpicc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).arg(source);
    let fresh = binary.with_extension("new");
    command::run(mpicc.arg("-o").arg(&fresh))?;
    Ok(fs::rename(fresh, binary)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libs::Library;
    /// Public symbols that neither program can use: drivers of before 2008 registered with it.
    const LEFT_OUT: &[&str] = &["ibv_register_driver"];

    fn read(path: &str) -> String {
        fs::read_to_string(root().join("crates/ibverbs").join(path)).unwrap()
    }

    /// The functions that programs may call, by the table of symbols.
    fn public(library: Library) -> Vec<String> {
        let table = read(&format!("symbols/{}.symbols", library.name()));
        let versioned = table.lines().filter_map(|line| line.split_once('@'));
        let public = versioned.filter(|(_, version)| !version.contains("PRIVATE"));
        let mut names: Vec<String> = public.map(|(name, _)| name.to_owned()).collect();
        names.dedup();
        names.retain(|name| !name.starts_with('#') && !LEFT_OUT.contains(&&**name));
        names
    }

    #[test]
    fn both_programs_call_every_symbol() {
        for source in ["nonsense", "every_entry"] {
            let text = read(&format!("tests/c/{source}.c"));
            let words: Vec<&str> =
                text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
            for library in Library::ALL {
                let uses = |name: &&String| {
                    // The headers name these two without the leading underscore.
                    words.contains(&&***name) || words.contains(&name.trim_start_matches('_'))
                };
                let names = public(library);
                assert!(names.len() > 60, "{names:?}");
                let missing: Vec<_> = names.iter().filter(|name| !uses(name)).collect();
                assert!(missing.is_empty(), "{source}.c does not use {missing:?}");
            }
        }
    }
}
