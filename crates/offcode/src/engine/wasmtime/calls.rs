//! Host calls as wasmtime's functions: fuel, and the way to [`Execution`].

use super::super::{Bounding, KillSwitch};
use super::allowance::TimeAllowance;
use super::space::AddressSpace;
use crate::abi::{CallBlock, HOST_MODULE};
use crate::host::{Execution, Scratch};
use crate::stop::Stop;
use std::sync::Arc;
use wasmtime::{Caller, Error, Linker, Result};

/// Fuel of a host call, besides its bytes: what it takes in instructions.
const CALL_FUEL: u64 = 32;
/// Bytes that a host call copies for a unit of fuel.
const BYTES_FUEL: u64 = 8;

/// What a store carries.
pub(super) struct State {
    pub(super) execution: Execution,
    pub(super) space: Arc<AddressSpace>,
    pub(super) kill: Arc<KillSwitch>,
    pub(super) allowance: Option<TimeAllowance>,
}

impl State {
    pub(super) fn new(execution: Execution, space: Arc<AddressSpace>) -> Self {
        Self { execution, space, kill: Arc::default(), allowance: None }
    }

    /// Tells the module which lines it has written.
    fn publish(&mut self) {
        let written = self.execution.written().to_le_bytes();
        self.space.write(CallBlock::WRITTEN, &written);
    }
}

/// Takes fuel for a host call that copies `len` bytes.
fn charge(caller: &mut Caller<'_, State>, bound: Bounding, len: u32) -> Result<()> {
    if bound == Bounding::Time {
        return Ok(());
    }
    let left = caller.get_fuel()?;
    let cost = CALL_FUEL + u64::from(len) / BYTES_FUEL;
    match left.checked_sub(cost) {
        Some(left) => caller.set_fuel(left),
        None => Err(Error::new(Stop::OutOfFuel)),
    }
}

/// All host calls.
pub(super) fn linker(engine: &wasmtime::Engine, bound: Bounding) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    copies(&mut linker, bound)?;
    words(&mut linker, bound)?;
    exchanges(&mut linker, bound)?;
    Ok(linker)
}

/// Those that copy between scratch memory and what the caller sees of the region, or say something.
fn copies(linker: &mut Linker<State>, bound: Bounding) -> Result<()> {
    type Of<'a> = Caller<'a, State>;
    linker.func_wrap(
        HOST_MODULE,
        "read",
        move |mut of: Of<'_>, offset: u64, to: u32, len: u32| {
            charge(&mut of, bound, len)?;
            let State { execution, space, .. } = of.data_mut();
            execution.read(space, offset, to, len).map_err(Error::new)
        },
    )?;
    linker.func_wrap(
        HOST_MODULE,
        "write",
        move |mut of: Of<'_>, offset: u64, from: u32, len: u32| {
            charge(&mut of, bound, len)?;
            let State { execution, space, .. } = of.data_mut();
            let written = execution.write(space, offset, from, len);
            of.data_mut().publish();
            written.map_err(Error::new)
        },
    )?;
    linker.func_wrap(HOST_MODULE, "log", move |mut of: Of<'_>, at: u32, len: u32| {
        charge(&mut of, bound, len)?;
        let State { execution, space, .. } = of.data_mut();
        execution.say(space, at, len).map_err(Error::new)
    })?;
    let fail = |of: Of<'_>, code: i32, at: u32, len: u32| -> Result<()> {
        let State { execution, space, .. } = of.data();
        Err(Error::new(execution.fail(space, code, at, len)))
    };
    linker.func_wrap(HOST_MODULE, "fail", fail).map(drop)
}

/// Those for one word.
fn words(linker: &mut Linker<State>, bound: Bounding) -> Result<()> {
    type Of<'a> = Caller<'a, State>;
    linker.func_wrap(HOST_MODULE, "load64", move |mut of: Of<'_>, offset: u64| {
        charge(&mut of, bound, 0)?;
        of.data().execution.load64(offset).map_err(Error::new)
    })?;
    linker.func_wrap(HOST_MODULE, "store64", move |mut of: Of<'_>, offset: u64, value: u64| {
        charge(&mut of, bound, 0)?;
        let stored = of.data_mut().execution.store64(offset, value);
        of.data_mut().publish();
        stored.map_err(Error::new)
    })?;
    let expect = move |mut of: Of<'_>, offset: u64, value: u64| {
        charge(&mut of, bound, 0)?;
        of.data_mut().execution.expect64(offset, value).map_err(Error::new)
    };
    linker.func_wrap(HOST_MODULE, "expect64", expect).map(drop)
}

/// Those that change a word by what it was.
fn exchanges(linker: &mut Linker<State>, bound: Bounding) -> Result<()> {
    type Of<'a> = Caller<'a, State>;
    linker.func_wrap(
        HOST_MODULE,
        "cas64",
        move |mut of: Of<'_>, offset: u64, compare: u64, swap: u64| {
            charge(&mut of, bound, 0)?;
            let old = of.data_mut().execution.cas64(offset, compare, swap);
            of.data_mut().publish();
            old.map_err(Error::new)
        },
    )?;
    let add = move |mut of: Of<'_>, offset: u64, delta: u64| {
        charge(&mut of, bound, 0)?;
        let old = of.data_mut().execution.add64(offset, delta);
        of.data_mut().publish();
        old.map_err(Error::new)
    };
    linker.func_wrap(HOST_MODULE, "add64", add).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_call_is_there_with_its_type() {
        let engine = wasmtime::Engine::default();
        let linker = linker(&engine, Bounding::Time).expect("linked");
        let memory = outboard_mem::SharedRegion::zeroed(0).expect("none");
        let region = outboard_mem::SharedRegion::memfd(c"x", 4096, outboard_mem::Space::OnDemand);
        let space = AddressSpace::new(&region.expect("memory"), 0, true).expect("addresses");
        let state = State::new(Execution::new(memory, 0), Arc::new(space));
        let mut store = wasmtime::Store::new(&engine, state);
        for name in crate::host::names() {
            let found = linker.get(&mut store, HOST_MODULE, name).expect("there");
            let found = found.into_func().expect("a function").ty(&store);
            let expected = crate::host::signature(name).expect("known");
            let list = |types: Vec<wasmtime::ValType>| format!("{types:?}").to_lowercase();
            let (params, results) = (found.params().collect(), found.results().collect());
            assert_eq!(list(params), format!("{:?}", expected.params).to_lowercase(), "{name}");
            assert_eq!(list(results), format!("{:?}", expected.results).to_lowercase(), "{name}");
        }
    }
}
