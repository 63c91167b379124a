//! How fast a node sends: what would exceed its limit waits, in order.

use crate::relay::Action;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// What was not sent for lack of anything to send may be made up for, up to so much.
const BURST: Duration = Duration::from_millis(20);

/// How much may be sent besides what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headroom {
    /// There is no limit.
    Unlimited,
    /// Something may be sent now.
    Free,
    /// Nothing now.
    Spent,
    /// Something waits already.
    Waits,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SendLimit {
    rate: Option<NonZeroU64>,
    /// When the next may be sent.
    free: Option<Instant>,
    waiting: VecDeque<(Action, u64)>,
}

impl SendLimit {
    /// Bytes a second, or no limit.
    pub(super) fn new(rate: Option<NonZeroU64>) -> Self {
        Self { rate, free: None, waiting: VecDeque::new() }
    }

    /// What to do now for an action that sends `len` bytes; `None` if it waits.
    pub(super) fn admit(&mut self, now: Instant, action: Action, len: u64) -> Option<Action> {
        if self.rate.is_none() {
            return Some(action);
        }
        self.waiting.push_back((action, len));
        self.next(now)
    }

    /// The next that has waited long enough.
    pub(super) fn next(&mut self, now: Instant) -> Option<Action> {
        if self.free.is_some_and(|free| now < free) {
            return None;
        }
        let (action, len) = self.waiting.pop_front()?;
        self.charge(now, len);
        Some(action)
    }

    /// What waits for this node is not sent.
    pub(super) fn forget(&mut self, node: u32) {
        self.waiting
            .retain(|(action, _)| !matches!(action, Action::Send { to, .. } if *to == node));
    }

    /// How much may be sent besides what waits.
    pub(super) fn headroom(&self, now: Instant) -> Headroom {
        match self.rate {
            None => Headroom::Unlimited,
            Some(_) if !self.waiting.is_empty() => Headroom::Waits,
            Some(_) if self.free.is_some_and(|free| now < free) => Headroom::Spent,
            Some(_) => Headroom::Free,
        }
    }

    pub(super) fn charge(&mut self, now: Instant, len: u64) {
        let Some(rate) = self.rate else { return };
        let micros = u128::from(len) * 1_000_000 / u128::from(rate.get());
        let takes = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let begin = self.free.map_or(now, |free| free.max(earliest));
        self.free = begin.checked_add(takes);
    }

    /// When that is.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.free.filter(|_| !self.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_node_that_is_lost_is_never_sent() {
        let mut limit = SendLimit::new(NonZeroU64::new(10_000));
        let (began, send) = (Instant::now(), |to| Action::Send { to, chunk: 0, from: 0, into: 0 });
        assert_eq!(limit.admit(began, send(1), 500), Some(send(1)));
        let waits = |to| assert_eq!(limit.admit(began, send(to), 500), None);
        [1, 2, 1].into_iter().for_each(waits);
        limit.forget(1);
        let later = began + Duration::from_secs(1);
        assert_eq!((limit.next(later), limit.deadline()), (Some(send(2)), None));
    }

    #[test]
    fn what_is_sent_in_a_second_is_what_the_limit_allows() {
        let mut limit = SendLimit::new(NonZeroU64::new(10_000));
        let (began, action) = (Instant::now(), Action::Drop { to: 1, slot: 2 });
        let mut sent = 0;
        for _ in 0..100 {
            sent += u64::from(limit.admit(began, action, 500).is_some());
        }
        assert_eq!(sent, 1, "the others wait");
        let mut now = began;
        while now < began + Duration::from_secs(1) {
            now = limit.deadline().expect("more waits");
            while limit.next(now).is_some() {
                sent += 1;
            }
        }
        // 20 a second, what was under way at its end, and the burst.
        assert!((20..=22).contains(&sent), "{sent}");
        let mut free = SendLimit::new(None);
        assert!((0..100).all(|_| free.admit(began, action, 500).is_some()));
        assert_eq!(free.deadline(), None);
    }
}
