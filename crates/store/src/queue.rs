//! Contents that a thread writes, for loops that must not wait for a disk.
//!
//! Bounded in bytes: a disk that hangs or is too slow costs later processes a content, and this one
//! nothing.

use crate::error::StoreError;
use crate::store::{ContentHash, ContentKind, Store};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;

/// Bytes that wait for the disk, at most.
pub const QUEUE_LEN_MAX: usize = 64 << 20;

/// What waits for the disk.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(ContentHash, Arc<[u8]>, ContentKind)>,
    /// Bytes of what waits, and of what is being written.
    len: usize,
    is_running: bool,
}

impl Store {
    /// As [`Store::put`], but a thread writes the file; in memory the content is at once. If too
    /// much waits for the disk already, or the disk is full, it is not written.
    ///
    /// # Errors
    /// [`StoreError::WrongHash`].
    pub fn put_soon(
        self: &Arc<Self>,
        hash: &ContentHash,
        bytes: Arc<[u8]>,
        kind: ContentKind,
    ) -> Result<(), StoreError> {
        self.remember(hash, &bytes)?;
        let mut queue = self.queue();
        if bytes.len() > QUEUE_LEN_MAX - queue.len {
            drop(queue);
            self.note_unwritten();
            return Ok(());
        }
        queue.len += bytes.len();
        queue.waiting.push_back((*hash, bytes, kind));
        if !queue.is_running {
            let store = Arc::clone(self);
            let started =
                thread::Builder::new().name("outboard-store".into()).spawn(move || store.drain());
            // Without a thread it is written together with the next.
            queue.is_running = started.is_ok();
        }
        Ok(())
    }

    /// Bytes that wait for the disk.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue().len as u64
    }

    fn drain(&self) {
        loop {
            let mut queue = self.queue();
            let Some((hash, bytes, kind)) = queue.waiting.pop_front() else {
                return queue.is_running = false;
            };
            drop(queue);
            if self.write_file(&hash, &bytes, kind).is_err() {
                self.note_unwritten();
            }
            self.queue().len -= bytes.len();
        }
    }

    /// After a panic of another thread the queue is still valid.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
