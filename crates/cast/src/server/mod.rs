//! The service `cast` of a node: it receives casts below its administrator's roots, and relays.
//!
//! A cast is a session with its source, and links with other nodes of the cast, which this node
//! dials or is dialled by. A peer that has said nothing yet has nothing here but its permit.
//! Nothing here opens a socket or waits for a disk.
//!
//! Modules in reading order: `policy` (what is allowed), `options` and `entry` (table, start),
//! `service` (all casts, all peers), `session` (one cast), `at_once` (one of a single message),
//! `orphan` (one whose source has left), `late` (one that this node joins late), `lending` (nodes
//! that come late read from this one), `status` (what is said of it), `storage` (its files),
//! `sweep` (what broken casts leave).

mod at_once;
mod entry;
mod late;
mod lending;
mod options;
mod orphan;
mod policy;
mod service;
mod session;
mod status;
mod storage;
mod sweep;
#[cfg(test)]
mod tests;

pub use crate::member::DialNode;
pub(crate) use at_once::TakenFiles;
pub use entry::{check_table, serve};
pub use options::CastServiceOptions;
pub use policy::{CastPolicy, CastRoot};
pub use service::{CastService, CastServiceStatus};
pub use status::CastStatus;
pub(crate) use storage::NodeStore;
