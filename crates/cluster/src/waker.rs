//! Wakes a loop that sleeps on descriptors, from any thread.
//!
//! It carries no data: the work is queued elsewhere, before the loop is woken.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the [module](self). Clones wake the same loop.
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakerState>);

#[derive(Debug)]
struct WakerState {
    fd: OwnedFd,
    /// Set by the call of [`Waker::wake`] that writes, and reset by the call of [`Waker::clear`]
    /// that has read what it wrote: all calls between need no system call.
    is_woken: AtomicBool,
}

impl Waker {
    /// A waker that has not been used.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new() -> rustix::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(WakerState { fd, is_woken: AtomicBool::new(false) })))
    }

    /// Makes the descriptor readable until [`Self::clear`].
    pub fn wake(&self) {
        if !self.0.is_woken.swap(true, Ordering::AcqRel) {
            let _woken = rustix::io::write(&self.0.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Resets the waker. To be called before the loop looks for work.
    pub fn clear(&self) {
        // A caller that has set the flag and not written yet makes the descriptor readable soon:
        // the flag stays set for that time.
        let is_read = || rustix::io::read(&self.0.fd, &mut [0; 8]).is_ok();
        if self.0.is_woken.load(Ordering::Acquire) && is_read() {
            // What was queued by callers that found the flag set is seen after this.
            self.0.is_woken.swap(false, Ordering::AcqRel);
        }
    }
}

impl AsFd for Waker {
    /// Readable when the loop has been woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::mpsc;
    use std::thread;

    fn is_readable(waker: &Waker, seconds: i64) -> bool {
        let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&limit)) == Ok(1)
    }

    #[test]
    fn it_is_readable_from_a_call_until_it_is_cleared() {
        let waker = Waker::new().expect("a descriptor");
        for _ in 0..3 {
            assert!(!is_readable(&waker, 0));
            waker.wake();
            waker.wake();
            assert!(is_readable(&waker, 0));
            waker.clear();
        }
        assert!(!is_readable(&waker, 0));
    }

    #[test]
    fn nothing_that_was_queued_before_a_call_is_slept_through() {
        const CALLS: u32 = 100_000;
        let waker = Waker::new().expect("a descriptor");
        let (queue, queued) = mpsc::channel();
        for _ in 0..2 {
            let (waker, queue) = (waker.clone(), queue.clone());
            thread::spawn(move || {
                for number in 0..CALLS {
                    queue.send(number).expect("the loop takes all");
                    waker.wake();
                }
            });
        }
        let mut taken = 0;
        while taken < 2 * CALLS {
            assert!(is_readable(&waker, 20), "{taken} of all calls were heard");
            waker.clear();
            taken += u32::try_from(queued.try_iter().count()).expect("few");
        }
    }
}
