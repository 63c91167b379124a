//! Snapshots: a copy of a whole store as of one commit, which is a store itself, and stores made of
//! such copies.
//!
//! Copies what is in the store, and interprets no more of it than which blocks are used. A copy is
//! made beside its target, in a directory that no server takes for a store, and has its name when
//! all of it is on the disk.
//!
//! Modules in reading order: `blocks` (copying them), `asking` (the store's server), `staging` (a
//! directory that is none yet).

mod asking;
mod blocks;
mod staging;

use crate::store::{FsStoreError, OpenedStore, SnapshotHead};
use asking::HeldSnapshot;
use staging::UnfinishedStore;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// How far a copy is.
#[derive(Debug, Default)]
pub struct SnapshotProgress {
    /// Bytes that were looked at, and are to be.
    pub bytes: AtomicU64,
    /// How many there are.
    pub all: AtomicU64,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMade {
    /// The last commit that is in it.
    pub commit: u64,
    /// Bytes of blocks that it has.
    pub bytes: u64,
    /// Whether they share their place on the disk with the store's.
    pub is_shared: bool,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Something is there.
    #[error("{} is there already: name something that is not", .0.display())]
    Exists(PathBuf),
    /// Nobody serves the store.
    #[error(
        "no server of {} answers on this machine ({source}): name the store of a server that runs \
        here, as its user; `outboard fs restore` copies a store that nobody serves",
        store.display()
    )]
    NoServer {
        /// The store.
        store: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The server cannot.
    #[error("the server makes no snapshot: {0}")]
    Refused(String),
    /// It ended meanwhile.
    #[error(
        "the server has ended while its blocks were copied, and the copy is removed: ask again \
        once it runs"
    )]
    Lost,
    /// This machine's disk.
    #[error("{}: {source}; the copy is removed", path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What is copied is no store, is in use, or is damaged.
    #[error(transparent)]
    Store(#[from] FsStoreError),
}

impl SnapshotError {
    fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Disk { path, source }
    }
}

/// Copies a store that a server of this machine serves, as of one commit, while changes go on.
///
/// # Errors
/// [`SnapshotError`]; then there is no copy.
pub fn take_snapshot(
    store: &Path,
    target: &Path,
    progress: &SnapshotProgress,
) -> Result<SnapshotMade, SnapshotError> {
    let staging = UnfinishedStore::make(target)?;
    let (held, head) = HeldSnapshot::begin(store, staging.metadata()?)?;
    let copied = blocks::copy_from(store, &staging, &head, progress)?;
    staging.sync()?;
    // Until now no block was written that the copy has.
    held.end()?;
    staging.finish(&head.superblock, store)?;
    Ok(SnapshotMade { commit: head.seq, ..copied })
}

/// Makes a new store of one that nobody serves, a snapshot usually, which stays as it is.
///
/// # Errors
/// [`SnapshotError`]; then there is no new store.
pub fn restore_snapshot(
    snapshot: &Path,
    store: &Path,
    progress: &SnapshotProgress,
) -> Result<SnapshotMade, SnapshotError> {
    let opened = OpenedStore::open(snapshot)?;
    let staging = UnfinishedStore::make(store)?;
    let head: SnapshotHead =
        opened.recover()?.copy_to(staging.metadata()?, opened.shape().block_count)?;
    let copied = blocks::copy_from(snapshot, &staging, &head, progress)?;
    staging.sync()?;
    staging.finish(&head.superblock, snapshot)?;
    Ok(SnapshotMade { commit: head.seq, ..copied })
}
