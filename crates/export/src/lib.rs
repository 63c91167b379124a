//! Files as read-only memory: a client shows what servers ask for, a server knows what was shown.
//!
//! The client's half, [`Export`], has one region of memory. Servers read it one-sided: a header, a
//! catalogue (an append-only log of what directories hold and where contents lie) and snapshots of
//! files. The server's half, [`Replica`], replays the catalogue and answers look-ups from it; what
//! it does not know it says how to ask for. What one server asked for, all of them know.
//!
//! A job that carries the position which [`Export::submit`] returned sees nothing older than its
//! submission, if its server has read the log that far. Contents are verified by their hash after
//! they were read: the ring that holds them may have been used again.
//!
//! Never opens a socket, starts a thread or waits for a reader. Never shows anything outside the
//! roots that were allowed, nor a name that begins with a dot.
//!
//! Modules in reading order: [`record`] (what the catalogue says), [`header`] and `log` (how it
//! lies in memory), [`replica`]; `path`, [`roots`], `fsys` and `watch` (the file system), `known`
//! `arena` and `pack` (what was published), [`export`] with `refresh` and `snapshot`; [`error`].

#![forbid(unsafe_code)]

mod arena;
pub mod error;
pub mod export;
mod fsys;
pub mod header;
mod known;
mod log;
mod pack;
pub mod path;
pub mod record;
mod refresh;
pub mod replica;
pub mod roots;
mod snapshot;
mod watch;

pub use error::{CatalogueError, ExportError};
pub use export::{Export, Sizes, Usage};
pub use header::{HEADER_LEN, Header};
pub use record::{Answer, Ask, Attr, Contents, Node, Position};
pub use replica::{Change, Listing, LookUp, Replica, Want};

#[cfg(test)]
mod tests;
