//! Threads of low priority, for tenants' code and for compiling it: work that yields to everything
//! else of this machine, while the thread that asks for it waits at its own priority.
//!
//! What others wait for, locks and commits, stays with the thread that asks: a thread of low
//! priority that held it could be interrupted for long, and they with it.

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use rustix::process::setpriority_process;
use std::io;

/// See this file's first lines.
#[derive(Debug)]
pub struct LowPriority(ThreadPool);

impl LowPriority {
    /// So many threads of that name and priority, as nice(1) has it.
    ///
    /// # Errors
    /// This machine's: no threads.
    pub fn new(name: &'static str, threads: usize, nice: i32) -> io::Result<Self> {
        // Where it cannot be lowered, the work only competes more with everything else.
        let lower = move |_| {
            let _lowered = setpriority_process(Some(rustix::thread::gettid()), nice);
        };
        let builder = ThreadPoolBuilder::new().num_threads(threads).start_handler(lower);
        builder.thread_name(|_| name.to_owned()).build().map(Self).map_err(io::Error::other)
    }

    /// Does the work on one of the threads, and waits for it. A panic is the caller's.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn only_the_work_has_low_priority() -> Result<(), Box<dyn std::error::Error>> {
        let own = getpriority_process(Some(rustix::thread::gettid()))?;
        let low = LowPriority::new("low", 1, 19)?;
        let during = low.run(|| getpriority_process(Some(rustix::thread::gettid())))?;
        let after = getpriority_process(Some(rustix::thread::gettid()))?;
        assert_eq!((during, after), (19, own));
        Ok(())
    }
}
