//! The active file system: a tree that lives in a node's region and is changed by executions next
//! to it, with the files' bytes beside it.
//!
//! Modules in reading order: [`protocol`] (what both sides say), [`client`] (the side that asks).

#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
pub mod server;
