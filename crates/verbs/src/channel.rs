//! Completion channels: a descriptor that becomes readable when an armed completion queue gets
//! a completion. For programs with an event loop of their own; [`crate::Cq::wait`] is cheaper
//! where a thread has nothing else to wait for.

use crate::context::Shared;
use crate::error::VerbsError;
use crate::signal::{Signal, deadline};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Events that a channel keeps. A queue is armed for one event at a time, so this is also how many
/// queues a channel can serve.
const EVENTS_MAX: usize = 65_536;

/// A completion channel.
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) events: Arc<Signal<u32>>,
    pub(crate) shared: Arc<Shared>,
}

impl CompChannel {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self, VerbsError> {
        let events = Arc::new(Signal::new(EVENTS_MAX)?);
        Ok(Self { events, shared: Arc::clone(shared) })
    }

    /// Number of the next queue that has something, if there is one now.
    pub fn try_next(&self) -> Option<u32> {
        self.events.pop()
    }

    /// Waits for the next queue that has something; `None` when the time is over.
    pub fn next(&self, timeout: Option<Duration>) -> Option<u32> {
        let deadline = deadline(timeout);
        self.shared.core.wait_until(deadline, || self.events.pop())
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }
}
