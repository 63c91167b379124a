//! The bytes of files: blocks of 4,096, by their number, read and written from any thread.
//!
//! Knows no file: which block belongs to what is the region's affair. A block is written while
//! nothing durable refers to it, and punched when nothing durable does any more; the caller sees to
//! both.

use super::disk::StoreFile;
use super::error::FsStoreError;
use super::feed::ReplicaFeed;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes of a block.
pub const BLOCK_LEN: u64 = 4096;
/// Its file.
pub(super) const NAME: &str = "data";

/// See this file's first lines.
#[derive(Debug)]
pub struct DataFile {
    file: Arc<dyn StoreFile>,
    block_count: u64,
    /// Something was written since a sync was begun last.
    is_written: AtomicBool,
    /// One syncs at a time: who finds nothing written has waited for whoever is bringing it to the
    /// disk. True if a sync has failed: what it left behind, no other one finds.
    has_failed: Mutex<bool>,
    /// Is told which blocks were written.
    feed: OnceLock<Arc<ReplicaFeed>>,
}

impl DataFile {
    pub(super) fn new(file: Arc<dyn StoreFile>, block_count: u64) -> Self {
        // What the process before has written may not be on the disk.
        let (is_written, has_failed) = (AtomicBool::new(true), Mutex::new(false));
        Self { file, block_count, is_written, has_failed, feed: OnceLock::new() }
    }

    pub(super) fn feed(&self, feed: &Arc<ReplicaFeed>) {
        // There is one store for each.
        let _set = self.feed.set(Arc::clone(feed));
    }

    /// How many blocks there are.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Reads bytes, of blocks that follow each other, from a byte of the first one on.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidInput`] for bytes behind the last block.
    pub fn read(&self, block: u64, within: u64, into: &mut [u8]) -> io::Result<()> {
        let range = self.range(block, within, into.len() as u64)?;
        self.file.read_at(into, range.start)
    }

    /// As [`read`](Self::read), if all of the bytes are in memory; false if they are not, or if
    /// that cannot be known. Does not wait for the disk.
    #[must_use]
    pub fn read_now(&self, block: u64, within: u64, into: &mut [u8]) -> bool {
        let range = self.range(block, within, into.len() as u64);
        range.is_ok_and(|range| self.file.read_now(into, range.start))
    }

    /// Writes bytes, of blocks that follow each other, from a byte of the first one on. A commit
    /// that is made after this has returned is durable only together with them.
    ///
    /// # Errors
    /// The system's, [`io::ErrorKind::StorageFull`] among them: then some bytes may be written, and
    /// the store goes on. [`io::ErrorKind::InvalidInput`] for bytes behind the last block.
    pub fn write(&self, block: u64, within: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let range = self.range(block, within, len)?;
        let written = self.file.write_at(parts, range.start);
        self.is_written.store(true, Ordering::Release);
        if let Some(feed) = self.feed.get() {
            feed.wrote(range.start / BLOCK_LEN, range.end.div_ceil(BLOCK_LEN));
        }
        written
    }

    /// Gives the place of blocks back to the disk: they read as zeros. What was durable and refers
    /// to them loses its bytes.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidInput`] for blocks behind the last one.
    pub fn punch(&self, block: u64, count: u64) -> io::Result<()> {
        let len = count.checked_mul(BLOCK_LEN).ok_or(io::ErrorKind::InvalidInput)?;
        let range = self.range(block, 0, len)?;
        self.file.punch(range)
    }

    /// Returns when all that was written before is on the disk.
    pub(super) fn sync(&self) -> Result<(), FsStoreError> {
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            let error = io::Error::other("it could not be brought to the disk before");
            return Err(FsStoreError::of(NAME, error));
        }
        if !self.is_written.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = self.file.sync();
        *has_failed = synced.is_err();
        synced.map_err(|source| FsStoreError::of(NAME, source))
    }

    fn range(&self, block: u64, within: u64, len: u64) -> io::Result<Range<u64>> {
        let end = self.block_count * BLOCK_LEN;
        let start = block.checked_mul(BLOCK_LEN).and_then(|start| start.checked_add(within));
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        range.filter(|range| range.end <= end).ok_or_else(|| {
            let why = format!("block {block}, byte {within}, {len} bytes: the store ends before");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })
    }
}
