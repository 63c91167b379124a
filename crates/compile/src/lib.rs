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
//! Distributed compilation, the server's half so far: real compilers see the client's files at
//! the client's paths, in a sandbox.
//! A client is shown as a FUSE file system ([`view::View`]) whose names, attributes and contents
//! come from a [`view::Source`]; each slot of the server has a subtree of its own, in which a
//! job's new files live in memory until they are collected. A job runs in a
//! [`sandbox::Cell`]: a process of its own user, mount, pid, network and IPC namespaces whose root
//! is that subtree.
//! Nothing here talks to the network, and no job ever sees a file of the server's except those of
//! the toolchain that it was given.
//! Modules in reading order: [`view`] (the client's files), [`sandbox`] (where jobs run).
#![deny(unsafe_code)]
pub mod sandbox;
pub mod view;
