//! How long a thread may go on executing: so much processor time of its own, however busy the
//! machine is, and ten times that by the wall's clock.
//!
//! It stops nothing itself: who executes asks it now and then.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Wall time for each unit of processor time. A module waits for nothing, so more than its share
/// passes only where other programs have the processors.
pub(crate) const WALL_FACTOR: u32 = 10;

/// See this file's first lines. It holds for the thread that began it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeAllowance {
    /// The thread's processor time at which it is used up.
    processor: Duration,
    /// When it is over at the latest; `None` if the clock does not go so far.
    wall: Option<Instant>,
}

impl TimeAllowance {
    /// So much processor time of the calling thread, from now on.
    pub(crate) fn begin(limit: Duration) -> Self {
        Self::begun_at((thread_time(), Instant::now()), limit)
    }

    /// Whether it is used up; asked on the thread that began it.
    pub(crate) fn is_used_up(&self) -> bool {
        self.is_used_up_at((thread_time(), Instant::now()))
    }

    fn begun_at((processor, wall): (Duration, Instant), limit: Duration) -> Self {
        let wall = limit.checked_mul(WALL_FACTOR).and_then(|longest| wall.checked_add(longest));
        Self { processor: processor.saturating_add(limit), wall }
    }

    fn is_used_up_at(&self, (processor, wall): (Duration, Instant)) -> bool {
        processor >= self.processor || self.wall.is_some_and(|latest| wall >= latest)
    }
}

/// The processor time that the calling thread has used since it began.
pub(crate) fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_thread_that_others_keep_waiting_keeps_its_time() {
        let (processor, wall) = (700 * MS, Instant::now());
        let allowance = TimeAllowance::begun_at((processor, wall), 50 * MS);
        let at = |used: u32, passed: u32| {
            allowance.is_used_up_at((processor + used * MS, wall + passed * MS))
        };
        assert!(!at(0, 0) && !at(49, 49), "within both");
        assert!(at(50, 50), "it has used its time");
        assert!(!at(1, 499), "the machine was busy");
        assert!(at(1, 500), "for too long");
    }

    #[test]
    fn the_time_counted_is_the_calling_threads() {
        let before = thread_time();
        let elsewhere = std::thread::spawn(|| while thread_time() < 5 * MS {});
        elsewhere.join().expect("ended");
        let between = thread_time();
        assert!(between - before < 5 * MS, "waiting took {:?}", between - before);
        let allowance = TimeAllowance::begin(MS);
        while thread_time() < between + 3 * MS {}
        assert!(allowance.is_used_up());
    }

    #[test]
    fn a_limit_beyond_all_clocks_is_none() {
        assert!(!TimeAllowance::begin(Duration::MAX).is_used_up());
        assert!(TimeAllowance::begin(Duration::ZERO).is_used_up());
    }
}
