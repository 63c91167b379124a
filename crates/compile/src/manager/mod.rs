//! The manager: it decides for every wrapper of a user whether its compiler runs on a server or
//! locally.
//!
//! It is one thread with one epoll. It moves no sources and runs no compilers: a wrapper that is
//! told to run locally executes its compiler itself and holds a local slot for as long as its
//! connection is open. With `OUTBOARD_CC_MODE=preprocess` a wrapper first preprocesses its source
//! in such a slot and hands the result over.
//!
//! Where a job runs:
//! - A job that may run remotely goes to the executor, unless the executor has no server.
//! - All other jobs wait for a local slot, in the order of their arrival.
//! - Short jobs that come one at a time, many in a row, run locally.
//! - A job that failed remotely waits for a local slot, too: its wrapper shows the local compiler's
//!   diagnostics.
//! - A job that no server has claimed for [`Settings::patience`] runs locally when a local slot is
//!   free and no other job waits for one, as long as the servers have few slots: then a local slot
//!   adds much to them. With many slots the local cores are better used for feeding the servers.
//!
//! Modules in reading order: `executor` (the trait of what runs jobs remotely), `run` (the loop),
//! `listener` (the socket for wrappers), `wrapper` (one wrapper's connection), `deciding` (threads
//! that look at a call's files), `source` (preprocessed sources), `slots` (local slots),
//! `one_by_one` (builds that wait for each job), `placing` (writes outputs to their paths),
//! `no_servers` (the executor without servers).

mod deciding;
mod executor;
mod listener;
mod no_servers;
mod one_by_one;
mod placing;
mod run;
mod slots;
mod source;
mod wrapper;

pub use executor::{Capacity, Finished, RemoteExecutor, Ticket, Trace, Verdict};
pub use listener::listen;
pub use no_servers::NoServers;
pub use outboard_cc::settle;
pub use placing::{OutputPlacement, PlaceError, Staged};
pub use run::{Manager, Settings};
pub use source::Preprocessed;

use std::io;

/// Why the manager cannot go on. This machine is at fault.
#[derive(Debug, thiserror::Error)]
#[error("the compile manager failed {doing}: {source}")]
pub struct ManagerError {
    /// What it was doing.
    doing: &'static str,
    /// The system's error.
    source: io::Error,
}

impl ManagerError {
    fn of(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self { doing, source: errno.into() }
    }
}
