//! The service: a file system's region, with the bytes of its files beside it.
//!
//! What clients execute changes metadata, in the module `fs`; what that module cannot do, because
//! it reaches nothing but the region, is done here around its executions: bytes are written before
//! the execution that maps them, and read after the execution that says where they are. The
//! service's loop waits for no disk: threads do.
//!
//! Modules in reading order: `durable` (the store, by the region's commits), `pool` (reserved
//! blocks), `plan` (what a change comes to), `io` (what threads do), `opens` (who has what open),
//! `locks` (who has locked what), `entries` (what may be executed), `call` (a request that is
//! kept), `backend` (all of it), `reads`, `scan` and `scans` (files that are
//! looked through), `report`, `changes`, `batch` (many of them by one request),
//! `locking`, `housekeeping` (blocks, inodes that are gone), `modules` (those that it is made of),
//! `table` and `process` (the service's process).

mod backend;
mod batch;
mod call;
mod changes;
mod durable;
mod entries;
mod housekeeping;
mod io;
mod locking;
mod locks;
mod modules;
mod opens;
mod plan;
mod pool;
mod process;
mod reads;
mod report;
mod scan;
mod scans;
mod table;

pub use backend::{FsBackend, FsBackendOptions};
pub use modules::fs_module;
pub use process::{check_table, serve};
pub use report::FsCounters;
#[cfg(test)]
pub(crate) use scan::ModuleFinder;
