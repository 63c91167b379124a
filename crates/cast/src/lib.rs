//! `outboard cast`: files from one source on many machines, as relays pass them on while they
//! receive them.
//!
//! Paper: Fast Startup (Ohio Supercomputer Center, 2005), a tree of relays over RDMA.
//!
//! Opens no socket. Modules in reading order: [`tree`] (what is cast: a manifest and one stream of
//! bytes in chunks), [`sign`] (which chunks are genuine).

#![forbid(unsafe_code)]

pub mod sign;
pub mod tree;
