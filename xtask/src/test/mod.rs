//! The runner behind `cargo xtask test`.
//!
//! Runs the suites of `suites`, skips those whose `needs` are missing and says what to install,
//! and closes with `N passed, N failed, N skipped`: single tests, except that a skipped suite
//! counts as one. In CI (`CI=true`) a skip is a failure. Never hides the output of a suite.
//!
//! Test programs run by `nextest`, the tests of all suites side by side; the suites' own checks run
//! before them, in a lane beside them, or after them, as each suite says.

mod changed;
pub(crate) mod check;
mod count;
mod disk;
pub(crate) mod failures;
mod fetch;
mod flaky;
mod limit;
pub(crate) mod needs;
mod nextest;
mod report;
pub(crate) mod sample;
mod selection;
mod suites;
mod wheel;

#[cfg(test)]
mod tests;

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

pub use count::Count;
use report::{Checked, Report};
use selection::{Pass, Selection};
use suites::EVERY_OTHER;
pub use suites::{LONG_SUITES, Lane, RunChecks, SUITES, Suite};

/// How much to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The long matrices whole instead of sampled; tests see it as `OUTBOARD_FULL=1`.
    pub full: bool,
}

/// The suite without which no other can run.
const BUILD: &str = "build";
/// What stands before the error of an installation, or of what is fetched.
const ENVIRONMENT: &str = "the environment failed, not a test";
/// How many times longer than its budget a suite's own checks may take before they are stopped.
const LIMIT_FACTOR: u32 = 6;
/// They always have this long: a budget of seconds says nothing about a busy machine.
const LIMIT_MIN: Duration = Duration::from_secs(600);
/// The same with [`Settings::full`].
const FULL_LIMIT_FACTOR: u32 = 100;

/// Runs the suites called `names`, or all; installs what they need first when asked to.
///
/// # Errors
/// When a name is unknown, an installation or any test fails, or, in CI, any is skipped.
pub fn run(names: &[String], install: bool, settings: &Settings) -> Result<()> {
    let began = Instant::now();
    let chosen = choose(names, settings.full)?;
    if names.is_empty()
        && let Some(warning) = disk::warning()?
    {
        println!("{warning}");
    }
    if settings.full {
        flaky::be_strict();
    }
    let mut report = Report::new(&chosen, settings.full);
    let is_ready = |suite: &&Suite| {
        suite.all_needs().next().is_none() && matches!(suite.checks, Some((Lane::First, _)))
    };
    let (ready, mut suites): (Vec<_>, Vec<_>) = chosen.into_iter().partition(is_ready);
    fetch::outside(&ready).context(ENVIRONMENT)?;
    let installed = thread::scope(|scope| {
        let needs = suites.iter().flat_map(|suite| suite.all_needs());
        let installing = install.then(|| scope.spawn(|| needs::install(needs)));
        report.add_checks(run_checks(&ready, Lane::First, settings));
        installing.map_or(Ok(()), |thread| joined(thread.join())?)
    });
    installed.context(ENVIRONMENT)?;
    if ready.iter().any(|suite| suite.name == BUILD && report.has_failed(suite.name)) {
        suites.iter().for_each(|suite| report.skip(suite, "the build, which has failed"));
        return finish(&report, false, began);
    }
    suites.retain(|suite| !is_skipped(suite, &mut report));
    fetch::outside(&suites).context(ENVIRONMENT)?;
    run_suites(&suites, !names.is_empty(), settings, &mut report)?;
    finish(&report, names.is_empty() && !settings.full, began)
}

/// Runs suites whose needs are there: their checks, and their tests.
fn run_suites(
    suites: &[&'static Suite],
    named: bool,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let left_out = suites::left_out(suites, settings);
    let run_tests = |pass| match Selection::new(suites, pass, &left_out) {
        Some(selection) => {
            println!("\n=== {}", pass.about());
            nextest::run(&selection, settings)
        }
        None => Ok(Vec::new()),
    };
    report.add_checks(run_checks(suites, Lane::First, settings));
    // nextest alone does not build the examples that tests start.
    if named && suites.iter().any(|suite| suite.tests.contains(&EVERY_OTHER)) {
        suites::build_tests()?;
    }
    let (checks, tests) = thread::scope(|scope| {
        let checks = scope.spawn(|| run_checks(suites, Lane::Beside, settings));
        let tests = flaky::while_busy(|| run_tests(Pass::SideBySide));
        (checks.join(), tests)
    });
    report.add_checks(joined(checks)?);
    let measured = run_tests(Pass::Measuring);
    report.add_checks(run_checks(suites, Lane::Alone, settings));
    for tests in [tests, measured] {
        report.add_tests(tests.and_then(|tests| flaky::settle(tests, settings)));
    }
    report.expect_tests();
    Ok(())
}

/// The result of a thread.
fn joined<T>(result: thread::Result<T>) -> Result<T> {
    result.map_err(|_| anyhow!("the runner itself has panicked"))
}

/// Prints all results, and says whether the run has passed.
fn finish(report: &Report, leaves_out: bool, began: Instant) -> Result<()> {
    println!("\n{report}");
    if leaves_out {
        for Suite { name, .. } in LONG_SUITES {
            println!("{name:14} left out: cargo xtask test {name}, or --full");
        }
    }
    failures::take().iter().for_each(|failure| println!("\n{failure}"));
    let flaky = flaky::take();
    flaky.iter().for_each(|text| println!("\n{text}"));
    let total = report.total();
    println!("\n{} flaky, {} s\n{total}", flaky.len(), began.elapsed().as_secs());
    verdict(total, flaky.len(), env::var("CI").is_ok_and(|value| value == "true"))
}

fn choose(names: &[String], full: bool) -> Result<Vec<&'static Suite>> {
    let all = || SUITES.iter().chain(LONG_SUITES);
    if names.is_empty() {
        return Ok(if full { all().collect() } else { SUITES.iter().collect() });
    }
    let find = |name: &String| all().find(|suite| suite.name == *name);
    let known = || all().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| find(name).with_context(|| format!("no suite {name}; there are {}", known())))
        .collect()
}

/// Notes a suite that lacks something as skipped, and says what to install.
fn is_skipped(suite: &'static Suite, report: &mut Report) -> bool {
    let missing = needs::missing(suite.all_needs());
    if !missing.is_empty() {
        report.skip(suite, &needs::remedy(&missing));
    }
    !missing.is_empty()
}

/// Runs the own checks of those suites that run them in this lane, one suite after another.
fn run_checks(suites: &[&'static Suite], lane: Lane, settings: &Settings) -> Vec<Checked> {
    let in_lane = suites.iter().filter_map(|suite| {
        let (_, checks) = suite.checks.filter(|(own_lane, _)| *own_lane == lane)?;
        Some((suite, checks))
    });
    in_lane.map(|(suite, checks)| run_suite(suite, checks, settings)).collect()
}

fn run_suite(suite: &'static Suite, checks: RunChecks, settings: &Settings) -> Checked {
    println!("\n=== {}: {}", suite.name, suite.about);
    let began = Instant::now();
    let factor = if settings.full { FULL_LIMIT_FACTOR } else { LIMIT_FACTOR };
    let limit = Duration::from_secs((suite.budget * factor).into()).max(LIMIT_MIN);
    let (ran, in_time) = limit::within(limit, || checks(settings));
    let mut count = ran.unwrap_or_else(|error| {
        failures::say(&format!("{}: {error:#}", suite.name));
        Count::one(false)
    });
    if !in_time {
        let (name, minutes) = (suite.name, limit.as_secs().div_ceil(60));
        failures::say(&format!("{name}: took longer than {minutes} minutes and was stopped"));
        count.failed = count.failed.max(1);
    }
    Checked { suite, count, seconds: began.elapsed().as_secs_f64() }
}

fn verdict(total: Count, flaky: usize, in_ci: bool) -> Result<()> {
    if total.failed > 0 {
        bail!("{} failed", total.failed);
    }
    if flaky > flaky::FLAKY_MAX {
        bail!("{flaky} were flaky, and at most {} may be", flaky::FLAKY_MAX);
    }
    if in_ci && total.skipped > 0 {
        bail!("{} skipped, which CI does not accept", total.skipped);
    }
    Ok(())
}
