//! C programs of ours, compiled against the distribution's headers: one passes nonsense to every
//! entry, one uses every entry under AddressSanitizer, one forks.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pair::Bench;
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
    let binary = bench.scratch().join(format!("{}.{personality}", program.name));
    compile(program, &binary)?;
    let log = bench.scratch().join(format!("{}.{personality}.log", program.name));
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
