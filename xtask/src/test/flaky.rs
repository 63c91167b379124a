//! Tests that fail once and pass when they run again, alone: reported with their first output, and
//! counted. More than [`FLAKY_MAX`] of them fail a run.
//!
//! Never runs again what would fail anyway or hides a defect by passing: a panic in one of our own
//! processes, the end of a test program by a signal, and anything at all with `--full`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// More than this many flaky tests are no accident.
pub(super) const FLAKY_MAX: usize = 3;
/// How many more times a failed test runs.
const TRIES: usize = 2;

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

/// Runs a test again that failed with the output `first`, until it passes; whether it did.
pub(super) fn passes_again(name: &str, first: &str, mut run: impl FnMut() -> bool) -> bool {
    if IS_STRICT.load(Ordering::Relaxed) {
        return false;
    }
    println!("again, alone: {name}");
    let passed = (0..TRIES).any(|_| run());
    if passed {
        let text = format!("FLAKY   {name}; first it failed:\n{first}");
        println!("{text}");
        FLAKY.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

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
