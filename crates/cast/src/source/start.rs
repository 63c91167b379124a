//! When a cast begins: as soon as every node is ready or has failed, or without those that take
//! far longer than the others. These take part as nodes that come late.

use crate::pause::excuse;
use std::time::{Duration, Instant};

/// Once half of the nodes are ready, the others are waited for at least this long,
const STRAGGLER_MIN: Duration = Duration::from_secs(2);
/// and for this many times what that half has taken.
const STRAGGLER_TIMES: u32 = 3;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct StartPatience {
    began: Instant,
    /// When half of the nodes were ready.
    half: Option<Instant>,
}

impl StartPatience {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, half: None }
    }

    /// The source itself was held up.
    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        let times = std::iter::once(&mut self.began).chain(&mut self.half);
        times.for_each(|since| excuse(since, now, late));
    }

    /// Whether nodes that are not ready have been waited for long enough; `missing` counts those
    /// that have neither failed nor are ready.
    pub(super) fn is_over(&mut self, now: Instant, ready: usize, missing: usize) -> bool {
        if missing == 0 {
            return true;
        }
        if ready < missing {
            return false;
        }
        let half = *self.half.get_or_insert(now);
        let took = half.saturating_duration_since(self.began);
        now >= half + STRAGGLER_MIN.max(took * STRAGGLER_TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_nodes_are_waited_for_as_long_as_the_others_suggest() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut patience = StartPatience::new(began);
        assert!(!patience.is_over(at(5), 1, 2), "most are not ready");
        assert!(!patience.is_over(at(10), 2, 1));
        assert!(!patience.is_over(at(39), 2, 1), "they took 10 s");
        assert!(patience.is_over(at(40), 2, 1));
        let mut patience = StartPatience::new(began);
        assert!(!patience.is_over(began, 7, 1));
        assert!(!patience.is_over(at(1), 7, 1), "it may be just behind them");
        assert!(patience.is_over(at(2), 7, 1));
        assert!(StartPatience::new(began).is_over(began, 0, 0));
    }
}
