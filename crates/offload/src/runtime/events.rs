//! What the application is told of its offcodes and devices, until it asks.
//!
//! Messages and lines of logs that nobody fetches are lost and counted; it never grows without
//! bound and never waits.

use super::app_end::{is_readable_until, lower, raise};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages and lines of logs that wait, at most.
const CHATTER_MAX: usize = 4096;
/// Events of any kind that wait, at most.
const WAITING_MAX: usize = 65_536;

/// What the application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// An offcode is gone, and what was below it has gone with it: each of those is told of, too.
    Ended {
        /// Its name.
        name: String,
        /// Why.
        why: String,
        /// Names of what was below it.
        with: Vec<String>,
    },
    /// A message of an offcode on its out-of-band channel.
    Told {
        /// Its name.
        name: String,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A line of an offcode's log.
    Log {
        /// Its name.
        name: String,
        /// 1 (error) to 5 (trace).
        level: u8,
        /// The line.
        text: String,
    },
    /// A device is lost.
    DeviceLost {
        /// Its name.
        device: String,
        /// Why.
        why: String,
    },
    /// An offcode runs on another device from now on.
    Moved {
        /// Its name.
        name: String,
        /// The device's name.
        device: String,
    },
    /// So many messages and lines of logs were lost, because nobody fetched them.
    Missed(u64),
    /// The application is over.
    Stopped,
}

#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<Waiting>,
    fd: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<RuntimeEvent>,
    chatter: usize,
    missed: u64,
}

impl RuntimeEvent {
    fn is_chatter(&self) -> bool {
        matches!(self, Self::Told { .. } | Self::Log { .. })
    }
}

impl EventQueue {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), fd })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, event: RuntimeEvent) {
        let mut waiting = self.lock();
        let is_chatter = event.is_chatter();
        let has_room = waiting.events.len() < WAITING_MAX;
        if !has_room || (is_chatter && waiting.chatter >= CHATTER_MAX) {
            waiting.missed += 1;
            return;
        }
        waiting.chatter += usize::from(is_chatter);
        waiting.events.push_back(event);
        raise(&self.fd);
    }

    pub(super) fn next(&self) -> Option<RuntimeEvent> {
        let mut waiting = self.lock();
        if waiting.missed > 0 {
            return Some(RuntimeEvent::Missed(std::mem::take(&mut waiting.missed)));
        }
        let event = waiting.events.pop_front();
        waiting.chatter -= usize::from(event.as_ref().is_some_and(RuntimeEvent::is_chatter));
        if waiting.events.is_empty() {
            lower(&self.fd);
        }
        event
    }

    pub(super) fn next_within(&self, limit: Duration) -> Option<RuntimeEvent> {
        let until = Instant::now() + limit;
        loop {
            let event = self.next();
            if event.is_some() || !is_readable_until(self.fd.as_fd(), until) {
                return event;
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatter_is_lost_and_counted_but_ends_are_kept() {
        let queue = EventQueue::new().expect("a descriptor");
        let told = |at: usize| RuntimeEvent::Told { name: at.to_string(), bytes: Vec::new() };
        (0..CHATTER_MAX + 3).for_each(|at| queue.push(told(at)));
        queue.push(RuntimeEvent::Stopped);
        assert_eq!(queue.next(), Some(RuntimeEvent::Missed(3)));
        assert_eq!(queue.next(), Some(told(0)));
        let rest: Vec<RuntimeEvent> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(rest.len(), CHATTER_MAX);
        assert_eq!(rest.last(), Some(&RuntimeEvent::Stopped));
        assert_eq!(queue.next_within(Duration::ZERO), None);
    }
}
