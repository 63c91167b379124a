//! Where jobs run: processes that see a slot of a [`crate::view::View`], a toolchain that is
//! bound into it read-only, and nothing else of this machine.
//!
//! For each client the service starts one *anchor*: its own program anew, single-threaded, in
//! user, mount, network, IPC and UTS namespaces of its own, where it mounts the FUSE file system
//! and hands the device back. For each slot the anchor forks a *cell*: the first process of a pid
//! namespace, whose root is the slot's subtree. A cell starts one job after the other, waits, and
//! kills what is left.
//!
//! A job has no capability, cannot gain any, cannot make namespaces, sockets or mounts, and is
//! limited in memory, time, files and processes. The service never runs anything here as root.
//!
//! Modules in reading order: `job` (what is asked for and what comes of it), `channel` (messages
//! between service, anchor and cells), `service` (the service's half), `check` (is all of this to
//! be had on this machine?), `child` (the anchor's and the cells' half).

mod channel;
mod check;
mod child;
mod job;
mod service;

pub use check::{Missing, check};
pub use child::anchor_main;
pub use job::{End, Ended, Job, Limits, Usage};
pub use service::{Anchor, Bind, Cell, CellSpec, Launch, SandboxError, machine_links};
