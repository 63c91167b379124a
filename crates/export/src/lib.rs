//! Files as read-only memory: a client publishes the files that servers request.
//!
//! The client's half, [`Export`], has one region of memory. Servers read it one-sided: a header, a
//! metadata log (an append-only log of directory listings and of the locations of contents) and
//! snapshots of files. The server's half, [`Fetch`], says what to read there and what to ask the
//! client (an [`Ask`]); its [`Replica`] replays the metadata log and answers look-ups from it, and
//! says so where it has no answer. The log serves all servers: an answer that one of them requested
//! is known to all.
//!
//! What a client has a server do carries the position that [`Export::submit`] returned; if the
//! server has read the log up to there, it sees no state older than the submission. Contents are
//! verified by their hash after they are read, because the ring that holds them may have been
//! overwritten.
//!
//! Never opens a socket, starts a thread or waits for a reader. Never exports anything outside the
//! allowed roots. What is done with names that begin with a dot, its caller says ([`HiddenNames`]).
//!
//! Modules in reading order: [`record`] (records of the metadata log), [`header`] and `log` (their
//! layout in memory); [`replica`], [`mirror`] and [`fetch`] (the server's half);
//! `path`, [`roots`], `negative_entries`, `fsys`, `mounts` and `watch` (the file system), `known`,
//! `snapshot_ring` and `pack` (the published state), [`export`] with `refresh`, `snapshot` and
//! `counters` (the client's half); [`error`].

#![forbid(unsafe_code)]

mod counters;
pub mod error;
pub mod export;
pub mod fetch;
mod fsys;
pub mod header;
mod known;
mod log;
pub mod mirror;
mod mounts;
mod negative_entries;
mod pack;
pub mod path;
pub mod record;
mod refresh;
pub mod replica;
pub mod roots;
mod snapshot;
mod snapshot_ring;
mod watch;

pub use counters::ExportCounters;
pub use error::{ExportError, MetadataLogError};
pub use export::{Export, Sizes};
pub use fetch::{Fetch, FetchError, FetchFault, FetchRequest, Need};
pub use header::{ExportHeader, HEADER_LEN};
pub use mirror::Mirror;
pub use mounts::mount_of;
pub use path::HiddenNames;
pub use record::{Answer, Ask, Attr, Contents, FileNode, FileVersion, Position};
pub use replica::{Change, Listing, LookUp, Replica, Want};

#[cfg(test)]
mod tests;
