//! Distributed compilation, the server's half so far: real compilers see the client's files at
//! the client's paths, in a sandbox.
//!
//! A client is shown as a FUSE file system ([`view::View`]) whose names, attributes and contents
//! come from a [`view::Source`]; each slot of the server has a subtree of its own, in which a
//! job's new files live in memory until they are collected. A job runs in a
//! [`sandbox::Cell`]: a process of its own user, mount, pid, network and IPC namespaces whose root
//! is that subtree.
//!
//! Nothing here talks to the network, and no job ever sees a file of the server's except those of
//! the toolchain that it was given.
//!
//! Modules in reading order: [`view`] (the client's files), [`sandbox`] (where jobs run).

#![deny(unsafe_code)]

pub mod sandbox;
pub mod view;
