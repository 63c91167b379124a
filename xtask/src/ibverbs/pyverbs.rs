//! pyverbs' own tests, which Debian ships as documentation: each is run, and its result is compared
//! with a list in the repository, so that no regression goes unnoticed.
//!
//! The list has only `passed` and `skipped` lines: a test that fails or hangs is never expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::pair::Bench;
use super::table::Site;
use crate::command::{self, root};
use crate::process::Process;
use crate::test::{Count, failures};

const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";
/// For one test; the slowest of those that pass takes a second.
const SECONDS_PER_TEST: &str = "25";
/// For all tests of one personality.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs all tests on one personality.
pub(super) fn run(bench: &Bench, personality: &str, site: Site) -> Result<Count> {
    let directory = unpack(&bench.scratch(site).join(format!("pyverbs.{personality}")))?;
    judge(personality, &run_all(bench, &directory, personality, site)?)
}

/// Copies the tests to where they can be imported from: Debian compresses the longer ones.
fn unpack(directory: &Path) -> Result<PathBuf> {
    let tests = directory.join("tests");
    if tests.exists() {
        fs::remove_dir_all(&tests)?;
    }
    fs::create_dir_all(&tests)?;
    for entry in fs::read_dir(SHIPPED).with_context(|| format!("no {SHIPPED}"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_suffix(".gz") {
            None => drop(fs::copy(&path, tests.join(&name))?),
            Some(plain) => {
                let text = command::output(Command::new("gunzip").arg("--stdout").arg(&path))?;
                fs::write(tests.join(plain), text)?;
            }
        }
    }
    fs::copy(root().join("crates/ibverbs/tests/pyverbs/run.py"), directory.join("run.py"))?;
    Ok(directory.to_owned())
}

fn run_all(bench: &Bench, directory: &Path, personality: &str, site: Site) -> Result<String> {
    let script = directory.join("run.py");
    let (script, directory) = (script.to_string_lossy(), directory.to_string_lossy());
    let words = ["/usr/bin/python3", &script, &directory, "127.0.0.1", SECONDS_PER_TEST];
    let command = bench.command(personality, "127.0.0.1", &words);
    let log = bench.scratch(Site::Loopback).join(format!("pyverbs.{personality}.{site:?}.log"));
    Process::start(&mut bench.at(site, command), &log)?.finish(Instant::now() + LIMIT)?;
    Ok(fs::read_to_string(log)?)
}

/// Compares with the list and prints every test that is not as expected.
fn judge(personality: &str, output: &str) -> Result<Count> {
    let path = root().join(format!("crates/ibverbs/tests/pyverbs/expected.{personality}"));
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let (expected, found) = (verdicts(&expected), verdicts(output));
    if found.is_empty() {
        bail!("pyverbs ran no test:\n{output}");
    }
    let mut count = Count::default();
    for (name, verdict) in &found {
        let good = expected.get(name) == Some(verdict);
        count += Count::one(good);
        if !good {
            let wanted = expected.get(name).copied().unwrap_or("nothing");
            failures::say(&format!(
                "FAILED  pyverbs ({personality}) {name}: {verdict}; expected {wanted}"
            ));
        }
    }
    for name in expected.keys().filter(|name| !found.contains_key(*name)) {
        failures::say(&format!("FAILED  pyverbs ({personality}) {name}: did not run"));
        count += Count::one(false);
    }
    let of = |word: &str| found.values().filter(|verdict| verdict.starts_with(word)).count();
    println!(
        "pyverbs ({personality}): {} passed, {} skipped with a reason, {} failed, {} hang; {} not \
         as expected",
        of("passed"),
        of("skipped"),
        of("failed"),
        of("hangs"),
        count.failed
    );
    Ok(count)
}

/// The lines `VERDICT NAME[: REASON]` by name; others, such as tracebacks, are no verdicts.
fn verdicts(text: &str) -> BTreeMap<&str, &str> {
    let known = ["passed ", "skipped ", "failed ", "hangs "];
    let lines = text.lines().filter(|line| known.iter().any(|word| line.starts_with(word)));
    let named = lines.filter_map(|line| {
        let (_, rest) = line.split_once(' ')?;
        Some((rest.trim_start().split(": ").next()?, line))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracebacks_are_no_verdicts() {
        let text = "passed  tests.a.b\n    failed as\nskipped tests.c: no: port\nhangs   tests.d";
        let found = verdicts(text);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["tests.a.b", "tests.c", "tests.d"]);
        assert_eq!(found["tests.c"], "skipped tests.c: no: port");
    }

    #[test]
    fn the_lists_expect_no_failure() {
        for personality in ["iwarp", "roce"] {
            let path = root().join(format!("crates/ibverbs/tests/pyverbs/expected.{personality}"));
            let text = fs::read_to_string(path).unwrap();
            let good = |line: &&str| line.starts_with("passed ") || line.starts_with("skipped ");
            assert!(!text.is_empty());
            assert_eq!(text.lines().find(|line| !good(line)), None);
        }
    }
}
