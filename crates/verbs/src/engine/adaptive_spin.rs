//! Whether a thread that serves requests, or waits for answers, should spin for a while before it
//! goes to sleep: waking up costs more than serving most requests. It spins only while they come
//! close together, and only while no other thread wants its processor.
//!
//! The engine's background thread has one; so have loops that wait by themselves.

use std::time::{Duration, Instant};

/// How long it spins: about as long as going to sleep and waking up take.
pub(crate) const WINDOW: Duration = Duration::from_micros(50);
/// Instead of a sleep shorter than this, spinning would have been better.
const SHORT_SLEEP: Duration = Duration::from_micros(100);
/// Short sleeps in a row before spinning begins, and windows without a find before it ends.
const STREAK: u32 = 4;
/// One look at the sockets takes a microsecond. If it took this long, the scheduler gave the
/// processor to another thread that computes.
const INTERRUPTION: Duration = Duration::from_micros(500);
/// How long the background thread does not spin after that.
const STAY_AWAY: Duration = Duration::from_secs(1);

/// The record of the last sleeps and windows of a thread.
#[derive(Clone, Debug, Default)]
pub struct AdaptiveSpin {
    looking: bool,
    streak: u32,
    away_until: Option<Instant>,
}

impl AdaptiveSpin {
    /// How long to spin.
    pub const WINDOW: Duration = WINDOW;

    /// True when the thread should spin for [`Self::WINDOW`].
    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.looking
    }

    /// A sleep is over.
    pub fn slept(&mut self, length: Duration, now: Instant) {
        if self.away_until.is_some_and(|until| now < until) {
            return;
        }
        self.streak = if length < SHORT_SLEEP { self.streak + 1 } else { 0 };
        if self.streak >= STREAK {
            (self.looking, self.streak) = (true, 0);
        }
    }

    /// A window is over; `longest` is the time of the slowest look that found nothing.
    pub fn looked(&mut self, found: bool, now: Instant, longest: Duration) {
        self.streak = if found { 0 } else { self.streak + 1 };
        if self.streak >= STREAK {
            (self.looking, self.streak) = (false, 0);
        }
        if longest >= INTERRUPTION {
            (self.looking, self.streak) = (false, 0);
            self.away_until = Some(now + STAY_AWAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(now: Instant) -> AdaptiveSpin {
        let mut spin = AdaptiveSpin::default();
        for _ in 0..STREAK {
            assert!(!spin.is_looking());
            spin.slept(WINDOW, now);
        }
        assert!(spin.is_looking());
        spin
    }

    #[test]
    fn long_sleeps_never_make_it_look() {
        let now = Instant::now();
        let mut spin = AdaptiveSpin::default();
        for turn in 0..100 {
            let long = turn % (STREAK as usize) == 0;
            spin.slept(if long { SHORT_SLEEP } else { WINDOW }, now);
            assert!(!spin.is_looking());
        }
    }

    #[test]
    fn windows_in_vain_end_it() {
        let now = Instant::now();
        let mut spin = spin(now);
        spin.looked(true, now, WINDOW);
        for _ in 0..STREAK {
            assert!(spin.is_looking());
            spin.looked(false, now, WINDOW);
        }
        assert!(!spin.is_looking());
    }

    #[test]
    fn another_thread_on_the_processor_ends_spinning_for_a_while() {
        let now = Instant::now();
        let mut spin = spin(now);
        spin.looked(true, now, INTERRUPTION - Duration::from_nanos(1));
        assert!(spin.is_looking());
        spin.looked(true, now, INTERRUPTION);
        assert!(!spin.is_looking());
        for _ in 0..STREAK {
            spin.slept(WINDOW, now);
        }
        assert!(!spin.is_looking());
        for _ in 0..STREAK {
            spin.slept(WINDOW, now + STAY_AWAY);
        }
        assert!(spin.is_looking());
    }
}
