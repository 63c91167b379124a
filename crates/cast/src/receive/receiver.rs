//! A receiver: verified chunks go in, in any order and from several threads; complete files come
//! out.
//!
//! Until the manifest is complete, chunks are kept in one file at their places in the stream
//! (`head`). Then the tree is made with its space reserved, what came early is moved into it, and
//! every chunk after that is written straight where it belongs. What comes early needs its room
//! twice for a moment: schedules send the manifest first.

use super::bitmap::ChunkBitmap;
use super::error::ReceiveError;
use super::options::{Destination, ReceiveOptions};
use super::publish::PublishReport;
use super::read_back::ReadBack;
use super::shared::{AtOnce, ReceiverShared};
use super::staged_view::StagedView;
use crate::schedule::ChunkSet;
use crate::sign::{ChunkHashes, VerifiedChunk};
use crate::tree::TreeManifest;
use std::sync::Arc;

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It was written.
    Written,
    /// It was held already; nothing was written.
    Duplicate,
}

/// Receives one cast. If dropped before it has published, what it has stays for the next receiver
/// of the same cast by the same identity.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<ReceiverShared>,
}

impl Receiver {
    /// Begins, or resumes what a broken receiver has left: see [`Self::resume`].
    ///
    /// # Errors
    /// [`ReceiveError`]: the destination cannot be used, or the cast is larger than allowed.
    pub fn begin(
        destination: Destination,
        hashes: Arc<ChunkHashes>,
        options: ReceiveOptions,
    ) -> Result<Self, ReceiveError> {
        let shared = ReceiverShared::begin(destination, hashes, options)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Which chunks are held.
    #[must_use]
    pub fn bitmap(&self) -> &ChunkBitmap {
        self.shared.bitmap()
    }

    /// Serves what is held to others.
    #[must_use]
    pub fn read_back(&self) -> ReadBack {
        ReadBack { shared: Arc::clone(&self.shared) }
    }

    /// For a view of the tree; `None` while the manifest is not complete.
    pub(crate) fn staged_view(&self) -> Option<StagedView> {
        StagedView::new(&self.shared)
    }

    /// Where the names will appear.
    pub(crate) fn destination(&self) -> &Arc<Destination> {
        self.shared.staging.destination()
    }

    /// What tells this cast's hidden names at the destination from others'.
    pub(crate) fn hidden_suffix(&self) -> &str {
        self.shared.staging.suffix()
    }

    /// The manifest, once it is complete.
    #[must_use]
    pub fn with_manifest<T>(&self, look: impl FnOnce(&TreeManifest) -> T) -> Option<T> {
        self.shared.tree().map(|tree| look(tree.manifest()))
    }

    /// The chunks that may be here without being sent, when that has become known since the last
    /// call: what a broken receiver has left, and what this identity has published before. Until
    /// the manifest is complete, these are all whose files could be there.
    #[must_use]
    pub fn take_claims(&self) -> Option<ChunkSet> {
        self.shared.take_claims()
    }

    /// Chunks that a broken receiver may have left here, and that [`Self::check`] would look at.
    pub fn left_chunks(&self) -> impl Iterator<Item = u32> + '_ {
        let shared = &self.shared;
        (0..shared.bitmap().chunks()).filter(|&chunk| shared.is_left(chunk))
    }

    /// Whether [`Self::check`] can tell of a chunk: its run has come, and either a broken receiver
    /// has left it or the manifest is complete.
    #[must_use]
    pub fn can_check(&self, chunk: u32) -> bool {
        self.shared.can_check(chunk)
    }

    /// Reads and hashes what may be a chunk; returns whether it is held now. Its run must have
    /// come.
    ///
    /// # Errors
    /// [`ReceiveError::Disturbed`] when what had been published was changed: that ends the
    /// receiver; and those of [`Self::put`].
    pub fn check(&self, chunk: u32) -> Result<bool, ReceiveError> {
        self.shared.check(chunk)
    }

    /// Checks all that was left and whose runs have come; returns how many chunks are held then.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn resume(&self) -> Result<u32, ReceiveError> {
        let left: Vec<u32> = self.left_chunks().collect();
        left.into_iter().try_for_each(|chunk| self.check(chunk).map(drop))?;
        Ok(self.bitmap().held())
    }

    /// Writes a chunk. The one that completes the manifest takes as long as making the tree does.
    ///
    /// # Errors
    /// [`ReceiveError`]. After [`ReceiveError::NoSpace`], and when the source is at fault, nothing
    /// is left at the destination and the receiver has ended.
    pub fn put(&self, chunk: &VerifiedChunk<'_>) -> Result<PutOutcome, ReceiveError> {
        if chunk.header() != self.shared.hashes.id() {
            return Err(ReceiveError::OtherCast);
        }
        self.shared.end_if_final(self.shared.put(chunk.chunk(), chunk.bytes()))
    }

    /// As [`Self::put`], where it waits for no disk and no other thread.
    pub(crate) fn put_at_once(
        &self,
        chunk: &VerifiedChunk<'_>,
    ) -> AtOnce<Result<PutOutcome, ReceiveError>> {
        if chunk.header() != self.shared.hashes.id() {
            return AtOnce::Done(Err(ReceiveError::OtherCast));
        }
        self.shared.put_at_once(chunk.chunk(), chunk.bytes())
    }

    /// Gives attributes, then publishes each top-level name by one rename, or file by file when
    /// merging. After an error it can be tried again, but where the error has ended the receiver.
    ///
    /// # Errors
    /// [`ReceiveError::Incomplete`], [`ReceiveError::Exists`], [`ReceiveError::Conflict`],
    /// [`ReceiveError::Attribute`] and the file system's.
    pub fn publish(&self) -> Result<PublishReport, ReceiveError> {
        self.shared.publish()
    }

    /// Steps that are done of making the tree and of [`Self::publish`], among them one for each
    /// entry: they grow as long as that goes on. Asks no disk.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.shared.steps()
    }

    /// Ends the cast and removes all that was staged; nothing that was published.
    pub fn abandon(self) {
        self.shared.end();
    }
}

#[cfg(test)]
impl Receiver {
    /// Chunks of files that changed which were read at the destination.
    pub(super) fn seeds_read(&self) -> u32 {
        self.shared.seeds.get().map_or(0, super::seeds::SeedFiles::tries)
    }

    /// The staging directory's descriptor, which has the lock.
    pub(super) fn shared_staging_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.shared.staging.fd()
    }
}
