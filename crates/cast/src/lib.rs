//! `outboard cast`: files from one source on many machines, as relays pass them on while they
//! receive them.
//!
//! Paper: Fast Startup (Ohio Supercomputer Center, 2005), a tree of relays over RDMA.
//!
//! Opens no socket but in [`launch`]: its callers dial.
//!
//! Modules in reading order: [`tree`] (what is cast: a manifest and one stream of bytes in chunks),
//! [`sign`] (which chunks are genuine), [`receive`] (from chunks to files that appear whole),
//! [`schedule`] (which node sends which chunk to which), [`relay`] (one node's part in that),
//! [`protocol`] (what nodes say), `pause` (time that counts against no peer), `late` (nodes that
//! come late, and what they read), `member` (a relay over connections), `lazy` (files that are seen
//! before they are here), [`server`] (a node's service), [`source`] (the side that starts a cast),
//! [`launch`] (receivers that a cast starts).

#![forbid(unsafe_code)]

mod late;
pub mod launch;
mod lazy;
mod member;
mod pause;
pub mod protocol;
pub mod receive;
pub mod relay;
pub mod schedule;
pub mod server;
pub mod sign;
pub mod source;
pub mod tree;

pub use lazy::ShowMode;

#[cfg(test)]
#[path = "../../cluster/tests/support/sessions.rs"]
mod sessions;
