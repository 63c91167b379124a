//! What several floors need of a Unix system, written once.
//!
//! Knows no protocol and no other crate of Outboard. Never keeps anything: every function asks the
//! system and returns.
//!
//! Modules in reading order: [`rights`] (descriptors over a local socket), [`staged`] (files that
//! appear only whole), [`regular`] (files that are read whole), [`names`] (listings, and paths by
//! their text), [`mounts`] (the mount table).

#![forbid(unsafe_code)]

pub mod mounts;
pub mod names;
pub mod regular;
pub mod rights;
pub mod staged;
