//! A cast that comes with its first message: a node takes it in one go, and answers that it has
//! published.
//!
//! Checks, staging, policies and publishing are those of every other cast. It needs no window, no
//! plan and no peer but the source.

use super::source_fault::SourceFault;
use super::storage::NodeStore;
use crate::protocol::OnlyChunk;
use crate::receive::PublishReport;
use crate::sign::ChunkHashes;
use std::sync::Arc;

/// Files that were published at once.
pub(crate) type TakenFiles = (Arc<NodeStore>, PublishReport);

/// Takes the run of a chunk that must be all of the cast, and checks the chunk.
pub(super) fn check(hashes: &ChunkHashes, only: &OnlyChunk) -> Result<(), SourceFault> {
    let chunks = hashes.header().shape.chunks();
    if chunks != 1 {
        return Err(SourceFault::NotOnly { chunks });
    }
    hashes.add_run(&only.run)?;
    hashes.verify(0, &only.bytes)?;
    Ok(())
}

impl NodeStore {
    /// Writes the only chunk, unless a broken cast has left it here, and publishes. Asks the disk.
    pub(super) fn take_at_once(self, only: &OnlyChunk) -> Result<TakenFiles, String> {
        self.take_only(&only.bytes)?;
        let report = self.publish()?;
        Ok((Arc::new(self), report))
    }
}
