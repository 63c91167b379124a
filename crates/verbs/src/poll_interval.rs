//! How often polls of one completion queue give the whole engine a turn, rather than looking at the
//! queue's own sockets only: every [`POLLS_PER_TURN`]th poll, or every poll while turns keep
//! finding work for other connections, such as those whose peers read from the program's memory:
//! these polls alone serve them.
//!
//! All counters are updated by separate loads and stores: an update lost to another thread does no
//! harm.

use std::sync::atomic::{AtomicU32, Ordering};

/// The rest of the engine gets a turn at least once in this many polls.
pub(crate) const POLLS_PER_TURN: u32 = 64;
/// After this many productive turns in a row, every poll becomes a turn. A single productive turn
/// may have found only what had just arrived for the queue itself.
const STREAK: u32 = 2;
/// After this many turns in a row that find nothing, that ends.
const IN_VAIN_MAX: u32 = 256;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PollInterval {
    polls: AtomicU32,
    streak: AtomicU32,
    /// How many more polls will each be a turn.
    spin: AtomicU32,
    /// Counts what turns found for the queue itself, which the next poll would have found as well.
    own: AtomicU32,
}

impl PollInterval {
    /// Counts a poll; true when a turn is due in any case.
    pub(crate) fn count(&self) -> bool {
        count(&self.polls)
    }

    /// True while every poll that finds no completion gives the engine a turn.
    pub(crate) fn is_every_poll(&self) -> bool {
        self.spin.load(Ordering::Relaxed) > 0
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

    /// A turn is over; `found` says whether it found work for other queues' connections.
    fn turned(&self, found: bool) {
        let streak = if found { self.streak.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        let spin = if streak >= STREAK {
            IN_VAIN_MAX
        } else {
            self.spin.load(Ordering::Relaxed).saturating_sub(1)
        };
        // While every poll is a turn, most find nothing: a single productive one is enough to go
        // on.
        let streak = if spin > 0 { STREAK - 1 } else { streak };
        self.streak.store(streak, Ordering::Relaxed);
        self.spin.store(spin, Ordering::Relaxed);
    }
}

/// Counts up; true once in [`POLLS_PER_TURN`] calls.
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
        let interval = PollInterval::default();
        interval.turned(true);
        assert!(!interval.is_every_poll());
        interval.turned(true);
        for _ in 0..IN_VAIN_MAX {
            assert!(interval.is_every_poll());
            interval.turned(false);
        }
        assert!(!interval.is_every_poll());
    }

    #[test]
    fn finds_for_the_queue_itself_do_not_count() {
        let interval = PollInterval::default();
        for _ in 0..2 * STREAK {
            interval.turn(|| {
                interval.note_own();
                true
            });
        }
        assert!(!interval.is_every_poll());
        for _ in 0..STREAK {
            interval.turn(|| true);
        }
        assert!(interval.is_every_poll());
    }

    #[test]
    fn one_find_in_time_keeps_it_going_and_one_alone_does_not_start_it() {
        let interval = PollInterval::default();
        for _ in 0..10 {
            interval.turned(true);
            interval.turned(false);
            assert!(!interval.is_every_poll());
        }
        interval.turned(true);
        for _ in 0..10 {
            interval.turned(true);
            for _ in 1..IN_VAIN_MAX {
                interval.turned(false);
                assert!(interval.is_every_poll());
            }
        }
    }
}
