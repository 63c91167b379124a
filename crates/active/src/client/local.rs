//! Executions at the client: of entries that only read, on a mapping of the node's region whose
//! pages are read from the node when the execution touches them.
//!
//! Each execution starts without pages. The region's version is read before the first page and
//! after the last: if it has changed, the pages may be of several states, and the execution is
//! begun again, or made at the node.

use super::place::{CallPlace, PlaceChooser};
use super::{ActiveCall, ActiveClient, ActiveError, RemoteRegion};
use crate::protocol::INLINE_MAX;
use outboard_cluster::waker::Waker;
use outboard_offcode::executor::{
    BackgroundLimits, Executor, ExecutorOptions, Moment, Request, TimeLimit,
};
use outboard_offcode::inspect::ModuleInfo;
use outboard_offcode::journal::RequestId;
use outboard_offcode::region::CommitObserver;
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ActiveRegion, LoadError, ModuleHash, ModuleStore, Outcome, Wasmtime};
use outboard_verbs::{LazyFill, SharedRegion, Space};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often an execution is begun again when the region has changed meanwhile.
const TRIES: u32 = 3;
/// Bytes that are read for a missing page.
pub(super) const PAGE: usize = 4096;
/// Looks at the threads' answers before this one sleeps.
const SPINS: u32 = 2000;
/// Modules that a program links, at most: as deep as imports are looked for.
const IMPORTS_MAX: usize = 64;

/// What a client needs to execute by itself. Made when it is needed first.
pub(super) struct LocalSide {
    executor: Executor<Wasmtime>,
    waker: Waker,
    regions: HashMap<u32, LocalRegion>,
    /// The number of the latest execution.
    token: u64,
    /// Bytes that an execution may write, of regions that are mapped from now on.
    pub(super) write_max: usize,
}

/// A region whose pages come from the node.
pub(super) struct LocalRegion {
    fill: LazyFill,
    region: Arc<ActiveRegion>,
    /// What the latest execution has written.
    pub(super) written: LastWritten,
    /// Pages that it has touched, as far as they were asked for.
    pub(super) touched: Vec<usize>,
}

impl LocalRegion {
    /// Forgets the execution before.
    fn begin(&mut self, with: LocalUse<'_>) -> Result<(), ActiveError> {
        self.fill.clear().map_err(machine)?;
        self.touched.clear();
        self.written.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let LocalUse::Writes(pages) = with else { return Ok(()) };
        for (offset, page) in pages {
            self.fill.fill(*offset, page).map_err(machine)?;
            self.touched.push(*offset);
        }
        Ok(())
    }
}

/// The lines of the latest commit.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWritten(pub(super) Arc<Mutex<Vec<u8>>>);

impl CommitObserver for LastWritten {
    fn committed(&self, _seq: u64, lines: &[u8], _answer: Option<(RequestId, &[u8])>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lines.to_vec();
    }
}

/// What a local execution may do.
#[derive(Clone, Copy, Debug)]
pub(super) enum LocalUse<'a> {
    /// It reads.
    Reads,
    /// It writes, into the mapping. These pages it has from the start, by their offsets.
    Writes(&'a [(usize, Vec<u8>)]),
}

/// How a local execution ended.
pub(super) enum LocalEnd {
    /// It is of one state.
    Done(Outcome),
    /// The region changed meanwhile.
    Changed,
    /// It is not for this side.
    NotHere,
}

pub(super) fn machine(error: impl ToString) -> ActiveError {
    ActiveError::Machine { why: error.to_string() }
}

impl LocalSide {
    fn new() -> Result<Self, ActiveError> {
        let engine = Arc::new(Wasmtime::new(None).map_err(machine)?);
        let store = Arc::new(ModuleStore::new(engine, StoreLimits::default()));
        let waker = Waker::new().map_err(machine)?;
        let woken = waker.clone();
        let background = BackgroundLimits { threads: 1, running: 1, waiting: 16, nice: 0 };
        let options = ExecutorOptions { background, ..ExecutorOptions::default() };
        let executor = Executor::new(store, options, move || woken.wake()).map_err(machine)?;
        Ok(Self { executor, waker, regions: HashMap::new(), token: 0, write_max: 0 })
    }

    pub(super) fn region(&mut self, of: &RemoteRegion) -> Result<&mut LocalRegion, ActiveError> {
        let write_max = self.write_max;
        match self.regions.entry(of.handle) {
            Entry::Occupied(region) => Ok(region.into_mut()),
            Entry::Vacant(place) => {
                let len = usize::try_from(of.len()).map_err(machine)?;
                let memory = SharedRegion::memfd(c"outboard-local", len, Space::OnDemand);
                let memory = memory.map_err(machine)?;
                let fill = memory.fill_lazily().map_err(machine)?;
                let region = ActiveRegion::over(of.name(), memory, write_max).map_err(machine)?;
                let written = LastWritten::default();
                region.observe(Box::new(written.clone())).map_err(machine)?;
                let (region, touched) = (Arc::new(region), Vec::new());
                Ok(place.insert(LocalRegion { fill, region, written, touched }))
            }
        }
    }
}

impl ActiveClient {
    /// Executes an entry where it is asked for, and waits for what becomes of it. An entry that may
    /// write, and one whose module this client does not [know](Self::know), is executed at the
    /// node. Tells where it was.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn execute_at(
        &mut self,
        call: &ActiveCall<'_>,
        place: CallPlace,
    ) -> Result<(Outcome, CallPlace), ActiveError> {
        let is_local = match place {
            CallPlace::Remote => false,
            CallPlace::Local => true,
            CallPlace::Auto => self.placement.is_local(call.module, call.entry),
        };
        if is_local && call.result.is_none() && self.is_read_only(call) {
            let since = Instant::now();
            let outcome = self.execute_here(call);
            self.placement.took_local(call.module, call.entry, since.elapsed());
            match outcome {
                Ok(Some(outcome)) => return Ok((outcome, CallPlace::Local)),
                Ok(None) => {}
                // Where this machine cannot, the node can.
                Err(error @ (ActiveError::Machine { .. } | ActiveError::Memory(_))) => {
                    tracing::info!("entry {} is executed at the node: {error}", call.entry);
                }
                Err(error) => return Err(error),
            }
        }
        let since = Instant::now();
        let outcome = self.execute(call)?;
        self.placement.took_remote(call.module, call.entry, since.elapsed());
        Ok((outcome, CallPlace::Remote))
    }

    /// The times by which [`CallPlace::Auto`] decides.
    pub(super) fn placement(&mut self) -> &mut PlaceChooser {
        &mut self.placement
    }

    fn is_read_only(&mut self, call: &ActiveCall<'_>) -> bool {
        let info = self.load_here(call.module, 0);
        info.is_ok_and(|info| {
            info.is_some_and(|info| {
                info.exports.get(call.entry).is_some_and(|export| !export.writes)
            })
        })
    }

    pub(super) fn local(&mut self) -> Result<&mut LocalSide, ActiveError> {
        if self.local.is_none() {
            self.local = Some(LocalSide::new()?);
        }
        self.local.as_mut().ok_or(ActiveError::NotOwn { what: "executor" })
    }

    /// Loads a module that the client knows, after what it imports, to be executed here.
    pub(super) fn load_here(
        &mut self,
        module: ModuleHash,
        depth: usize,
    ) -> Result<Option<Arc<ModuleInfo>>, ActiveError> {
        let caller = TenantId(self.state.caller);
        let store = Arc::clone(self.local()?.executor.store());
        if let Some(info) = store.find(caller, &module) {
            return Ok(Some(info));
        }
        let Some(known) = self.state.modules.get(&module).cloned() else { return Ok(None) };
        for _ in 0..IMPORTS_MAX {
            // For everybody: the caller is who the service says, on each connection.
            match store.load(None, &known.name, &known.bytes) {
                Ok(info) => return Ok(Some(info)),
                Err(LoadError::Missing { hash, .. }) if depth < IMPORTS_MAX => {
                    if self.load_here(hash, depth + 1)?.is_none() {
                        return Ok(None);
                    }
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Executes an entry here; `None` if it must be executed at the node.
    fn execute_here(&mut self, call: &ActiveCall<'_>) -> Result<Option<Outcome>, ActiveError> {
        for _ in 0..TRIES {
            match self.try_here(call, LocalUse::Reads)? {
                LocalEnd::Done(outcome) => return Ok(Some(outcome)),
                LocalEnd::Changed => {}
                LocalEnd::NotHere => return Ok(None),
            }
        }
        Ok(None)
    }

    pub(super) fn try_here(
        &mut self,
        call: &ActiveCall<'_>,
        with: LocalUse<'_>,
    ) -> Result<LocalEnd, ActiveError> {
        let limit = call.limit.unwrap_or(self.options.limit).min(self.options.limit);
        let caller = TenantId(self.state.caller);
        let local = self.local()?;
        local.token += 1;
        let token = local.token;
        let here = local.region(call.region)?;
        here.begin(with)?;
        let request = Request {
            token,
            tenant: caller,
            id: None,
            retried_since: None,
            region: Arc::clone(&here.region),
            module: call.module,
            entry: call.entry.to_owned(),
            args: call.args.to_vec(),
            out_cap: result_max(call),
            may_write: matches!(with, LocalUse::Writes(_)),
            is_at_client: true,
            limit: TimeLimit::Caller(limit),
            moment: Moment::now(),
        };
        if local.executor.execute_on_thread(request).is_some() {
            return Ok(LocalEnd::NotHere);
        }
        // Whoever writes keeps others out by itself.
        let mut version = if let LocalUse::Reads = with { None } else { Some(0) };
        let outcome = match self.serve_pages(call.region, limit, &mut version) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.abandon_here(call.region);
                return Err(error);
            }
        };
        if let Outcome::Refused(_) | Outcome::NoCode(_) | Outcome::Busy(_) = outcome {
            return Ok(LocalEnd::NotHere);
        }
        match version {
            // It has looked at nothing of the region.
            None => Ok(LocalEnd::Done(outcome)),
            Some(_) if matches!(with, LocalUse::Writes(_)) => Ok(LocalEnd::Done(outcome)),
            Some(before) => {
                let after = self.read_version(call.region)?;
                let is_one_state = before == after && before.is_multiple_of(2);
                Ok(if is_one_state { LocalEnd::Done(outcome) } else { LocalEnd::Changed })
            }
        }
    }

    /// Reads the pages that the execution touches until it is over.
    fn serve_pages(
        &mut self,
        of: &RemoteRegion,
        limit: Duration,
        version: &mut Option<u64>,
    ) -> Result<Outcome, ActiveError> {
        // The thread ends it at its limit; this is for one that does not.
        let deadline = Instant::now() + limit + Duration::from_secs(5);
        let mut spins = 0;
        loop {
            self.check_stopped()?;
            let local = self.local()?;
            local.waker.clear();
            while let Some((token, outcome)) = local.executor.poll() {
                // Another one's was given up.
                if token == local.token {
                    return Ok(outcome);
                }
            }
            let missing = local.region(of)?.fill.next();
            if let Some(offset) = missing {
                self.fetch(of, offset, version)?;
                spins = 0;
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            if Instant::now() >= deadline {
                return Err(ActiveError::TimedOut { limit });
            }
            self.sleep_here(of)?;
        }
    }

    fn fetch(
        &mut self,
        of: &RemoteRegion,
        offset: usize,
        version: &mut Option<u64>,
    ) -> Result<(), ActiveError> {
        let since = Instant::now();
        if version.is_none() {
            *version = Some(self.read_version(of)?);
        } else {
            let len = usize::try_from(of.len()).unwrap_or(usize::MAX) - offset;
            let page = of.read(self, offset as u64, len.min(PAGE))?;
            let here = self.local()?.region(of)?;
            here.fill.fill(offset, &page).map_err(machine)?;
            here.touched.push(offset);
            self.placement().took_read(since.elapsed());
            return Ok(());
        }
        self.fetch(of, offset, version)
    }

    fn sleep_here(&mut self, of: &RemoteRegion) -> Result<(), ActiveError> {
        let local = self.local()?;
        local.region(of)?;
        let Some(here) = local.regions.get(&of.handle) else { return Ok(()) };
        let (waker, pages) = (local.waker.as_fd(), here.fill.as_fd());
        let mut fds = [PollFd::new(&waker, PollFlags::IN), PollFd::new(&pages, PollFlags::IN)];
        let a_while = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // Interrupted, or over: the caller looks again.
        let _polled = poll(&mut fds, Some(&a_while));
        Ok(())
    }

    /// Ends a local execution whose pages cannot be had: it finds zero bytes, and its outcome is
    /// dropped with the region's mapping.
    fn abandon_here(&mut self, of: &RemoteRegion) {
        let caller = TenantId(self.state.caller);
        if let Some(local) = &mut self.local {
            local.executor.kill(caller, local.token);
            if let Some(here) = local.regions.remove(&of.handle) {
                local.executor.forget_region(here.region.number());
            }
        }
    }
}

/// Bytes of a result, at most: as many as at the node.
fn result_max(call: &ActiveCall<'_>) -> u32 {
    let room = call.result.as_ref().map_or(INLINE_MAX, |(_, place)| place.len());
    u32::try_from(room).unwrap_or(u32::MAX)
}
