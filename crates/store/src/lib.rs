//! Contents by their BLAKE3 hash, kept on disk under a quota across jobs, clients and restarts.
//!
//! ```text
//! DIR/ab/abcdef…          one file for each content, mode 0400, or 0500 for programs
//! DIR/ab/abcdef….chunks   the hashes of its chunks of 1 MiB, if it has several
//! DIR/ab/.…               a content that is being written
//! ```
//!
//! A file appears whole, by rename, and is hashed when a process first reads it: a corrupt file is
//! removed and treated as absent. Parts of large contents are verified by their chunks alone.
//! Several processes may share a directory: files that are written or pinned are locked, so that
//! abandoned files can be told from files that another process is writing. Small contents are also
//! kept in memory. If the disk is full or fails, the contents in memory are still served.
//!
//! Never decides which clients may have a content: knowing a hash grants nothing here. Never
//! changes a file.
//!
//! Modules in reading order: [`store`], [`writer`] and [`reader`] (contents of any length),
//! `queue` (contents that a thread writes), `chunks`, `disk`, `memory`, [`error`].
//!
//! # Examples
//!
//! ```
//! use outboard_store::{ContentKind, Store};
//!
//! let directory = tempfile::tempdir()?;
//! let store = Store::open(&directory.path().join("store"), 1 << 30)?;
//! let hash = *blake3::hash(b"int main;").as_bytes();
//! assert!(store.get(&hash).is_none());
//! store.put(&hash, b"int main;"[..].into(), ContentKind::Data)?;
//! assert_eq!(store.get(&hash).as_deref(), Some(&b"int main;"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod chunks;
mod disk;
pub mod error;
mod memory;
mod queue;
pub mod reader;
pub mod store;
pub mod writer;

pub use chunks::CHUNK_LEN;
pub use error::StoreError;
pub use queue::QUEUE_LEN_MAX;
pub use reader::ContentPin;
pub use store::{ContentHash, ContentKind, Store, StoreUsage, default_directory};
pub use writer::Writer;

#[cfg(test)]
mod tests;
