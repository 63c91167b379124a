//! The simulation of the paper "Active RDMA": what its discrete events are made of. Time is
//! simulated; nothing here knows how fast this machine is.
//!
//! Modules in reading order: [`kernel`] (events in the order of time), [`resource`] (what works at
//! one thing at a time), [`random`].

pub mod kernel;
pub mod random;
pub mod resource;
