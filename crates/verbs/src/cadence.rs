//! How often polls of one completion queue give the whole engine a turn, rather than looking at
//! the queue's own sockets only: rarely, unless turns keep finding something. Then the program has
//! other connections that live on these polls, such as those whose peers read from its memory.
//!
//! All counts are loads and stores: one lost to another thread does no harm.

use std::sync::atomic::{AtomicU32, Ordering};

/// Every so many polls the rest of the engine gets a turn in any case.
pub(crate) const POLLS_PER_TURN: u32 = 64;
/// So many such turns in a row that find something make every poll a turn: one alone may have
/// found what had just come for the queue itself.
const STREAK: u32 = 2;
/// After so many turns in vain that is over.
const IN_VAIN_MAX: u32 = 256;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    polls: AtomicU32,
    streak: AtomicU32,
    /// Polls that still are turns.
    eager: AtomicU32,
    /// Counts what turns found for the queue itself, which the next poll would have found as well.
    own: AtomicU32,
}

impl Cadence {
    /// Counts a poll; true when a turn is due in any case.
    pub(crate) fn count(&self) -> bool {
        count(&self.polls)
    }

    /// True while every poll that finds nothing is a turn.
    pub(crate) fn is_eager(&self) -> bool {
        self.eager.load(Ordering::Relaxed) > 0
    }

    /// A turn has found something for the queue itself.
    pub(crate) fn note_own(&self) {
        self.own.store(self.own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes a turn, which says whether it found anything.
    pub(crate) fn turn(&self, take: impl FnOnce() -> bool) {
        let own = self.own.load(Ordering::Relaxed);
        let found = take();
        self.turned(found && self.own.load(Ordering::Relaxed) == own);
    }

    /// A turn is over; `found` is something for others.
    fn turned(&self, found: bool) {
        let streak = if found { self.streak.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        let eager = if streak >= STREAK {
            IN_VAIN_MAX
        } else {
            self.eager.load(Ordering::Relaxed).saturating_sub(1)
        };
        // While eager, most turns are in vain: one that is not will do.
        let streak = if eager > 0 { STREAK - 1 } else { streak };
        self.streak.store(streak, Ordering::Relaxed);
        self.eager.store(eager, Ordering::Relaxed);
    }
}

/// Counts up; true every so many times.
pub(crate) fn count(polls: &AtomicU32) -> bool {
    let count = polls.load(Ordering::Relaxed).wrapping_add(1);
    polls.store(count, Ordering::Relaxed);
    count.is_multiple_of(POLLS_PER_TURN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_keep_finding_make_every_poll_one_for_a_while() {
        let cadence = Cadence::default();
        cadence.turned(true);
        assert!(!cadence.is_eager());
        cadence.turned(true);
        for _ in 0..IN_VAIN_MAX {
            assert!(cadence.is_eager());
            cadence.turned(false);
        }
        assert!(!cadence.is_eager());
    }

    #[test]
    fn what_is_for_the_queue_itself_is_no_find() {
        let cadence = Cadence::default();
        for _ in 0..2 * STREAK {
            cadence.turn(|| {
                cadence.note_own();
                true
            });
        }
        assert!(!cadence.is_eager());
        for _ in 0..STREAK {
            cadence.turn(|| true);
        }
        assert!(cadence.is_eager());
    }

    #[test]
    fn one_find_in_time_keeps_it_going_and_one_alone_does_not_start_it() {
        let cadence = Cadence::default();
        for _ in 0..10 {
            cadence.turned(true);
            cadence.turned(false);
            assert!(!cadence.is_eager());
        }
        cadence.turned(true);
        for _ in 0..10 {
            cadence.turned(true);
            for _ in 1..IN_VAIN_MAX {
                cadence.turned(false);
                assert!(cadence.is_eager());
            }
        }
    }
}
