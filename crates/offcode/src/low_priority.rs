//! Threads of low priority, for tenants' code and for compiling it: work that yields to everything
//! else of this machine, while the thread that asks for it waits at its own priority.
//!
//! What others wait for, locks and commits, stays with the thread that asks: a thread of low
//! priority that held it could be interrupted for long, and they with it.

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::io;
use std::mem::size_of;
use std::time::Duration;

/// How long one of the threads runs before another one of the same priority: longer than other
/// threads' slices, so that these take its processor at once when they wake up. Else Linux lets a
/// thread that has just begun go on for a millisecond, whatever its priority (from 6.6 on; slices
/// can be set from 6.12 on).
const SLICE: Duration = Duration::from_millis(10);

/// Of `sched_setattr(2)`: the policy stays, batch for example, if an operator has set one.
const KEEP_POLICY: u64 = 0x08;

/// See this file's first lines.
#[derive(Debug)]
pub struct LowPriority(ThreadPool);

impl LowPriority {
    /// So many threads of that name and priority, as nice(1) has it.
    ///
    /// # Errors
    /// This machine's: no threads.
    pub fn new(name: &'static str, threads: usize, nice: i32) -> io::Result<Self> {
        let builder = ThreadPoolBuilder::new().num_threads(threads);
        let builder = builder.start_handler(move |_| lower(nice));
        builder.thread_name(|_| name.to_owned()).build().map(Self).map_err(io::Error::other)
    }

    /// Does the work on one of the threads, and waits for it. A panic is the caller's.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }
}

/// Lowers the calling thread's priority. Where that cannot be, its work only competes more with
/// everything else.
#[expect(unsafe_code, reason = "no crate of ours has this system call")]
fn lower(nice: i32) {
    // Not every system lets a thread set its slice.
    let _lowered = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
    let attributes = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or_default(),
        sched_policy: 0,
        sched_flags: KEEP_POLICY,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: u64::try_from(SLICE.as_nanos()).unwrap_or_default(),
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a structure that lives during the call; thread 0 is
    // the calling one.
    let _set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;
    use std::fs;

    #[test]
    fn only_the_work_has_low_priority() -> Result<(), Box<dyn std::error::Error>> {
        let own = getpriority_process(Some(rustix::thread::gettid()))?;
        let low = LowPriority::new("low", 1, 19)?;
        let during = low.run(|| getpriority_process(Some(rustix::thread::gettid())))?;
        let after = getpriority_process(Some(rustix::thread::gettid()))?;
        assert_eq!((during, after), (19, own));
        Ok(())
    }

    /// Whether Linux is 6.12 or later.
    fn has_slices() -> bool {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(6), Some(12))
    }

    /// Not every kernel shows them.
    #[test]
    fn a_slice_is_longer_than_others_where_slices_can_be_set() -> io::Result<()> {
        let slice = || {
            let sched = fs::read_to_string("/proc/thread-self/sched")?;
            let line = sched.lines().find(|line| line.starts_with("se.slice"));
            Ok::<_, io::Error>(line.and_then(|line| line.split(':').nth(1)?.trim().parse().ok()))
        };
        let (own, low): (Option<f64>, Option<f64>) =
            (slice()?, LowPriority::new("low", 1, 19)?.run(slice)?);
        assert!(own.is_none() || !has_slices() || low > own, "{own:?} {low:?}");
        Ok(())
    }
}
