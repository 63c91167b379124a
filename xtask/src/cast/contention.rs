//! How much of this machine's processors other programs took while a check ran: what a cast of
//! sixteen hosts may take longer is measured in processor time that was there, not in seconds.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::site::CastSite;

/// Ticks a second in /proc (USER_HZ, which is 100 on every machine that Linux runs on).
const TICKS_A_SECOND: f64 = 100.0;
/// However little was left, a limit grows no further: a cast that hangs must be found.
const STRETCH_MAX: f64 = 10.0;

/// The counters at the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contention {
    began: Instant,
    busy: Duration,
    own: Duration,
}

impl Contention {
    pub(super) fn begin(site: &CastSite) -> Result<Self> {
        Ok(Self { began: Instant::now(), busy: busy()?, own: own(site)? })
    }

    /// By how much what the hosts do takes longer than on a machine of their own: the processor
    /// time that there was, to what others had left of it.
    pub(super) fn stretch(&self, site: &CastSite) -> Result<f64> {
        let seconds = self.began.elapsed().as_secs_f64();
        let there = seconds * thread::available_parallelism()?.get() as f64;
        let busy = busy()?.saturating_sub(self.busy).as_secs_f64();
        let own = own(site)?.saturating_sub(self.own).as_secs_f64();
        Ok(stretch(there, (busy - own).max(0.0)))
    }
}

fn stretch(there: f64, others: f64) -> f64 {
    (there / (there - others).max(there / STRETCH_MAX)).clamp(1.0, STRETCH_MAX)
}

/// What all programs have taken, and other machines on the same hardware. Interrupts are left out:
/// most of them carry the packets of the hosts.
fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    of_stat(&text).context("/proc/stat has no line of all processors")
}

/// User, nice and system time, and steal (proc(5)).
fn of_stat(text: &str) -> Option<Duration> {
    let mut fields = text.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace();
    let mut take = |nth| fields.nth(nth)?.parse::<u64>().ok();
    let ticks = take(0)? + take(0)? + take(0)? + take(4)?;
    Some(Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND))
}

/// What the hosts have taken, and this process, which watches them.
fn own(site: &CastSite) -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let after_name = text.rsplit_once(") ").map(|(_, rest)| rest);
    let mut fields = after_name.context("/proc/self/stat has no name")?.split(' ').skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let ticks = ticks().zip(ticks()).map(|(user, system)| user + system);
    let ticks = ticks.context("/proc/self/stat has no times")?;
    Ok(site.cpu()? + Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_grows_with_what_others_take() {
        assert_eq!(stretch(10.0, 0.0), 1.0);
        assert_eq!(stretch(10.0, 5.0), 2.0);
        assert_eq!(stretch(10.0, 9.9), STRETCH_MAX);
        assert_eq!(stretch(10.0, 30.0), STRETCH_MAX, "counters waver");
    }

    #[test]
    fn programs_count_and_idling_and_interrupts_do_not() {
        let text = "cpu  100 20 30 9999 8888 7777 6666 50 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(of_stat(text), Some(Duration::from_secs(2)));
        assert_eq!(of_stat("intr 1 2 3\n"), None);
    }
}
