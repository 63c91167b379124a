//! Whether a polling application without outstanding requests should hand its sockets to the
//! background thread at once: it may next wait in a way that the engine cannot see, for example by
//! reading memory that peers write. A hand-over costs two context switches. They are wasted when
//! the application posts and polls again directly; after that there is no hand-over for a while.

use std::time::{Duration, Instant};

/// A hand-over was useless if the application took its sockets back within this time.
const IN_VAIN: Duration = Duration::from_millis(1);
/// The pause after the first useless hand-over; doubled after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause. A thread that alternates between polling and waiting pays this delay once.
const PAUSE_MAX: Duration = Duration::from_millis(128);

/// How the hand-overs so far turned out.
#[derive(Debug, Default)]
pub(super) struct HandoffBackoff {
    began: Option<Instant>,
    pause: Option<Duration>,
    not_before: Option<Instant>,
}

impl HandoffBackoff {
    /// The application has no outstanding requests; true when it should hand over.
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
    fn an_application_that_comes_back_at_once_hands_over_ever_more_rarely() {
        let mut now = Instant::now();
        let mut backoff = HandoffBackoff::default();
        let mut pause = PAUSE_MIN;
        for _ in 0..20 {
            assert!(backoff.begin(now));
            backoff.end(now);
            assert!(!backoff.begin(now + pause - Duration::from_nanos(1)));
            now += pause;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    #[test]
    fn an_application_that_stays_away_hands_over_every_time() {
        let mut now = Instant::now();
        let mut backoff = HandoffBackoff::default();
        assert!(backoff.begin(now));
        backoff.end(now);
        now += PAUSE_MAX;
        for _ in 0..5 {
            assert!(backoff.begin(now));
            now += IN_VAIN;
            backoff.end(now);
        }
    }
}
