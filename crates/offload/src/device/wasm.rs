//! Bodies that are WebAssembly: modules by the hash of their bytes, and residents as bodies.
//!
//! Compiled code never comes from elsewhere.

use super::body::{BodyEnd, LiveBody};
use super::context::{CallRefusal, OffcodeContext};
use super::port::PortSend;
use crate::request::{BodyNeeds, CallResult, DeviceError, FrozenState, WATCHDOG_MS, event_kind};
use outboard_offcode::ModuleHash;
use outboard_offcode::inspect::ModuleLimits;
use outboard_offcode::resident::{
    CallNotMade, OffcodeLibrary, Resident, ResidentAnswer, ResidentEnd, ResidentEngine,
    ResidentEvent, ResidentHost, ResidentLimits, ResidentLog, ResidentModule, ResidentRules,
    ResidentSend, ResidentState, merge,
};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Modules of a device, at most.
const MODULES_MAX: usize = 1024;
/// Bytes of all modules of a device, at most.
const BYTES_MAX: usize = 256 << 20;
/// Processor time of an entry if nothing says how much.
const WATCHDOG: Duration = Duration::from_millis(WATCHDOG_MS as u64);
/// The most that may be said.
const WATCHDOG_MAX: Duration = Duration::from_secs(60);

/// What a module was compiled for: its hash, bytes of memory, clocks, timers.
type Compiled = ([u8; 32], u64, bool, bool);

/// The modules that a device knows.
#[derive(Debug)]
pub struct WasmCodes {
    engine: ResidentEngine,
    bytes: HashMap<[u8; 32], Vec<u8>>,
    total: usize,
    compiled: HashMap<Compiled, ResidentModule>,
    /// What was linked of which modules: no more than there are modules.
    linked: HashMap<Vec<(String, [u8; 32])>, [u8; 32]>,
}

impl WasmCodes {
    /// No modules. Compiled code is kept in `cache`, if there is one.
    ///
    /// # Errors
    /// In words: this machine cannot compile.
    pub fn new(cache: Option<&Path>) -> Result<Self, String> {
        let engine = ResidentEngine::new(cache).map_err(|error| error.to_string())?;
        Ok(Self::with(engine))
    }

    /// No modules, with an engine that others use as well.
    #[must_use]
    pub fn with(engine: ResidentEngine) -> Self {
        let (bytes, compiled, linked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { engine, bytes, total: 0, compiled, linked }
    }

    /// Whether a module is known.
    #[must_use]
    pub fn has(&self, hash: &[u8; 32]) -> bool {
        self.bytes.contains_key(hash)
    }

    /// Keeps a module.
    ///
    /// # Errors
    /// In words: too many, or too large.
    pub fn add(&mut self, bytes: &[u8]) -> Result<[u8; 32], String> {
        let hash = ModuleHash::of(bytes).0;
        if self.has(&hash) {
            return Ok(hash);
        }
        if self.bytes.len() >= MODULES_MAX || self.total + bytes.len() > BYTES_MAX {
            return Err("the device has 1,024 modules, or 256 MiB of them, already".to_owned());
        }
        self.total += bytes.len();
        self.bytes.insert(hash, bytes.to_vec());
        Ok(hash)
    }

    /// Links modules that are known, by their names, and keeps the result.
    ///
    /// # Errors
    /// In words: they cannot be linked, or there is no room.
    pub(super) fn link(&mut self, parts: &[(String, [u8; 32])]) -> Result<[u8; 32], String> {
        if let Some(hash) = self.linked.get(parts) {
            return Ok(*hash);
        }
        let known = |(name, hash): &'_ (String, [u8; 32])| {
            self.bytes.get(hash).map(|bytes| (name.clone(), bytes.clone()))
        };
        let found: Option<Vec<(String, Vec<u8>)>> = parts.iter().map(known).collect();
        let found = found.ok_or("its code is not there")?;
        let found: Vec<(&str, &[u8])> =
            found.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let linked = link_modules(&found)?;
        let hash = self.add(&linked)?;
        self.linked.insert(parts.to_vec(), hash);
        Ok(hash)
    }

    pub(super) fn make(
        &mut self,
        hash: &[u8; 32],
        context: OffcodeContext,
        from: Option<&FrozenState>,
    ) -> Result<Box<dyn LiveBody>, DeviceError> {
        let module = self.module(hash, &context)?;
        let limits =
            ResidentLimits { entry_time: watchdog(&context.needs), ..ResidentLimits::default() };
        let failed = |error: &dyn std::fmt::Display| DeviceError::Body(error.to_string());
        let resident = match from {
            Some(FrozenState::Whole(bytes)) => {
                let state = ResidentState::parse(bytes.clone()).map_err(|error| failed(&error))?;
                Resident::from_state(&module, &state, context, limits)
            }
            _ => Resident::new(&module, context, limits),
        };
        let mut body = WasmBody(resident.map_err(|error| failed(&error))?);
        if let Some(FrozenState::Saved(saved)) = from {
            body.restore(saved).map_err(|end| DeviceError::Failed(end.to_string()))?;
        }
        Ok(Box::new(body))
    }

    fn module(
        &mut self,
        hash: &[u8; 32],
        context: &OffcodeContext,
    ) -> Result<ResidentModule, DeviceError> {
        let needs = &context.needs;
        let key = (*hash, needs.memory_bytes, needs.clock, needs.timers);
        if let Some(module) = self.compiled.get(&key) {
            return Ok(module.clone());
        }
        let unknown = || DeviceError::Body("its code is not there".to_owned());
        let bytes = self.bytes.get(hash).ok_or_else(unknown)?;
        let rules = resident_rules(needs);
        let module = ResidentModule::compile(&self.engine, bytes, &rules);
        let module = module.map_err(|error| DeviceError::Body(error.to_string()))?;
        if self.compiled.len() >= MODULES_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(key, module.clone());
        Ok(module)
    }
}

/// Links modules, by their names; the first is the main one.
///
/// # Errors
/// In words: their authors' fault.
pub fn link_modules(parts: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
    let ((_, main), libraries) = parts.split_first().ok_or("no modules at all")?;
    let libraries: Vec<OffcodeLibrary<'_>> =
        libraries.iter().map(|(name, bytes)| OffcodeLibrary { name, bytes }).collect();
    merge(main, &libraries, &ModuleLimits::default()).map_err(|error| error.to_string())
}

/// What a module may have and import, by what its description asks for.
#[must_use]
pub fn resident_rules(needs: &BodyNeeds) -> ResidentRules {
    ResidentRules {
        memory_bytes: needs.memory_bytes,
        has_clock: needs.clock,
        has_timers: needs.timers,
        ..ResidentRules::default()
    }
}

fn watchdog(needs: &BodyNeeds) -> Duration {
    match needs.watchdog_ms {
        0 => WATCHDOG,
        limit => Duration::from_millis(limit.into()).min(WATCHDOG_MAX),
    }
}

/// A resident as a body.
#[derive(Debug)]
struct WasmBody(Resident<OffcodeContext>);

/// An entry that a module does not export does nothing.
fn ended<T>(result: Result<Option<T>, ResidentEnd>) -> Result<Option<T>, BodyEnd> {
    result.map_err(|end| BodyEnd::Failed(end.to_string()))
}

/// A step of its start: 0 is well.
fn stepped(result: Result<Option<i32>, ResidentEnd>) -> Result<(), BodyEnd> {
    match ended(result)? {
        None | Some(0) => Ok(()),
        Some(number) => Err(BodyEnd::Refused(number)),
    }
}

impl LiveBody for WasmBody {
    fn context(&mut self) -> &mut OffcodeContext {
        self.0.host_mut()
    }

    fn initialize(&mut self) -> Result<(), BodyEnd> {
        stepped(self.0.initialize())
    }

    fn start(&mut self) -> Result<(), BodyEnd> {
        stepped(self.0.start())
    }

    fn stop(&mut self) -> Result<(), BodyEnd> {
        ended(self.0.stop()).map(drop)
    }

    fn call(
        &mut self,
        interface: u32,
        method: u32,
        call: u64,
        params: &[u8],
    ) -> Result<(), BodyEnd> {
        if ended(self.0.call((interface, method), call, params))?.is_none() {
            self.context().refuse(call, "the offcode answers no calls: it has no oc_call");
        }
        Ok(())
    }

    fn answer(&mut self, call: u64, result: &CallResult) -> Result<(), BodyEnd> {
        let entered = match result {
            Ok(results) => self.0.answer(call, ResidentAnswer::Results, results),
            Err(fault) => {
                let (number, text) = fault.to_guest();
                self.0.answer(call, answer_kind(number), text.as_bytes())
            }
        };
        ended(entered).map(drop)
    }

    fn message(&mut self, port: u16, bytes: &[u8]) -> Result<(), BodyEnd> {
        ended(self.0.message(port.into(), bytes)).map(drop)
    }

    fn writable(&mut self, port: u16) -> Result<(), BodyEnd> {
        ended(self.0.writable(port.into())).map(drop)
    }

    fn timer(&mut self, timer: u32) -> Result<(), BodyEnd> {
        ended(self.0.timer(timer)).map(drop)
    }

    fn event(&mut self, kind: u32, bytes: &[u8]) -> Result<(), BodyEnd> {
        let kind = match kind {
            event_kind::CONNECTED => ResidentEvent::Connected,
            event_kind::DISCONNECTED => ResidentEvent::Disconnected,
            event_kind::ATTRIBUTE => ResidentEvent::Attribute,
            _ => ResidentEvent::Message,
        };
        ended(self.0.event(kind, bytes)).map(drop)
    }

    fn whole_state(&mut self) -> Result<Vec<u8>, BodyEnd> {
        let state = self.0.snapshot().map_err(|error| BodyEnd::Failed(error.to_string()))?;
        Ok(state.into_bytes())
    }

    fn save(&mut self) -> Result<Vec<u8>, BodyEnd> {
        let nothing = || BodyEnd::Failed("its code has no oc_save: it cannot be updated".into());
        ended(self.0.save())?.ok_or_else(nothing)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BodyEnd> {
        match ended(self.0.restore(saved))? {
            Some(0) => Ok(()),
            Some(number) => Err(BodyEnd::Refused(number)),
            None => Err(BodyEnd::Failed("the new code has no oc_restore".into())),
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes() as u64
    }
}

fn answer_kind(number: u32) -> ResidentAnswer {
    match number {
        1 => ResidentAnswer::Refused,
        2 => ResidentAnswer::Trapped,
        3 => ResidentAnswer::Gone,
        4 => ResidentAnswer::TimedOut,
        _ => ResidentAnswer::NoMethod,
    }
}

impl ResidentHost for OffcodeContext {
    fn send(&mut self, port: u32, message: &[u8]) -> ResidentSend {
        match Self::send(self, port, message) {
            None => ResidentSend::NoPort,
            Some(PortSend::Taken) => ResidentSend::Taken,
            Some(PortSend::Full) => ResidentSend::Full,
            Some(PortSend::TooLong) => ResidentSend::TooLong,
            Some(PortSend::NotConnected) => ResidentSend::NotConnected,
        }
    }

    fn call(
        &mut self,
        (import, method): (u32, u32),
        params: &[u8],
        deadline: Option<Duration>,
    ) -> Result<u64, CallNotMade> {
        let milliseconds = deadline.map_or(0, |limit| limit.as_millis().max(1));
        let deadline_ms = u32::try_from(milliseconds).unwrap_or(u32::MAX);
        Self::call(self, import, method, params, deadline_ms).map_err(|refusal| match refusal {
            CallRefusal::NoImport => CallNotMade::NoImport,
            CallRefusal::NotBound => CallNotMade::NotConnected,
            CallRefusal::TooLong => CallNotMade::TooLong,
            CallRefusal::TooMany => CallNotMade::TooMany,
        })
    }

    fn answer(&mut self, call: u64, results: &[u8]) -> bool {
        Self::answer(self, call, results)
    }

    fn refuse(&mut self, call: u64, text: &str) -> bool {
        Self::refuse(self, call, text)
    }

    fn hold(&mut self, port: u32) {
        Self::hold(self, port, true);
    }

    fn release(&mut self, port: u32) {
        Self::hold(self, port, false);
    }

    fn log(&mut self, level: ResidentLog, text: &str) {
        let level = match level {
            ResidentLog::Error => 1,
            ResidentLog::Warn => 2,
            ResidentLog::Info => 3,
            ResidentLog::Debug => 4,
            ResidentLog::Trace => 5,
        };
        Self::log(self, level, text);
    }

    fn tell(&mut self, message: &[u8]) -> bool {
        Self::tell(self, message)
    }

    fn attribute(&mut self, name: &str) -> Option<&[u8]> {
        Self::attribute(self, name).map(str::as_bytes)
    }

    fn clock(&mut self) -> u64 {
        self.clock_ns().unwrap_or(0)
    }

    fn wall(&mut self) -> u64 {
        self.wall_ns().unwrap_or(0)
    }

    fn timer(&mut self, timer: u32, after: Duration) -> bool {
        Self::timer(self, timer, after)
    }
}
