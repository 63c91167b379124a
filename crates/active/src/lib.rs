//! Active code: modules that clients load into a node and execute next to its memory, beside plain
//! one-sided reads, writes and atomics on the same regions.
//!
//! It executes nothing itself, which `outboard-offcode` does, and brings no keys: its caller dials.
//!
//! Modules in reading order: [`protocol`] (what both sides say), [`service`] (a node's side),
//! [`client`] (the side that asks).

#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
pub mod service;

pub use client::{
    ActiveCall, ActiveClient, ActiveClientOptions, ActiveError, CallPlace, CallTicket,
    ClientExecution, ClientStopper, DialActive, Executed, RegionRun, RegionVerb, RemoteRegion,
    ResultMemory, VerbWhat, WaitMode,
};
pub use outboard_offcode::{ModuleHash, Outcome};
