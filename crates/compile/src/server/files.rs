//! One client's files as a server knows them: the source of its view.
//!
//! Look-ups are answered from the mirror of the client's files. Requests are left for the service's
//! thread, which alone communicates with the client.

use crate::view::{self, FetchDone, FileSource};
use outboard_cluster::waker::Waker;
use outboard_export::path::join;
use outboard_export::{FetchRequest, FileVersion, Listing, LookUp, Mirror};
use std::sync::{Arc, Mutex, PoisonError};

/// One client's files; see the [module](self).
pub(crate) struct ClientFiles {
    mirror: Arc<Mirror>,
    requests: Mutex<Vec<(FetchRequest, FetchDone)>>,
    /// Woken when there are requests.
    waker: Waker,
}

impl ClientFiles {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { mirror: Arc::default(), requests: Mutex::default(), waker }
    }

    /// What is known of them.
    pub(crate) fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// The pending requests of the view's threads.
    pub(crate) fn take_requests(&self) -> Vec<(FetchRequest, FetchDone)> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FileSource for ClientFiles {
    fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp {
        match self.mirror.look_up(dir, name) {
            LookUp::Outside if self.mirror.is_directory(&join(dir, name)) => {
                LookUp::Directory(view::SYNTHETIC)
            }
            found => found,
        }
    }

    fn list(&self, dir: &[u8]) -> Listing {
        self.mirror.list(dir)
    }

    fn fetch(&self, request: FetchRequest, done: FetchDone) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push((request, done));
        // If the waker's descriptor is full, a wake-up is pending already.
        self.waker.wake();
    }

    fn contents(&self, file: &FileVersion) -> Option<Arc<[u8]>> {
        self.mirror.contents(file)
    }
}
