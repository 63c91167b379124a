//! Runs test programs by cargo-nextest, a process for each test, and reads its report.
//!
//! `.config/nextest.toml` has the time limits of a test and what the report contains.

use std::fs;
use std::thread;

use anyhow::{Context, Result, bail};
use roxmltree::{Document, Node};

use super::selection::Selection;
use super::{Settings, limit};
use crate::command::{self, cargo};
use crate::sources;

/// Where nextest writes its reports, below the workspace's root, wherever cargo builds.
const REPORTS: &str = "target/nextest";
/// nextest's exit code when tests have failed.
const TESTS_FAILED: i32 = 100;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Passed,
    /// It printed a line `skipped: ` with this reason, and passed.
    Skipped(String),
    /// With its output.
    Failed(String),
    /// A signal ended it, with its output.
    Killed(String),
}

/// A test that has run.
#[derive(Clone, Debug)]
pub(super) struct TestRun {
    /// The test program, as nextest names it: `outboard-verbs` for a library's own tests,
    /// `outboard-verbs::tshark` for an integration test.
    pub(super) binary: String,
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) ending: Ending,
}

/// Runs the tests of a selection, and returns all that have run.
///
/// # Errors
/// When cargo or nextest fails for another reason than failed tests, or no test has run.
pub(super) fn run(selection: &Selection, settings: &Settings) -> Result<Vec<TestRun>> {
    let profile = if settings.full { "full" } else { "default" };
    let mut nextest = cargo(["nextest", "run", "--workspace", "--profile", profile]);
    nextest.args(&selection.targets).args(["--filterset", &selection.filter]);
    let threads = if selection.alone { 1 } else { threads()? };
    nextest.arg(format!("--test-threads={threads}"));
    nextest.arg(format!("--retries={}", selection.retries));
    nextest.env("OUTBOARD_SOURCES", sources::directory());
    if settings.full {
        nextest.env("OUTBOARD_FULL", "1");
    } else {
        // Properties and histories find new counterexamples in `--full`.
        nextest.env("PROPTEST_RNG_SEED", "1").env("OUTBOARD_SEED", "1");
    }
    let place = command::root().join(REPORTS).join(profile).join("junit.xml");
    if let Err(error) = fs::remove_file(&place)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", place.display()));
    }
    let mut child = nextest.spawn().context("cannot start cargo nextest")?;
    limit::spare(child.id());
    let status = child.wait()?;
    if !status.success() && status.code() != Some(TESTS_FAILED) {
        bail!("{} failed: {status}", command::line(&nextest));
    }
    let text = fs::read_to_string(&place)
        .with_context(|| format!("nextest wrote no {}", place.display()))?;
    let runs = parse(&text).with_context(|| format!("{} is not JUnit's", place.display()))?;
    if runs.is_empty() {
        bail!("{} ran no test", command::line(&nextest));
    }
    Ok(runs)
}

/// Most tests wait for something most of the time.
fn threads() -> Result<usize> {
    Ok(thread::available_parallelism()?.get() * 2)
}

fn parse(text: &str) -> Result<Vec<TestRun>> {
    let document = Document::parse(text)?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    cases.map(test_run).collect()
}

fn test_run(case: Node<'_, '_>) -> Result<TestRun> {
    let attribute = |name| case.attribute(name).with_context(|| format!("a test has no {name}"));
    let output = || {
        let streams = ["system-out", "system-err"].map(|stream| child_text(case, stream));
        streams.join("\n").trim().to_owned()
    };
    let failure =
        case.children().find(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
    let ending = match failure.map(|node| node.attribute("type").unwrap_or_default()) {
        Some(kind) if kind.contains("abort") => Ending::Killed(output()),
        Some(kind) => Ending::Failed(format!("{kind}\n{}", output())),
        None => {
            let output = output();
            let reason = output.lines().find_map(|line| line.strip_prefix("skipped: "));
            reason.map_or(Ending::Passed, |reason| Ending::Skipped(reason.to_owned()))
        }
    };
    Ok(TestRun {
        binary: attribute("classname")?.to_owned(),
        name: attribute("name")?.to_owned(),
        seconds: attribute("time")?.parse()?,
        ending,
    })
}

fn child_text<'a>(case: Node<'a, '_>, tag: &str) -> &'a str {
    let child = case.children().find(|node| node.has_tag_name(tag));
    child.and_then(|node| node.text()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nextest 0.9.148 writes it.
    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="2" errors="0" time="0.5">
  <testsuite name="outboard-mem" tests="2" disabled="0" errors="0" failures="1">
    <testcase name="a::b" classname="outboard-mem" timestamp="2026-11-29T03:00:00Z" time="0.25">
      <system-out>
running 1 test
skipped: no AVX
test a::b ... ok</system-out>
    </testcase>
    <testcase name="a::c" classname="outboard-mem" time="0.5"/>
  </testsuite>
</testsuites>
"#;

    #[test]
    fn what_passed_and_what_was_skipped_is_read() {
        let runs = parse(REPORT).expect("a report");
        assert_eq!(runs[0].binary, "outboard-mem");
        assert_eq!(runs[0].name, "a::b");
        assert_eq!(runs[0].ending, Ending::Skipped("no AVX".to_owned()));
        assert!((runs[1].seconds - 0.5).abs() < f64::EPSILON);
        assert_eq!(runs[1].ending, Ending::Passed);
    }

    #[test]
    fn a_broken_report_is_an_error() {
        assert!(parse("<testsuites>").is_err());
        assert!(parse("<testsuites><testcase name='a'/></testsuites>").is_err());
    }
}
