//! Modules, lists, kills and reports: requests whose answers the caller waits for.

use super::error::check_name;
use super::link::{ClientLink, LinkLost};
use super::state::{ClientState, KnownModule};
use super::window::{Asked, Settled};
use super::{ActiveClient, ActiveError, RemoteRegion};
use crate::protocol::{
    ActiveRequest, EntrySummary, INLINE_MAX, KillTarget, ModuleBytes, ModuleSummary, PROTOCOL,
};
use outboard_offcode::ModuleHash;
use outboard_verbs::{Access, SharedRegion};

impl ActiveClient {
    /// Remembers a module, so that it is loaded when a call, or another module, needs it.
    ///
    /// # Errors
    /// [`ActiveError::TooLong`]: its name.
    pub fn know(&mut self, name: &str, bytes: &[u8]) -> Result<ModuleHash, ActiveError> {
        check_name("a module's name", name)?;
        let hash = ModuleHash::of(bytes);
        let known = || KnownModule { name: name.into(), bytes: bytes.into() };
        self.state.modules.entry(hash).or_insert_with(known);
        Ok(hash)
    }

    /// Forgets a module: it is not loaded again.
    pub fn forget(&mut self, module: &ModuleHash) {
        self.state.modules.remove(module);
    }

    /// Loads a module now, after those that it imports if this client [knows](Self::know) them, and
    /// remembers it. Returns its entries, or the first of them.
    ///
    /// # Errors
    /// [`ActiveError::NotLoaded`] with the node's reason; as all calls.
    pub fn load(
        &mut self,
        name: &str,
        bytes: &[u8],
    ) -> Result<(ModuleHash, Vec<EntrySummary>), ActiveError> {
        let module = self.know(name, bytes)?;
        Ok((module, self.load_known(module)?))
    }

    /// As [`Self::load`], a module that this client knows already. Returns its entries.
    ///
    /// # Errors
    /// [`ActiveError::NotOwn`]; as for [`Self::load`].
    pub fn load_known(&mut self, module: ModuleHash) -> Result<Vec<EntrySummary>, ActiveError> {
        let known = self.state.modules.get(&module);
        let name = known.ok_or(ActiveError::NotOwn { what: "module" })?.name.to_string();
        let number = self.state.ask(Asked::Load { module, tries: 0 }, self.deadline(), false);
        match self.settled(number)? {
            Settled::Loaded(entries) => Ok(entries),
            Settled::Refused(why) => Err(ActiveError::NotLoaded { name, why }),
            other => Err(unexpected(&other)),
        }
    }

    /// The modules that this identity may execute.
    ///
    /// # Errors
    /// As all calls.
    pub fn list(&mut self) -> Result<Vec<ModuleSummary>, ActiveError> {
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            match self.answer(|number| ActiveRequest::List { number, from })? {
                Settled::Modules(modules, total) => {
                    let is_last = modules.is_empty();
                    all.extend(modules);
                    if is_last || all.len() >= total as usize {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Drops a module that this identity has loaded, and forgets it.
    ///
    /// # Errors
    /// [`ActiveError::Refused`]; as all calls.
    pub fn drop_module(&mut self, module: ModuleHash) -> Result<(), ActiveError> {
        self.forget(&module);
        self.is_done(|number| ActiveRequest::Drop { number, module: module.0 })
    }

    /// Ends an execution of this identity's.
    ///
    /// # Errors
    /// [`ActiveError::Refused`]: it is not under way; as all calls.
    pub fn kill(&mut self, target: KillTarget) -> Result<(), ActiveError> {
        self.is_done(|number| ActiveRequest::Kill { number, target })
    }

    /// The executions of this identity that are under way: JSON.
    ///
    /// # Errors
    /// As all calls.
    pub fn running(&mut self) -> Result<String, ActiveError> {
        self.text(|number| ActiveRequest::Running { number })
    }

    /// The latest slow executions of this identity: JSON.
    ///
    /// # Errors
    /// As all calls.
    pub fn slowlog(&mut self) -> Result<String, ActiveError> {
        self.text(|number| ActiveRequest::Slowlog { number })
    }

    /// The service's counters: JSON.
    ///
    /// # Errors
    /// As all calls.
    pub fn stats(&mut self) -> Result<String, ActiveError> {
        self.text(|number| ActiveRequest::Stats { number })
    }

    /// Has the node write a region to its file.
    ///
    /// # Errors
    /// [`ActiveError::Refused`]: it has none, its disk is full; as all calls.
    pub fn flush_region(&mut self, region: &RemoteRegion) -> Result<(), ActiveError> {
        self.attached(region, self.deadline())?;
        let handle = region.handle;
        self.is_done(|number| ActiveRequest::Flush { number, handle })
    }

    fn text(
        &mut self,
        request: impl FnOnce(u64) -> ActiveRequest<'static>,
    ) -> Result<String, ActiveError> {
        match self.answer(request)? {
            Settled::Text(json) => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    fn is_done(
        &mut self,
        request: impl FnOnce(u64) -> ActiveRequest<'static>,
    ) -> Result<(), ActiveError> {
        match self.answer(request)? {
            Settled::Ok => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn answer(
        &mut self,
        request: impl FnOnce(u64) -> ActiveRequest<'static>,
    ) -> Result<Settled, ActiveError> {
        let bytes = PROTOCOL.encode(&request(self.state.window.next_number()));
        let number = self.state.ask(Asked::Other(bytes), self.deadline(), false);
        self.settled(number)
    }
}

/// What is wrong with an answer of another kind than was asked for.
pub(super) fn unexpected(settled: &Settled) -> ActiveError {
    let why = match settled {
        Settled::Refused(why) => why.clone(),
        other => format!("a fault of its own: it answers with {other:?}"),
    };
    ActiveError::Refused { why }
}

/// Sends a Load: the module with it, or memory that has it.
pub(super) fn send_load(
    state: &mut ClientState,
    link: &mut ClientLink,
    number: u64,
    module: ModuleHash,
) -> Result<(), LinkLost> {
    let Some(KnownModule { name, bytes }) = state.modules.get(&module).cloned() else {
        // It was forgotten meanwhile: an empty module is refused.
        let code = ModuleBytes::Inline(&[]);
        state.append(&ActiveRequest::Load { number, name: "forgotten", code });
        return Ok(());
    };
    let code = if bytes.len() <= INLINE_MAX {
        ModuleBytes::Inline(&bytes)
    } else {
        let exposed = SharedRegion::zeroed(bytes.len()).and_then(|memory| {
            memory.copy_in(0, &bytes)?;
            Ok(memory)
        });
        let exposed = exposed
            .map_err(ActiveError::from)
            .and_then(|memory| link.expose(memory.into(), Access::REMOTE_READ));
        let exposed = exposed.map_err(|error| LinkLost(error.to_string()))?;
        state.loading.insert(number, exposed);
        ModuleBytes::Memory(exposed)
    };
    state.append(&ActiveRequest::Load { number, name: &name, code });
    Ok(())
}
