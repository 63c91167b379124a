//! Whether a thread that polls without success yields its processor for a moment: with more polling
//! threads than processors, the completion that it polls for may have to come from a thread that
//! waits for this very processor. It does not keep yielding to a thread that computes: a thread
//! that keeps the processor for long does not bring that completion.

use crate::away::Away;
use crate::signal::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A thread that only polls gives the processor back sooner than this.
const KEPT: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// For how long the thread keeps its processor after another has kept it.
    away: Mutex<Away>,
}

impl Yielding {
    /// Many polls in a row found nothing. Costs half a microsecond when no thread waits.
    pub(crate) fn give_way(&self, now: Instant) {
        std::thread::yield_now();
        self.note(now, Instant::now());
    }

    /// False for a while after another thread has kept the processor for long.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !lock(&self.away).lasts(now)
    }

    /// The thread has its processor back.
    fn note(&self, gone: Instant, back: Instant) {
        if back - gone >= KEPT {
            lock(&self.away).begin(back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::away::AWAY_MIN;

    #[test]
    fn a_processor_that_comes_back_soon_is_given_up_again() {
        let (yielding, now) = (Yielding::default(), Instant::now());
        assert!(yielding.is_due(now));
        yielding.note(now, now + KEPT - Duration::from_nanos(1));
        assert!(yielding.is_due(now + KEPT));
    }

    #[test]
    fn a_processor_that_comes_back_late_is_kept_for_a_while() {
        let (yielding, now) = (Yielding::default(), Instant::now());
        yielding.note(now, now + KEPT);
        assert!(!yielding.is_due(now + KEPT));
        assert!(yielding.is_due(now + KEPT + AWAY_MIN));
    }
}
