//! wasmtime: modules are compiled, and a region's pages lie in the memory that they see.
//!
//! Its switches are set so that nothing is compiled in that modules may not use. Compiled code is
//! kept in a directory of this machine's and never taken from a peer.

pub(crate) mod allowance;
mod calls;
mod space;
mod ticker;

use super::{Bounding, Budget, Instance, Linked, Placed, WasmEngine};
use crate::abi::{ENV_MODULE, HOST_MODULE, STACK_TOP};
use crate::error::LoadError;
use crate::host::{Execution, Scratch};
use crate::inspect::FEATURES;
use crate::stop::Stop;
use allowance::TimeAllowance;
use calls::State;
use outboard_mem::SharedRegion;
use space::{AddressSpace, SpaceMemories};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use ticker::Ticker;
use wasmtime::{
    Cache, CacheConfig, Config, Extern, Global, GlobalType, Linker, Memory, Module, Mutability,
    Ref, RefType, Store, Table, TableType, Trap, TypedFunc, UpdateDeadline, Val, ValType,
    WasmBacktrace, WasmBacktraceDetails, WasmFeatures,
};

/// Pages of an execution's own memory.
const PAGES: u32 = crate::abi::SCRATCH_LEN / crate::abi::PAGE;
const _: () = assert!(PAGES == 0x10, "as MEMORY_MODULE has it");

/// Bytes of address space behind which accesses need no check of their own.
const GUARD: u64 = 32 << 20;
/// Frames of a trap's text, at most.
const FRAMES_MAX: usize = 8;

/// See this file's first lines.
pub struct Wasmtime {
    fuel: Build,
    time: Build,
    ticker: Ticker,
}

/// One of the two ways in which modules are compiled.
struct Build {
    engine: wasmtime::Engine,
    linker: Linker<State>,
    /// A module that has nothing but a memory: the engine takes other addresses than its own only
    /// for memories that modules define.
    memory: Module,
}

/// `(module (memory (export "memory") 16))`, which has [`PAGES`].
const MEMORY_MODULE: &[u8] = b"\0asm\x01\0\0\0\x05\x03\x01\0\x10\x07\x0a\x01\x06memory\x02\0";

impl std::fmt::Debug for Wasmtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wasmtime").finish_non_exhaustive()
    }
}

impl Wasmtime {
    /// An engine that keeps compiled code in a directory, or nowhere.
    ///
    /// # Errors
    /// [`LoadError::Engine`]: this machine's.
    pub fn new(cache: Option<&Path>) -> Result<Self, LoadError> {
        AddressSpace::try_one(GUARD).map_err(|error| {
            let why = "an instance takes more than 4 GiB of addresses, which this process may not \
                       have: see `ulimit -v`, or the unit's LimitAS";
            LoadError::Engine(format!("{error}: {why}"))
        })?;
        let (fuel, time) = (Build::new(Bounding::Fuel, cache)?, Build::new(Bounding::Time, cache)?);
        let ticker = Ticker::new(time.engine.clone());
        Ok(Self { fuel, time, ticker })
    }

    fn build(&self, bound: Bounding) -> &Build {
        match bound {
            Bounding::Fuel => &self.fuel,
            Bounding::Time => &self.time,
        }
    }
}

pub(crate) fn machine(error: &wasmtime::Error) -> LoadError {
    LoadError::Engine(format!("{error:#}"))
}

/// What all of this crate's engines have in common: what modules may use of WebAssembly, and where
/// compiled code is kept.
pub(crate) fn config(cache: Option<&Path>) -> Result<Config, LoadError> {
    let mut config = Config::new();
    config
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(FEATURES.difference(WasmFeatures::GC_TYPES), true)
        .memory_reservation(1 << 32)
        .memory_guard_size(GUARD)
        .memory_reservation_for_growth(0)
        .memory_may_move(false)
        .concurrency_support(false)
        .cranelift_nan_canonicalization(true)
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
    if let Some(directory) = cache {
        let mut settings = CacheConfig::new();
        settings.with_directory(directory);
        // The cache starts a thread, and panics where there is none.
        let started = thread::Builder::new().spawn(|| ());
        started.map_err(|error| LoadError::Engine(format!("no thread starts: {error}")))?;
        config.cache(Some(Cache::new(settings).map_err(|error| machine(&error))?));
    }
    Ok(config)
}

impl Build {
    fn new(bound: Bounding, cache: Option<&Path>) -> Result<Self, LoadError> {
        let mut config = config(cache)?;
        config.memory_init_cow(false).with_host_memory(Arc::new(SpaceMemories));
        match bound {
            Bounding::Fuel => config.consume_fuel(true),
            Bounding::Time => config.epoch_interruption(true),
        };
        let engine = wasmtime::Engine::new(&config).map_err(|error| machine(&error))?;
        let linker = calls::linker(&engine, bound).map_err(|error| machine(&error))?;
        let memory = Module::from_binary(&engine, MEMORY_MODULE);
        let memory = memory.map_err(|error| machine(&error))?;
        Ok(Self { engine, linker, memory })
    }
}

impl WasmEngine for Wasmtime {
    type Module = Module;
    type Instance = WasmtimeInstance;

    fn compile(&self, bytes: &[u8], bound: Bounding) -> Result<Module, LoadError> {
        // Not `Module::new`, which takes text as well.
        Module::from_binary(&self.build(bound).engine, bytes).map_err(|error| machine(&error))
    }

    fn instantiate(
        &self,
        program: &Linked<Module>,
        (region, write_max): (&SharedRegion, usize),
        (bound, budget): (Bounding, &Budget),
    ) -> Result<WasmtimeInstance, Stop> {
        let null_traps = !program.modules.iter().any(|placed| placed.info.has_bulk_memory);
        let space = AddressSpace::new(region, GUARD, null_traps)?;
        let space = Arc::new(space);
        let build = self.build(bound);
        let execution = Execution::new(region.clone(), write_max);
        let state = State::new(execution, Arc::clone(&space));
        let mut store = Store::new(&build.engine, state);
        store.epoch_deadline_callback(|store| {
            let state = store.data();
            if state.kill.is_killed() {
                return Err(wasmtime::Error::new(Stop::Killed));
            }
            if state.allowance.is_none_or(|allowance| allowance.is_used_up()) {
                return Err(wasmtime::Error::new(Stop::Timeout));
            }
            Ok(UpdateDeadline::Continue(1))
        });
        let mut linking = Linking::new(&mut store, &build.memory, space, program.table)?;
        let _ticks = self.ticker.hold();
        arm(&mut store, budget);
        let mut last = None;
        for placed in &program.modules {
            last = Some(linking.add(&mut store, &build.linker, placed)?);
        }
        let Some(instance) = last else { return Err(Stop::Machine("an empty program".into())) };
        let mut globals = vec![(linking.stack_pointer, Val::I32(STACK_TOP.cast_signed()))];
        let own = program.modules.last().map(|placed| &placed.info.mutable_globals);
        for name in own.into_iter().flatten() {
            if let Some(global) = instance.get_global(&mut store, name) {
                let value = global.get(&mut store);
                globals.push((global, value));
            }
        }
        let ticker = self.ticker.clone();
        Ok(WasmtimeInstance { store, instance, entries: HashMap::new(), globals, ticker })
    }
}

/// Gives a store its budget.
fn arm(store: &mut Store<State>, budget: &Budget) {
    match budget {
        // Only a build without fuel refuses, which has no such budget.
        Budget::Fuel(fuel) => drop(store.set_fuel(*fuel)),
        Budget::Time(limit, kill) => {
            let state = store.data_mut();
            // It runs in this thread.
            state.allowance = Some(TimeAllowance::begin(*limit));
            state.kill = Arc::clone(kill);
            store.set_epoch_deadline(1);
        }
    }
}

/// What all modules of a program share, and the functions of those that are linked.
struct Linking {
    memory: Memory,
    table: Table,
    stack_pointer: Global,
    instances: HashMap<String, wasmtime::Instance>,
}

impl Linking {
    fn new(
        store: &mut Store<State>,
        memory: &Module,
        space: Arc<AddressSpace>,
        entries: u32,
    ) -> Result<Self, Stop> {
        let failed = |error: wasmtime::Error| Stop::Machine(format!("{error:#}"));
        let make = || wasmtime::Instance::new(&mut *store, memory, &[]);
        let instance = space::offer(space, make).map_err(failed)?;
        let memory = instance.get_memory(&mut *store, "memory");
        let memory = memory.ok_or_else(|| Stop::Machine("an instance without memory".into()))?;
        let table = TableType::new(RefType::FUNCREF, entries, None);
        let table = Table::new(&mut *store, table, Ref::Func(None)).map_err(failed)?;
        let of = GlobalType::new(ValType::I32, Mutability::Var);
        let top = Val::I32(STACK_TOP.cast_signed());
        let stack_pointer = Global::new(&mut *store, of, top).map_err(failed)?;
        Ok(Self { memory, table, stack_pointer, instances: HashMap::new() })
    }

    fn add(
        &mut self,
        store: &mut Store<State>,
        linker: &Linker<State>,
        placed: &Placed<Module>,
    ) -> Result<wasmtime::Instance, Stop> {
        let mut imports = Vec::new();
        for import in placed.module.imports() {
            let found = self.resolve(store, linker, placed, (import.module(), import.name()));
            imports.push(found.ok_or_else(|| {
                Stop::Machine(format!("{}.{} is not there", import.module(), import.name()))
            })?);
        }
        let instance = wasmtime::Instance::new(&mut *store, &placed.module, &imports);
        let instance = instance.map_err(|error| stop(&error))?;
        self.instances.insert(placed.info.hash.to_string(), instance);
        Ok(instance)
    }

    fn resolve(
        &self,
        store: &mut Store<State>,
        linker: &Linker<State>,
        placed: &Placed<Module>,
        (module, field): (&str, &str),
    ) -> Option<Extern> {
        let number = |store: &mut Store<State>, value: u32| {
            let of = GlobalType::new(ValType::I32, Mutability::Const);
            Global::new(store, of, Val::I32(value.cast_signed())).ok().map(Extern::Global)
        };
        match (module, field) {
            (ENV_MODULE, "memory") => Some(self.memory.into()),
            (ENV_MODULE, "__indirect_function_table") => Some(self.table.into()),
            (ENV_MODULE, "__stack_pointer") => Some(self.stack_pointer.into()),
            (ENV_MODULE, "__memory_base") => number(store, placed.memory_base),
            (ENV_MODULE, "__table_base") => number(store, placed.table_base),
            (HOST_MODULE, field) => linker.get(store, HOST_MODULE, field).ok(),
            (module, field) => {
                let (_, hash) = module.split_once('#')?;
                self.instances.get(hash)?.get_export(store, field)
            }
        }
    }
}

/// See [`Instance`].
pub struct WasmtimeInstance {
    store: Store<State>,
    instance: wasmtime::Instance,
    entries: HashMap<String, TypedFunc<(), i64>>,
    globals: Vec<(Global, Val)>,
    ticker: Ticker,
}

impl std::fmt::Debug for WasmtimeInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmtimeInstance").finish_non_exhaustive()
    }
}

impl Instance for WasmtimeInstance {
    fn execution(&mut self) -> &mut Execution {
        &mut self.store.data_mut().execution
    }

    fn scratch(&mut self) -> &mut dyn Scratch {
        &mut self.store.data_mut().space
    }

    fn restore_globals(&mut self) {
        for (global, value) in &self.globals {
            // The type is the global's own.
            drop(global.set(&mut self.store, *value));
        }
    }

    fn call(&mut self, entry: &str, budget: &Budget) -> Option<Result<i64, Stop>> {
        if !self.entries.contains_key(entry) {
            let found = self.instance.get_typed_func::<(), i64>(&mut self.store, entry).ok()?;
            self.entries.insert(entry.to_owned(), found);
        }
        let function = self.entries.get(entry)?;
        arm(&mut self.store, budget);
        let _ticks = matches!(budget, Budget::Time(..)).then(|| self.ticker.hold());
        Some(function.call(&mut self.store, ()).map_err(|error| stop(&error)))
    }

    fn fuel_left(&self) -> Option<u64> {
        self.store.get_fuel().ok()
    }
}

/// Why an execution ended, from the engine's error.
fn stop(error: &wasmtime::Error) -> Stop {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return match stop {
            Stop::Trap(text) => Stop::Trap(located(text, error)),
            stop => stop.clone(),
        };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Stop::OutOfFuel,
        Some(Trap::Interrupt) => Stop::Timeout,
        Some(Trap::MemoryOutOfBounds) => Stop::Trap(located(
            "the module reaches memory that it does not have, or stores into the region without \
             a host call",
            error,
        )),
        Some(Trap::StackOverflow) => Stop::Trap(located("the module's calls are too deep", error)),
        Some(trap) => Stop::Trap(located(&trap.to_string(), error)),
        None => Stop::Trap(located(&format!("{error:#}"), error)),
    }
}

/// What went wrong, and where: the innermost frames with their functions and source lines.
pub(crate) fn located(text: &str, error: &wasmtime::Error) -> String {
    let frames = error.downcast_ref::<WasmBacktrace>().map_or(&[][..], WasmBacktrace::frames);
    let mut text = text.to_owned();
    for frame in frames.iter().take(FRAMES_MAX) {
        let named = frame.func_name().map(str::to_owned);
        let name = named.unwrap_or_else(|| format!("function {}", frame.func_index()));
        let line = frame.symbols().first().and_then(|symbol| {
            let file = symbol.file()?.rsplit('/').next()?.to_owned();
            Some(format!("{file}:{}", symbol.line()?))
        });
        match line {
            Some(line) => text.push_str(&format!("; in {name} ({line})")),
            None => text.push_str(&format!("; in {name}")),
        }
    }
    text
}
