//! The manager's front: wrappers on one side, a farm of servers on the other, local slots between.
//!
//! One thread, one epoll. It moves no sources and runs no compilers: a wrapper that is sent home
//! runs its compiler itself, and its open connection is the slot's token. With
//! `OUTBOARD_CC_MODE=preprocess` a wrapper preprocesses first, in such a slot, and hands over what
//! came of it.
//!
//! Who runs what:
//! - A job that may run elsewhere goes to the farm, unless the farm has no server.
//! - Everything else waits for a local slot, in the order in which it came.
//! - A job that failed remotely waits for a local slot, too: what its wrapper shows is what the
//!   compiler says here.
//! - A job that no server has claimed for [`Settings::patience`] is taken home when a local slot is
//!   free and nobody waits for it, as long as the farm is small: there, a slot at home is a good
//!   part of all slots. With a large farm the machine's cores are better spent on feeding it.
//!
//! Modules in reading order: `farm` (whoever takes jobs), `run` (the loop), `door` (who may come
//! in), `client` (one wrapper), `source` (preprocessed ones), `slots` (bounded work at home),
//! `placing` (outputs into their places), `nobody` (a farm without servers).

mod client;
mod door;
mod farm;
mod nobody;
mod placing;
mod run;
mod slots;
mod source;

pub use door::{listen, settle};
pub use farm::{Capacity, Farm, Finished, Ticket, Trace, Verdict};
pub use nobody::Nobody;
pub use placing::{PlaceError, Placement, Staged};
pub use run::{Front, Settings};
pub use source::Preprocessed;

use std::io;

/// Why the manager cannot go on. All are this machine's.
#[derive(Debug, thiserror::Error)]
#[error("the compile manager {doing}: {source}")]
pub struct FrontError {
    /// What it was about to do.
    doing: &'static str,
    /// What the system said.
    source: io::Error,
}

impl FrontError {
    fn of(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self { doing, source: errno.into() }
    }
}
