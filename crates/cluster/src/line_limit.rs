//! Bounds what peers can make a daemon log: so many lines in a period, and a count of the rest.

use std::time::{Duration, Instant};

/// Lines in a [`PERIOD`], at most.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Debug, Default)]
pub struct LineLimit {
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl LineLimit {
    /// Whether a line may be logged now; if so, how many were left out before it and not reported
    /// yet.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_new = |since: Instant| now.saturating_duration_since(since) >= PERIOD;
        if self.since.is_none_or(is_new) {
            let unsaid = self.unsaid;
            *self = Self { since: Some(now), said: 1, unsaid: 0 };
            return Some(unsaid);
        }
        if self.said == LINES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut limit = LineLimit::default();
        let admitted = (0..1000).filter_map(|_| limit.admit(start)).collect::<Vec<_>>();
        assert_eq!(admitted, [0; LINES as usize]);
        assert_eq!(limit.admit(start + PERIOD), Some(990));
        assert_eq!(limit.admit(start + PERIOD), Some(0));
    }
}
