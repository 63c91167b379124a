//! Numbers of tests that passed, failed and were skipped.

use std::fmt;
use std::ops::AddAssign;

/// Numbers of individual tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Ran and passed.
    pub passed: u32,
    /// Ran and failed, or could not be built.
    pub failed: u32,
    /// Did not run.
    pub skipped: u32,
}

impl Count {
    /// One test with this result.
    #[must_use]
    pub fn one(passed: bool) -> Self {
        Self { passed: u32::from(passed), failed: u32::from(!passed), skipped: 0 }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}
