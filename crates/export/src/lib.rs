//! Files as read-only memory: a client publishes the files that servers request.
//!
//! The client's half, [`Export`], has one region of memory. Servers read it one-sided: a header, a
//! metadata log (an append-only log of directory listings and of the locations of contents) and
//! snapshots of files. The server's half, [`Replica`], replays the metadata log and answers
//! look-ups from it; where it has no answer it says so, and the server sends the client an [`Ask`].
//! The log serves all servers: an answer that one of them requested is known to all.
//!
//! A job carries the position that [`Export::submit`] returned; if its server has read the log up
//! to there, the job sees no state older than its submission. Contents are verified by their hash
//! after they are read, because the ring that holds them may have been overwritten.
//!
//! Never opens a socket, starts a thread or waits for a reader. Never exports anything outside the
//! allowed roots, nor a name that begins with a dot.
//!
//! Modules in reading order: [`record`] (records of the metadata log), [`header`] and `log` (their
//! layout in memory), [`replica`]; `path`, [`roots`], `fsys`, `mounts` and `watch` (the file
//! system), `known`, `snapshot_ring` and `pack` (the published state), [`export`] with `refresh`
//! `snapshot` and `counters`; [`error`].

#![forbid(unsafe_code)]

mod counters;
pub mod error;
pub mod export;
mod fsys;
pub mod header;
mod known;
mod log;
mod mounts;
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
pub use header::{HEADER_LEN, Header};
pub use mounts::mount_of;
pub use record::{Answer, Ask, Attr, Contents, Node, Position};
pub use replica::{Change, Listing, LookUp, Replica, Want};

#[cfg(test)]
mod tests;
