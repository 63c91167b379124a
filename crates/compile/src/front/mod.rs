//! The manager's front: wrappers on one side, a farm of servers on the other, local slots between.
//!
//! One thread, one epoll. It moves no sources and runs no compilers: a wrapper that is sent home runs
//! its compiler itself, and its open connection is the slot's token.
//!
//! Modules in reading order: `farm` (whoever takes jobs).

mod farm;

pub use farm::{Capacity, Farm, Finished, Ticket, Trace, Verdict};
