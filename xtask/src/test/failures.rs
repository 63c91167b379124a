//! What failed, remembered while the suites run and repeated after the last one: a log of hours is
//! often kept by its end only.

use std::sync::{Mutex, MutexGuard, PoisonError};

static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps a description of a failure, of one or more lines.
pub(super) fn remember(text: &str) {
    failures().push(text.to_owned());
}

/// Prints a failure, and keeps it.
pub(crate) fn say(text: &str) {
    println!("{text}");
    remember(text);
}

/// All descriptions since the last call, in order.
pub(super) fn take() -> Vec<String> {
    std::mem::take(&mut *failures())
}

fn failures() -> MutexGuard<'static, Vec<String>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}
