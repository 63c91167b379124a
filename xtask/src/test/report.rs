//! The closing table: each suite's result, its time and its budget.

use std::fmt;

use anyhow::Result;

use super::nextest::{Ending, TestRun};
use super::{Count, Suite, failures};

/// A suite that takes this many times its budget is complained about.
const TOLERANCE: f64 = 2.0;

/// The result of a suite's own checks.
pub(super) struct Checked {
    pub(super) suite: &'static Suite,
    pub(super) count: Count,
    pub(super) seconds: f64,
}

/// All suites of a run, in the order in which they were chosen.
pub(super) struct Report {
    rows: Vec<Row>,
    /// Budgets are those of a plain run.
    full: bool,
    /// Runs of nextest that ended without results.
    broken: u32,
}

struct Row {
    suite: &'static Suite,
    count: Count,
    /// Of its checks and its tests together. Tests run side by side: the sum is more than passes.
    seconds: f64,
    tests: usize,
    /// Why it did not run, or why tests of it did not.
    skipped: Vec<String>,
}

impl Report {
    pub(super) fn new(suites: &[&'static Suite], full: bool) -> Self {
        let row = |suite: &&'static Suite| Row {
            suite,
            count: Count::default(),
            seconds: 0.0,
            tests: 0,
            skipped: Vec::new(),
        };
        Self { rows: suites.iter().map(row).collect(), full, broken: 0 }
    }

    /// Notes that a suite did not run, with the commands that install its needs.
    pub(super) fn skip(&mut self, suite: &Suite, remedy: &str) {
        let row = self.row(suite.name);
        row.count.skipped += 1;
        row.skipped.push(format!("needs: {remedy}"));
    }

    pub(super) fn add_checks(&mut self, checked: Vec<Checked>) {
        for Checked { suite, count, seconds } in checked {
            let row = self.row(suite.name);
            row.count += count;
            row.seconds += seconds;
        }
    }

    /// Adds each test to the suite that its program belongs to. A run of nextest without results
    /// counts as one failed test.
    pub(super) fn add_tests(&mut self, runs: Result<Vec<TestRun>>) {
        let runs = runs.unwrap_or_else(|error| {
            self.broken += 1;
            failures::say(&format!("FAILED  {error:#}"));
            Vec::new()
        });
        for run in runs {
            let row = self.row_of_binary(&run.binary);
            row.tests += 1;
            row.seconds += run.seconds;
            match &run.ending {
                Ending::Passed => row.count.passed += 1,
                Ending::Skipped(reason) => {
                    row.count.skipped += 1;
                    row.skipped.push(format!("{}: {reason}", run.name));
                }
                Ending::Failed(output) | Ending::Killed(output) => {
                    row.count.failed += 1;
                    failures::remember(&format!("FAILED  {} {}\n{output}", run.binary, run.name));
                }
            }
        }
    }

    /// Every suite with tests that could run has run some, or has failed.
    pub(super) fn expect_tests(&mut self) {
        for row in &mut self.rows {
            let ran_none = !row.suite.tests.is_empty() && row.tests == 0 && row.skipped.is_empty();
            if ran_none {
                row.count.failed += 1;
                failures::remember(&format!("{}: no test ran", row.suite.name));
            }
        }
    }

    pub(super) fn total(&self) -> Count {
        let mut total = Count { failed: self.broken, ..Count::default() };
        self.rows.iter().for_each(|row| total += row.count);
        total
    }

    pub(super) fn has_failed(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.suite.name == name && row.count.failed > 0)
    }

    fn row(&mut self, name: &str) -> &mut Row {
        let found = self.rows.iter_mut().find(|row| row.suite.name == name);
        found.expect("every suite that runs has a row")
    }

    fn row_of_binary(&mut self, binary: &str) -> &mut Row {
        let found = self.rows.iter_mut().find(|row| row.suite.runs(binary));
        found.expect("tests run for a suite that was chosen")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { suite, count, seconds, skipped, .. } in &self.rows {
            let (name, budget) = (suite.name, suite.budget);
            let word = match count {
                Count { failed: 1.., .. } => "FAILED",
                Count { passed: 0, .. } => "skipped",
                _ => "passed",
            };
            write!(f, "{name:14} {word:7} {count} in {seconds:.0} s of {budget}")?;
            if !self.full && *seconds > f64::from(budget) * TOLERANCE {
                write!(f, "; OVER BUDGET")?;
            }
            if count.failed > 0 {
                write!(f, "; again: cargo xtask test {name}")?;
            }
            writeln!(f)?;
            skipped.iter().try_for_each(|reason| writeln!(f, "{:14} skipped {reason}", ""))?;
        }
        Ok(())
    }
}
