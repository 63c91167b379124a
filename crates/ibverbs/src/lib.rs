//! The C libraries libibverbs.so.1 and librdmacm.so.1 of rdma-core 39 to 56 on Outboard's verbs, so
//! that programs built for RDMA hardware run as they are.
//!
//! It translates C structures into values of [`outboard_verbs`] and back. It sends nothing over the
//! wire itself, except for `roce`, where queue pairs find each other by number. Every entry that
//! does more than name a constant goes through [`guard`]: invalid arguments are refused with an
//! errno, no panic reaches the program, and a thread cannot be cancelled inside the library.
//!
//! Modules in reading order: [`abi`] (layouts, generated from the headers), [`guard`], [`object`]
//! (what C pointers stand for), `say`, `fork`, [`config`] (the environment), `interface`,
//! [`device`], `adapter`, [`context`], [`pd`], [`mr`] with `holders`, `channel`, `cq`, `cq_ex`,
//! `srq`, `qp`, `post`, `queues` with `ledger`, `wr`, `query`, `events`, `ah`, `names`, `extras`,
//! `absent`, `cm` (librdmacm), `roce`, `record`.

#![deny(clippy::print_stderr)] // `say!` never fails.

#[macro_use]
mod say;

pub mod abi;
pub mod absent;
mod adapter;
pub mod ah;
pub mod channel;
pub mod cm;
pub mod config;
pub mod context;
pub mod cq;
pub mod cq_ex;
pub mod device;
pub mod events;
pub mod extras;
mod fork;
pub mod guard;
mod holders;
mod interface;
pub mod kernel;
mod ledger;
pub mod mr;
pub mod names;
pub mod object;
pub mod pd;
mod post;
pub mod qp;
pub mod query;
mod queues;
mod record;
mod roce;
pub mod srq;
mod stats;
mod turn;
pub mod wr;

#[cfg(test)]
mod tests;
