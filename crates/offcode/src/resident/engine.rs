//! The compiler of residents, with its thread for time. One for a process.

use super::ended::ResidentError;
use super::ticks::ResidentTicks;
use crate::engine::wasmtime::{config, machine};
use crate::error::LoadError;
use std::path::Path;

/// See this file's first lines. Clones are the same engine.
#[derive(Clone)]
pub struct ResidentEngine {
    engine: wasmtime::Engine,
    ticks: ResidentTicks,
}

impl std::fmt::Debug for ResidentEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResidentEngine").finish_non_exhaustive()
    }
}

impl ResidentEngine {
    /// An engine that keeps compiled code in a directory, by the hash of what was compiled, or
    /// nowhere.
    ///
    /// # Errors
    /// [`ResidentError::Load`]: this machine's.
    pub fn new(cache: Option<&Path>) -> Result<Self, ResidentError> {
        let mut config = config(cache)?;
        config.epoch_interruption(true);
        let engine = wasmtime::Engine::new(&config).map_err(|error| machine(&error))?;
        let ticks = ResidentTicks::new(engine.clone());
        let ticks = ticks.map_err(|error| LoadError::Engine(format!("no thread: {error}")))?;
        Ok(Self { engine, ticks })
    }

    pub(super) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.engine
    }

    pub(super) fn ticks(&self) -> &ResidentTicks {
        &self.ticks
    }
}
