//! Bytes that were read ahead, of all open files together: bounded. Where there are too many, the
//! file that has begun to be read ahead first loses its own: perhaps its reader does not go on.

use super::files::OpenFile;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes, at most.
const BYTES_MAX: u64 = 64 << 20;
/// Files of the list after which those that are closed are left out, at first.
const PRUNE_FIRST: usize = 256;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct KeptAhead {
    bytes: Arc<AtomicU64>,
    files: Mutex<FilesAhead>,
}

#[derive(Debug)]
struct FilesAhead {
    /// Files that have such bytes, the oldest first.
    queue: VecDeque<Weak<OpenFile>>,
    prune_at: usize,
}

/// Bytes that count while this lives.
#[derive(Debug)]
pub(super) struct CountedBytes {
    all: Arc<AtomicU64>,
    len: u64,
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.len, Ordering::AcqRel);
    }
}

impl Default for KeptAhead {
    fn default() -> Self {
        let files = FilesAhead { queue: VecDeque::new(), prune_at: PRUNE_FIRST };
        Self { bytes: Arc::default(), files: Mutex::new(files) }
    }
}

impl KeptAhead {
    /// Bytes that are kept for a file from now on; others lose theirs for them.
    pub(super) fn count(&self, file: &Arc<OpenFile>, len: u64) -> CountedBytes {
        if self.bytes.fetch_add(len, Ordering::AcqRel) + len > BYTES_MAX {
            self.make_room(file);
        }
        CountedBytes { all: Arc::clone(&self.bytes), len }
    }

    /// A file has such bytes from now on.
    pub(super) fn list(&self, file: &Arc<OpenFile>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.queue.push_back(Arc::downgrade(file));
        if files.queue.len() >= files.prune_at {
            files.queue.retain(|file| file.strong_count() > 0);
            files.prune_at = (2 * files.queue.len()).max(PRUNE_FIRST);
        }
    }

    fn make_room(&self, wanted_by: &Arc<OpenFile>) {
        let tries = self.files.lock().unwrap_or_else(PoisonError::into_inner).queue.len();
        for _ in 0..tries {
            if self.bytes.load(Ordering::Acquire) <= BYTES_MAX {
                return;
            }
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(first) = files.queue.pop_front() else { return };
            drop(files);
            let Some(file) = first.upgrade() else { continue };
            // One that is being read now is left alone.
            if Arc::ptr_eq(&file, wanted_by) || !file.forget_ahead() {
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.queue.push_back(first);
            }
        }
    }
}
