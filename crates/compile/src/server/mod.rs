//! The server's side of the network: runs compilers for clients.
//!
//! Modules in reading order: `slot_allocator` (which client is asked for a job), `files` and
//! `fetch` (a client's files as the server knows them), `toolchains` (the compilers installed
//! here), `adopt` (compilers that a client supplies), `outputs` (the files that jobs make),
//! `client_sandbox` (where jobs run), `opening` (how that is started), `package` (results on their
//! way to the client), `sources` (preprocessed sources), `counters`, `session` (one client),
//! `service` (all clients), `entry` (the service's process).

mod adopt;
mod client_sandbox;
mod counters;
mod entry;
mod fetch;
mod files;
mod opening;
mod outputs;
mod package;
mod service;
mod session;
mod slot_allocator;
mod sources;
mod toolchains;

pub use entry::{check_table, serve};
pub use service::{ClientStatus, Options, Service, Status};
pub use toolchains::Programs;
