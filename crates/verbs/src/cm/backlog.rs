//! What a listener holds: connection requests that wait for the program (bounded by its backlog),
//! and start-ups that wait for their Request or, once it has arrived, for a place in the backlog.
//! Silent peers take no place in the backlog: start-ups have a bound of their own, and the one that
//! has been silent longest is dropped first.

use super::listen::Pending;
use crate::signal::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The least bound on a listener's start-ups, however small its backlog.
const STARTUPS: usize = 64;
/// Every new peer may be silent for this long: when many connect at once, their Requests are still
/// under way.
const GRACE: Duration = Duration::from_millis(500);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Backlog {
    requests_max: usize,
    /// Requests that have no answer yet.
    requests: AtomicUsize,
    /// The oldest first.
    startups: Mutex<VecDeque<PendingStartup>>,
    /// A peer waits for a place, here or in the kernel's queue.
    starved: AtomicBool,
}

#[derive(Debug)]
struct PendingStartup {
    token: u64,
    since: Instant,
    pending: Arc<Pending>,
    /// Its Request is here and waits for a place.
    ready: bool,
}

/// Whether one more start-up may begin.
#[derive(Debug)]
pub(super) enum Room {
    /// It may.
    Free,
    /// It may when this start-up is given up.
    Instead(Arc<Pending>),
    /// Not before this time.
    At(Instant),
    /// Not before another start-up or request ends.
    None,
}

impl Backlog {
    pub(super) fn new(requests_max: usize) -> Self {
        Self {
            requests_max,
            requests: AtomicUsize::new(0),
            startups: Mutex::new(VecDeque::new()),
            starved: AtomicBool::new(false),
        }
    }

    /// Whether there is room for one more start-up. If there is none, this notes that a peer waits.
    pub(super) fn room(&self, now: Instant) -> Room {
        let mut startups = lock(&self.startups);
        if startups.len() < self.requests_max.max(STARTUPS) {
            return Room::Free;
        }
        // A start-up that ends has to take the lock before looking at this.
        self.starved.store(true, Ordering::SeqCst);
        match startups.iter().position(|startup| !startup.ready) {
            Some(at) if now >= startups[at].since + GRACE => {
                startups.remove(at).map_or(Room::None, |silent| Room::Instead(silent.pending))
            }
            Some(at) => Room::At(startups[at].since + GRACE),
            None => Room::None,
        }
    }

    /// A start-up begins.
    pub(super) fn begin(&self, token: u64, pending: Arc<Pending>) {
        let since = Instant::now();
        lock(&self.startups).push_back(PendingStartup { token, since, pending, ready: false });
    }

    /// A start-up's Request is here: true when it has a place now, otherwise it waits for one.
    pub(super) fn promote(&self, token: u64) -> bool {
        if !self.claim() {
            if let Some(startup) = lock(&self.startups).iter_mut().find(|one| one.token == token) {
                startup.ready = true;
            }
            // A place given back between these two checks must not be missed.
            self.starved.store(true, Ordering::SeqCst);
            if !self.claim() {
                return false;
            }
        }
        self.forget(token);
        true
    }

    fn claim(&self) -> bool {
        let more = |requests| (requests < self.requests_max).then_some(requests + 1);
        self.requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A start-up is over.
    pub(super) fn forget(&self, token: u64) {
        lock(&self.startups).retain(|startup| startup.token != token);
    }

    /// A request has its answer.
    pub(super) fn answered(&self) {
        self.requests.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a peer waited for the place that has just been given back.
    pub(super) fn was_starved(&self) -> bool {
        self.starved.swap(false, Ordering::SeqCst)
    }

    /// Start-ups that wait for a place.
    pub(super) fn ready(&self) -> Vec<(u64, Arc<Pending>)> {
        let startups = lock(&self.startups);
        let ready = startups.iter().filter(|startup| startup.ready);
        ready.map(|startup| (startup.token, Arc::clone(&startup.pending))).collect()
    }

    /// All start-ups, taken away.
    pub(super) fn drain(&self) -> Vec<Arc<Pending>> {
        lock(&self.startups).drain(..).map(|startup| startup.pending).collect()
    }
}
