//! Tests that fail once and pass when they run again, alone: reported with their first output, and
//! counted. More than [`FLAKY_MAX`] of them fail a run.
//!
//! Never runs again what would fail anyway or hides a defect by passing: tests that are
//! deterministic, new or changed, a panic in one of our own processes, the end of a test program by
//! a signal, and anything at all with `--full`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::nextest::{self, Ending, TestRun};
use super::selection::Selection;
use super::{Settings, changed};

/// More than this many flaky tests are no accident.
pub(super) const FLAKY_MAX: usize = 3;
/// How many more times a failed test runs.
const TRIES: u32 = 2;
/// Where more tests fail than this, the cause is not chance.
const AGAIN_MAX: usize = 10;

/// Test programs whose results never depend on time: simulations, protocols, the house rules.
const DETERMINISTIC: [&str; 5] =
    ["outboard-interface", "outboard-layout", "outboard-sim", "outboard-wire", "xtask"];

static FLAKY: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IS_STRICT: AtomicBool = AtomicBool::new(false);

/// From now on a test that fails has failed.
pub(super) fn be_strict() {
    IS_STRICT.store(true, Ordering::Relaxed);
}

/// All descriptions since the last call, in order.
pub(super) fn take() -> Vec<String> {
    std::mem::take(&mut *FLAKY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Test programs run as long as this is held.
static BUSY: Mutex<()> = Mutex::new(());

/// Runs test programs: no check runs again meanwhile.
pub(super) fn while_busy<T>(work: impl FnOnce() -> T) -> T {
    let _busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Runs a check again that failed with the output `first`, until it passes; whether it did.
pub(super) fn passes_again(name: &str, first: &str, mut run: impl FnMut() -> bool) -> bool {
    if is_strict() {
        return false;
    }
    let _quiet = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    println!("again, alone: {name}");
    let passed = (0..TRIES).any(|_| run());
    if passed {
        remember(name, first);
    }
    passed
}

/// Runs those tests again, one at a time, that may be flaky, and puts what they did then in the
/// place of what they did first.
///
/// # Errors
/// When nextest does not run.
pub(super) fn settle(mut runs: Vec<TestRun>, settings: &Settings) -> Result<Vec<TestRun>> {
    let failed: Vec<&TestRun> = runs.iter().filter(|run| may_be_flaky(run)).collect();
    if is_strict() || failed.is_empty() || failed.len() > AGAIN_MAX {
        return Ok(runs);
    }
    let changed = changed::functions().context("cannot tell which tests are new")?;
    let (new, old): (Vec<&TestRun>, _) = failed.into_iter().partition(|run| is_new(run, &changed));
    for TestRun { binary, name, .. } in new {
        println!("not again, because it is new: {binary} {name}");
    }
    if old.is_empty() {
        return Ok(runs);
    }
    // The first of the further runs, and its own retries.
    let selection = Selection::again(&old, TRIES - 1);
    for again in nextest::run(&selection, settings)? {
        let same = |run: &&mut TestRun| run.binary == again.binary && run.name == again.name;
        let Some(run) = runs.iter_mut().find(same) else { continue };
        if let (Ending::Failed(first), Ending::Passed) = (&run.ending, &again.ending) {
            remember(&format!("{} {}", run.binary, run.name), first);
            *run = again;
        }
    }
    Ok(runs)
}

fn may_be_flaky(run: &TestRun) -> bool {
    matches!(run.ending, Ending::Failed(_))
        && !DETERMINISTIC.iter().any(|binary| run.binary.starts_with(binary))
}

fn is_new(run: &TestRun, changed: &HashSet<String>) -> bool {
    changed.contains(run.name.rsplit("::").next().unwrap_or_default())
}

fn remember(name: &str, first: &str) {
    let text = format!("FLAKY   {name}; first it failed:\n{first}");
    println!("{text}");
    FLAKY.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

fn is_strict() -> bool {
    IS_STRICT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(binary: &str, ending: Ending) -> TestRun {
        TestRun { binary: binary.to_owned(), name: "a::slow".to_owned(), seconds: 1.0, ending }
    }

    #[test]
    fn only_a_failed_test_that_is_old_and_depends_on_time_runs_again() {
        let failed = || Ending::Failed("late".to_owned());
        assert!(may_be_flaky(&run("outboard-verbs::ends", failed())));
        assert!(!may_be_flaky(&run("outboard-sim::endings", failed())));
        assert!(!may_be_flaky(&run("outboard-verbs", Ending::Killed("SIGSEGV".to_owned()))));
        assert!(!may_be_flaky(&run("outboard-verbs", Ending::Passed)));
        let changed = HashSet::from(["slow".to_owned()]);
        assert!(is_new(&run("outboard-verbs", failed()), &changed));
        assert!(!is_new(&run("outboard-verbs", failed()), &HashSet::new()));
    }

    #[test]
    fn a_test_that_passes_later_is_remembered_and_one_that_never_does_is_not() {
        let mut runs = 0;
        assert!(!passes_again("never", "wrong", || {
            runs += 1;
            false
        }));
        assert_eq!(runs, TRIES);
        let mut results = [false, true].into_iter();
        assert!(passes_again("sometimes", "slow", || results.next().expect("two runs")));
        let texts = take();
        assert!(texts.iter().any(|text| text.contains("sometimes") && text.contains("slow")));
        assert!(texts.iter().all(|text| !text.contains("never")));
    }
}
