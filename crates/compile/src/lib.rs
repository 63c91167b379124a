//! Compilers that run elsewhere: which command lines may, with what, and who takes them.
//!
//! The client's half knows no network: [`front`] is a loop over one Unix socket that hands jobs to
//! a [`Farm`](front::Farm), whatever that is, and lets wrappers run compilers at home when it
//! cannot. Nothing here preprocesses or reads a source.
//!
//! Modules in reading order: [`args`] (may this command line run remotely), [`toolchain`] (which
//! compiler that is), [`front`] (the manager's loop: wrappers, local slots, the farm), [`stats`]
//! (what happened).

#![forbid(unsafe_code)]

pub mod args;
pub mod front;
pub mod stats;
pub mod toolchain;
