//! Which queues may hold requests that name a registration, so that its memory can be taken away
//! from them without searching any other queue.
//!
//! A queue is entered before a request that names the registration is queued, under the lock of the
//! domain's keys, and stays entered. The queue remembers that, so that most requests cost only a
//! comparison.

use crate::cq::lock;
use outboard_verbs::SharedRegion;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Up to this number, the list is not searched for queues that are gone.
const PRUNE_MIN: usize = 64;

/// Queues that requests are posted to.
pub(crate) trait Holder: Send + Sync + std::fmt::Debug {
    /// Takes memory away from every request.
    fn revoke(&self, region: &SharedRegion);
    /// The registrations in which it was entered last.
    fn noted(&self) -> &Noted;
}

/// Registrations by number, as many as a queue usually works with.
#[derive(Debug, Default)]
pub(crate) struct Noted([AtomicU64; 4]);

impl Noted {
    fn place(&self, number: u64) -> &AtomicU64 {
        &self.0[usize::try_from(number % 4).unwrap_or(0)]
    }
}

/// The queues of one registration.
#[derive(Debug)]
pub(crate) struct Holders {
    /// Never 0 and never given twice.
    number: u64,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// By address: no other object gets the address while there is a weak reference.
    queues: HashMap<usize, Weak<dyn Holder>>,
    prune_at: usize,
}

impl Holders {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let known = Known { queues: HashMap::new(), prune_at: PRUNE_MIN };
        Self { number, known: Mutex::new(known) }
    }

    /// Enters a queue; the caller holds the lock of the domain's keys.
    pub(crate) fn enter<H: Holder + 'static>(&self, holder: &Arc<H>) {
        let place = holder.noted().place(self.number);
        if place.load(Ordering::Relaxed) == self.number {
            return;
        }
        let queue: Weak<H> = Arc::downgrade(holder);
        lock(&self.known).enter(Arc::as_ptr(holder).addr(), queue);
        place.store(self.number, Ordering::Relaxed);
    }

    /// Takes the memory away from every request that names it. No new request does.
    pub(crate) fn revoke(&self, region: &SharedRegion) {
        let queues = std::mem::take(&mut lock(&self.known).queues);
        for queue in queues.into_values().filter_map(|queue| queue.upgrade()) {
            // Requests that were posted long ago have mostly completed.
            if region.is_sole() {
                return;
            }
            queue.revoke(region);
        }
    }
}

impl Known {
    /// Queues come and go while a registration stays.
    fn enter(&mut self, address: usize, queue: Weak<dyn Holder>) {
        if self.queues.len() >= self.prune_at {
            self.queues.retain(|_, queue| queue.strong_count() > 0);
            self.prune_at = PRUNE_MIN.max(self.queues.len() * 2);
        }
        self.queues.insert(address, queue);
    }
}
