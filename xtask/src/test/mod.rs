//! The runner behind `cargo xtask test`.
//!
//! Runs the suites of `suites`, skips those whose `needs` are missing and says what to install,
//! and closes with `N passed, N failed, N skipped`: single tests, except that a skipped suite
//! counts as one. In CI (`CI=true`) a skip is a failure. Never hides the output of a suite.

mod cargo_output;
pub(crate) mod check;
mod count;
mod disk;
pub(crate) mod failures;
mod flaky;
mod limit;
pub(crate) mod needs;
pub(crate) mod sample;
mod suites;
mod wheel;

#[cfg(test)]
mod tests;

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub use count::Count;
pub use suites::{LONG_SUITES, SUITES, Suite};

/// How much to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The long matrices whole instead of sampled; tests see it as `OUTBOARD_FULL=1`.
    pub full: bool,
}

/// How many times longer a suite may take with [`Settings::full`].
const FULL_FACTOR: u64 = 20;

/// The result of a suite.
enum Outcome {
    Ran(Count),
    /// With the commands that install its needs.
    Skipped(String),
}

impl Outcome {
    fn count(&self) -> Count {
        match self {
            Self::Ran(count) => *count,
            Self::Skipped(_) => Count { skipped: 1, ..Count::default() },
        }
    }
}

/// Runs the suites called `names`, or all; installs what they need first when asked to.
///
/// # Errors
/// When a name is unknown, an installation or any test fails, or, in CI, any is skipped.
pub fn run(names: &[String], install: bool, settings: &Settings) -> Result<()> {
    let suites = choose(names, settings.full)?;
    if install {
        needs::install(suites.iter().flat_map(|suite| suite.needs))?;
    }
    if names.is_empty()
        && let Some(warning) = disk::warning()?
    {
        println!("{warning}");
    }
    if settings.full {
        flaky::be_strict();
    }
    let mut total = Count::default();
    let mut lines = Vec::new();
    for suite in suites {
        println!("\n=== {}: {}", suite.name, suite.about);
        let started = Instant::now();
        let outcome = run_suite(suite, settings);
        total += outcome.count();
        lines.push(summary(suite, &outcome, started.elapsed().as_secs()));
    }
    failures::take().iter().for_each(|failure| println!("\n{failure}"));
    if names.is_empty() && !settings.full {
        lines.extend(LONG_SUITES.iter().map(|suite| {
            format!("{:14} left out: cargo xtask test {}, or --full", suite.name, suite.name)
        }));
    }
    let flaky = flaky::take();
    flaky.iter().for_each(|text| println!("\n{text}"));
    println!("\n{}\n{} flaky\n{total}", lines.join("\n"), flaky.len());
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

fn run_suite(suite: &Suite, settings: &Settings) -> Outcome {
    let missing = needs::missing(suite.needs);
    if !missing.is_empty() {
        return Outcome::Skipped(needs::remedy(&missing));
    }
    let limit =
        Duration::from_secs(60 * suite.minutes * if settings.full { FULL_FACTOR } else { 1 });
    let (ran, in_time) = limit::within(limit, || (suite.run)(settings));
    let mut count = ran.unwrap_or_else(|error| {
        failures::say(&format!("{}: {error:#}", suite.name));
        Count { failed: 1, ..Count::default() }
    });
    if !in_time {
        let minutes = limit.as_secs() / 60;
        failures::say(&format!(
            "{}: took longer than {minutes} minutes and was stopped",
            suite.name
        ));
        count.failed = count.failed.max(1);
    }
    Outcome::Ran(count)
}

fn summary(suite: &Suite, outcome: &Outcome, seconds: u64) -> String {
    let name = suite.name;
    match outcome {
        Outcome::Skipped(remedy) => format!("{name:14} skipped, needs: {remedy}"),
        Outcome::Ran(count) if count.failed > 0 => {
            format!("{name:14} FAILED  {count} in {seconds} s; again: cargo xtask test {name}")
        }
        Outcome::Ran(count) => format!("{name:14} passed  {count} in {seconds} s"),
    }
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
