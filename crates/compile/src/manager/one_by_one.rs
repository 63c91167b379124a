//! Notices builds that compile one small file after another and wait for each, as `configure`
//! does. Servers do not make those faster: a file's way there and back is all that they add.
//!
//! A plain value without a clock.

use std::time::Duration;

/// Jobs in a row after which the next ones run locally.
const ENOUGH: u32 = 64;
/// A job that takes longer is worth its way to a server.
const SHORT: Duration = Duration::from_millis(500);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct OneByOne {
    row: u32,
}

impl OneByOne {
    /// Two wrappers are there at once.
    pub(super) fn note_company(&mut self) {
        self.row = 0;
    }

    /// A job has ended.
    pub(super) fn note_end(&mut self, took: Duration) {
        self.row = if took < SHORT { self.row.saturating_add(1) } else { 0 };
    }

    /// Whether the last jobs were short and came one at a time.
    pub(super) fn is_in_a_row(&self) -> bool {
        self.row >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_jobs_that_come_alone_make_a_row() {
        let mut jobs = OneByOne::default();
        let short = |jobs: &mut OneByOne, count| (0..count).for_each(|_| jobs.note_end(SHORT / 2));
        short(&mut jobs, ENOUGH - 1);
        assert!(!jobs.is_in_a_row());
        short(&mut jobs, 1);
        assert!(jobs.is_in_a_row());
        jobs.note_company();
        assert!(!jobs.is_in_a_row(), "a build with several jobs at once");
        short(&mut jobs, ENOUGH + 5);
        assert!(jobs.is_in_a_row());
        jobs.note_end(SHORT);
        assert!(!jobs.is_in_a_row(), "long jobs may go on in a row");
    }
}
