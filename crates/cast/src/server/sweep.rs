//! Removes, after a time, what broken casts have left and no cast has resumed.
//!
//! Looks at the roots and at every destination that this service has received to; never at what a
//! living receiver has locked.

use super::policy::CastRoot;
use crate::lazy::remove_dead_views;
use crate::receive::{Destination, remove_abandoned};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it looks, at most.
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// Destinations that are remembered.
const PLACES_MAX: usize = 4096;

/// Destinations as sources name them, and where they are here.
type Places = Arc<Mutex<BTreeMap<PathBuf, PathBuf>>>;

/// A thread that looks now and then; it ends with this value.
#[derive(Debug)]
pub(super) struct Sweep {
    places: Places,
    _stop: Sender<()>,
}

impl Sweep {
    /// Begins; what is older than `age` goes.
    pub(super) fn start(roots: &[CastRoot], age: Duration) -> Self {
        let places = roots.iter().map(|root| (root.path.clone(), root.directory.clone())).collect();
        let places = Arc::new(Mutex::new(places));
        let (stop, stopped) = channel();
        let own = Arc::clone(&places);
        let looking = move || look(&own, age, &stopped);
        if let Err(error) = thread::Builder::new().name("outboard-sweep".into()).spawn(looking) {
            tracing::warn!(%error, "what broken casts leave is removed by the next casts alone");
        }
        Self { places, _stop: stop }
    }

    /// Something is received here.
    pub(super) fn note(&self, path: &Path, directory: &Path) {
        let mut places = lock(&self.places);
        if places.len() < PLACES_MAX {
            places.insert(path.to_owned(), directory.to_owned());
        }
    }
}

fn look(places: &Places, age: Duration, stopped: &Receiver<()>) {
    loop {
        let all: Vec<PathBuf> = lock(places).values().cloned().collect();
        for directory in all {
            let Ok(destination) = Destination::open(&directory) else { continue };
            remove_dead_views(&destination);
            let removed = remove_abandoned(&destination, age);
            if removed > 0 {
                tracing::info!(?directory, removed, "removed what broken casts had left");
            }
        }
        match stopped.recv_timeout(EVERY_MAX.min(age.max(Duration::from_millis(100)))) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn lock(places: &Places) -> MutexGuard<'_, BTreeMap<PathBuf, PathBuf>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
