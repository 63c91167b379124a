//! Memory that peers may read and write, and the table that says which of it they may.
//!
//! This crate is the unsafe floor of Outboard: it turns raw memory into two safe kinds,
//! [`OwnedBuf`] (exclusive, ordinary bytes) and [`SharedRegion`] (remotely accessible, never a
//! `&[u8]`), and lets an STag reach a region only after the checks of RFC 5041 §7.1.
//! It never touches a socket, a thread, a clock or the wire format, and computes no CRC.
//! It is sound whatever safe code or a peer does; forgetting a [`Placement`] can make a
//! deregistration wait for ever, but never lets memory be used after it is gone.
//!
//! Modules in reading order: [`owned`], `racy` (the only racy accesses, one file per processor),
//! `file` (files to be mapped), [`mapping`], [`shared`] (with its `gate`, which keeps writes out
//! for a moment, and `lazy`, pages that are fetched when touched), [`mod@slice`], [`sg`],
//! [`access`], `slot` (pin and close), [`stag`], [`reservation`] (addresses for code that has only
//! addresses of its own), [`ring`] (messages between two processes), [`xdp`] (what sockets of
//! AF_XDP share with the kernel), [`error`].

// `loom` and `outboard_bytewise` are set through RUSTFLAGS: the first for the model checker, the
// second to replace assembly by plain atomics that AddressSanitizer can see.
#![allow(unexpected_cfgs)]

pub mod access;
pub mod error;
mod file;
pub mod mapping;
pub mod owned;
mod racy;
pub mod reservation;
pub mod ring;
pub mod sg;
pub mod shared;
pub mod slice;
mod slot;
pub mod stag;
pub mod xdp;

pub use access::{Access, PdId};
pub use error::{AccessError, MemError};
pub use mapping::{Rights, SecondMapping};
pub use owned::OwnedBuf;
pub use reservation::Reservation;
pub use sg::{Segment, SgList};
pub use shared::{ClosedGate, DirectWrite, LazyFill, SharedRegion, Space, Span};
pub use slice::SharedSlice;
pub use stag::{Placement, StagTable};
