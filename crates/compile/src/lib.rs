//! Compilers that run on other machines: the client's half and the server's.
//!
//! Nothing here preprocesses or parses a source. The client's half decides which command lines may
//! run remotely, exports the files that remote compilers read, and has wrappers run compilers
//! locally when no server can. On a server, real compilers run in sandboxes and see the client's
//! files at the client's paths: the root of each sandbox is a FUSE file system whose names,
//! attributes and contents are read out of the client's memory. A job sees none of the server's
//! own files except those of its toolchain.
//!
//! Modules in reading order: [`args`] (whether a command line may run remotely), [`toolchain`] (the
//! identity of a compiler), [`manager`] (the client's loop: wrappers, local slots, an executor),
//! [`stats`] (counters and the timeline), `running_time` (limits that a pause does not
//! use up), `protocol` (messages between client and server),
//! [`client`] (the executor that hands jobs to servers), [`view`] (a client's files on a server),
//! [`sandbox`] (where jobs run), [`server`] (the service that runs jobs).

#![deny(unsafe_code)]

pub mod args;
pub mod client;
pub mod manager;
mod protocol;
mod running_time;
pub mod sandbox;
pub mod server;
pub mod stats;
pub mod toolchain;
pub mod view;
