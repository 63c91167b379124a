//! The service: a file system's region, with the bytes of its files beside it.
//!
//! What clients execute changes metadata, in the module `fs`; what that module cannot do, because
//! it reaches nothing but the region, is done here around its executions: bytes are written before
//! the execution that maps them, and read after the execution that says where they are. The
//! service's loop waits for no disk: threads do.
//!
//! Modules in reading order: `durable` (the store, by the region's commits), `pool` (reserved
//! blocks), `io` (what threads do), `opens` (who has what open), `grants` (what an opening may),
//! `mapping` (who may map), `lingering` (what is about to be opened, perhaps), `locks` (who has
//! locked what), `leases` (who keeps what), `entries` (what may be executed), `accounts` (for
//! whom), `call` (a request that is kept), `report`, `backend` (all of it), `admission`, `opening`,
//! `reads`, `scan` and `scans` (files that are looked through), `hashes` (of files), `changes`,
//! `batch` (many of them by one request), `locking`, `leasing`, `housekeeping` (blocks, inodes that
//! are gone), `quotas` (who pays), `modules` (those that it is made of), `snapshots` (what the
//! operator asks), `volatile` (without a store), `table` and `process` (the service's process).

mod accounts;
mod admission;
mod backend;
mod batch;
mod call;
mod changes;
mod durable;
mod entries;
mod grants;
mod group;
mod hashes;
mod housekeeping;
mod io;
mod leases;
mod leasing;
mod lingering;
mod locking;
mod locks;
mod mapping;
mod modules;
mod opening;
mod opens;
mod pool;
mod process;
mod quotas;
mod reads;
mod report;
mod scan;
mod scans;
pub(crate) mod snapshots;
mod table;
mod volatile;

pub use accounts::{BoundUser, GroupSource, IdentityQuota, UserRules};
pub use backend::{FsBackend, FsBackendOptions};
#[cfg(test)]
pub(crate) use modules::MODULES;
pub use modules::fs_module;
pub(crate) use process::LOCK_MARKER;
pub use process::{check_table, serve};
pub use report::FsCounters;
#[cfg(test)]
pub(crate) use scan::ModuleFinder;
