//! Whether an application that has nothing under way should hand its sockets to the background
//! thread at once, because it may now look for news where the engine cannot see it, such as in
//! memory that peers write. Handing over costs two switches of threads, in vain when the
//! application posts and polls again directly: then it is not tried again for a while.

use std::time::{Duration, Instant};

/// An application that has the sockets back before this has handed them over in vain.
const IN_VAIN: Duration = Duration::from_millis(1);
/// How long nothing is handed over after the first time in vain; doubled each further time.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest such time: who changes its ways waits so long, once.
const PAUSE_MAX: Duration = Duration::from_millis(128);

/// What came of handing over so far.
#[derive(Debug, Default)]
pub(super) struct Repose {
    began: Option<Instant>,
    pause: Option<Duration>,
    not_before: Option<Instant>,
}

impl Repose {
    /// The application has nothing under way; true when it should hand over.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if self.not_before.is_some_and(|at| now < at) {
            return false;
        }
        self.began = Some(now);
        true
    }

    /// The application takes its sockets back.
    pub(super) fn end(&mut self, now: Instant) {
        let Some(began) = self.began.take() else { return };
        self.pause = (now - began < IN_VAIN).then(|| match self.pause {
            Some(pause) => (pause * 2).min(PAUSE_MAX),
            None => PAUSE_MIN,
        });
        self.not_before = self.pause.map(|pause| now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_at_once_hands_over_ever_more_rarely() {
        let mut now = Instant::now();
        let mut repose = Repose::default();
        let mut pause = PAUSE_MIN;
        for _ in 0..20 {
            assert!(repose.begin(now));
            repose.end(now);
            assert!(!repose.begin(now + pause - Duration::from_nanos(1)));
            now += pause;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    #[test]
    fn who_stays_away_hands_over_every_time() {
        let mut now = Instant::now();
        let mut repose = Repose::default();
        assert!(repose.begin(now));
        repose.end(now);
        now += PAUSE_MAX;
        for _ in 0..5 {
            assert!(repose.begin(now));
            now += IN_VAIN;
            repose.end(now);
        }
    }
}
