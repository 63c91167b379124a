//! A store's part in a snapshot: its metadata as of one commit, in a file of somebody else's, and
//! which blocks had bytes then, so that these are not written while they are copied.
//!
//! Copies no block, and knows no directory: who asked does that, and says when it is over.

use super::checkpoint::{self, CheckpointEnding, CheckpointWriter, FIRST};
use super::directory::random;
use super::disk;
use super::error::{FsStoreError, StoreFailure};
use super::keeper::{Keeper, copy, copy_memory};
use super::log::LogHub;
use super::recover::RecoveredRegion;
use super::superblock::Superblock;
use crate::protocol::{FsBlocksRun, MAGIC, ROOT};
use outboard_mem::SharedRegion;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Bytes of the head of the state of blocks: whether each is taken, one bit each, follows.
const BLOCKS_HEAD: u64 = 64;
/// What errors call the file.
const METADATA: &str = "the snapshot's metadata";
/// Where a file system says where the state of blocks is.
const BLOCKS_AT: u64 = ROOT + 16;

/// Blocks that may have bytes of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeldBlocks {
    /// The snapshot's commit, as the region numbers them.
    pub seq: u64,
    /// A bit for each block: files have it, or it was reserved.
    taken: Vec<u64>,
}

impl HeldBlocks {
    /// The blocks of a region, as of its last commit. Nobody may change it meanwhile.
    pub(super) fn of(memory: &SharedRegion, seq: u64, blocks: u64) -> Result<Self, FsStoreError> {
        let word = |at: u64| memory.load_u64(usize::try_from(at).unwrap_or(usize::MAX));
        if word(ROOT)? != MAGIC {
            return Ok(Self { seq, taken: Vec::new() });
        }
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let start = place(word(BLOCKS_AT)?.saturating_add(BLOCKS_HEAD));
        let len = place(blocks.div_ceil(64) * 8);
        let bytes = memory.snapshot(start..start.saturating_add(len))?;
        let words = bytes.chunks_exact(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        Ok(Self { seq, taken: words.map(word).collect() })
    }

    #[cfg(test)]
    pub(crate) fn made(seq: u64, taken: Vec<u64>) -> Self {
        Self { seq, taken }
    }

    fn is_taken(&self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|index| self.taken.get(index));
        word.is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// A run, cut where blocks that were taken begin and end; whether those of each part were.
    pub fn parts(&self, run: FsBlocksRun) -> impl Iterator<Item = (FsBlocksRun, bool)> + '_ {
        let (mut at, end) = (run.start, run.start.saturating_add(run.len));
        std::iter::from_fn(move || {
            let (start, is_taken) = (at, self.is_taken(at));
            while at < end && self.is_taken(at) == is_taken {
                at += 1;
            }
            (start < at).then_some((FsBlocksRun { start, len: at - start }, is_taken))
        })
    }
}

/// What a snapshot's metadata are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// What the snapshot is to say of itself once it is whole.
    pub superblock: Superblock,
    /// Its commit, as the store numbers them.
    pub seq: u64,
}

/// A snapshot's metadata that are to be written.
#[derive(Debug)]
pub(super) struct SnapshotTask {
    file: File,
    answer: mpsc::Sender<Result<SnapshotHead, FsStoreError>>,
}

/// What is held back for a snapshot, if one is being made.
#[derive(Debug, Default)]
pub(super) struct SnapshotHolds {
    blocks: Mutex<Option<Arc<HeldBlocks>>>,
    is_taken: AtomicBool,
}

impl SnapshotHolds {
    fn set(&self, held: Option<Arc<HeldBlocks>>) {
        *self.blocks.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    pub(super) fn get(&self) -> Option<Arc<HeldBlocks>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A snapshot that is being made. Dropped, its blocks are copied, or nobody wants them any more.
#[derive(Debug)]
pub struct SnapshotHold(Arc<LogHub>);

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.0.holds.set(None);
        self.0.holds.is_taken.store(false, Ordering::Release);
        self.0.tell();
    }
}

/// By which snapshots of a store in use are begun and ended, one at a time.
#[derive(Clone, Debug)]
pub struct FsSnapshots(pub(super) Arc<LogHub>);

impl FsSnapshots {
    /// Has the metadata written to an empty file. What blocks had bytes then is held back while the
    /// hold is there.
    ///
    /// # Errors
    /// [`FsStoreError`]: the file's disk, another snapshot is being made, or the store has ended.
    pub fn begin(&self, file: File) -> Result<(SnapshotHead, SnapshotHold), FsStoreError> {
        if self.0.holds.is_taken.swap(true, Ordering::AcqRel) {
            return Err(FsStoreError::SnapshotUnderWay);
        }
        let hold = SnapshotHold(Arc::clone(&self.0));
        let (answer, answered) = mpsc::channel();
        let mut is_over = self.0.failure().is_some();
        self.0.wake_keeper(|pending| {
            is_over |= pending.keeper_is_closing;
            pending.snapshot = (!is_over).then_some(SnapshotTask { file, answer });
        });
        if is_over {
            return Err(StoreFailure::Closed.into());
        }
        let head = answered.recv().unwrap_or_else(|_| Err(StoreFailure::Closed.into()))?;
        Ok((head, hold))
    }
}

impl Keeper {
    /// Writes a snapshot's metadata. What fails at that fails nothing else.
    pub(super) fn snapshot(&self, task: SnapshotTask) {
        let SnapshotTask { file, answer } = task;
        let made = self.snapshot_to(file);
        if made.is_err() {
            self.hub.holds.set(None);
        }
        // Who asked may be gone: then it ends what is held.
        let _sent = answer.send(made);
    }

    fn snapshot_to(&self, file: File) -> Result<SnapshotHead, FsStoreError> {
        let (blocks, memory) = (self.data.block_count(), self.region.memory());
        let superblock = fresh((blocks, memory.len() as u64))?;
        let mut writer = writer(&superblock, file)?;
        let mut held = Err(StoreFailure::Closed.into());
        let seq = copy(&self.region, &mut writer, |seq| {
            // Before the next commit: it may free what is to be held back.
            held = HeldBlocks::of(memory, seq, blocks)
                .map(|blocks| self.hub.holds.set(Some(Arc::new(blocks))));
        })?;
        held?;
        let seq = self.hub.base().wrapping_add(seq);
        writer.finish(seq, CheckpointEnding::UnderWay)?;
        Ok(SnapshotHead { superblock, seq })
    }
}

impl RecoveredRegion {
    /// Writes the metadata to an empty file, for a new store.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn copy_to(&self, file: File, block_count: u64) -> Result<SnapshotHead, FsStoreError> {
        let superblock = fresh((block_count, self.memory.len() as u64))?;
        let mut writer = writer(&superblock, file)?;
        copy_memory(&self.memory, &mut writer)?;
        writer.finish(self.last_seq, CheckpointEnding::UnderWay)?;
        Ok(SnapshotHead { superblock, seq: self.last_seq })
    }
}

/// The blocks that have bytes, as metadata in a file say that [`FsSnapshots::begin`] or
/// [`RecoveredRegion::copy_to`] has written.
///
/// # Errors
/// [`FsStoreError`].
pub fn blocks_in_use(metadata: File, head: &SnapshotHead) -> Result<HeldBlocks, FsStoreError> {
    let SnapshotHead { superblock, seq } = head;
    let store = (&superblock.uuid, superblock.region_len);
    let memory = checkpoint::load_file((METADATA, disk::real(metadata)), store)?;
    HeldBlocks::of(&memory, *seq, superblock.block_count)
}

/// A store of its own: it has another number, and no run yet.
fn fresh((block_count, region_len): (u64, u64)) -> Result<Superblock, FsStoreError> {
    let (uuid, ended) = (random()?, Default::default());
    Ok(Superblock { uuid, block_count, region_len, epoch: 1, incarnation: 0, base: 0, ended })
}

fn writer(superblock: &Superblock, file: File) -> Result<CheckpointWriter, FsStoreError> {
    let store = (&superblock.uuid, superblock.region_len);
    CheckpointWriter::on((METADATA, disk::real(file)), store, FIRST)
}
