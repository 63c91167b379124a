//! Channels of connection events: one queue with one descriptor, for as many listeners and queue
//! pairs as its owner likes. Each of them may get the channel under a key of its own
//! ([`CmChannel::keyed`]), which marks its events, and by which they are silenced or moved to
//! another channel.
//!
//! A channel knows no listener and no queue pair; they know it.

use super::{CmEvent, CmEventKind};
use crate::context::Shared;
use crate::error::VerbsError;
use crate::signal::{Signal, deadline, lock};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Events kept for a reader: many more than a process may have connections (`fs.nr_open`), each of
/// which makes a few. A listener's requests are bounded apart.
const EVENTS_MAX: usize = 1 << 22;

/// A queue of connection events with a descriptor. Clones are the same queue under the same key.
#[derive(Clone, Debug)]
pub struct CmChannel {
    queue: Arc<CmQueue>,
    /// What sources of events get.
    pub(super) inner: Arc<CmShared>,
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
struct CmQueue {
    events: Signal<CmEvent>,
    /// [`CmEventKind::Established`] is wanted.
    tells_established: bool,
}

/// Where the events of some listeners and queue pairs go, and what marks them.
#[derive(Debug)]
pub(crate) struct CmShared {
    key: u64,
    /// `None` once it is silent.
    target: Mutex<Option<Arc<CmQueue>>>,
}

impl CmShared {
    /// An event about this queue pair; 0 for a listener's.
    pub(crate) fn push(&self, qp: u32, kind: CmEventKind) {
        // Locked all the way: no event comes after the silence, or is left behind by a move.
        let target = lock(&self.target);
        let wanted = |queue: &&Arc<CmQueue>| {
            queue.tells_established || !matches!(kind, CmEventKind::Established)
        };
        if let Some(queue) = target.as_ref().filter(wanted) {
            queue.events.push(CmEvent { key: self.key, qp, kind });
        }
    }

    /// Takes the oldest event on its channel that `wanted` likes.
    pub(super) fn pop_if(&self, wanted: impl FnMut(&CmEvent) -> bool) -> Option<CmEvent> {
        lock(&self.target).as_ref()?.events.pop_if(wanted)
    }

    /// Takes its events off the queue, and sends later ones elsewhere.
    fn aim(&self, target: Option<&Arc<CmQueue>>) {
        let mut now = lock(&self.target);
        let before = std::mem::replace(&mut *now, target.cloned());
        let waiting = before.into_iter().flat_map(|queue| queue.take_all(self.key));
        let waiting: Vec<CmEvent> = waiting.collect();
        if let Some(queue) = target {
            waiting.into_iter().for_each(|event| queue.events.push(event));
        } else {
            drop(now);
            // A request's end may be news elsewhere.
            drop(waiting);
        }
    }
}

impl CmQueue {
    fn take_all(&self, key: u64) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.events.pop_if(|event| event.key == key)).collect()
    }

    fn under(self: Arc<Self>, key: u64, shared: &Arc<Shared>) -> CmChannel {
        let target = Mutex::new(Some(Arc::clone(&self)));
        let inner = Arc::new(CmShared { key, target });
        CmChannel { queue: self, inner, shared: Arc::clone(shared) }
    }
}

impl CmChannel {
    pub(crate) fn new(shared: &Arc<Shared>, tells_established: bool) -> Result<Self, VerbsError> {
        let queue = CmQueue { events: Signal::new(EVENTS_MAX)?, tells_established };
        Ok(Arc::new(queue).under(0, shared))
    }

    /// The same channel under another key, which marks the events of the listeners and queue pairs
    /// that get it. A new channel has the key 0.
    pub fn keyed(&self, key: u64) -> Self {
        Arc::clone(&self.queue).under(key, &self.shared)
    }

    /// The oldest event, under whatever key, if there is one now.
    pub fn try_next(&self) -> Option<CmEvent> {
        self.queue.events.pop()
    }

    /// Waits for an event; `None` when the time is over.
    pub fn next(&self, timeout: Option<Duration>) -> Option<CmEvent> {
        let deadline = deadline(timeout);
        self.shared.core.wait_until(deadline, || self.queue.events.pop())
    }

    /// For ever drops the events of the listeners and queue pairs that got the channel under this
    /// key from this value or a clone of it, and those that wait.
    pub fn silence(&self) {
        self.inner.aim(None);
    }

    /// Sends the events of the listeners and queue pairs that got the channel under this key to
    /// another channel of the context: those that wait, and all later ones. The key stays.
    ///
    /// # Errors
    /// [`VerbsError::OtherContext`] when that channel is another context's.
    pub fn move_to(&mut self, other: &Self) -> Result<(), VerbsError> {
        self.shared.check_own(&other.shared, "the channel")?;
        self.inner.aim(Some(&other.queue));
        self.queue = Arc::clone(&other.queue);
        Ok(())
    }
}

impl AsFd for CmChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.events.fd()
    }
}
