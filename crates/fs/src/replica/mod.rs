//! A second server's copy of a store, which follows the first one commit by commit, and becomes the
//! server when somebody says so.
//!
//! The replica has the same store on its disk: blocks come before the commits that have them, and
//! commits in their order, with the answers to their requests, so that a request that was executed
//! at the first server is not executed again at the second. While it is in step a commit is durable
//! when both have it. Whoever becomes the server has a later *epoch*: it is on the disk before
//! anything is served, clients remember it, and a server that meets a later one than its own ends
//! and is never started again. Who decides that the first server is gone is not here: people do.
//!
//! Modules in reading order: `messages` (what both say), `stream` (on a session), `ship` (the
//! server's side), `shipping` (how that goes), `held` (the replica's store), `incoming` (what it
//! cannot use yet), `place` (its directory), `follow` (a session of it), `node` (its process),
//! `fence` (the server that was replaced), [`ask`] (what people ask).

pub mod ask;
pub(crate) mod fence;
mod follow;
mod held;
mod incoming;
mod messages;
pub(crate) mod node;
mod place;
pub(crate) mod ship;
pub(crate) mod shipping;
mod stream;
#[cfg(test)]
mod tests;

pub use ask::{PromotedReplica, promote, replica_state};
pub use messages::ReplicaState;
pub use stream::ReplicaError;
