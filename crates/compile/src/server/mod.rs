//! The server's side of the network: who runs compilers for whom.
//!
//! Modules in reading order: `roster` (who is asked for work), `files` and `fetch` (what is known
//! of a client's files), `toolchains` (which compilers there are), `adopt` (those that a client
//! brings along), `outputs` (what
//! jobs make), `room` (where they run), `package` (what goes back), `sources` (preprocessed
//! ones), `session` (one client), `service` (all of them), `entry` (its process).

mod adopt;
mod entry;
mod fetch;
mod files;
mod outputs;
mod package;
mod room;
mod roster;
mod service;
mod session;
mod sources;
mod toolchains;

pub use entry::serve;
pub use service::{ClientStatus, Options, Service, Status};
pub use toolchains::Programs;
