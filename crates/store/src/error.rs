//! Errors of a store. After each of them the caller still has its bytes.

use std::io;
use std::path::PathBuf;

/// Why a store cannot be used, or does not keep a content.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// This machine: no directory was given, and the environment names none.
    #[error("no directory is known for a store: set XDG_CACHE_HOME or HOME, or name a directory")]
    NoPlace,
    /// This machine: the directory cannot be made or read.
    #[error("the store {} cannot be used: {source}; name a directory of your own", dir.display())]
    Directory {
        /// The store's directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// This machine: other users could put files there.
    #[error(
        "the store {} belongs to user {owner} and has mode {mode:03o}: it must be user {user}'s \
         and writable to nobody else", dir.display()
    )]
    Exposed {
        /// The store's directory.
        dir: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// Caller: the bytes do not have the given hash.
    #[error("caller stores {len} bytes under a hash that is not theirs")]
    WrongHash {
        /// Their length in bytes.
        len: usize,
    },
    /// Caller: the content is larger than the quota of the store.
    #[error("caller stores {len} bytes where {quota} are allowed: raise the store's quota")]
    TooLarge {
        /// Its length in bytes.
        len: u64,
        /// The quota in bytes.
        quota: u64,
    },
    /// This machine: the disk is full.
    #[error("no room for {len} bytes in {}: free some, or lower the store's quota", dir.display())]
    DiskFull {
        /// The store's directory.
        dir: PathBuf,
        /// The length of the content in bytes.
        len: u64,
    },
    /// This machine: a file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
