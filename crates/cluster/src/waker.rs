//! Wakes a loop that sleeps on descriptors, from any thread.
//!
//! It carries no data: the work is queued elsewhere, before the loop is woken.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// See the [module](self). Clones wake the same loop.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that has not been used.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new() -> rustix::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Makes the descriptor readable until [`Self::clear`].
    pub fn wake(&self) {
        // A counter that is full wakes as well.
        let _woken = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Resets the waker. To be called before the loop looks for work.
    pub fn clear(&self) {
        let _read = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    /// Readable when the loop has been woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
