//! Runs requests: short ones at once, in the thread that asks (a service's loop), bounded by fuel;
//! the others on threads, bounded by time, their modules' code at low priority.
//!
//! An entry that used up its fuel for a tenant goes to the threads, for that tenant, until it takes
//! little time there. What is needed for a first
//! execution (an instance) is made there as well; the request then comes back to the loop.

mod background;
mod preparing;
mod request;
mod run;
mod slowlog;
#[cfg(test)]
mod tests;
mod warm;

pub use background::{BackgroundLimits, ExecutionUnderWay};
use request::Locked;
pub use request::{Moment, Outcome, Request, TimeLimit, is_printable};
pub use run::Usage;
pub use slowlog::{SlowExecution, SlowLog};

use crate::engine::{Budget, WasmEngine};
use crate::hash::ModuleHash;
use crate::stop::Stop;
use crate::store::{ModuleStore, TenantId};
use background::{BackgroundJob, ExecutorThreads, Told};
use preparing::Preparing;
use run::{Attempt, RunsOn, attempt};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use warm::{InstanceKey, WarmInstances};

/// Instances that the loop keeps, at most.
const INSTANCES_MAX: usize = 256;
/// Bytes of memory that is kept for the next result, at most.
const SPARE_RESULT_MAX: usize = 64 << 10;
/// An execution on a thread that took less processor time than this would have had fuel enough.
const SHORT: Duration = Duration::from_micros(40);
/// Programs of tenants whose entries are remembered to take long, at most.
const LONG_MAX: usize = 4096;

/// What an executor may use.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorOptions {
    /// Fuel of an execution in the caller's thread: about an instruction each.
    pub fuel: u64,
    /// What the threads may do.
    pub background: BackgroundLimits,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        // Some 50 µs of compiled code with the counting of fuel.
        Self { fuel: 100_000, background: BackgroundLimits::default() }
    }
}

/// What an executor has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExecutorCounters {
    /// Executions in the caller's thread, to their end.
    pub here: u64,
    /// Executions on threads.
    pub on_threads: u64,
    /// Executions that had to be run again because something else was faster.
    pub conflicts: u64,
    /// Executions that ran out of the loop's fuel.
    pub out_of_fuel: u64,
    /// Instances made.
    pub instances: u64,
    /// Executions that ended by a trap, their time limit, or a kill.
    pub stopped: u64,
}

/// See this file's first lines.
pub struct Executor<E: WasmEngine> {
    store: Arc<ModuleStore<E>>,
    options: ExecutorOptions,
    warm: WarmInstances<E::Instance>,
    background: ExecutorThreads<E>,
    told: mpsc::Receiver<Told<E::Instance>>,
    /// Jobs that the threads have.
    on_threads: usize,
    /// Processors that this process may use.
    processors: usize,
    /// Entries that took long when they were last executed, for whom.
    long: HashMap<(TenantId, ModuleHash), HashSet<String>>,
    preparing: Preparing,
    /// What ended while an instance was awaited.
    over: VecDeque<(u64, Outcome)>,
    counters: ExecutorCounters,
    slow: SlowLog,
    result: Vec<u8>,
    log: Vec<u8>,
    used: Usage,
}

impl<E: WasmEngine> fmt::Debug for Executor<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl<E: WasmEngine> Executor<E> {
    /// An executor with its threads. `wake` is called from them when [`poll`](Self::poll) has
    /// something.
    ///
    /// # Errors
    /// This machine's: no threads.
    pub fn new(
        store: Arc<ModuleStore<E>>,
        options: ExecutorOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let (sender, told) = mpsc::channel();
        let background =
            ExecutorThreads::start(Arc::clone(&store), options.background, sender, Arc::new(wake))?;
        Ok(Self {
            store,
            options,
            warm: WarmInstances::new(INSTANCES_MAX),
            background,
            told,
            on_threads: 0,
            processors: thread::available_parallelism().map_or(1, usize::from),
            long: HashMap::new(),
            preparing: Preparing::new(options.background.waiting),
            over: VecDeque::new(),
            counters: ExecutorCounters::default(),
            slow: SlowLog::default(),
            result: Vec::new(),
            log: Vec::new(),
            used: Usage::default(),
        })
    }

    /// The modules.
    #[must_use]
    pub fn store(&self) -> &Arc<ModuleStore<E>> {
        &self.store
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> ExecutorCounters {
        self.counters
    }

    /// What the execution that ended last has said by the host call `log`.
    #[must_use]
    pub fn log(&self) -> &[u8] {
        &self.log
    }

    /// What the execution has used that ended last in the caller's thread.
    #[must_use]
    pub fn used(&self) -> Usage {
        self.used
    }

    /// The longest executions of late.
    #[must_use]
    pub fn slow(&self) -> &SlowLog {
        &self.slow
    }

    /// Executes a request now, or begins to: `None` says that [`poll`](Self::poll) will bring its
    /// outcome, with the request's token. A request is copied only if it is executed later.
    pub fn execute(&mut self, request: &Request) -> Option<Outcome> {
        match request.try_outcome_of_earlier() {
            Ok(Some(outcome)) => return Some(outcome),
            Ok(None) => {}
            // The thread looks for it.
            Err(Locked) => return self.admit(BackgroundJob::Execute(request.clone())),
        }
        if self.is_long(request) {
            return self.admit(BackgroundJob::Execute(request.clone()));
        }
        // An instance stands for a module that its tenant still has.
        self.warm.forget_dropped(&self.store);
        let key = InstanceKey::of(request);
        let Some(instance) = self.warm.get(&key) else {
            return self.prepare(key, request.clone());
        };
        let budget = Budget::Fuel(self.options.fuel);
        let attempted = attempt(instance, request, (&budget, RunsOn::Caller), &mut self.result);
        match attempted {
            Attempt::Ended { outcome, conflicts, used, log } => {
                (self.log, self.used) = (log, used);
                self.counters.here += 1;
                self.counters.conflicts += conflicts;
                self.counters.stopped += u64::from(outcome.is_stopped());
                Some(outcome)
            }
            Attempt::OutOfFuel => {
                self.counters.out_of_fuel += 1;
                self.remember(request);
                self.defer(BackgroundJob::Execute(request.clone()))
            }
            Attempt::Locked => self.defer(BackgroundJob::Execute(request.clone())),
        }
    }

    /// Takes an outcome back that nobody needs any more: its memory serves the next one.
    pub fn recycle(&mut self, outcome: Outcome) {
        if let Outcome::Done { result, .. } = outcome
            && self.result.capacity() < result.capacity()
            && result.capacity() <= SPARE_RESULT_MAX
        {
            self.result = result;
        }
    }

    /// Executes a request on a thread, whatever it takes; an outcome that is returned says why not.
    pub fn execute_on_thread(&mut self, request: Request) -> Option<Outcome> {
        self.admit(BackgroundJob::Execute(request))
    }

    /// Whether its threads have work for every processor: one who waits should sleep, not look.
    #[must_use]
    pub fn needs_processors(&self) -> bool {
        self.on_threads >= self.processors
    }

    /// The next request that ended on a thread: its token and its outcome.
    pub fn poll(&mut self) -> Option<(u64, Outcome)> {
        loop {
            if let Some(over) = self.over.pop_front() {
                return Some(over);
            }
            let told = self.told.try_recv().ok()?;
            self.on_threads = self.on_threads.saturating_sub(1);
            match told {
                Told::Prepared { request, instance, is_killed } => {
                    self.counters.instances += 1;
                    let key = InstanceKey::of(&request);
                    self.warm.put(key, instance);
                    let waiting = self.preparing.end(&key);
                    let first = if is_killed { self.killed(request.token) } else { Some(request) };
                    for request in first.into_iter().chain(waiting) {
                        let token = request.token;
                        let outcome = self.execute(&request);
                        self.over.extend(outcome.map(|outcome| (token, outcome)));
                    }
                }
                Told::NotPrepared { request, outcome } => {
                    let waiting = self.preparing.end(&InstanceKey::of(&request));
                    let all = std::iter::once(request).chain(waiting);
                    self.counters.stopped += u64::from(outcome.is_stopped());
                    self.over.extend(all.map(|request| (request.token, outcome.clone())));
                }
                Told::Ended { request, outcome, conflicts, log, since, ran } => {
                    if ran.is_some_and(|ran| ran < SHORT) {
                        self.forget_long(&request);
                    }
                    self.log = log;
                    self.counters.on_threads += 1;
                    self.counters.conflicts += conflicts;
                    self.counters.stopped += u64::from(outcome.is_stopped());
                    self.slow.add(&request, &outcome, (since.elapsed(), &self.log));
                    return Some((request.token, outcome));
                }
            }
        }
    }

    /// Kills a request of a tenant's that has not ended; false if there is none with that token.
    /// Its outcome comes by [`poll`](Self::poll).
    pub fn kill(&mut self, tenant: TenantId, token: u64) -> bool {
        if self.preparing.take(tenant, token).is_some() {
            self.killed(token);
            self.background.wake();
            return true;
        }
        self.background.kill(tenant, token)
    }

    fn killed(&mut self, token: u64) -> Option<Request> {
        self.counters.stopped += 1;
        self.over.push_back((token, Outcome::Killed));
        None
    }

    /// A tenant's requests on threads, and those that wait for an instance: the oldest ones of
    /// each, at most so many in all.
    #[must_use]
    pub fn under_way(&self, tenant: TenantId, most: usize) -> Vec<ExecutionUnderWay> {
        let mut its = self.background.under_way(tenant, most);
        its.extend(self.preparing.under_way(tenant, most - its.len()));
        its
    }

    /// Drops the instances on a region that is given up.
    pub fn forget_region(&mut self, number: u64) {
        self.warm.forget(|key| key.region == number);
        self.background.forget(number);
    }

    fn is_long(&self, request: &Request) -> bool {
        let entries = self.long.get(&(request.tenant, request.module));
        entries.is_some_and(|entries| entries.contains(&request.entry))
    }

    fn remember(&mut self, request: &Request) {
        if self.long.len() >= LONG_MAX {
            self.long.clear();
        }
        let entries = self.long.entry((request.tenant, request.module)).or_default();
        entries.insert(request.entry.clone());
    }

    fn forget_long(&mut self, request: &Request) {
        let key = (request.tenant, request.module);
        if let Some(entries) = self.long.get_mut(&key) {
            entries.remove(&request.entry);
            if entries.is_empty() {
                self.long.remove(&key);
            }
        }
    }

    /// Has an instance made, unless it is being made: then the request waits for it.
    fn prepare(&mut self, key: InstanceKey, request: Request) -> Option<Outcome> {
        if self.preparing.has(&key) {
            let waiting_max = self.options.background.waiting;
            let busy = || format!("{waiting_max} requests of this identity are waiting");
            return self.preparing.wait(key, request).err().map(|_| Outcome::Busy(busy()));
        }
        let refused = self.admit(BackgroundJob::Prepare(request));
        if refused.is_none() {
            self.preparing.begin(key);
        }
        refused
    }

    /// Defers a request whose tenant has the module.
    fn admit(&mut self, job: BackgroundJob) -> Option<Outcome> {
        let Request { tenant, module, .. } = *job.request();
        match self.store.find(tenant, &module) {
            Some(_) => self.defer(job),
            None => Some(Outcome::NoCode(module)),
        }
    }

    fn defer(&mut self, job: BackgroundJob) -> Option<Outcome> {
        match self.background.add(job) {
            Ok(()) => {
                self.on_threads += 1;
                None
            }
            Err(why) => Some(Outcome::Busy(why)),
        }
    }
}

/// What a stop is to the caller of a request.
fn outcome_of(stop: Stop, limit: TimeLimit) -> Outcome {
    match stop {
        Stop::Failed { code, text } => Outcome::Failed { code, text },
        Stop::Trap(text) => Outcome::Trap(text),
        Stop::OutOfFuel | Stop::Timeout => limit.outcome(),
        Stop::Killed => Outcome::Killed,
        Stop::ReadOnly => Outcome::Refused(Stop::ReadOnly.to_string()),
        Stop::Machine(text) => Outcome::Machine(text),
    }
}
