//! The active file system: a tree that lives in a node's region and is changed by executions next
//! to it, with the files' bytes beside it.
//!
//! It never serves a directory of the host.
//!
//! Modules in reading order: [`protocol`] (what both sides say), [`store`] (what outlives the
//! service's machine), `plan` (what changes of bytes come to), [`scan`] (files looked through line
//! by line), [`server`] (the service), [`client`] (the side that asks), `one_sided` (walks by
//! Reads), [`mount`] (a file system on a directory), [`tools`] (what people ask of whole trees),
//! [`map`] (a file's bytes as registered memory), [`copy`] (trees from this machine and back),
//! [`check`] (whether a store is as it should be), [`snapshot`] (copies of stores), [`replica`] (a
//! second server).

#![forbid(unsafe_code)]

pub mod check;
pub mod client;
pub mod copy;
pub mod map;
pub mod mount;
mod one_sided;
mod plan;
pub mod protocol;
pub mod replica;
pub mod scan;
pub mod server;
pub mod snapshot;
pub mod store;
pub mod tools;
