//! Residents: long-lived instances of one WebAssembly module, with state. They are the bodies of
//! offcodes. A resident runs an entry when its owner says so, and what it imports is answered by
//! its owner's [`ResidentHost`]; it knows no device, no channel and no life cycle.
//!
//! # The guest's ABI, version 1
//!
//! Core WebAssembly with a linear memory of its own, exported as `memory`. The table `ENTRIES` in
//! `abi.rs` has the functions that a module may export, `IMPORTS` those that it may import from
//! module `offcode`. Entries are called one at a time, never while another one runs.
//!
//! `oc_buffer(len) -> place` gives at least `len` bytes for the input of entries, at a place that
//! is not 0 (which means that there is no memory left). The place stays the buffer until the next
//! call of `oc_buffer`: the device calls it only for an input that is longer than what it has asked
//! for before, and writes every input there. An entry's input is valid until the entry returns.
//!
//! In reading order: `abi` (names and types), [`ResidentModule`] (checks and compiles), `rewrite`
//! (what is compiled), [`ResidentEngine`] with `ticks` (time), [`ResidentHost`] and `imports`,
//! [`Resident`], [`merge()`] (libraries), [`ResidentState`] (goes on elsewhere), [`ResidentError`]
//! and [`ResidentEnd`].

mod abi;
mod ended;
mod engine;
mod host;
mod imports;
mod instance;
mod merge;
mod module;
mod rewrite;
mod state;
#[cfg(test)]
mod tests;
mod ticks;

pub use ended::{ResidentEnd, ResidentError};
pub use engine::ResidentEngine;
pub use host::{
    CallNotMade, ResidentAnswer, ResidentEvent, ResidentHost, ResidentLog, ResidentSend, TEXT_MAX,
};
pub use instance::{Resident, ResidentLimits};
pub use merge::{MergeError, OffcodeLibrary, merge};
pub use module::{ResidentModule, ResidentRules};
pub use state::{ResidentState, StateError};
