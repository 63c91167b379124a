//! wasmi behind the trait of engines: an interpreter, slow and by other authors, so that what both
//! engines compute alike is right. A region is copied into its memory before each call; what a
//! module stores there by mistake is lost instead of trapping.

use outboard_mem::SharedRegion;
use outboard_offcode::abi::{CallBlock, PAGE, SCRATCH_LEN, STACK_END, STACK_TOP};
use outboard_offcode::engine::{Bounding, Budget, Instance, Linked, Placed};
use outboard_offcode::host::{Execution, Scratch};
use outboard_offcode::{LoadError, Stop, WasmEngine};
use std::collections::HashMap;
use wasmi::errors::HostError;
use wasmi::{
    Caller, Engine, Error, Extern, Func, Global, Memory, MemoryType, Module, Mutability, Ref,
    RefType, Store, Table, TableType, TrapCode, Val,
};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Interpreter {
    engine: Engine,
}

/// Why a host call ended the execution.
#[derive(Debug)]
struct Ended(Stop);

impl HostError for Ended {}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

struct Carried {
    execution: Execution,
    memory: Option<Memory>,
}

impl Default for Interpreter {
    fn default() -> Self {
        let mut config = wasmi::Config::default();
        config.consume_fuel(true);
        Self { engine: Engine::new(&config) }
    }
}

/// The scratch part of a memory's bytes.
struct Bytes<'a>(&'a mut [u8]);

impl Bytes<'_> {
    fn range(at: u32, len: usize) -> Option<std::ops::Range<usize>> {
        let end = (at as usize).checked_add(len)?;
        (at >= STACK_END && end <= SCRATCH_LEN as usize).then_some(at as usize..end)
    }
}

impl Scratch for Bytes<'_> {
    fn read(&self, at: u32, into: &mut [u8]) -> bool {
        let range = Self::range(at, into.len());
        range.is_some_and(|range| {
            into.copy_from_slice(&self.0[range]);
            true
        })
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> bool {
        let range = Self::range(at, bytes.len());
        range.is_some_and(|range| {
            self.0[range].copy_from_slice(bytes);
            true
        })
    }
}

type Of<'a> = Caller<'a, Carried>;

/// Runs a host call with the execution and the scratch memory, and publishes what is written.
fn with<T>(
    of: &mut Of<'_>,
    call: impl FnOnce(&mut Execution, &mut Bytes<'_>) -> Result<T, Stop>,
) -> Result<T, Error> {
    let memory = of.data().memory.expect("a memory");
    let (bytes, carried) = memory.data_and_store_mut(&mut *of);
    let mut bytes = Bytes(bytes);
    let result = call(&mut carried.execution, &mut bytes);
    bytes.write(CallBlock::WRITTEN, &carried.execution.written().to_le_bytes());
    result.map_err(|stop| Error::host(Ended(stop)))
}

fn host_call(to: &mut Store<Carried>, name: &str) -> Func {
    match name {
        "read" => Func::wrap(to, |mut of: Of<'_>, offset: u64, to: u32, len: u32| {
            with(&mut of, |execution, bytes| execution.read(bytes, offset, to, len))
        }),
        "write" => Func::wrap(to, |mut of: Of<'_>, offset: u64, from: u32, len: u32| {
            with(&mut of, |execution, bytes| execution.write(bytes, offset, from, len))
        }),
        "load64" => Func::wrap(to, |mut of: Of<'_>, offset: u64| {
            with(&mut of, |execution, _| execution.load64(offset))
        }),
        "store64" => Func::wrap(to, |mut of: Of<'_>, offset: u64, value: u64| {
            with(&mut of, |execution, _| execution.store64(offset, value))
        }),
        "expect64" => Func::wrap(to, |mut of: Of<'_>, offset: u64, value: u64| {
            with(&mut of, |execution, _| execution.expect64(offset, value))
        }),
        "cas64" => Func::wrap(to, |mut of: Of<'_>, offset: u64, compare: u64, swap: u64| {
            with(&mut of, |execution, _| execution.cas64(offset, compare, swap))
        }),
        "add64" => Func::wrap(to, |mut of: Of<'_>, offset: u64, delta: u64| {
            with(&mut of, |execution, _| execution.add64(offset, delta))
        }),
        "log" => Func::wrap(to, |mut of: Of<'_>, at: u32, len: u32| {
            with(&mut of, |execution, bytes| execution.say(bytes, at, len))
        }),
        "fail" => Func::wrap(to, |mut of: Of<'_>, code: i32, at: u32, len: u32| {
            with(&mut of, |execution, bytes| -> Result<(), Stop> {
                Err(execution.fail(bytes, code, at, len))
            })
        }),
        other => panic!("host call {other}"),
    }
}

impl WasmEngine for Interpreter {
    type Module = Module;
    type Instance = Interpreted;

    fn compile(&self, bytes: &[u8], _bound: Bounding) -> Result<Module, LoadError> {
        Module::new(&self.engine, bytes).map_err(|error| LoadError::Engine(error.to_string()))
    }

    fn instantiate(
        &self,
        program: &Linked<Module>,
        (region, write_max): (&SharedRegion, usize),
        _bound: (Bounding, &Budget),
    ) -> Result<Interpreted, Stop> {
        let failed = |error: Error| Stop::Machine(error.to_string());
        let carried =
            Carried { execution: Execution::new(region.clone(), write_max), memory: None };
        let mut store = Store::new(&self.engine, carried);
        store.set_fuel(u64::MAX / 2).map_err(failed)?;
        let pages = (SCRATCH_LEN as usize + region.len()).div_ceil(PAGE as usize);
        let of = MemoryType::new(u32::try_from(pages).expect("small"), None);
        let memory = Memory::new(&mut store, of).map_err(failed)?;
        store.data_mut().memory = Some(memory);
        let table = TableType::new(RefType::Func, program.table, None);
        let table =
            Table::new(&mut store, table, Ref::Func(wasmi::Nullable::Null)).map_err(failed)?;
        let top = Val::I32(STACK_TOP.cast_signed());
        let stack_pointer = Global::new(&mut store, top.clone(), Mutability::Var);
        let mut instances: HashMap<String, wasmi::Instance> = HashMap::new();
        let mut last = None;
        for placed in &program.modules {
            let mut imports = Vec::new();
            for import in placed.module.imports() {
                let number = |store: &mut Store<Carried>, value: u32| {
                    Global::new(store, Val::I32(value.cast_signed()), Mutability::Const)
                };
                imports.push(match (import.module(), import.name()) {
                    ("env", "memory") => Extern::Memory(memory),
                    ("env", "__indirect_function_table") => Extern::Table(table),
                    ("env", "__stack_pointer") => Extern::Global(stack_pointer),
                    ("env", "__memory_base") => {
                        Extern::Global(number(&mut store, placed.memory_base))
                    }
                    ("env", _) => Extern::Global(number(&mut store, placed.table_base)),
                    ("ob", name) => Extern::Func(host_call(&mut store, name)),
                    (module, name) => {
                        let (_, hash) = module.split_once('#').expect("a module's name");
                        instances[hash].get_export(&store, name).expect("exported")
                    }
                });
            }
            let instance = wasmi::Instance::new(&mut store, &placed.module, &imports);
            let instance = instance.map_err(failed)?;
            instances.insert(placed.info.hash.to_string(), instance);
            last = Some((instance, placed));
        }
        let (instance, placed) = last.expect("a module");
        let mut globals = vec![(stack_pointer, top)];
        globals.extend(own_globals(&store, instance, placed));
        Ok(Interpreted { store, instance, memory, globals })
    }
}

fn own_globals(
    store: &Store<Carried>,
    instance: wasmi::Instance,
    placed: &Placed<Module>,
) -> Vec<(Global, Val)> {
    let named = placed.info.mutable_globals.iter();
    let globals = named.filter_map(|name| instance.get_global(store, name));
    globals.map(|global| (global, global.get(store))).collect()
}

/// An instance of the interpreter.
pub(crate) struct Interpreted {
    store: Store<Carried>,
    instance: wasmi::Instance,
    memory: Memory,
    globals: Vec<(Global, Val)>,
}

impl Scratch for Interpreted {
    fn read(&self, at: u32, into: &mut [u8]) -> bool {
        let range = Bytes::range(at, into.len());
        range.is_some_and(|range| {
            into.copy_from_slice(&self.memory.data(&self.store)[range]);
            true
        })
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> bool {
        Bytes(self.memory.data_mut(&mut self.store)).write(at, bytes)
    }
}

impl Instance for Interpreted {
    fn execution(&mut self) -> &mut Execution {
        &mut self.store.data_mut().execution
    }

    fn scratch(&mut self) -> &mut dyn Scratch {
        self
    }

    fn restore_globals(&mut self) {
        for (global, value) in &self.globals {
            global.set(&mut self.store, value.clone()).expect("its own type");
        }
    }

    fn call(&mut self, entry: &str, budget: &Budget) -> Option<Result<i64, Stop>> {
        let function = self.instance.get_typed_func::<(), i64>(&self.store, entry).ok()?;
        let region = self.store.data().execution.region().clone();
        let at = SCRATCH_LEN as usize;
        let memory = self.memory.data_mut(&mut self.store);
        region.copy_out(0, &mut memory[at..at + region.len()]).expect("inside");
        let fuel = match budget {
            Budget::Fuel(fuel) => *fuel,
            // An interpreter that nothing interrupts: about as much as the time allows.
            Budget::Time(limit, _) => u64::try_from(limit.as_micros()).unwrap_or(u64::MAX) * 100,
        };
        self.store.set_fuel(fuel).expect("fuel is counted");
        Some(function.call(&mut self.store, ()).map_err(|error| stop(&error, budget)))
    }

    fn fuel_left(&self) -> Option<u64> {
        self.store.get_fuel().ok()
    }
}

fn stop(error: &Error, budget: &Budget) -> Stop {
    if let Some(Ended(stop)) = error.downcast_ref::<Ended>() {
        return stop.clone();
    }
    match (error.as_trap_code(), budget) {
        (Some(TrapCode::OutOfFuel), Budget::Fuel(_)) => Stop::OutOfFuel,
        (Some(TrapCode::OutOfFuel), _) => Stop::Timeout,
        _ => Stop::Trap(error.to_string()),
    }
}
