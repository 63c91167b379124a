//! What the service is started with.

use super::regions::ServedRegion;
use outboard_cluster::service::SpinMode;
use outboard_offcode::executor::{BackgroundLimits, ExecutorOptions};
use outboard_offcode::store::StoreLimits;
use outboard_offcode::{ModuleHash, ModuleStore, Wasmtime};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What each identity may use.
#[derive(Clone, Copy, Debug)]
pub struct ActiveLimits {
    /// Modules, and their bytes.
    pub store: StoreLimits,
    /// Bytes of the modules of all identities together.
    pub all_bytes: usize,
    /// Executions on threads, running and waiting.
    pub background: BackgroundLimits,
    /// How long an execution may take.
    pub time: Duration,
    /// Modules that are being loaded at a time.
    pub loads: usize,
}

impl Default for ActiveLimits {
    fn default() -> Self {
        Self {
            store: StoreLimits::default(),
            all_bytes: 256 << 20,
            background: BackgroundLimits::default(),
            time: Duration::from_secs(1),
            loads: 2,
        }
    }
}

impl ActiveLimits {
    /// What an executor may use.
    #[must_use]
    pub fn executor(&self) -> ExecutorOptions {
        ExecutorOptions { background: self.background, ..ExecutorOptions::default() }
    }
}

/// What the service has to offer.
pub struct ActiveServiceOptions {
    /// Regions.
    pub regions: Vec<ServedRegion>,
    /// Modules; the operator's are there already.
    pub store: Arc<ModuleStore<Wasmtime>>,
    /// Which modules are the operator's.
    pub operators: HashSet<ModuleHash>,
    /// What each identity may use.
    pub limits: ActiveLimits,
    /// Whether the loop spins before it sleeps.
    pub spin: SpinMode,
}

impl fmt::Debug for ActiveServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveServiceOptions")
            .field("regions", &self.regions)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
