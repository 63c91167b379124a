//! The server's side of the network: runs compilers for clients.
//!
//! Modules in reading order: `slot_allocator` (which client is asked for a job), `files` (a
//! client's files, as views ask for them), `toolchains` (the compilers installed
//! here), `adopt` (compilers that a client supplies), `background` (what threads do for a client),
//! `outputs` (the files that jobs make),
//! `client_sandbox` (where jobs run), `opening` (how that is started), `package` (results on their
//! way to the client), `sources` (preprocessed sources), `stage` (the stages of a job), `session`
//! (one client), `counters`, `service` (all clients), `entry` (the service's process).

mod adopt;
mod background;
mod client_sandbox;
mod counters;
mod entry;
mod files;
mod opening;
mod outputs;
mod package;
mod service;
mod session;
mod slot_allocator;
mod sources;
mod stage;
mod toolchains;

pub use entry::{check_table, serve};
pub use service::{ClientStatus, CompileService, ServiceOptions, ServiceStatus};
pub use toolchains::Programs;
