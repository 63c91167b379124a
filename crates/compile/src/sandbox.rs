//! Where jobs run: processes that see a slot of a [`crate::view::View`], a toolchain that is
//! bound into it read-only, and nothing else of this machine.
//!
//! For each client the service starts one *supervisor*: its own program again, single-threaded, in
//! user, mount, network, IPC and UTS namespaces of its own. The supervisor mounts the FUSE file
//! system there and hands the device back. For each slot it forks a *slot sandbox*: the first
//! process of a pid namespace, whose root is the slot's subtree. A slot sandbox runs one job at a
//! time and, when the job's main process has ended, kills the processes that it left.
//!
//! A job has no capability, cannot gain any, cannot make namespaces, sockets or mounts, and is
//! limited in memory, time, files and processes. The service never runs anything here as root.
//!
//! Modules in reading order: `job` (a job and its result), `channel` (messages between service,
//! supervisor and slot sandboxes), `start_watch` (whether a start hangs), `service` (the service's
//! half), `check` (whether this machine can run sandboxes), `child` (the supervisor's and the slot
//! sandboxes' half).

mod channel;
mod check;
mod child;
mod job;
mod service;
mod start_watch;

pub use check::{MissingFeature, check};
pub use child::supervisor_main;
pub use job::{FinishedJob, JobEnd, JobLimits, JobUsage, Object, SandboxJob};
pub use service::{
    Bind, Launch, SandboxError, SandboxSupervisor, SlotSandbox, SlotSandboxSpec, machine_links,
};
pub(crate) use start_watch::{HANG_MAX, StartWatch};
