//! A node is given arbitrary bytes as a module. What it takes is compiled, and each entry executed
//! on a small region, within its fuel. Nothing but the region's own bytes is ever reached.

#![no_main]

use outboard_offcode::engine::{Bounding, Budget};
use outboard_offcode::abi::CallBlock;
use outboard_offcode::inspect::ModuleLimits;
use outboard_offcode::instance::{CallInput, WarmInstance};
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ActiveRegion, LoadError, ModuleStore, Wasmtime};
use std::sync::{Arc, LazyLock};

const ALLOC: &[u8] = include_bytes!("../../modules/built/alloc.wasm");
const TENANT: TenantId = TenantId([1; 32]);

static ENGINE: LazyLock<Arc<Wasmtime>> =
    LazyLock::new(|| Arc::new(Wasmtime::new(None).expect("an engine")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let module = ModuleLimits { functions: 100, items: 100, table: 100, ..ModuleLimits::default() };
    let limits = StoreLimits { module, ..StoreLimits::default() };
    let store = ModuleStore::new(Arc::clone(&ENGINE), limits);
    let mut loaded = store.load(Some(TENANT), "fuzz", bytes);
    if let Err(LoadError::Missing { .. }) = loaded {
        // What most shipped modules import.
        store.load(Some(TENANT), "alloc", ALLOC).expect("a shipped module");
        loaded = store.load(Some(TENANT), "fuzz", bytes);
    }
    let Ok(info) = loaded else { return };
    let program = store.program(TENANT, &info.hash, Bounding::Fuel).expect("it is loaded");
    let region = ActiveRegion::new("fuzz", 4096, 4096).expect("memory");
    let budget = Budget::Fuel(10_000);
    let memory = (region.memory(), region.write_max());
    let bound = (Bounding::Fuel, &budget);
    let instance = WarmInstance::new(&**store.engine(), &program, memory, bound);
    let Ok(mut instance) = instance else { return };
    for (entry, _) in info.entries() {
        let input = CallInput {
            entry,
            args: bytes,
            out_cap: 4096,
            block: CallBlock::default(),
            may_write: true,
        };
        let mut result = Vec::new();
        let _came_to = instance.call(&input, &budget, &mut result);
        assert!(result.len() <= 4096);
        // What was not committed changes nothing.
        assert!(region.snapshot().expect("memory").iter().all(|byte| *byte == 0));
    }
});
