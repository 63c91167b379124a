//! How many processors have nothing to do, of those that this process may use.
//!
//! It reads the kernel's counters twice and does not look at other processes.

use std::collections::HashMap;
use std::fs;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

/// Between the two looks: the counters are hundredths of a second.
const BETWEEN: Duration = Duration::from_millis(300);
/// Two sides that spin need two processors; a small share of their time is always in use.
const TWO: f64 = 1.6;

/// Processors without work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IdleProcessors {
    pub(super) processors: f64,
    pub(super) of: usize,
}

impl IdleProcessors {
    /// Looks for some time; `None` where the kernel does not tell.
    pub(super) fn now() -> Option<Self> {
        let read = || fs::read_to_string("/proc/stat").ok();
        let before = read()?;
        sleep(BETWEEN);
        let mine = rustix::thread::sched_getaffinity(None).ok()?;
        let processors = idle_between(&before, &read()?, |cpu| mine.is_set(cpu));
        let of = available_parallelism().map_or(1, usize::from);
        // A group's share may be less than the machine has.
        #[expect(clippy::cast_precision_loss, reason = "processors are few")]
        let processors = processors.min(of as f64);
        Some(Self { processors, of })
    }

    /// Whether two sides may spin at once without waiting for each other.
    pub(super) fn is_enough_to_spin(self) -> bool {
        self.processors >= TWO
    }
}

/// The sum of the shares of time that these processors had nothing to do.
fn idle_between(before: &str, after: &str, counts: impl Fn(usize) -> bool) -> f64 {
    let (before, after) = (times(before), times(after));
    let shares = after.iter().filter(|(cpu, _)| counts(**cpu)).filter_map(|(cpu, after)| {
        let before = before.get(cpu)?;
        let all = after.1.checked_sub(before.1).filter(|all| *all > 0)?;
        let idle = after.0.saturating_sub(before.0);
        #[expect(clippy::cast_precision_loss, reason = "some hundredths of a second")]
        Some(idle as f64 / all as f64)
    });
    shares.sum()
}

/// Of each processor: time without work (idle, and waiting for disks), and all time.
fn times(stat: &str) -> HashMap<usize, (u64, u64)> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?;
        // Virtual machines' time, from the ninth on, is in the first two already.
        let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let idle = times.get(3)? + times.get(4)?;
        Some((cpu, (idle, times.iter().sum())))
    };
    stat.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                          cpu0 100 0 100 500 100 0 0 0 0 0\n\
                          cpu1 100 0 100 500 100 0 0 0 0 0\ncpu2 1 0 1 1 1 0 0 0 0 0\nintr 5\n";

    #[test]
    fn idle_processors_are_counted_in_shares() {
        let after = "cpu  1 1\ncpu0 110 0 100 520 100 0 0 0 0 0\n\
                     cpu1 100 0 100 520 110 0 0 0 0 0\ncpu2 1 0 1 31 1 0 0 0 0 0\n";
        let idle = |counts: fn(usize) -> bool| idle_between(BEFORE, after, counts);
        assert!((idle(|cpu| cpu == 0) - 2.0 / 3.0).abs() < 1e-9);
        assert!((idle(|cpu| cpu == 1) - 1.0).abs() < 1e-9);
        assert!((idle(|_| true) - 8.0 / 3.0).abs() < 1e-9);
        assert!(idle_between(BEFORE, BEFORE, |_| true).abs() < 1e-9, "no time has passed");
    }

    #[test]
    fn two_that_spin_need_two_processors() {
        assert!(IdleProcessors { processors: 1.9, of: 2 }.is_enough_to_spin());
        assert!(!IdleProcessors { processors: 1.2, of: 64 }.is_enough_to_spin());
    }
}
