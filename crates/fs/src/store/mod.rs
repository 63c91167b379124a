//! What outlives the service and its machine: a directory with the bytes of files, a log of the
//! commits of the region of metadata, and two checkpoints of that region in turn.
//!
//! ```text
//! DIR/superblock      what the store is: its number, its sizes, its epoch
//! DIR/role            what it is to other servers, where it is not one of its own
//! DIR/lock            locked by the one process that has the store open
//! DIR/data            the blocks, sparse
//! DIR/log.NNNNNNNN    segments of the log; the last one is written, or waits to be
//! DIR/checkpoint.0|1  the region as of one commit, in turn
//! ```
//!
//! Commits have a number, the *store's*, which goes on over restarts; the region's own begins at 0
//! with each journal ([`FsStore::seq_of`]). A commit is durable when it can be found again after a
//! power cut, with all bytes that were written to [`FsStore::data`] before it.
//!
//! ```text
//! OpenedStore::open(DIR)                            locked, nothing read but the superblock
//!   kept memory:    .adopt(region, incarnation)     the memory is newer than the log
//!   else:           .recover() -> RecoveredRegion   newest checkpoint, and the log behind it
//!                   .start(recovered, region, incarnation)
//! FsStore                                           want, wait, durable, data, close
//! ```
//!
//! Never interprets what it keeps, and knows no network. After an error of the disk nothing is
//! acknowledged any more: pages that could not be written are not written by asking again.
//!
//! Modules in reading order: [`error`], [`disk`] (all calls that change a file), [`superblock`],
//! [`role`] (what it is to others), [`directory`] (making and opening a store), [`record`] (the
//! log's bytes), `segments` (its files), [`log`] (its thread), [`feed`] (what a replica lacks),
//! [`data`], [`checkpoint`], `keeper` (its thread), [`recover`], [`running`] (a store in use),
//! [`snapshot`].

pub mod checkpoint;
pub mod data;
pub mod directory;
pub mod disk;
pub mod error;
pub mod feed;
mod keeper;
pub mod log;
pub mod record;
pub mod recover;
pub mod role;
pub mod running;
mod segments;
pub mod snapshot;
pub mod superblock;

pub use data::{BLOCK_LEN, DataFile};
pub use directory::{OpenedStore, StoreShape};
pub use error::{FsStoreError, StoreFailure};
pub use feed::{CommitGroup, FeedParcel, ReplicaFeed};
pub use log::SyncMode;
pub use recover::RecoveredRegion;
pub use running::{FsStore, FsStoreOptions, FsStoreStatus, StoreFeed};
pub use snapshot::{FsSnapshots, HeldBlocks, SnapshotHead, SnapshotHold, blocks_in_use};

/// Makes a store of a directory whose other files are whole: the last thing that is done.
///
/// # Errors
/// [`FsStoreError`].
pub fn complete(
    dir: &std::path::Path,
    superblock: &superblock::Superblock,
) -> Result<(), FsStoreError> {
    let disk = disk::RealDisk::open(dir)
        .map_err(|source| FsStoreError::of(&dir.display().to_string(), source))?;
    directory::write_superblock(&disk, superblock)
}

#[cfg(test)]
mod tests;
