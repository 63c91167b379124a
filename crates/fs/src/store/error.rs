//! Why a store is not opened, and why it has failed.

use outboard_mem::MemError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a store cannot be made, opened or recovered.
#[derive(Debug, thiserror::Error)]
pub enum FsStoreError {
    /// There is no superblock.
    #[error("{} is no store of `outboard fs`: name one, or make one there by giving its size",
        dir.display())]
    NotAStore {
        /// The directory.
        dir: PathBuf,
    },
    /// A store is to be made where something else is.
    #[error("{} has files of something else ({found}): name an empty directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// One of them.
        found: String,
    },
    /// Another release has made it.
    #[error(
        "the store has version {found}, this release reads {expected}: use the release that \
        has made it, or export from there and import here"
    )]
    OtherVersion {
        /// Its version.
        found: u32,
        /// The one that is read.
        expected: u32,
    },
    /// It has other sizes than the caller says.
    #[error(
        "the store has {found} {what}, not {wanted}: leave the size out, or make another store"
    )]
    OtherShape {
        /// What of it.
        what: &'static str,
        /// The store's.
        found: u64,
        /// The caller's.
        wanted: u64,
    },
    /// The sizes make no store.
    #[error("a store cannot have {found} {what}: {limits}")]
    Shape {
        /// What of it.
        what: &'static str,
        /// What the caller says.
        found: u64,
        /// What it may be.
        limits: &'static str,
    },
    /// Bytes are not those that were written.
    #[error(
        "the store's {file} is damaged: {what}; the disk has changed it, or somebody has. \
        Promote a replica, or restore a snapshot"
    )]
    Damaged {
        /// Which file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// Another process has it open.
    #[error("{} is in use by another process: stop that server first", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system refuses changes, or this user may make none.
    #[error(
        "{file} cannot be written ({source}): serve the store as its owner, from a file system \
        that is mounted for writing"
    )]
    ReadOnly {
        /// Which file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The disk is full.
    #[error(
        "there is no space for {file} ({source}): free some on the store's disk, and start again"
    )]
    NoSpace {
        /// Which file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The disk, or the file system on it.
    #[error("{file}: {source}")]
    Disk {
        /// Which file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// One snapshot at a time.
    #[error(
        "another copy of the store is being made, by a snapshot or for its replica: ask again \
        when that is over"
    )]
    SnapshotUnderWay,
    /// Memory that was kept is not that of this store.
    #[error("the memory that was kept is of another store or of another run: it is not used")]
    OtherMemory,
    /// The region is told to somebody else.
    #[error("the region has a store already: open one store for each")]
    Observed,
    /// This machine's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The store was open and has failed.
    #[error(transparent)]
    Failed(#[from] StoreFailure),
}

impl FsStoreError {
    /// What the system says of a file.
    pub(super) fn of(file: &str, source: io::Error) -> Self {
        let file = file.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { file, source }
            }
            io::ErrorKind::FileTooLarge => Self::NoSpace { file, source },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { file, source }
            }
            _ => Self::Disk { file, source },
        }
    }

    pub(super) fn damaged(file: &str, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), what: what.into() }
    }
}

/// Why a store that was open acknowledges nothing any more. It stays so until it is opened again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The disk, or no space on it.
    #[error("the store has failed: {0}. What was not acknowledged may be lost")]
    Disk(Arc<FsStoreError>),
    /// Commits came faster than the disk takes them, and nobody held them back.
    #[error(
        "the store has failed: {pending} bytes of commits waited for the disk, at most {limit} \
        may; the service went on when it was told to wait"
    )]
    Overrun {
        /// Bytes that waited.
        pending: usize,
        /// Bytes that may.
        limit: usize,
    },
    /// A thread of the store has ended by itself.
    #[error("the store has failed by a fault of Outboard's own: please report what the log says")]
    Fault,
    /// It was closed while somebody waited.
    #[error("the store is closed")]
    Closed,
}
