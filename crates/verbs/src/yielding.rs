//! Whether a thread that polls without success yields its processor for a moment: with more polling
//! threads than processors, the completion that it polls for may have to come from a thread that
//! waits for this very processor. It does not keep yielding to a thread that computes: a thread
//! that keeps the processor for long does not bring that completion.

use crate::signal::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A thread that only polls gives the processor back sooner than this.
const KEPT: Duration = Duration::from_millis(1);
/// How long a thread keeps its processor after another has kept it.
const PAUSE: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    not_before: Mutex<Option<Instant>>,
}

impl Yielding {
    /// Many polls in a row found nothing. Costs half a microsecond when no thread waits.
    pub(crate) fn give_way(&self, now: Instant) {
        std::thread::yield_now();
        self.note(now, Instant::now());
    }

    /// False for a while after another thread has kept the processor for long.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        lock(&self.not_before).is_none_or(|at| at <= now)
    }

    /// The thread has its processor back.
    fn note(&self, gone: Instant, back: Instant) {
        *lock(&self.not_before) = (back - gone >= KEPT).then(|| back + PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!yielding.is_due(now + PAUSE));
        assert!(yielding.is_due(now + KEPT + PAUSE));
    }
}
