//! Goals, clocks and the loop that times one operation after another.

use crate::error::PerfError;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest test: a server forgets clients that stay longer.
pub const SECONDS_MAX: u64 = 3600;
/// Latencies above this count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Relative error of recorded latencies: one in a thousand.
const DIGITS: u8 = 3;
/// Rounds and time that a latency test warms up for at most.
const WARM_UP: (u64, Duration) = (1000, Duration::from_millis(200));

/// When a test is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// After this many messages, counted over all queue pairs.
    Messages(u64),
    /// After this time.
    Time(Duration),
}

impl Goal {
    /// Holds a goal to what a test can be.
    ///
    /// # Errors
    /// [`PerfError::BadParameter`].
    pub fn check(self) -> Result<(), PerfError> {
        let bad = |what, found, needed| PerfError::BadParameter { what, found, needed };
        match self {
            Self::Messages(0) => Err(bad("--iters", "0".to_owned(), "at least 1".to_owned())),
            Self::Time(time) if time.is_zero() || time.as_secs() > SECONDS_MAX => {
                let found = time.as_secs_f64().to_string();
                let needed = format!("more than 0 and at most {SECONDS_MAX}");
                Err(bad("--seconds", found, needed))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn reached(self, messages: u64, elapsed: Duration) -> bool {
        match self {
            Self::Messages(goal) => messages >= goal,
            Self::Time(goal) => elapsed >= goal,
        }
    }
}

/// How far a test is, for a thread that draws it, and whether it is to end early. Clones are the
/// same one.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    messages: Arc<AtomicU64>,
    interrupted: Arc<AtomicBool>,
}

impl Progress {
    /// Messages done in the timed part so far.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Ends the test once it is true: the report is about what was done by then. A signal's
    /// handler may set it.
    pub fn interrupt(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, messages: u64) {
        self.messages.store(messages, Ordering::Relaxed);
    }
}

/// The result of a timed part.
#[derive(Debug)]
pub struct Timed {
    /// Messages that this side started.
    pub messages: u64,
    /// How long that took.
    pub elapsed: Duration,
    /// Nanoseconds from start to end of each operation; latency tests only.
    pub latencies: Option<Histogram<u64>>,
}

/// Does rounds without timing them, so that caches, TCP and branch predictors have seen the loop.
pub(crate) fn warm_up(mut round: impl FnMut() -> Result<(), PerfError>) -> Result<(), PerfError> {
    let start = Instant::now();
    for _ in 0..WARM_UP.0 {
        round()?;
        if start.elapsed() > WARM_UP.1 {
            break;
        }
    }
    Ok(())
}

/// Times one round after another: one look at the clock for each.
pub(crate) fn time_rounds(
    goal: Goal,
    progress: &Progress,
    mut round: impl FnMut() -> Result<(), PerfError>,
) -> Result<Timed, PerfError> {
    let mut latencies = histogram()?;
    let mut messages = 0;
    let start = Instant::now();
    let mut last = start;
    while !goal.reached(messages, last - start) && !progress.is_interrupted() {
        round()?;
        let now = Instant::now();
        let nanos = u64::try_from((now - last).as_nanos()).unwrap_or(LATENCY_MAX_NS);
        latencies.saturating_record(nanos);
        last = now;
        messages += 1;
        progress.set(messages);
    }
    Ok(Timed { messages, elapsed: last - start, latencies: Some(latencies) })
}

/// An empty histogram of nanoseconds, whole from the start so that recording never allocates.
pub(crate) fn histogram() -> Result<Histogram<u64>, PerfError> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
        .map_err(|error| io::Error::other(error.to_string()))
        .map_err(PerfError::system("cannot make a histogram"))
}

/// User and system time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Keeps this thread, and the threads that it starts, on one CPU.
///
/// # Errors
/// [`PerfError::System`] when there is no such CPU or this process may not use it.
pub fn pin(cpu: usize) -> Result<(), PerfError> {
    if cpu >= CpuSet::MAX_CPU {
        let needed = format!("less than {}", CpuSet::MAX_CPU);
        let (what, found) = ("--pin", cpu.to_string());
        return Err(PerfError::BadParameter { what, found, needed });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(PerfError::system(
        "cannot use that CPU (--pin); `taskset -cp $$` lists those that can be used",
    ))
}
