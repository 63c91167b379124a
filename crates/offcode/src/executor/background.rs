//! Threads for what takes long: executions, and making instances. Each is a worker of ordinary
//! priority, which holds locks and commits, and has the modules' code run by a thread of low
//! priority, which holds nothing that others wait for.
//!
//! Tenants take turns; what one has waiting delays no other by more than what is running. Each has
//! a limit on what runs and what waits.

use super::outcome_of;
use super::request::{Outcome, Request};
use super::run::{Attempt, RunsOn, attempt};
use super::warm::InstanceKey;
use crate::engine::{Bounding, Budget, KillSwitch, WasmEngine};
use crate::hash::ModuleHash;
use crate::instance::WarmInstance;
use crate::low_priority::LowPriority;
use crate::stop::Stop;
use crate::store::{ModuleStore, TenantId};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How much modules' code yields to everything else of this machine, unless a caller says
/// otherwise.
const NICE: i32 = 15;
/// Instances that the threads keep, at most.
const INSTANCES_MAX: usize = 64;
/// Fuel of the start functions of a program.
const START_FUEL: u64 = 10_000_000;
/// What became of a program that needs more.
const START_TOO_LONG: &str = "its start functions take more than 10,000,000 instructions";

/// What each tenant may have on the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundLimits {
    /// Threads.
    pub threads: usize,
    /// Executions of one tenant at a time.
    pub running: usize,
    /// Requests of one tenant that wait.
    pub waiting: usize,
    /// The priority of modules' code, as nice(1) has it.
    pub nice: i32,
}

impl Default for BackgroundLimits {
    fn default() -> Self {
        let running = thread::available_parallelism().map_or(2, usize::from).max(2);
        // One thread is left by a tenant that has as much as it may.
        Self { threads: running + 1, running, waiting: 1024, nice: NICE }
    }
}

/// An execution that threads have, running or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionUnderWay {
    /// Its request's.
    pub token: u64,
    /// The module.
    pub module: ModuleHash,
    /// The entry.
    pub entry: String,
    /// When the threads got it.
    pub since: Instant,
}

impl ExecutionUnderWay {
    pub(super) fn of(request: &Request, since: Instant) -> Self {
        let Request { token, module, ref entry, .. } = *request;
        Self { token, module, entry: entry.clone(), since }
    }
}

/// What a thread is to do.
#[derive(Debug)]
pub(super) enum BackgroundJob {
    /// Run it.
    Execute(Request),
    /// Make the instance that the loop needs for it.
    Prepare(Request),
}

impl BackgroundJob {
    pub(super) fn request(&self) -> &Request {
        match self {
            Self::Execute(request) | Self::Prepare(request) => request,
        }
    }
}

/// What a thread tells the loop.
pub(super) enum Told<I> {
    /// The instance that the loop needs, and whether the request was killed meanwhile.
    Prepared { request: Request, instance: WarmInstance<I>, is_killed: bool },
    /// Why there is none.
    NotPrepared { request: Request, outcome: Outcome },
    /// What came of a request, since when it was there, and how much processor time its
    /// code took, if it was executed.
    Ended {
        request: Request,
        outcome: Outcome,
        conflicts: u64,
        log: Vec<u8>,
        since: Instant,
        ran: Option<Duration>,
    },
}

/// See this file's first lines.
pub(super) struct ExecutorThreads<E: WasmEngine> {
    shared: Arc<Shared<E>>,
}

struct Shared<E: WasmEngine> {
    store: Arc<ModuleStore<E>>,
    limits: BackgroundLimits,
    low: LowPriority,
    queues: Mutex<Queues<E::Instance>>,
    changed: Condvar,
    sender: mpsc::Sender<Told<E::Instance>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// What waits and what runs.
struct Queues<I> {
    tenants: HashMap<TenantId, TenantQueue>,
    /// Tenants that have something waiting and may run more, in turn.
    turns: VecDeque<TenantId>,
    /// Requests that have not ended, by token.
    under_way: HashMap<u64, UnderWay>,
    instances: Vec<(InstanceKey, WarmInstance<I>)>,
    is_ending: bool,
}

#[derive(Default)]
struct TenantQueue {
    waiting: VecDeque<(BackgroundJob, Instant)>,
    running: usize,
    has_turn: bool,
    /// The tokens of both, the oldest first.
    tokens: BTreeSet<u64>,
}

struct UnderWay {
    tenant: TenantId,
    module: ModuleHash,
    entry: String,
    since: Instant,
    kill: Arc<KillSwitch>,
}

impl<E: WasmEngine> ExecutorThreads<E> {
    pub(super) fn start(
        store: Arc<ModuleStore<E>>,
        limits: BackgroundLimits,
        sender: mpsc::Sender<Told<E::Instance>>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let queues = Queues {
            tenants: HashMap::new(),
            turns: VecDeque::new(),
            under_way: HashMap::new(),
            instances: Vec::new(),
            is_ending: false,
        };
        let (queues, changed) = (Mutex::new(queues), Condvar::new());
        // As many as there are workers: no worker waits for another's module.
        let low = LowPriority::new("outboard-execute", limits.threads, limits.nice)?;
        let shared = Arc::new(Shared { store, limits, low, queues, changed, sender, wake });
        let background = Self { shared };
        for _ in 0..limits.threads {
            let shared = Arc::clone(&background.shared);
            let thread = thread::Builder::new().name("outboard-commit".into());
            thread.spawn(move || shared.work())?;
        }
        Ok(background)
    }

    /// Adds a job; the error says why its tenant may not have it.
    pub(super) fn add(&self, job: BackgroundJob) -> Result<(), String> {
        let Request { token, tenant, module, .. } = *job.request();
        let entry = job.request().entry.clone();
        let mut queues = self.shared.lock();
        let limits = self.shared.limits;
        let queue = queues.tenants.entry(tenant).or_default();
        if queue.waiting.len() >= limits.waiting {
            return Err(format!("{} requests of this identity are waiting", limits.waiting));
        }
        let since = Instant::now();
        queue.waiting.push_back((job, since));
        queue.tokens.insert(token);
        queues.give_turn(tenant, limits.running);
        let kill = Arc::default();
        queues.under_way.insert(token, UnderWay { tenant, module, entry, since, kill });
        drop(queues);
        self.shared.changed.notify_one();
        Ok(())
    }

    pub(super) fn kill(&self, tenant: TenantId, token: u64) -> bool {
        let queues = self.shared.lock();
        let its = queues.under_way.get(&token).filter(|its| its.tenant == tenant);
        its.inspect(|its| its.kill.kill()).is_some()
    }

    /// Calls the loop, as a thread does that has ended something.
    pub(super) fn wake(&self) {
        (self.shared.wake)();
    }

    pub(super) fn under_way(&self, tenant: TenantId, most: usize) -> Vec<ExecutionUnderWay> {
        let queues = self.shared.lock();
        let tokens = queues.tenants.get(&tenant).into_iter().flat_map(|queue| &queue.tokens);
        let describe = |token: &u64| {
            let UnderWay { module, ref entry, since, .. } = *queues.under_way.get(token)?;
            Some(ExecutionUnderWay { token: *token, module, entry: entry.clone(), since })
        };
        tokens.filter_map(describe).take(most).collect()
    }

    /// Drops the instances on a region.
    pub(super) fn forget(&self, region: u64) {
        self.shared.lock().instances.retain(|(key, _)| key.region != region);
    }
}

impl<E: WasmEngine> Drop for ExecutorThreads<E> {
    fn drop(&mut self) {
        let mut queues = self.shared.lock();
        queues.is_ending = true;
        for its in queues.under_way.values() {
            its.kill.kill();
        }
        drop(queues);
        self.shared.changed.notify_all();
    }
}

impl<E: WasmEngine> fmt::Debug for ExecutorThreads<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorThreads").finish_non_exhaustive()
    }
}

impl<I> Queues<I> {
    fn give_turn(&mut self, tenant: TenantId, running_max: usize) {
        let Some(queue) = self.tenants.get_mut(&tenant) else { return };
        if !queue.has_turn && !queue.waiting.is_empty() && queue.running < running_max {
            queue.has_turn = true;
            self.turns.push_back(tenant);
        }
    }

    fn next(&mut self, running_max: usize) -> Option<(BackgroundJob, Instant, Arc<KillSwitch>)> {
        let tenant = self.turns.pop_front()?;
        let queue = self.tenants.get_mut(&tenant)?;
        queue.has_turn = false;
        let (job, since) = queue.waiting.pop_front()?;
        queue.running += 1;
        self.give_turn(tenant, running_max);
        let kill = self.under_way.get(&job.request().token).map(|its| Arc::clone(&its.kill));
        Some((job, since, kill.unwrap_or_default()))
    }

    fn end(&mut self, tenant: TenantId, token: u64, running_max: usize) {
        self.under_way.remove(&token);
        if let Some(queue) = self.tenants.get_mut(&tenant) {
            queue.running = queue.running.saturating_sub(1);
            queue.tokens.remove(&token);
            if queue.running == 0 && queue.waiting.is_empty() {
                self.tenants.remove(&tenant);
            }
        }
        self.give_turn(tenant, running_max);
    }
}

impl<E: WasmEngine> Shared<E> {
    fn lock(&self) -> MutexGuard<'_, Queues<E::Instance>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some((job, since, kill)) = self.wait() {
            let (tenant, token) = (job.request().tenant, job.request().token);
            let told = self.perform(job, since, &kill);
            self.lock().end(tenant, token, self.limits.running);
            // Others may have waited for this tenant's place.
            self.changed.notify_one();
            if self.sender.send(told).is_err() {
                return;
            }
            (self.wake)();
        }
    }

    fn wait(&self) -> Option<(BackgroundJob, Instant, Arc<KillSwitch>)> {
        let mut queues = self.lock();
        loop {
            if queues.is_ending {
                return None;
            }
            if let Some(next) = queues.next(self.limits.running) {
                return Some(next);
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn perform(
        &self,
        job: BackgroundJob,
        since: Instant,
        kill: &Arc<KillSwitch>,
    ) -> Told<E::Instance> {
        match job {
            BackgroundJob::Prepare(request) => {
                match guarded(|| self.instance(&request, Bounding::Fuel, &Budget::Fuel(START_FUEL)))
                {
                    Ok(instance) => {
                        Told::Prepared { request, instance, is_killed: kill.is_killed() }
                    }
                    Err(outcome) => Told::NotPrepared { request, outcome },
                }
            }
            BackgroundJob::Execute(request) => {
                let (outcome, conflicts, log, ran) = guarded(|| self.execute(&request, kill))
                    .unwrap_or_else(|outcome| (outcome, 0, Vec::new(), None));
                Told::Ended { request, outcome, conflicts, log, since, ran }
            }
        }
    }

    fn execute(
        &self,
        request: &Request,
        kill: &Arc<KillSwitch>,
    ) -> Result<(Outcome, u64, Vec<u8>, Option<Duration>), Outcome> {
        if kill.is_killed() {
            return Err(Outcome::Killed);
        }
        if let Some(outcome) = request.outcome_of_earlier() {
            return Err(outcome);
        }
        let budget = Budget::Time(request.limit.duration(), Arc::clone(kill));
        let key = InstanceKey::of(request);
        let mut instance = match self.take(&key) {
            // Only while its tenant still has the module.
            Some(instance) if self.store.find(request.tenant, &request.module).is_some() => {
                instance
            }
            _ => self.instance(request, Bounding::Time, &budget)?,
        };
        let mut result = Vec::new();
        let ran = Cell::new(Duration::ZERO);
        let runs_on = RunsOn::LowPriority(&self.low, &ran);
        let attempted = attempt(&mut instance, request, (&budget, runs_on), &mut result);
        let ran = Some(ran.get());
        self.keep(key, instance);
        match attempted {
            Attempt::Ended { outcome, conflicts, log, .. } => Ok((outcome, conflicts, log, ran)),
            // Those of the loop's budget.
            Attempt::OutOfFuel | Attempt::Locked => Err(request.limit.outcome()),
        }
    }

    fn instance(
        &self,
        request: &Request,
        bound: Bounding,
        budget: &Budget,
    ) -> Result<WarmInstance<E::Instance>, Outcome> {
        let program = self.store.program(request.tenant, &request.module, bound);
        let program = program.map_err(|_| Outcome::NoCode(request.module))?;
        let region = (request.region.memory(), request.region.write_max());
        let engine = &**self.store.engine();
        let made = self.low.run(|| WarmInstance::new(engine, &program, region, (bound, budget)));
        made.map_err(|stop| match stop {
            Stop::OutOfFuel => Outcome::Trap(START_TOO_LONG.to_owned()),
            stop => outcome_of(stop, request.limit),
        })
    }

    fn take(&self, key: &InstanceKey) -> Option<WarmInstance<E::Instance>> {
        let mut queues = self.lock();
        let at = queues.instances.iter().position(|(known, _)| known == key)?;
        Some(queues.instances.swap_remove(at).1)
    }

    fn keep(&self, key: InstanceKey, instance: WarmInstance<E::Instance>) {
        let mut queues = self.lock();
        let oldest = (queues.instances.len() >= INSTANCES_MAX).then(|| queues.instances.remove(0));
        queues.instances.push((key, instance));
        drop(queues);
        drop(oldest);
    }
}

/// A defect of the engine's is an outcome, not the end of the thread.
fn guarded<T>(work: impl FnOnce() -> Result<T, Outcome>) -> Result<T, Outcome> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Outcome::Machine("a defect of Outboard: the execution panicked".into()))
    })
}
