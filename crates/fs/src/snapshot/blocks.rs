//! Copying the blocks that metadata say are used: as one, where the disk's file system can have
//! files share their bytes, else one after the other.

use super::staging::UnfinishedStore;
use super::{SnapshotError, SnapshotMade, SnapshotProgress};
use crate::protocol::{BLOCK_LEN, FsBlocksRun};
use crate::store::{SnapshotHead, blocks_in_use};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Copies the blocks of a store to what is to be one, whose metadata are there.
pub(super) fn copy_from(
    store: &Path,
    staging: &UnfinishedStore,
    head: &SnapshotHead,
    progress: &SnapshotProgress,
) -> Result<SnapshotMade, SnapshotError> {
    let (from_path, to_path) = (store.join("data"), staging.data_path());
    let from = File::open(&from_path).map_err(SnapshotError::disk(&from_path))?;
    let to = staging.data()?;
    let len = head.superblock.block_count * BLOCK_LEN;
    let held = blocks_in_use(staging.written_metadata()?, head)?;
    let all = FsBlocksRun { start: 0, len: head.superblock.block_count };
    let runs = || held.parts(all).filter_map(|(run, is_taken)| is_taken.then_some(run));
    let bytes = runs().map(|run| run.len * BLOCK_LEN).sum();
    progress.all.store(bytes, Ordering::Relaxed);
    // Where it cannot be, the rest says why.
    let is_shared = rustix::fs::ioctl_ficlone(&to, &from).is_ok();
    to.set_len(len).map_err(SnapshotError::disk(&to_path))?;
    if !is_shared {
        let mut buffer = Vec::new();
        for run in runs() {
            copy_run((&from, &from_path), (&to, &to_path), run, (&mut buffer, progress))?;
        }
    }
    progress.bytes.store(bytes, Ordering::Relaxed);
    Ok(SnapshotMade { commit: head.seq, bytes, is_shared })
}

fn copy_run(
    (from, from_path): (&File, &Path),
    (to, to_path): (&File, &Path),
    run: FsBlocksRun,
    (buffer, progress): (&mut Vec<u8>, &SnapshotProgress),
) -> Result<(), SnapshotError> {
    let (mut at, end) = (run.start * BLOCK_LEN, (run.start + run.len) * BLOCK_LEN);
    while at < end {
        let len = PIECE.min(end - at);
        buffer.resize(usize::try_from(len).unwrap_or(0), 0);
        from.read_exact_at(buffer, at).map_err(SnapshotError::disk(from_path))?;
        // What is zero is a hole in a new file.
        if buffer.iter().any(|byte| *byte != 0) {
            to.write_all_at(buffer, at).map_err(SnapshotError::disk(to_path))?;
        }
        at += len;
        progress.bytes.fetch_add(len, Ordering::Relaxed);
    }
    Ok(())
}
