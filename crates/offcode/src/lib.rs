//! Mobile code: WebAssembly modules that are loaded by hash, linked with each other, and executed
//! next to memory, all or nothing.
//!
//! It knows no network, no peer and no clock but for time limits. Native code never comes from
//! outside this machine. A module reaches nothing but its own scratch memory and one region: it
//! reads the region's pages directly, and writes into a write set, which is applied at its
//! execution's end or not at all.
//!
//! Modules in reading order: [`hash`], [`abi`] (the memory that a module sees), [`inspect`] (is it
//! valid, what does it import), `program` (linking), [`error`], [`host`] (host calls), `write_set`,
//! [`stop`] (how executions end early), [`engine`] (compiles and runs), [`instance`] (made once,
//! used often), [`journal`] and [`region`] (commits), [`store`] (modules of tenants), [`executor`]
//! (runs requests, short ones at once and long ones on threads), [`local`] (without a node),
//! [`resident`] (instances that live long and have state).

pub mod abi;
pub mod engine;
pub mod error;
pub mod executor;
pub mod hash;
pub mod host;
pub mod inspect;
pub mod instance;
pub mod journal;
pub mod local;
pub mod low_priority;
mod program;
pub mod region;
pub mod resident;
pub mod stop;
pub mod store;
mod write_set;

pub use engine::WasmEngine;
pub use engine::wasmtime::Wasmtime;
pub use error::LoadError;
pub use executor::{Executor, Outcome};
pub use hash::ModuleHash;
pub use region::ActiveRegion;
pub use stop::Stop;
pub use store::ModuleStore;
