//! One test of a suite that has no test program of cargo's, and how its result is told.

use std::env;
use std::time::Instant;

use anyhow::Result;

use super::{failures, flaky};

type RunCheck<P> = dyn Fn(&mut P) -> Result<()>;

/// One test, at a place `P`: the hosts and files that the tests of its suite share.
pub(crate) struct SuiteCheck<P> {
    pub(crate) name: String,
    pub(crate) run: Box<RunCheck<P>>,
}

impl<P> SuiteCheck<P> {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(&mut P) -> Result<()> + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Runs a test, which begins by restoring what it needs, and says in a line how that went; whether
/// it passed. One that fails runs again.
pub(crate) fn passes(name: &str, mut run: impl FnMut() -> Result<()>) -> bool {
    let began = Instant::now();
    let first = run();
    if let Err(error) = &first {
        let text = format!("{error:#}");
        let may_pass = !text.contains("panicked");
        if may_pass && flaky::passes_again(name, &text, || run().is_ok()) {
            return true;
        }
    }
    print_result(name, began, &first)
}

/// Says in a line how a test went that began then; whether it passed.
pub(crate) fn print_result(name: &str, began: Instant, result: &Result<()>) -> bool {
    let seconds = began.elapsed().as_secs_f64();
    match result {
        Ok(()) => println!("passed  {name} ({seconds:.1} s)"),
        Err(error) => failures::say(&format!("FAILED  {name} ({seconds:.1} s): {error:#}")),
    }
    result.is_ok()
}

/// Whether `OUTBOARD_ONLY` chooses tests by their names.
pub(crate) fn is_narrowed() -> bool {
    env::var_os("OUTBOARD_ONLY").is_some()
}

/// Whether a test's name contains the text in `OUTBOARD_ONLY`.
pub(crate) fn wanted(name: &str) -> bool {
    env::var("OUTBOARD_ONLY").map_or(true, |part| name.contains(&part))
}
