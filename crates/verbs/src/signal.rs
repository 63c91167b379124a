//! A bounded queue with a descriptor that is readable while something is in it. It backs
//! completion channels, connection events and asynchronous events.

use crate::error::VerbsError;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks, whatever happened to other holders: every critical section here leaves valid data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a wait of this length that begins now ends; `None` if it never does, or the time is beyond
/// the clock's range.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Signal<T> {
    items: Mutex<VecDeque<T>>,
    limit: usize,
    fd: OwnedFd,
}

impl<T> Signal<T> {
    pub(crate) fn new(limit: usize) -> Result<Self, VerbsError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| VerbsError::system("cannot make an event descriptor", e.into()))?;
        Ok(Self { items: Mutex::new(VecDeque::new()), limit, fd })
    }

    /// Adds an item; the oldest goes when the queue is full, so that a reader that never comes
    /// cannot make us grow.
    pub(crate) fn push(&self, item: T) {
        let mut items = lock(&self.items);
        if items.len() == self.limit {
            items.pop_front();
        }
        items.push_back(item);
        if items.len() == 1 {
            // The counter cannot overflow: it is 0 or 1.
            let _wrote = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Takes the oldest item for which `wanted` is true.
    pub(crate) fn pop_if(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<T> {
        let mut items = lock(&self.items);
        let at = items.iter().position(&mut wanted)?;
        let item = items.remove(at);
        if items.is_empty() {
            let mut count = [0; 8];
            let _read = rustix::io::read(&self.fd, &mut count);
        }
        item
    }

    /// Takes the oldest item.
    pub(crate) fn pop(&self) -> Option<T> {
        self.pop_if(|_| true)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
