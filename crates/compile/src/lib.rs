//! Compilers that run on other machines: the client's half and the server's.
//!
//! Nothing here preprocesses or reads a source. The client's half tells which command lines may run
//! elsewhere, shows servers the files that their compilers ask for, and lets wrappers run compilers
//! at home when nobody else can; the server's half runs real compilers in sandboxes.
//!
//! Modules in reading order: [`args`] (may this command line run remotely), [`front`] (the manager's
//! loop: wrappers, local slots, a farm), [`stats`] (what happened), `protocol` (what both halves
//! say), `client` (the farm of servers), `server` (who runs compilers for whom).
//! Modules in reading order: [`args`] (may this command line run remotely), [`toolchain`] (which
//! compiler that is), [`front`] (the manager's loop: wrappers, local slots, the farm), [`stats`] (what
//! happened).

#![forbid(unsafe_code)]

pub mod args;
pub mod client;
pub mod front;
mod protocol;
mod server;
pub mod stats;
pub mod toolchain;
