//! A node's memory and its executor: the very ones that serve real clients. Virtual is only the
//! time; how long something takes is for others to say.

use super::operation::{Operation, words};
use outboard_offcode::executor::{
    Executor, ExecutorOptions, Moment, Outcome, Request, TimeLimit, Usage,
};
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ActiveRegion, ModuleHash, ModuleStore, Wasmtime};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const TENANT: TenantId = TenantId([0; 32]);
/// Enough for every execution: a simulated core has no limit.
const FUEL: u64 = 1 << 40;
const WRITE_MAX: usize = 4 << 20;
const RESULT_MAX: u32 = 64 << 10;
/// Wall time at a simulation's beginning: 2026.
const START: Duration = Duration::from_secs(1_780_000_000);

/// The modules that come with Outboard, those first that others import.
const SHIPPED: [(&str, &[u8]); 6] = [
    ("alloc", include_bytes!("../../../../modules/built/alloc.wasm")),
    ("empty", include_bytes!("../../../../modules/built/empty.wasm")),
    ("list", include_bytes!("../../../../modules/built/list.wasm")),
    ("lock", include_bytes!("../../../../modules/built/lock.wasm")),
    ("table", include_bytes!("../../../../modules/built/table.wasm")),
    ("topk", include_bytes!("../../../../modules/built/topk.wasm")),
];

/// The modules, compiled once for all nodes of a process.
struct LoadedModules {
    store: Arc<ModuleStore<Wasmtime>>,
    hashes: HashMap<&'static str, ModuleHash>,
}

static LOADED: LazyLock<LoadedModules> = LazyLock::new(|| {
    let engine = Arc::new(Wasmtime::new(None).expect("an engine"));
    let store = Arc::new(ModuleStore::new(engine, StoreLimits::default()));
    let load = |(name, bytes): (&'static str, &[u8])| {
        (name, store.load(Some(TENANT), name, bytes).expect("a built module").hash)
    };
    let hashes = SHIPPED.into_iter().map(load).collect();
    LoadedModules { store, hashes }
});

/// An execution that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The module.
    pub module: &'static str,
    /// The entry.
    pub entry: &'static str,
    /// Its arguments.
    pub args: Vec<u8>,
}

impl Call {
    /// A call with words and bytes as arguments.
    #[must_use]
    pub fn new(module: &'static str, entry: &'static str, of: &[u64], bytes: &[u8]) -> Self {
        Self { module, entry, args: words(of, bytes) }
    }
}

/// See the [module](self).
pub struct SimulatedNode {
    executor: Executor<Wasmtime>,
    region: Arc<ActiveRegion>,
}

impl fmt::Debug for SimulatedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedNode").field("region", &self.region).finish_non_exhaustive()
    }
}

impl SimulatedNode {
    /// A node with the shipped modules and a region of so many zero bytes.
    ///
    /// # Panics
    /// When this machine has no memory or no threads.
    #[must_use]
    pub fn new(region_len: usize) -> Self {
        let store = Arc::clone(&LOADED.store);
        let options = ExecutorOptions { fuel: FUEL, ..ExecutorOptions::default() };
        let executor = Executor::new(store, options, || {}).expect("threads");
        let region = ActiveRegion::new("simulated", region_len, WRITE_MAX).expect("memory");
        Self { executor, region: Arc::new(region) }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &ActiveRegion {
        &self.region
    }

    /// Executes a call; returns its result and what it has used.
    ///
    /// # Panics
    /// When the execution fails: the programs of simulations ask for nothing impossible.
    pub fn execute(&mut self, call: &Call, now_ns: u64) -> (Vec<u8>, Usage) {
        let moment = Moment { seed: now_ns, ..Moment::at(START + Duration::from_nanos(now_ns)) };
        let request = Request {
            token: 0,
            tenant: TENANT,
            id: None,
            retried_since: None,
            region: Arc::clone(&self.region),
            module: LOADED.hashes[call.module],
            entry: call.entry.to_owned(),
            args: call.args.clone(),
            out_cap: RESULT_MAX,
            may_write: true,
            is_at_client: false,
            limit: TimeLimit::Executor(Duration::from_secs(10)),
            moment,
        };
        let outcome = self.executor.execute(&request).unwrap_or_else(|| self.outcome());
        match outcome {
            Outcome::Done { result, .. } => (result, self.executor.used()),
            other => panic!("{}.{}: {other:?}", call.module, call.entry),
        }
    }

    /// Of the first execution of a module, whose instance is made on a thread.
    fn outcome(&mut self) -> Outcome {
        loop {
            if let Some((_, outcome)) = self.executor.poll() {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    /// Serves a one-sided operation; returns the answer's bytes.
    ///
    /// # Panics
    /// When it reaches outside the region, or is none.
    pub fn serve(&mut self, operation: &Operation) -> Vec<u8> {
        let memory = self.region.memory();
        let offset = |at: u64| usize::try_from(at).expect("an offset");
        match operation {
            Operation::Read { at, len } => {
                let mut bytes = vec![0; *len];
                memory.copy_out(offset(*at), &mut bytes).expect("inside");
                bytes
            }
            Operation::Write { at, bytes } => {
                memory.copy_in(offset(*at), bytes).expect("inside");
                Vec::new()
            }
            Operation::CompareSwap { at, compare, swap } => {
                let old = memory.load_u64(offset(*at)).expect("inside");
                if old == *compare {
                    memory.store_u64(offset(*at), *swap).expect("inside");
                }
                old.to_le_bytes().to_vec()
            }
            Operation::Execute(call) => panic!("{}.{} is no verb", call.module, call.entry),
        }
    }

    /// What a lock's lease is compared with: nanoseconds since 1970 at a moment of the simulation.
    #[must_use]
    pub fn wall_ns(now_ns: u64) -> u64 {
        u64::try_from(START.as_nanos()).unwrap_or(u64::MAX) + now_ns
    }
}
