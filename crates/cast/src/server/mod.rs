//! The service `cast` of a node: it receives casts below its administrator's roots, and relays.
//!
//! A cast is a session with its source, and links with other nodes of the cast, which this node
//! dials or is dialled by. A peer that has said nothing yet has nothing here but its permit.
//! Nothing here opens a socket or waits for a disk.
//!
//! Modules in reading order: `policy` (what is allowed), `options` and `entry` (table, start),
//! `service` (all casts, all peers), `session` (one cast), `check` (whether it can be done),
//! `room` (what there is for it), `source_fault` (what its source can do wrong), `plan` (its
//! plans), `at_once` (one of a single message),
//! `orphan` (one whose source has left), `late` (one that this node joins late), `lending` (nodes
//! that come late read from this one), `status` (its report), `storage` (its files),
//! `sweep` (what broken casts leave).

mod at_once;
mod check;
mod entry;
mod late;
mod lending;
mod options;
mod orphan;
mod plan;
mod policy;
mod room;
mod service;
mod session;
mod source_fault;
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
