//! What failed, remembered while the suites run and repeated after the last one: a log of hours is
//! often kept by its end only.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that are kept of one test program, the first ones; a panic with its backtrace is shorter.
const LINES_MAX: usize = 60;

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

/// Finds failures in the output of `cargo test`: what a test program prints between `failures:`
/// and its result.
#[derive(Debug, Default)]
pub(super) struct Finder {
    inside: bool,
    lines: Vec<String>,
}

impl Finder {
    /// Takes the next line; gives the text of a program's failures when it has ended.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        if line.starts_with("test result: ") {
            self.inside = false;
            let lines = std::mem::take(&mut self.lines);
            return (!lines.is_empty()).then(|| lines.join("\n"));
        }
        self.inside |= line == "failures:";
        if self.inside && self.lines.len() < LINES_MAX {
            self.lines.push(line.to_owned());
        }
        None
    }
}
