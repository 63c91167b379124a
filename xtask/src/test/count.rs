//! Numbers of tests that passed, failed and were skipped, as read from the output of `cargo test`.

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

    /// Parses the last line of a test program of `cargo test`:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |what: &str| {
            let field = numbers.split("; ").find_map(|field| field.strip_suffix(what));
            field.and_then(|digits| digits.trim().parse().ok()).unwrap_or(0)
        };
        let (passed, failed, skipped) = (number("passed"), number("failed"), number("ignored"));
        Some(Self { passed, failed, skipped })
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
