//! Whether the background thread should look again at once instead of going to sleep: waking up
//! costs more than serving most requests. It does so only while requests come close together, and
//! only while nobody else wants its processor.

use std::time::{Duration, Instant};

/// How long it looks: about what going to sleep and waking up cost.
pub(super) const WINDOW: Duration = Duration::from_micros(50);
/// Sleeps that were shorter than this might as well have been spent looking.
const SHORT_SLEEP: Duration = Duration::from_micros(100);
/// Short sleeps in a row before looking begins, and windows in vain before it ends.
const STREAK: u32 = 4;
/// A look takes a microsecond. One that took as long as this was interrupted by somebody who has
/// more to do than a moment's work, and wants the processor.
const INTERRUPTION: Duration = Duration::from_micros(500);
/// How long it stays away then.
const STAY_AWAY: Duration = Duration::from_secs(1);

/// What the last sleeps and windows were like.
#[derive(Debug, Default)]
pub(super) struct Eager {
    looking: bool,
    streak: u32,
    away_until: Option<Instant>,
}

impl Eager {
    /// True when it is worth while to look for [`WINDOW`].
    pub(super) fn is_looking(&self) -> bool {
        self.looking
    }

    /// A sleep is over.
    pub(super) fn slept(&mut self, length: Duration, now: Instant) {
        if self.away_until.is_some_and(|until| now < until) {
            return;
        }
        self.streak = if length < SHORT_SLEEP { self.streak + 1 } else { 0 };
        if self.streak >= STREAK {
            (self.looking, self.streak) = (true, 0);
        }
    }

    /// A window is over; `longest` is what one look in vain took at most.
    pub(super) fn looked(&mut self, found: bool, now: Instant, longest: Duration) {
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

    fn eager(now: Instant) -> Eager {
        let mut eager = Eager::default();
        for _ in 0..STREAK {
            assert!(!eager.is_looking());
            eager.slept(WINDOW, now);
        }
        assert!(eager.is_looking());
        eager
    }

    #[test]
    fn long_sleeps_never_make_it_look() {
        let now = Instant::now();
        let mut eager = Eager::default();
        for turn in 0..100 {
            let long = turn % (STREAK as usize) == 0;
            eager.slept(if long { SHORT_SLEEP } else { WINDOW }, now);
            assert!(!eager.is_looking());
        }
    }

    #[test]
    fn windows_in_vain_end_it() {
        let now = Instant::now();
        let mut eager = eager(now);
        eager.looked(true, now, WINDOW);
        for _ in 0..STREAK {
            assert!(eager.is_looking());
            eager.looked(false, now, WINDOW);
        }
        assert!(!eager.is_looking());
    }

    #[test]
    fn somebody_else_sends_it_away_for_a_while() {
        let now = Instant::now();
        let mut eager = eager(now);
        eager.looked(true, now, INTERRUPTION - Duration::from_nanos(1));
        assert!(eager.is_looking());
        eager.looked(true, now, INTERRUPTION);
        assert!(!eager.is_looking());
        for _ in 0..STREAK {
            eager.slept(WINDOW, now);
        }
        assert!(!eager.is_looking());
        for _ in 0..STREAK {
            eager.slept(WINDOW, now + STAY_AWAY);
        }
        assert!(eager.is_looking());
    }
}
