//! Whether a thread that serves requests, or waits for answers, should spin for a while before it
//! goes to sleep: waking up costs more than serving most requests. It spins only while they come
//! close together, and only while no other thread wants its processor.
//!
//! The engine's background thread has one; so have loops that wait by themselves.

use super::sockio;
use crate::away::Away;
use std::time::{Duration, Instant};

/// How long it spins: about as long as going to sleep and waking up take.
pub(crate) const WINDOW: Duration = Duration::from_micros(50);
/// Instead of a sleep shorter than this, spinning would have been better.
const SHORT_SLEEP: Duration = Duration::from_micros(100);
/// Short sleeps in a row before spinning begins, and windows without a find before it ends.
const STREAK: u32 = 4;
/// One look at the sockets takes a microsecond. If it took this long, somebody else had the
/// processor: another thread that computes, if the scheduler has taken it from this one; else a
/// hypervisor, which spinning does not harm.
const INTERRUPTION: Duration = Duration::from_micros(500);
/// How old the count of what the scheduler has done may be that an interruption is judged by.
const COUNT_AGE: Duration = Duration::from_millis(1);

/// The record of the last sleeps and windows of a thread.
#[derive(Clone, Debug, Default)]
pub struct AdaptiveSpin {
    looking: bool,
    streak: u32,
    away: Away,
    /// How often the scheduler had taken the processor from this thread, and when that was counted.
    preempted: Option<(u64, Instant)>,
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
        if self.away.lasts(now) {
            return;
        }
        self.streak = if length < SHORT_SLEEP { self.streak + 1 } else { 0 };
        if self.streak >= STREAK {
            (self.looking, self.streak) = (true, 0);
        }
    }

    /// A window is over; `longest` is the time of the slowest look that found nothing.
    pub fn looked(&mut self, found: bool, now: Instant, longest: Duration) {
        self.judge(found, now, longest, sockio::preemptions);
    }

    fn judge(
        &mut self,
        found: bool,
        now: Instant,
        longest: Duration,
        count: impl FnOnce() -> Option<u64>,
    ) {
        self.streak = if found { 0 } else { self.streak + 1 };
        if self.streak >= STREAK {
            (self.looking, self.streak) = (false, 0);
        }
        if self.is_preempted(now, longest, count) {
            (self.looking, self.streak) = (false, 0);
            self.away.begin(now);
        }
    }

    /// Whether another thread was the reason of so long a look.
    fn is_preempted(
        &mut self,
        now: Instant,
        longest: Duration,
        count: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let is_long = longest >= INTERRUPTION;
        let before = self.preempted;
        if !is_long && before.is_some_and(|(_, at)| now < at + COUNT_AGE) {
            return false;
        }
        let now_count = count();
        self.preempted = now_count.map(|count| (count, now));
        // Without a count the worse is assumed.
        is_long && before.is_none_or(|(count, _)| now_count != Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::away::AWAY_MIN;

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
        spin.judge(true, now, WINDOW, || None);
        for _ in 0..STREAK {
            assert!(spin.is_looking());
            spin.judge(false, now, WINDOW, || None);
        }
        assert!(!spin.is_looking());
    }

    /// A window is over in which another thread had the processor.
    fn preempted(spin: &mut AdaptiveSpin, found: bool, now: Instant, longest: Duration) {
        spin.judge(found, now, longest, || None);
    }

    #[test]
    fn what_a_hypervisor_does_is_no_reason_to_stay_away() {
        let now = Instant::now();
        let mut spin = spin(now);
        spin.judge(true, now, WINDOW, || Some(7));
        spin.judge(true, now, INTERRUPTION, || Some(7));
        assert!(spin.is_looking());
        spin.judge(true, now + COUNT_AGE, WINDOW, || Some(8));
        spin.judge(true, now + COUNT_AGE, INTERRUPTION, || Some(8));
        assert!(spin.is_looking(), "the scheduler's deed was before");
        spin.judge(true, now + COUNT_AGE, INTERRUPTION, || Some(9));
        assert!(!spin.is_looking());
    }

    /// Whether short sleeps at that time make it look again.
    fn looks_again(spin: &AdaptiveSpin, now: Instant) -> bool {
        let mut spin = spin.clone();
        (0..STREAK).for_each(|_| spin.slept(WINDOW, now));
        spin.is_looking()
    }

    #[test]
    fn another_thread_on_the_processor_ends_spinning_for_a_while() {
        let now = Instant::now();
        let mut spin = spin(now);
        preempted(&mut spin, true, now, INTERRUPTION - Duration::from_nanos(1));
        assert!(spin.is_looking());
        preempted(&mut spin, true, now, INTERRUPTION);
        assert!(!spin.is_looking());
        assert!(!looks_again(&spin, now));
        assert!(looks_again(&spin, now + AWAY_MIN));
    }
}
