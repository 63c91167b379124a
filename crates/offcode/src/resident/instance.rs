//! A resident: an instance of a module with its host, whose entries its owner calls one at a time.

use super::abi;
use super::ended::{ResidentEnd, ResidentError};
use super::host::{ResidentAnswer, ResidentEvent, ResidentHost};
use super::imports::{EntryTime, ResidentBody, linker};
use super::module::{PAGE, ResidentModule};
use super::state::{Buffer, ResidentState, StateError};
use super::ticks::EntryTicks;
use crate::engine::KillSwitch;
use crate::engine::wasmtime::located;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{
    Global, Instance, Memory, Store, StoreLimitsBuilder, Trap, TypedFunc, WasmParams, WasmResults,
};

/// Bytes of input for which a buffer is asked for at least.
const BUFFER_MIN: usize = 256;

/// What each entry of a resident may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentLimits {
    /// Processor time, and a tenth of the time by the clock.
    pub entry_time: Duration,
    /// Bytes of its input.
    pub input_bytes: usize,
}

impl Default for ResidentLimits {
    fn default() -> Self {
        Self { entry_time: Duration::from_secs(1), input_bytes: 16 << 20 }
    }
}

/// See this file's first lines.
///
/// An entry gives `None` if the module does not export it, and [`ResidentEnd`] if it did not
/// return.
pub struct Resident<H: 'static> {
    store: Store<ResidentBody<H>>,
    module: ResidentModule,
    entries: Entries,
    memory: Memory,
    /// The mutable globals, in their order in the module.
    globals: Vec<Global>,
    buffer: Buffer,
    input_max: usize,
    ticks: EntryTicks,
    kill: Arc<KillSwitch>,
    ended: Option<ResidentEnd>,
}

/// `oc_call`: interface, method, call, and where its parameters are.
type CallEntry = TypedFunc<(u32, u32, u64, u32, u32), ()>;

/// The entries, found once.
struct Entries {
    /// The start function.
    begin: Option<TypedFunc<(), ()>>,
    buffer: Option<TypedFunc<u32, u32>>,
    initialize: Option<TypedFunc<(), i32>>,
    start: Option<TypedFunc<(), i32>>,
    stop: Option<TypedFunc<(), ()>>,
    call: Option<CallEntry>,
    answer: Option<TypedFunc<(u64, i32, u32, u32), ()>>,
    message: Option<TypedFunc<(u32, u32, u32), ()>>,
    writable: Option<TypedFunc<u32, ()>>,
    timer: Option<TypedFunc<u32, ()>>,
    event: Option<TypedFunc<(i32, u32, u32), ()>>,
    save: Option<TypedFunc<(), u64>>,
    restore: Option<TypedFunc<(u32, u32), i32>>,
}

impl<H> std::fmt::Debug for Resident<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Resident");
        text.field("module", &self.module.hash()).field("ended", &self.ended);
        text.finish_non_exhaustive()
    }
}

impl Entries {
    fn find<H>(instance: &Instance, store: &mut Store<ResidentBody<H>>) -> Self {
        Self {
            begin: entry(instance, store, abi::START),
            buffer: entry(instance, store, abi::BUFFER),
            initialize: entry(instance, store, "oc_initialize"),
            start: entry(instance, store, "oc_start"),
            stop: entry(instance, store, "oc_stop"),
            call: entry(instance, store, "oc_call"),
            answer: entry(instance, store, "oc_answer"),
            message: entry(instance, store, "oc_message"),
            writable: entry(instance, store, "oc_writable"),
            timer: entry(instance, store, "oc_timer"),
            event: entry(instance, store, "oc_event"),
            save: entry(instance, store, "oc_save"),
            restore: entry(instance, store, "oc_restore"),
        }
    }
}

/// Types were checked when the module was compiled.
fn entry<H, P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<ResidentBody<H>>,
    name: &str,
) -> Option<TypedFunc<P, R>> {
    instance.get_typed_func(store, name).ok()
}

impl<H: ResidentHost> Resident<H> {
    /// Makes a new one. The module's start function, if it has one, runs as an entry does.
    ///
    /// # Errors
    /// [`ResidentError::Start`], [`ResidentError::Machine`].
    pub fn new(
        module: &ResidentModule,
        host: H,
        limits: ResidentLimits,
    ) -> Result<Self, ResidentError> {
        let mut resident = Self::instantiate(module, host, limits)?;
        resident.run(|of| of.begin.as_ref(), ()).map_err(ResidentError::Start)?;
        Ok(resident)
    }

    /// Makes one that goes on from a state, as if it had always been here. What its host has of the
    /// other one, calls and timers for example, its owner must bring.
    ///
    /// # Errors
    /// [`ResidentError::State`], [`ResidentError::Machine`].
    pub fn from_state(
        module: &ResidentModule,
        state: &ResidentState,
        host: H,
        limits: ResidentLimits,
    ) -> Result<Self, ResidentError> {
        check_state(module, state)?;
        let mut resident = Self::instantiate(module, host, limits)?;
        let store = &mut resident.store;
        let mismatch = StateError::Malformed("its globals are not the module's");
        if state.globals().len() != resident.globals.len() {
            return Err(mismatch.into());
        }
        for (global, value) in resident.globals.iter().zip(state.globals()) {
            global.set(&mut *store, *value).map_err(|_| mismatch.clone())?;
        }
        let pages = u64::from(state.pages());
        let more = pages.checked_sub(resident.memory.size(&*store));
        let more = more.ok_or(StateError::Malformed("its memory is smaller than the module's"))?;
        resident.memory.grow(&mut *store, more).map_err(|error| machine(&error))?;
        // Segments were in bounds when the instance was made.
        let data_end = usize::try_from(module.0.reading.data_end).unwrap_or(usize::MAX);
        let memory = resident.memory.data_mut(&mut *store);
        state.fill(memory, data_end.min(memory.len()));
        resident.buffer = state.buffer();
        Ok(resident)
    }

    fn instantiate(
        module: &ResidentModule,
        host: H,
        limits: ResidentLimits,
    ) -> Result<Self, ResidentError> {
        let (engine, kill) = (module.0.engine.wasmtime(), Arc::<KillSwitch>::default());
        let bytes = usize::try_from(module.0.memory_bytes).unwrap_or(usize::MAX);
        let store_limits = StoreLimitsBuilder::new().memory_size(bytes).build();
        let time = EntryTime { kill: Arc::clone(&kill), limit: limits.entry_time, since: None };
        let body = ResidentBody { host, memory: None, limits: store_limits, time };
        let mut store = Store::new(engine, body);
        store.limiter(|body| &mut body.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| store.data_mut().time.tick());
        let linker = linker::<H>(engine).map_err(|error| machine(&error))?;
        let instance = linker.instantiate(&mut store, &module.0.module);
        let instance = instance.map_err(|error| not_made(&error))?;
        let memory = instance.get_memory(&mut store, abi::MEMORY);
        let missing = || ResidentError::Machine("an instance without its exports".into());
        let memory = memory.ok_or_else(missing)?;
        store.data_mut().memory = Some(memory);
        let indices = module.0.reading.mutable_globals.iter();
        let globals = indices.map(|index| instance.get_global(&mut store, &abi::global(*index)));
        let globals = globals.collect::<Option<Vec<_>>>().ok_or_else(missing)?;
        let entries = Entries::find(&instance, &mut store);
        Ok(Self {
            store,
            module: module.clone(),
            entries,
            memory,
            globals,
            buffer: Buffer::default(),
            input_max: limits.input_bytes,
            ticks: module.0.engine.ticks().register(),
            kill,
            ended: None,
        })
    }
}

fn check_state(module: &ResidentModule, state: &ResidentState) -> Result<(), StateError> {
    let (expected, found) = (module.hash(), state.module());
    if expected != found {
        return Err(StateError::OtherModule { expected, found });
    }
    if !module.is_movable() {
        return Err(StateError::Immovable);
    }
    let (found, limit) = (u64::from(state.pages()) * PAGE, module.0.memory_bytes);
    if found > limit { Err(StateError::Memory { found, limit }) } else { Ok(()) }
}

fn machine(error: &wasmtime::Error) -> ResidentError {
    ResidentError::Machine(format!("{error:#}"))
}

/// Segments outside of memory and table are the module's fault, everything else this machine's.
fn not_made(error: &wasmtime::Error) -> ResidentError {
    match error.downcast_ref::<Trap>() {
        Some(trap) => ResidentError::Start(ResidentEnd::Trapped(trap.to_string())),
        None => machine(error),
    }
}

impl<H> Resident<H> {
    /// The module.
    #[must_use]
    pub fn module(&self) -> &ResidentModule {
        &self.module
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.store.data().host
    }

    /// The host, to be changed.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.store.data_mut().host
    }

    /// The host alone; the instance is gone.
    #[must_use]
    pub fn into_host(self) -> H {
        self.store.into_data().host
    }

    /// What kills it from any thread: an entry that runs ends at the next tick, which are 1 ms
    /// apart.
    #[must_use]
    pub fn kill_switch(&self) -> Arc<KillSwitch> {
        Arc::clone(&self.kill)
    }

    /// How it ended, if it is dead.
    #[must_use]
    pub fn ended(&self) -> Option<&ResidentEnd> {
        self.ended.as_ref()
    }

    /// Bytes of its memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.data_size(&self.store)
    }

    /// Its state between two entries. It can go on afterwards, or be dropped.
    ///
    /// # Errors
    /// [`StateError::Immovable`], [`StateError::Dead`].
    pub fn snapshot(&mut self) -> Result<ResidentState, StateError> {
        if let Some(ended) = &self.ended {
            return Err(StateError::Dead(ended.clone()));
        }
        if !self.module.is_movable() {
            return Err(StateError::Immovable);
        }
        let store = &mut self.store;
        let globals = self.globals.iter().map(|global| global.get(&mut *store)).collect();
        let memory = self.memory.data(&self.store);
        ResidentState::take(self.module.hash(), self.buffer, globals, memory)
    }

    /// Phase 1: takes local resources; 0 means well.
    ///
    /// # Errors
    /// [`ResidentEnd`], as for all entries.
    pub fn initialize(&mut self) -> Result<Option<i32>, ResidentEnd> {
        self.run(|of| of.initialize.as_ref(), ())
    }

    /// Phase 2: all that belong together are initialised; 0 means well.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn start(&mut self) -> Result<Option<i32>, ResidentEnd> {
        self.run(|of| of.start.as_ref(), ())
    }

    /// Its end is near.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn stop(&mut self) -> Result<Option<()>, ResidentEnd> {
        self.run(|of| of.stop.as_ref(), ())
    }

    /// A call of a method, answered by [`ResidentHost::answer`] or [`ResidentHost::refuse`] now or
    /// later.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn call(
        &mut self,
        (interface, method): (u32, u32),
        call: u64,
        params: &[u8],
    ) -> Result<Option<()>, ResidentEnd> {
        let with = |at, len| (interface, method, call, at, len);
        self.run_with(|of| of.call.as_ref(), params, with)
    }

    /// The answer to a call of its own.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn answer(
        &mut self,
        call: u64,
        answer: ResidentAnswer,
        results: &[u8],
    ) -> Result<Option<()>, ResidentEnd> {
        let with = |at, len| (call, answer.code(), at, len);
        self.run_with(|of| of.answer.as_ref(), results, with)
    }

    /// A message of a channel.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn message(&mut self, port: u32, message: &[u8]) -> Result<Option<()>, ResidentEnd> {
        self.run_with(|of| of.message.as_ref(), message, |at, len| (port, at, len))
    }

    /// A channel that was full has room again.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn writable(&mut self, port: u32) -> Result<Option<()>, ResidentEnd> {
        self.run(|of| of.writable.as_ref(), port)
    }

    /// A timer's time has come.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn timer(&mut self, timer: u32) -> Result<Option<()>, ResidentEnd> {
        self.run(|of| of.timer.as_ref(), timer)
    }

    /// Something happened out of band.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn event(&mut self, event: ResidentEvent, bytes: &[u8]) -> Result<Option<()>, ResidentEnd> {
        self.run_with(|of| of.event.as_ref(), bytes, |at, len| (event.code(), at, len))
    }

    /// What it hands to other code that takes its place.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn save(&mut self) -> Result<Option<Vec<u8>>, ResidentEnd> {
        let Some(saved) = self.run(|of| of.save.as_ref(), ())? else { return Ok(None) };
        // Both halves fit.
        let half = |half: u64| u32::try_from(half).unwrap_or(u32::MAX) as usize;
        let (at, len) = (half(saved >> 32), half(saved & u64::from(u32::MAX)));
        let found = self.memory.data(&self.store).get(at..at.saturating_add(len));
        match found {
            Some(bytes) => Ok(Some(bytes.to_vec())),
            None => Err(self.end(ResidentEnd::Trapped(format!(
                "oc_save gave {len} bytes at address {at:#x}, outside the memory"
            )))),
        }
    }

    /// In place of [`initialize`](Self::initialize): what earlier code has handed over; 0 means
    /// well.
    ///
    /// # Errors
    /// [`ResidentEnd`].
    pub fn restore(&mut self, saved: &[u8]) -> Result<Option<i32>, ResidentEnd> {
        self.run_with(|of| of.restore.as_ref(), saved, |at, len| (at, len))
    }

    /// Copies an input into the guest's buffer: where it is, and its length.
    fn put(&mut self, input: &[u8]) -> Result<(u32, u32), ResidentEnd> {
        if input.len() > (self.buffer.len as usize).min(self.input_max) {
            self.ask_buffer(input.len())?;
        }
        let Buffer { place, .. } = self.buffer;
        let start = place as usize;
        // The buffer lies within the memory, which never shrinks, and fits 32 bits.
        let memory = self.memory.data_mut(&mut self.store);
        let into = memory.get_mut(start..).and_then(|from| from.get_mut(..input.len()));
        if let Some(into) = into {
            into.copy_from_slice(input);
        }
        Ok((place, u32::try_from(input.len()).unwrap_or(u32::MAX)))
    }

    #[cold]
    fn ask_buffer(&mut self, needed: usize) -> Result<(), ResidentEnd> {
        let limit = self.input_max;
        let too_long = ResidentEnd::InputTooLong { found: needed, limit };
        if needed > limit {
            return Err(self.ended.clone().unwrap_or(too_long));
        }
        let len = needed.next_power_of_two().max(BUFFER_MIN).min(limit);
        let len = u32::try_from(len).map_err(|_| too_long)?;
        // Without the entry the module would not have been compiled.
        let place = self.run(|of| of.buffer.as_ref(), len)?.unwrap_or(0);
        let end = place as usize + len as usize;
        if place == 0 || end > self.memory.data_size(&self.store) {
            return Err(self.end(ResidentEnd::Trapped(format!(
                "oc_buffer gave {place:#x} for {len} bytes: no memory left, or outside of it"
            ))));
        }
        self.buffer = Buffer { place, len };
        Ok(())
    }

    /// Runs an entry that has input.
    #[inline]
    fn run_with<P: WasmParams, R: WasmResults>(
        &mut self,
        which: impl Fn(&Entries) -> Option<&TypedFunc<P, R>>,
        input: &[u8],
        params: impl FnOnce(u32, u32) -> P,
    ) -> Result<Option<R>, ResidentEnd> {
        if which(&self.entries).is_none() {
            return Ok(None);
        }
        let (at, len) = self.put(input)?;
        self.run(which, params(at, len))
    }

    /// Runs an entry within its time, if the module has it.
    #[inline]
    fn run<P: WasmParams, R: WasmResults>(
        &mut self,
        which: impl Fn(&Entries) -> Option<&TypedFunc<P, R>>,
        params: P,
    ) -> Result<Option<R>, ResidentEnd> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        if self.kill.is_killed() {
            return Err(self.end(ResidentEnd::Killed));
        }
        let Some(entry) = which(&self.entries) else { return Ok(None) };
        self.store.data_mut().time.since = None;
        let running = self.ticks.begin();
        let returned = entry.call(&mut self.store, params);
        drop(running);
        returned.map(Some).map_err(|error| self.end(why(&error)))
    }

    #[cold]
    fn end(&mut self, ended: ResidentEnd) -> ResidentEnd {
        self.ended = Some(ended.clone());
        ended
    }
}

/// Why an entry did not return.
fn why(error: &wasmtime::Error) -> ResidentEnd {
    match (error.downcast_ref::<ResidentEnd>(), error.downcast_ref::<Trap>()) {
        (Some(ResidentEnd::Trapped(text)), _) => ResidentEnd::Trapped(located(text, error)),
        (Some(ended), _) => ended.clone(),
        (None, Some(trap)) => ResidentEnd::Trapped(located(&trap.to_string(), error)),
        (None, None) => ResidentEnd::Trapped(located(&format!("{error:#}"), error)),
    }
}
