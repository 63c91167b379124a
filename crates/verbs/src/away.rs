//! How long a thread that polls behaves as if its processor were another's, after another thread
//! has kept it: a lone interruption costs little; each one that follows soon doubles the time,
//! because a thread that computes is there.

use std::time::{Duration, Instant};

/// The time after a lone interruption, and at most.
pub(crate) const AWAY_MIN: Duration = Duration::from_millis(8);
pub(crate) const AWAY_MAX: Duration = Duration::from_secs(1);
/// An interruption follows soon when it comes within so many times the last time.
const SOON: u32 = 4;

/// The last such time: how long, and its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Away {
    last: Option<(Duration, Instant)>,
}

impl Away {
    /// True while the thread is to stay away.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        self.last.is_some_and(|(_, until)| now < until)
    }

    /// Another thread has kept the processor until now.
    pub(crate) fn begin(&mut self, now: Instant) {
        let time = match self.last {
            Some((last, until)) if now < until + last * SOON => (last * 2).min(AWAY_MAX),
            _ => AWAY_MIN,
        };
        self.last = Some((time, now + time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_that_follow_soon_double_the_time() {
        let (mut away, mut now) = (Away::default(), Instant::now());
        assert!(!away.lasts(now));
        let mut expected = AWAY_MIN;
        for _ in 0..10 {
            away.begin(now);
            assert!(away.lasts(now + expected - Duration::from_nanos(1)));
            now += expected;
            assert!(!away.lasts(now));
            expected = (expected * 2).min(AWAY_MAX);
        }
        now += AWAY_MAX * (SOON + 1);
        away.begin(now);
        assert!(!away.lasts(now + AWAY_MIN), "a lone one");
    }
}
