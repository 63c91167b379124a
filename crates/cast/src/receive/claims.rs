//! Chunks that may be here without being sent: left by a broken receiver, or in files that the same
//! identity has published. Each is hashed before it counts.

use super::error::ReceiveError;
use super::options::PublishMode;
use super::seeds::SeedFiles;
use super::shared::{ReceiverShared, ReceiverStage};
use crate::schedule::ChunkSet;
use crate::sign::ChunkHash;
use crate::tree::shown;
use std::sync::{MutexGuard, PoisonError};

impl ReceiverShared {
    pub(super) fn take_claims(&self) -> Option<ChunkSet> {
        self.claims().take()
    }

    /// Finds out which chunks may be here. Asks the disk.
    pub(super) fn claim(&self) {
        let mut claimed: ChunkSet =
            (0..self.bitmap.chunks()).filter(|&chunk| self.is_left(chunk)).collect();
        if self.options.publish != PublishMode::New {
            let shape = self.shape();
            claimed.unite(&match self.tree() {
                Some(tree) => {
                    let find = || SeedFiles::find(&tree, &self.options.identity);
                    self.seeds.get_or_init(find).chunks(&tree, shape)
                }
                None => (shape.manifest_chunks()..shape.chunks()).collect(),
            });
        }
        *self.claims() = Some(claimed);
    }

    pub(super) fn can_check(&self, chunk: u32) -> bool {
        let is_known = self.saved.has(chunk) || self.seeds.get().is_some();
        is_known && self.hashes.hash(chunk).is_some()
    }

    pub(super) fn check(&self, chunk: u32) -> Result<bool, ReceiveError> {
        let Some(hash) = self.hashes.hash(chunk).filter(|_| !self.bitmap.is_held(chunk)) else {
            return Ok(self.bitmap.is_held(chunk));
        };
        let checked = self.check_left(chunk, hash);
        match checked {
            Ok(false) => self.end_if_final(self.check_seeds(chunk, hash)),
            // What was published could never be written again: the next cast begins anew.
            Err(ReceiveError::Disturbed { .. }) => {
                self.end();
                checked
            }
            checked => self.end_if_final(checked),
        }
    }

    /// Whether a broken receiver has left a chunk.
    fn check_left(&self, chunk: u32, hash: ChunkHash) -> Result<bool, ReceiveError> {
        if !self.saved.has(chunk) {
            return Ok(false);
        }
        let (mut bytes, stage) = (Vec::new(), self.stage());
        let read = self.read_in(&stage, chunk, &mut bytes);
        if read.is_ok() && ChunkHash::of(&bytes) == hash {
            return self.note_held(stage, chunk).map(|()| true);
        }
        let ReceiverStage::Filling(tree) = &*stage else { return Ok(false) };
        let entry = tree.published_in(self.shape().range_of(chunk));
        let path = entry.map(|entry| shown(&tree.manifest().path(entry)));
        path.map_or(Ok(false), |path| Err(ReceiveError::Disturbed { path }))
    }

    /// Whether the destination has the bytes of a chunk; they are written if so.
    fn check_seeds(&self, chunk: u32, hash: ChunkHash) -> Result<bool, ReceiveError> {
        let (range, stage) = (self.shape().range_of(chunk), self.stage());
        let (ReceiverStage::Filling(tree), Some(seeds)) = (&*stage, self.seeds.get()) else {
            return Ok(false);
        };
        if !seeds.is_worth(tree, range.clone()) {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        let is_there = seeds.read(tree, range.clone(), &mut bytes) && ChunkHash::of(&bytes) == hash;
        seeds.note(tree, range.clone(), is_there);
        if is_there {
            tree.write(range.start, bytes.as_slice().into())?;
            self.note_held(stage, chunk)?;
        }
        Ok(is_there)
    }

    fn claims(&self) -> MutexGuard<'_, Option<ChunkSet>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
