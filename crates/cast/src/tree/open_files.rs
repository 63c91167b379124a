//! A bounded number of files that stay open, by their entries.

use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Open files; the one unused for longest is closed for another.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// The one used last stands at the back.
    files: Mutex<VecDeque<(u32, Arc<OwnedFd>)>>,
    max: usize,
}

impl OpenFiles {
    /// At most `max` descriptors are kept, besides those in use.
    pub(crate) fn new(max: usize) -> Self {
        Self { files: Mutex::new(VecDeque::new()), max }
    }

    /// The file of an entry, opened if it is not open yet.
    pub(crate) fn open<E>(
        &self,
        entry: u32,
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<Arc<OwnedFd>, E> {
        if let Some(file) = self.recall(entry) {
            return Ok(file);
        }
        let file = Arc::new(open()?);
        let mut files = self.lock();
        if files.len() >= self.max {
            files.pop_front();
        }
        files.push_back((entry, Arc::clone(&file)));
        Ok(file)
    }

    /// Closes all that are not in use.
    pub(crate) fn close_all(&self) {
        self.lock().clear();
    }

    /// The file of an entry, if it is open.
    pub(crate) fn recall(&self, entry: u32) -> Option<Arc<OwnedFd>> {
        let mut files = self.lock();
        let at = files.iter().rposition(|(known, _)| *known == entry)?;
        let found = files.remove(at)?;
        let file = Arc::clone(&found.1);
        files.push_back(found);
        Some(file)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u32, Arc<OwnedFd>)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
