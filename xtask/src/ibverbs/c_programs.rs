//! C programs of ours, compiled against the distribution's headers: one passes nonsense to every
//! entry, one uses every entry under AddressSanitizer, one forks.

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
    ("fork", &["-O1"]),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libs::Library;
    use std::fs;

    /// Public symbols that neither program can use: drivers of before 2008 registered with it.
    const LEFT_OUT: &[&str] = &["ibv_register_driver"];

    fn read(path: &str) -> String {
        fs::read_to_string(root().join("crates/ibverbs").join(path)).unwrap()
    }

    /// What programs may call, by the table of symbols.
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
                    // The headers call these two by names without the line in front.
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
