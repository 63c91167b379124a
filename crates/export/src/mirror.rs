//! What a server knows of one client's files: the replica of its metadata log, and contents that
//! were read. Shared between the thread that [fetches](crate::fetch) and threads that look up.
//!
//! Never asks for what it does not have.

use crate::record::FileVersion;
use crate::replica::{Listing, LookUp, Replica};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of contents kept in memory: those who read them have caches of their own.
const CONTENTS_MAX: usize = 256 << 20;
/// Directories outside what a client exports that it has reported, at most.
const DIRECTORIES_MAX: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<MirrorState>,
}

/// What a mirror holds.
#[derive(Debug, Default)]
pub(crate) struct MirrorState {
    pub(crate) replica: Replica,
    contents: HashMap<FileVersion, Arc<[u8]>>,
    order: VecDeque<FileVersion>,
    bytes: usize,
    /// Directories that the client has and does not export.
    directories: HashSet<Vec<u8>>,
}

impl Mirror {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks up a name in a directory, which is given by its path without symbolic links.
    #[must_use]
    pub fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp {
        self.lock().replica.look_up(dir, name)
    }

    /// The listing of a directory, which is given by its path without symbolic links.
    #[must_use]
    pub fn list(&self, dir: &[u8]) -> Listing {
        self.lock().replica.list(dir)
    }

    /// A file's contents in this state, if they are here.
    #[must_use]
    pub fn contents(&self, file: &FileVersion) -> Option<Arc<[u8]>> {
        self.lock().contents.get(file).cloned()
    }

    /// Whether the client has said that it has a directory here, outside what it exports.
    #[must_use]
    pub fn is_directory(&self, path: &[u8]) -> bool {
        self.lock().directories.contains(path)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MirrorState {
    /// Records that the client has a directory here and does not export it.
    pub(crate) fn note_directory(&mut self, path: &[u8]) {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.clear();
        }
        self.directories.insert(path.to_vec());
    }

    /// Keeps contents; the oldest are dropped when there are too many.
    pub(crate) fn keep(&mut self, file: FileVersion, bytes: Arc<[u8]>) {
        self.bytes += bytes.len();
        match self.contents.insert(file, bytes) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(file),
        }
        while self.bytes > CONTENTS_MAX && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|oldest| self.contents.remove(&oldest));
            self.bytes -= oldest.map_or(0, |bytes| bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_come_again_count_once() {
        let mut state = MirrorState::default();
        let file = FileVersion { dev: 1, ino: 2, version: 3 };
        for bytes in [&b"1234"[..], b"1234", b"12"] {
            state.keep(file, bytes.into());
            assert_eq!((state.bytes, state.order.len()), (bytes.len(), 1));
        }
    }
}
