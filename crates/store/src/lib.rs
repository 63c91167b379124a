//! Contents by their BLAKE3 hash, kept on disk under a quota across jobs, clients and restarts.
//!
//! ```text
//! DIR/ab/abcdef…   one file for each content, mode 0400, or 0500 for programs
//! DIR/ab/.…        one that is being written
//! ```
//!
//! A file appears whole, by rename, and is hashed when a process first reads it: what is corrupt is
//! removed and was never there. Several processes may share a directory. Small contents are kept in
//! memory besides. A disk that is full, or gone, costs nothing but the disk's share.
//!
//! Never decides who may have a content: knowing a hash grants nothing here. Never changes a file.
//!
//! Modules in reading order: [`store`], `disk`, `memory`, [`error`].
//!
//! # Examples
//!
//! ```
//! use outboard_store::{Kind, Store};
//!
//! let directory = tempfile::tempdir()?;
//! let store = Store::open(&directory.path().join("store"), 1 << 30)?;
//! let hash = *blake3::hash(b"int main;").as_bytes();
//! assert!(store.get(&hash).is_none());
//! store.put(&hash, b"int main;"[..].into(), Kind::Data)?;
//! assert_eq!(store.get(&hash).as_deref(), Some(&b"int main;"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod disk;
pub mod error;
mod memory;
pub mod store;

pub use error::StoreError;
pub use store::{Hash, Kind, Store, Usage, default_directory};

#[cfg(test)]
mod tests;
