//! Deadlines by token. Few are set and most are never reached, so a sorted set is enough.

use crate::signal::lock;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: Mutex<BTreeSet<(Instant, u64)>>,
}

impl Timers {
    pub(crate) fn set(&self, token: u64, at: Instant) {
        lock(&self.set).insert((at, token));
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        lock(&self.set).first().map(|(at, _)| *at)
    }

    /// Takes one token whose deadline has come.
    pub(crate) fn pop_due(&self, now: Instant) -> Option<u64> {
        let mut set = lock(&self.set);
        let first = set.first().copied().filter(|(at, _)| *at <= now)?;
        set.remove(&first);
        Some(first.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.set).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn due_timers_come_in_order_and_once() {
        let timers = Timers::default();
        let now = Instant::now();
        timers.set(2, now + Duration::from_millis(2));
        timers.set(1, now + Duration::from_millis(1));
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.next(), Some(now + Duration::from_millis(1)));
        let later = now + Duration::from_millis(5);
        assert_eq!(timers.pop_due(later), Some(1));
        assert_eq!(timers.pop_due(later), Some(2));
        assert!(timers.is_empty());
    }
}
