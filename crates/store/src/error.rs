//! What can go wrong with a store. None of it loses what the caller holds.

use std::io;
use std::path::PathBuf;

/// A store cannot be used, or does not keep something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// This machine: nobody said where, and the environment does not tell.
    #[error("there is no place for a store: set XDG_CACHE_HOME or HOME, or name a directory")]
    NoPlace,
    /// This machine: the directory cannot be made or read.
    #[error("the store {} cannot be used: {source}; name a directory of your own", dir.display())]
    Directory {
        /// The store's directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// This machine: others could put files there.
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
    /// Caller: the bytes are not what the hash names.
    #[error("caller stores {len} bytes under a hash that is not theirs")]
    WrongHash {
        /// How many bytes they are.
        len: usize,
    },
    /// Caller: more than the whole store may hold.
    #[error("caller stores {len} bytes where {quota} are allowed: raise the store's quota")]
    TooLarge {
        /// How many bytes they are.
        len: u64,
        /// How many bytes a store may hold.
        quota: u64,
    },
    /// This machine: no room on the disk.
    #[error("no room for {len} bytes in {}: free some, or lower the store's quota", dir.display())]
    DiskFull {
        /// The store's directory.
        dir: PathBuf,
        /// How many bytes they are.
        len: u64,
    },
    /// This machine: a file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
