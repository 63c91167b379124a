//! liboutboard_active.so.1: the client of active code for programs in C.
//!
//! It translates C arguments into calls of [`outboard_active::ActiveClient`] and outcomes back; it
//! decides nothing that a client in Rust would not. What C programs may rely on stands in
//! `include/outboard_active.h`, which is the one place for that. No panic and no cancellation of a
//! thread crosses its border; a client is a number in a table, never a pointer that is followed.
//!
//! Modules in reading order: [`abi`] (structures and constants), [`status`], [`guard`] (around
//! every entry), [`args`] (pointers from C), [`table`] (clients, and fork), [`client`] (entries:
//! open, close), [`region`], [`module`], [`execute`].

pub mod abi;
pub mod args;
pub mod client;
pub mod execute;
pub mod guard;
pub mod module;
pub mod region;
pub mod status;
pub mod table;
