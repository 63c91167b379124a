//! The active file system: its metadata are a region that modules work on, its bytes lie beside it.
//!
//! Never serves a directory of the host.
//!
//! Modules in reading order: [`store`] (what outlives the service's machine).

#![forbid(unsafe_code)]

pub mod store;
