//! Compilers that run on other machines: the client's half and the server's.
//!
//! Nothing here preprocesses or reads a source. The client's half tells which command lines may run
//! elsewhere, shows servers the files that their compilers ask for, and lets wrappers run compilers
//! at home when nobody else can. On a server real compilers see the client's files at the client's
//! paths: as a FUSE file system whose names, attributes and contents are read out of the client's
//! memory, in sandboxes whose root it is. No job ever sees a file of the server's except those of
//! the toolchain that it was given.
//!
//! Modules in reading order: [`args`] (may this command line run remotely), [`toolchain`] (which
//! compiler that is), [`front`] (the manager's loop: wrappers, local slots, a farm), [`stats`]
//! (what happened), `protocol` (what both halves say), [`client`] (the farm of servers), [`view`]
//! (a client's files on a server), [`sandbox`] (where jobs run), [`server`] (who runs compilers for
//! whom).

#![deny(unsafe_code)]

pub mod args;
pub mod client;
pub mod front;
mod protocol;
pub mod sandbox;
pub mod server;
pub mod stats;
pub mod toolchain;
pub mod view;
