//! Chunks as memory, for nodes that read them one-sided: out of a mapping of the file that a chunk
//! lies in, or out of a copy where it lies in several files.
//!
//! Lends what is held and nothing else. Who may read it, and for how long, the caller decides; a
//! file that is published belongs to its owner, who may change or shorten it, so that the reader
//! checks each chunk. Pages are looked at before they are lent: what serves the memory must not
//! wait for a disk.

use super::error::ReceiveError;
use super::files::StagedTree;
use super::read_back::ReadBack;
use super::shared::ReceiverStage;
use crate::tree::{StreamPiece, shown};
use outboard_verbs::{SharedRegion, SharedSlice};
use rustix::io::Errno;
use std::ops::Range;

/// A mapping begins at a multiple of this many bytes, whatever the machine's pages are.
const MAP_GRAIN: u64 = 64 << 10;
/// Bytes of a page, or less: each page is looked at once.
const PAGE: usize = 4096;

/// A chunk's bytes.
#[derive(Debug)]
pub(crate) struct LentMemory {
    /// All of them and nothing else.
    pub(crate) slice: SharedSlice,
    /// How many were copied into memory for it.
    pub(crate) copied_bytes: u64,
}

impl ReadBack {
    /// A chunk as memory; `None` if it would have to be copied, and has more bytes than `room`.
    /// Asks the disk.
    ///
    /// # Errors
    /// [`ReceiveError::NotHeld`]; [`ReceiveError::Disturbed`] when its file is not there any more,
    /// or shorter; this machine's.
    pub(crate) fn lend(&self, chunk: u32, room: u64) -> Result<Option<LentMemory>, ReceiveError> {
        if !self.bitmap().is_held(chunk) {
            return Err(ReceiveError::NotHeld { chunk });
        }
        let stage = self.shared.stage();
        let range = self.shared.shape().range_of(chunk);
        if let ReceiverStage::Filling(tree) = &*stage
            && let Some((entry, range)) = only_file(tree, range)
        {
            let slice = view(tree, entry, range)?;
            return Ok(Some(LentMemory { slice, copied_bytes: 0 }));
        }
        let copied_bytes = self.shared.shape().len_of(chunk) as u64;
        if copied_bytes > room {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.shared.read_in(&stage, chunk, &mut bytes)?;
        let slice = copy(&bytes).ok_or_else(|| ReceiveError::write(b"chunk", Errno::NOMEM))?;
        Ok(Some(LentMemory { slice, copied_bytes }))
    }
}

fn copy(bytes: &[u8]) -> Option<SharedSlice> {
    let region = SharedRegion::zeroed(bytes.len()).ok()?;
    region.copy_in(0, bytes).ok()?;
    region.slice(0..bytes.len()).ok()
}

/// The file that all of a part of the stream lies in, and where.
fn only_file(tree: &StagedTree, range: Range<u64>) -> Option<(u32, Range<u64>)> {
    let mut pieces = tree.manifest().pieces(range);
    match (pieces.next(), pieces.next()) {
        (Some(StreamPiece::File { entry, offset, len }), None) => {
            Some((entry, offset..offset + len as u64))
        }
        _ => None,
    }
}

/// Maps a part of a file.
fn view(tree: &StagedTree, entry: u32, range: Range<u64>) -> Result<SharedSlice, ReceiveError> {
    let disturbed = || ReceiveError::Disturbed { path: shown(&tree.manifest().path(entry)) };
    let file = tree.open_to_read(entry).map_err(|_| disturbed())?;
    let start = range.start - range.start % MAP_GRAIN;
    let region = SharedRegion::view_file(&file, start..range.end).map_err(|_| disturbed())?;
    let begin = usize::try_from(range.start - start).unwrap_or(usize::MAX);
    let mut seen = Vec::new();
    for at in (begin..region.len()).step_by(PAGE).chain(region.len().checked_sub(1)) {
        seen.clear();
        region.append_to(at..at + 1, &mut seen).map_err(|_| disturbed())?;
    }
    region.slice(begin..region.len()).map_err(|_| disturbed())
}
