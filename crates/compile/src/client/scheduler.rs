//! Assigns jobs to servers: a plain value without clock or network.
//!
//! A server asks for work when it has a free slot, so nothing here guesses its load. Jobs are
//! assigned in the order of their arrival. A job whose server is lost is assigned again, to another
//! server if there is one. When no job waits, a server that asks gets a second copy of a job that
//! takes too long, and the first result counts.

use crate::args::Cause;
use crate::protocol::{Digest, SLOTS_MAX, TicketNumber};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// A job that takes longer than this many times the average is assigned to a second server.
const RACE_FACTOR: u32 = 3;
/// ... but only after this time.
const RACE_MIN: Duration = Duration::from_secs(2);
/// The same limit while no job has ended yet, so that there is no average.
const RACE_UNKNOWN: Duration = Duration::from_secs(30);
/// A job that takes longer than this many times the average may run locally as well.
const SLOW_FACTOR: u32 = 10;
/// ... but only after this time.
const SLOW_MIN: Duration = Duration::from_secs(60);
/// The same limit while no job has ended yet.
const SLOW_UNKNOWN: Duration = Duration::from_secs(60);
/// A job that has been on a server for longer runs locally: no honest server lets a job run as
/// long.
const COPY_MAX: Duration = Duration::from_secs(32 * 60);
/// Failures on servers after which a job runs locally.
const ATTEMPTS: usize = 3;
/// Servers whose limits a job may exceed before it runs locally.
const EXCEEDED_MAX: usize = 2;
/// How long a job waits for a server's slot before it runs locally.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a server gets no jobs of a compiler that it lacks.
const LACK_MAX: Duration = Duration::from_secs(60);

/// Identifies a session with a server; a server that reconnects gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub(crate) u32);

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// Send this server this job.
    Assign(ServerId, TicketNumber),
    /// Tell this server that there is no job now.
    Idle(ServerId),
    /// Tell this server that the job is cancelled.
    Cancel(ServerId, TicketNumber),
    /// Have that job run locally.
    Local(TicketNumber, LocalCause),
}

/// Why the scheduler makes a job run locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalCause {
    /// No server is left that could take it.
    NoServer,
    /// No server has its compiler.
    NoToolchain,
    /// It failed on servers too often, or ran too long.
    Failures,
    /// No server had a free slot in time.
    Waited,
}

impl From<LocalCause> for Cause {
    fn from(cause: LocalCause) -> Self {
        match cause {
            LocalCause::NoServer => Self::NoServers,
            LocalCause::NoToolchain => Self::NoToolchain,
            LocalCause::Failures => Self::ServersFailed,
            LocalCause::Waited => Self::Unclaimed,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    jobs: BTreeMap<TicketNumber, QueuedJob>,
    waiting: VecDeque<TicketNumber>,
    servers: HashMap<ServerId, ServerState>,
    dispatches: VecDeque<Dispatch>,
    average: Average,
}

#[derive(Debug)]
struct QueuedJob {
    toolchain: Digest,
    since: Instant,
    copies: Vec<(ServerId, Instant)>,
    failures: usize,
    /// Servers whose limits are too low for it.
    exceeded: Vec<ServerId>,
}

#[derive(Debug, Default)]
struct ServerState {
    slots: u32,
    running: HashSet<TicketNumber>,
    /// It has a free slot and was told that there is no job: the next job may go to it unasked.
    is_waiting: bool,
    /// Compilers that it does not have, and since when that is known.
    lacks: HashMap<Digest, Instant>,
}

impl ServerState {
    /// Whether the server called `id` has a job's compiler, and limits that allow the job.
    fn may_run(&self, id: ServerId, entry: &QueuedJob) -> bool {
        !self.lacks.contains_key(&entry.toolchain) && !entry.exceeded.contains(&id)
    }
}

/// Mean time from a job's assignment to its result.
#[derive(Debug, Default)]
struct Average {
    total: Duration,
    count: u32,
}

impl Average {
    fn add(&mut self, took: Duration) {
        // Halving both makes old jobs count less: the mean covers about the last thousand.
        if self.count >= 1000 {
            self.total /= 2;
            self.count /= 2;
        }
        self.total += took;
        self.count += 1;
    }

    fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.total / self.count)
    }
}

impl Scheduler {
    /// The next action.
    pub(crate) fn poll(&mut self) -> Option<Dispatch> {
        self.dispatches.pop_front()
    }

    /// How many servers are connected, and the sum of their slots.
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (
            self.servers.len(),
            self.servers.values().map(|server_state| server_state.slots as usize).sum(),
        )
    }

    /// Whether a server has the job.
    pub(crate) fn is_assigned(&self, ticket: TicketNumber) -> bool {
        self.jobs.get(&ticket).is_some_and(|entry| !entry.copies.is_empty())
    }

    /// How many jobs a server has.
    pub(crate) fn running(&self, server: ServerId) -> usize {
        self.servers.get(&server).map_or(0, |server_state| server_state.running.len())
    }

    /// A server has connected.
    pub(crate) fn add_server(&mut self, server: ServerId, slots: u32) {
        // Bounded: the manager decides by this number whether builds wait for servers.
        let slots = slots.min(SLOTS_MAX);
        self.servers.insert(server, ServerState { slots, ..ServerState::default() });
    }

    /// A server is lost: its jobs are assigned again, before all others.
    pub(crate) fn remove_server(&mut self, server: ServerId, now: Instant) {
        let Some(server_state) = self.servers.remove(&server) else { return };
        let mut lost: Vec<_> = server_state.running.into_iter().collect();
        lost.sort_unstable_by(|one, other| other.cmp(one));
        for ticket in lost {
            self.fail_copy(ticket, server, now);
        }
        self.settle();
    }

    /// A new job. With `hope` it waits for a server to connect if no connected one can take it,
    /// until [`Self::settle`].
    pub(crate) fn submit(
        &mut self,
        ticket: TicketNumber,
        toolchain: Digest,
        now: Instant,
        hope: bool,
    ) {
        // The compiler may have been installed since.
        let is_new = |since: &Instant| now.saturating_duration_since(*since) < LACK_MAX;
        self.servers
            .values_mut()
            .for_each(|server_state| server_state.lacks.retain(|_, since| is_new(since)));
        let (copies, exceeded) = (Vec::new(), Vec::new());
        let entry = QueuedJob { toolchain, since: now, copies, failures: 0, exceeded };
        let (server, has_takers) = (self.waiting_server(&entry), self.has_takers(&entry));
        self.jobs.insert(ticket, entry);
        match server {
            Some(server) => self.assign(server, ticket, now),
            None if hope || has_takers => self.waiting.push_back(ticket),
            None => self.run_locally(ticket, self.why_nobody(&self.jobs[&ticket])),
        }
    }

    /// Drops a job.
    pub(crate) fn cancel(&mut self, ticket: TicketNumber) {
        self.forget(ticket, None);
    }

    /// Jobs that have been on servers for far too long, the oldest first.
    pub(crate) fn slow(&self, now: Instant) -> impl Iterator<Item = TicketNumber> {
        let limit = self.average.mean().map_or(SLOW_UNKNOWN, |mean| mean * SLOW_FACTOR);
        let is_over =
            move |since: Instant| now.saturating_duration_since(since) > limit.max(SLOW_MIN);
        let is_slow =
            move |entry: &QueuedJob| entry.copies.iter().any(|(_, since)| is_over(*since));
        self.jobs.iter().filter(move |(_, entry)| is_slow(entry)).map(|(ticket, _)| *ticket)
    }

    /// A server has a free slot.
    pub(crate) fn want(&mut self, server: ServerId, now: Instant) {
        let Some(server_state) = self.servers.get_mut(&server) else { return };
        server_state.is_waiting = false;
        let server_state = &self.servers[&server];
        let fits = |ticket: &TicketNumber| server_state.may_run(server, &self.jobs[ticket]);
        if let Some(at) = self.waiting.iter().position(fits) {
            let ticket = self.waiting.remove(at).expect("it was found there");
            self.assign(server, ticket, now);
        } else if let Some(ticket) = self.slow_for(server, now) {
            self.assign(server, ticket, now);
        } else {
            self.servers.get_mut(&server).expect("it was there").is_waiting = true;
            self.dispatches.push_back(Dispatch::Idle(server));
        }
    }

    /// A server returns a job, as it has no slot for it after all.
    pub(crate) fn returned(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        if self.take_copy(ticket, server).is_some() {
            self.reassign(ticket, now);
        }
    }

    /// Whether this server has that job.
    pub(crate) fn has(&self, server: ServerId, ticket: TicketNumber) -> bool {
        self.servers.get(&server).is_some_and(|server_state| server_state.running.contains(&ticket))
    }

    /// A server does not have a job's compiler.
    pub(crate) fn lacks(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        if self.take_copy(ticket, server).is_none() {
            return;
        }
        let toolchain = self.jobs[&ticket].toolchain;
        if let Some(server_state) = self.servers.get_mut(&server) {
            server_state.lacks.insert(toolchain, now);
        }
        self.reassign(ticket, now);
    }

    /// A job failed on a server; another server may run it.
    pub(crate) fn failed(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        self.fail_copy(ticket, server, now);
    }

    /// A job exceeded a limit of a server's. Another server's may be higher; more are not tried,
    /// since such jobs are long.
    pub(crate) fn exceeded(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        if let Some(entry) = self.jobs.get_mut(&ticket) {
            entry.exceeded.push(server);
            let is_over = entry.exceeded.len() >= EXCEEDED_MAX;
            entry.failures = if is_over { ATTEMPTS } else { entry.failures };
        }
        self.fail_copy(ticket, server, now);
    }

    /// A server has finished a job. False: the job was dropped before.
    pub(crate) fn done(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) -> bool {
        let Some(entry) = self.jobs.get(&ticket) else { return false };
        let Some((_, since)) = entry.copies.iter().find(|(at, _)| *at == server) else {
            return false;
        };
        self.average.add(now.saturating_duration_since(*since));
        self.forget(ticket, Some(server));
        true
    }

    /// Handles jobs that wait or run for too long.
    pub(crate) fn tick(&mut self, now: Instant) {
        let late = |ticket: &TicketNumber| now - self.jobs[ticket].since > WAIT_MAX;
        let late: Vec<_> = self.waiting.iter().copied().filter(late).collect();
        for ticket in late {
            self.run_locally(ticket, LocalCause::Waited);
        }
        let is_over = |(_, since): &(ServerId, Instant)| now - *since > COPY_MAX;
        let stuck = self.jobs.iter().filter(|(_, entry)| entry.copies.iter().any(is_over));
        let stuck: Vec<_> = stuck.map(|(ticket, _)| *ticket).collect();
        for ticket in stuck {
            self.run_locally(ticket, LocalCause::Failures);
        }
        let mut is_waiting: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server_state)| server_state.is_waiting)
            .map(|(id, _)| *id)
            .collect();
        is_waiting.sort_unstable();
        for server in is_waiting {
            if let Some(ticket) = self.slow_for(server, now) {
                self.assign(server, ticket, now);
            }
        }
    }

    /// The least busy server that waits for a job and has this compiler.
    fn waiting_server(&self, entry: &QueuedJob) -> Option<ServerId> {
        let able = |id: ServerId, server_state: &ServerState| {
            server_state.is_waiting && server_state.may_run(id, entry)
        };
        let load = |server_state: &ServerState| {
            server_state.running.len() * 1000 / server_state.slots.max(1) as usize
        };
        let able = self.servers.iter().filter(|(id, server_state)| able(**id, server_state));
        able.min_by_key(|(id, server_state)| (load(server_state), **id)).map(|(id, _)| *id)
    }

    fn has_takers(&self, entry: &QueuedJob) -> bool {
        self.servers.iter().any(|(id, server_state)| server_state.may_run(*id, entry))
    }

    fn why_nobody(&self, entry: &QueuedJob) -> LocalCause {
        match (self.servers.is_empty(), entry.exceeded.is_empty()) {
            (true, _) => LocalCause::NoServer,
            (false, true) => LocalCause::NoToolchain,
            (false, false) => LocalCause::Failures,
        }
    }

    /// The oldest job that has run for too long, has one copy, and not on this server.
    fn slow_for(&self, server: ServerId, now: Instant) -> Option<TicketNumber> {
        let limit =
            self.average.mean().map_or(RACE_UNKNOWN, |mean| mean * RACE_FACTOR).max(RACE_MIN);
        let server_state = &self.servers[&server];
        let slow = |entry: &QueuedJob| match entry.copies[..] {
            [(at, since)] => {
                at != server && now - since > limit && server_state.may_run(server, entry)
            }
            _ => false,
        };
        self.jobs.iter().find(|(_, entry)| slow(entry)).map(|(ticket, _)| *ticket)
    }

    fn assign(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        let server_state = self.servers.get_mut(&server).expect("the caller has seen it");
        server_state.is_waiting = false;
        server_state.running.insert(ticket);
        self.jobs.get_mut(&ticket).expect("the caller has seen it").copies.push((server, now));
        self.dispatches.push_back(Dispatch::Assign(server, ticket));
    }

    /// Takes a job's copy from a server; `Some` if no other server has a copy.
    fn take_copy(&mut self, ticket: TicketNumber, server: ServerId) -> Option<()> {
        if let Some(server_state) = self.servers.get_mut(&server) {
            server_state.running.remove(&ticket);
        }
        let entry = self.jobs.get_mut(&ticket)?;
        let at = entry.copies.iter().position(|(at, _)| *at == server)?;
        entry.copies.remove(at);
        entry.copies.is_empty().then_some(())
    }

    fn fail_copy(&mut self, ticket: TicketNumber, server: ServerId, now: Instant) {
        if let Some(entry) = self.jobs.get_mut(&ticket) {
            entry.failures += 1;
        }
        if self.take_copy(ticket, server).is_some() {
            self.reassign(ticket, now);
        }
    }

    /// Assigns a job that is on no server, or queues it in front of all others.
    fn reassign(&mut self, ticket: TicketNumber, now: Instant) {
        let entry = &self.jobs[&ticket];
        if entry.failures >= ATTEMPTS {
            return self.run_locally(ticket, LocalCause::Failures);
        }
        match self.waiting_server(entry) {
            Some(server) => self.assign(server, ticket, now),
            None if self.has_takers(entry) => self.waiting.push_front(ticket),
            None => self.run_locally(ticket, self.why_nobody(entry)),
        }
    }

    /// No further server is expected to connect: jobs that no connected server can take run
    /// locally.
    pub(crate) fn settle(&mut self) {
        let stuck = |ticket: &TicketNumber| !self.has_takers(&self.jobs[ticket]);
        let stuck: Vec<_> = self.waiting.iter().copied().filter(stuck).collect();
        for ticket in stuck {
            self.run_locally(ticket, self.why_nobody(&self.jobs[&ticket]));
        }
    }

    fn run_locally(&mut self, ticket: TicketNumber, cause: LocalCause) {
        self.forget(ticket, None);
        self.dispatches.push_back(Dispatch::Local(ticket, cause));
    }

    /// Drops a job, and cancels its copies on all servers except `except`.
    fn forget(&mut self, ticket: TicketNumber, except: Option<ServerId>) {
        self.waiting.retain(|waiting| *waiting != ticket);
        let Some(entry) = self.jobs.remove(&ticket) else { return };
        for (server, _) in entry.copies {
            if let Some(server_state) = self.servers.get_mut(&server) {
                server_state.running.remove(&ticket);
                if Some(server) != except {
                    self.dispatches.push_back(Dispatch::Cancel(server, ticket));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
