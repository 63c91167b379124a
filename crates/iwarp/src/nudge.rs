//! A workaround for a race in Linux's siw: as responder it sends its Reply before it watches the
//! socket for FPDUs, so an FPDU that arrives in between is noticed only when more bytes follow. An
//! initiator that has sent its first FPDU and gets no answer therefore sends a zero-length Write,
//! which has no effect on any peer (RFC 5040 §5.1), a few times at growing intervals, until the
//! first answer.

use std::time::{Duration, Instant};

/// The time from each nudge to the next.
const INTERVALS: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(400)];

/// When to send the next zero-length Write.
#[derive(Debug, Default)]
pub(crate) enum Nudge {
    /// Not before we have spoken.
    Waiting,
    /// At this time, for the n-th time.
    Due(Instant, usize),
    /// Never again: the peer has spoken, or this side is the responder.
    #[default]
    Over,
}

impl Nudge {
    /// We have spoken.
    pub(crate) fn start(&mut self, now: Instant) {
        if matches!(self, Self::Waiting) {
            *self = Self::Due(now + INTERVALS[0], 0);
        }
    }

    /// The peer has spoken, or the connection is over.
    pub(crate) fn stop(&mut self) {
        *self = Self::Over;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Due(at, _) => Some(*at),
            _ => None,
        }
    }

    /// True when it is time; the next one is set up.
    pub(crate) fn fires(&mut self, now: Instant) -> bool {
        let Self::Due(at, count) = *self else { return false };
        if now < at {
            return false;
        }
        *self = match INTERVALS.get(count + 1) {
            Some(interval) => Self::Due(now + *interval, count + 1),
            None => Self::Over,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_and_ever_later() {
        let mut nudge = Nudge::Waiting;
        let mut now = Instant::now();
        assert!(nudge.deadline().is_none(), "not before we have spoken");
        nudge.start(now);
        for interval in INTERVALS {
            assert_eq!(nudge.deadline(), Some(now + interval));
            assert!(!nudge.fires(now));
            now += interval;
            assert!(nudge.fires(now));
        }
        assert!(nudge.deadline().is_none() && !nudge.fires(now + INTERVALS[2]));
    }

    #[test]
    fn an_answer_ends_it() {
        let mut nudge = Nudge::Waiting;
        let now = Instant::now();
        nudge.start(now);
        nudge.stop();
        assert!(nudge.deadline().is_none());
        nudge.start(now);
        assert!(nudge.deadline().is_none(), "it does not begin again");
    }
}
