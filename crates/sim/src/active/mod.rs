//! The simulation of the paper "Active RDMA": clients, links, and a node whose core may be slower
//! than a host's. Modules are really executed, on a real region; only time is simulated: fuel,
//! messages and links become nanoseconds by [`costs`] that were measured. Nothing here knows how
//! fast this machine is.
//!
//! Modules in reading order: [`kernel`] (events in the order of time), [`resource`] and [`station`]
//! (what works at one thing at a time), [`random`], [`costs`], [`node`] (memory and executor),
//! [`operation`] (what clients ask, and their programs), then the programs: [`list`], [`table`],
//! [`lock`], [`scan`]; [`simulation`], and [`workload`] (the programs by name, on a node that is
//! ready for them).

pub mod costs;
pub mod kernel;
pub mod list;
pub mod lock;
pub mod node;
pub mod operation;
pub mod random;
pub mod resource;
pub mod scan;
pub mod simulation;
pub mod station;
pub mod table;
pub mod workload;
