//! Deadlines by token, one for each at most.

use crate::signal::lock;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Instant;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Timers {
    state: Mutex<TimerState>,
}

#[derive(Debug, Default)]
struct TimerState {
    by_time: BTreeSet<(Instant, u64)>,
    by_token: HashMap<u64, Instant>,
}

impl Timers {
    /// Sets a token's deadline in place of the one it had; `None` takes it back.
    pub(crate) fn set(&self, token: u64, at: Option<Instant>) {
        let mut state = lock(&self.state);
        let before = match at {
            Some(at) => state.by_token.insert(token, at),
            None => state.by_token.remove(&token),
        };
        if let Some(before) = before {
            state.by_time.remove(&(before, token));
        }
        if let Some(at) = at {
            state.by_time.insert((at, token));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        lock(&self.state).by_time.first().map(|(at, _)| *at)
    }

    /// Takes one token whose deadline has come.
    pub(crate) fn pop_due(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.state);
        let (at, token) = state.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        state.by_time.remove(&(at, token));
        state.by_token.remove(&token);
        Some(token)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).by_time.is_empty()
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
        timers.set(2, Some(now + Duration::from_millis(2)));
        timers.set(1, Some(now + Duration::from_millis(1)));
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.next(), Some(now + Duration::from_millis(1)));
        let later = now + Duration::from_millis(5);
        assert_eq!(timers.pop_due(later), Some(1));
        assert_eq!(timers.pop_due(later), Some(2));
        assert!(timers.is_empty());
    }

    #[test]
    fn a_token_has_one_deadline() {
        let timers = Timers::default();
        let now = Instant::now();
        for i in 0..1000 {
            timers.set(7, Some(now + Duration::from_millis(i)));
        }
        assert_eq!(lock(&timers.state).by_time.len(), 1);
        timers.set(7, None);
        assert!(timers.is_empty() && lock(&timers.state).by_token.is_empty());
    }
}
