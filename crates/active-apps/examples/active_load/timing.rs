//! Samples of one operation, repeated for a while.

use crate::Failure;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Nanoseconds of each operation, and how long all of them took.
#[derive(Debug)]
pub(crate) struct Timing {
    nanoseconds: Vec<u64>,
    seconds: f64,
}

/// Milliseconds as a command line has them; at most ten minutes.
pub(crate) fn milliseconds(word: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(word.parse::<u64>()?.min(600_000)))
}

impl Timing {
    /// Repeats an operation for so long, after a quarter of it that does not count.
    pub(crate) fn of(
        time: Duration,
        mut operation: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let warm = Instant::now();
        while warm.elapsed() < time / 4 {
            operation()?;
        }
        let (mut nanoseconds, start) = (Vec::with_capacity(1 << 20), Instant::now());
        let mut before = start;
        while before - start < time {
            operation()?;
            let now = Instant::now();
            nanoseconds.push(u64::try_from((now - before).as_nanos())?);
            before = now;
        }
        Ok(Self::new(nanoseconds, start.elapsed()))
    }

    /// Of samples that were taken elsewhere, within so much time.
    pub(crate) fn new(mut nanoseconds: Vec<u64>, time: Duration) -> Self {
        nanoseconds.sort_unstable();
        Self { nanoseconds, seconds: time.as_secs_f64() }
    }

    /// Microseconds of percentiles and calls a second.
    pub(crate) fn json(&self) -> Value {
        json!({
            "p50_us": self.percentile(500),
            "p99_us": self.percentile(990),
            "mean_us": self.nanoseconds.iter().sum::<u64>() as f64
                / self.nanoseconds.len().max(1) as f64 / 1e3,
            "calls": self.nanoseconds.len(),
            "calls_per_s": self.nanoseconds.len() as f64 / self.seconds,
        })
    }

    fn percentile(&self, thousandths: usize) -> Option<f64> {
        let at = self.nanoseconds.len() * thousandths / 1000;
        self.nanoseconds.get(at).map(|ns| *ns as f64 / 1e3)
    }
}
