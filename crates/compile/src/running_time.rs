//! The time for which a loop has run: limits on what others do, which a pause does not use up.
//!
//! While the machine or this process stands still, what is waited for may stand still as well, or
//! its answer waits to be read. Never reads a clock.

use std::time::{Duration, Instant};

/// The time between two looks counts as this much, at most. A loop that waits for something under a
/// limit looks this often.
const STEP_MAX: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct RunningTime {
    looked: Option<Instant>,
    passed: Duration,
}

impl RunningTime {
    /// Looks, and returns the time that has passed until now.
    pub(crate) fn pass(&mut self, now: Instant) -> Duration {
        let looked = self.looked.unwrap_or(now);
        self.passed += now.saturating_duration_since(looked).min(STEP_MAX);
        self.looked = Some(looked.max(now));
        self.passed
    }

    /// The time that had passed at the last look.
    pub(crate) fn passed(&self) -> Duration {
        self.passed
    }

    /// When to look next for a limit that is over at `end`.
    pub(crate) fn next_look(&self, end: Duration) -> Option<Instant> {
        Some(self.looked? + end.saturating_sub(self.passed).min(STEP_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_counts_as_one_step() {
        let (mut time, begin) = (RunningTime::default(), Instant::now());
        assert_eq!(time.pass(begin), Duration::ZERO);
        assert_eq!(time.pass(begin + SECOND / 2), SECOND / 2);
        assert_eq!(time.pass(begin + 60 * SECOND), SECOND * 3 / 2);
        // A caller's clock may be some moments older than that of the last look.
        assert_eq!(time.pass(begin + 59 * SECOND), SECOND * 3 / 2);
        assert_eq!(time.pass(begin + 60 * SECOND + SECOND / 4), SECOND * 7 / 4);
        assert_eq!(time.passed(), SECOND * 7 / 4);
    }

    #[test]
    fn a_limit_is_looked_at_in_steps() {
        let (mut time, begin) = (RunningTime::default(), Instant::now());
        assert_eq!(time.next_look(SECOND), None);
        let end = time.pass(begin) + SECOND * 5 / 2;
        let looks = std::iter::from_fn(|| {
            let at = time.next_look(end).filter(|_| time.passed() < end)?;
            time.pass(at);
            Some(at - begin)
        });
        assert_eq!(looks.collect::<Vec<_>>(), [SECOND, 2 * SECOND, SECOND * 5 / 2]);
    }
}
