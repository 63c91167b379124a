//! The remote executor over real servers: it sends the jobs that the manager's loop submits to
//! servers over verbs, and places the outputs that come back.
//!
//! It runs in one thread, which never waits for a peer and never touches a file: the threads of
//! `files` and `placing` do that. Servers drive: they ask for jobs, read sources from the export
//! and write results into their parts of the result buffer; this side answers and places outputs.
//! `giving` sends jobs, `offering` hands out compilers, `looking` talks to the thread that reads
//! files.

mod giving;
mod looking;
mod offering;
mod pending;
mod placing;
#[cfg(test)]
mod tests;

use super::counters::ManagerCounters;
use super::error_log::ErrorLog;
use super::files::{Exporter, HungThread};
use super::refusals::Refusals;
use super::result_buffer::{ResultBuffer, Results};
use super::scheduler::{Dispatch, LocalCause, Scheduler, ServerId};
use crate::args::{Cause, Job, Reason};
use crate::manager::{Capacity, Preprocessed, RemoteExecutor, Ticket, Trace, Verdict};
use crate::protocol::{
    Digest, JobOutcome, JobRefusal, PROTOCOL, Ran, TicketNumber, ToClient, ToServer,
};
use crate::running_time::RunningTime;
use crate::toolchain::{Toolchain, Toolchains};
use outboard_cluster::hub::{Exposed, Hub, HubError, HubEvent, PeerId};
use outboard_cluster::pool::{ConnectionPool, Dial, Dialled};
use outboard_export::ExportError;
use outboard_verbs::Access;
use pending::{PendingJob, PendingStage};
use placing::{Placings, Ready};
use rustix::event::{EventfdFlags, epoll, eventfd};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A server that has jobs and sends nothing for this long, while this loop runs, is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often jobs and servers are checked while there are jobs.
const TICK: Duration = Duration::from_millis(250);

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ServerPoolError {
    /// This machine's.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// This machine's.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// This machine's.
    #[error("this machine refuses a descriptor: {0}")]
    System(#[from] rustix::io::Errno),
}

/// An executor of servers that are reached over the network.
pub struct ServerPool {
    hub: Hub,
    connections: ConnectionPool,
    servers: HashMap<PeerId, ConnectedServer>,
    scheduler: Scheduler,
    jobs: HashMap<TicketNumber, PendingJob>,
    verdicts: Vec<(Ticket, Verdict)>,
    files: Exporter,
    placings: Placings,
    /// Readable when `files` or `placings` has a reply.
    waker: Arc<OwnedFd>,
    /// Threads of `files` that hang.
    hung: Vec<HungThread>,
    /// Identifies compilers and caches what it learns.
    toolchains: Toolchains,
    refusals: Refusals,
    /// Compilers that servers may fetch.
    identified: HashMap<Digest, Arc<Toolchain>>,
    name: String,
    hosts: Vec<String>,
    errors: ErrorLog,
    next_server: u32,
    ticked: Instant,
    time: RunningTime,
    ready: OwnedFd,
    /// Set by another thread when the set of trusted servers has changed.
    distrust: Arc<AtomicBool>,
    counters: ManagerCounters,
}

/// A server that is connected. It gets no jobs before it has announced its slots.
struct ConnectedServer {
    id: ServerId,
    host: usize,
    result_buffer: Option<ResultBuffer>,
    /// When it last sent something, as running time.
    heard: Duration,
    /// Sources that it may read (the paper's SRC TX regions).
    sources: HashMap<TicketNumber, Exposed>,
    /// The part of a compiler that it may read.
    part: Option<Exposed>,
    /// A part of a compiler is being read for it.
    awaits_part: bool,
    /// The number of its questions about files that are not answered yet.
    asks: usize,
}

impl ServerPool {
    /// An executor with these servers; `dial` connects to one by its index in the list. Servers
    /// show `name` to their operators; `toolchains` identifies compilers.
    ///
    /// # Errors
    /// This machine's: memory, descriptors, inotify.
    pub fn new(
        hosts: Vec<String>,
        dial: Dial,
        name: String,
        toolchains: Toolchains,
    ) -> Result<Self, ServerPoolError> {
        let now = Instant::now();
        let (hub, connections) = (Hub::new()?, ConnectionPool::new(hosts.len(), dial, now)?);
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let files = Exporter::start(toolchains.another(), Vec::new(), Arc::clone(&waker))?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, fd) in [hub.as_fd(), connections.as_fd(), waker.as_fd()].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&ready, fd, data, epoll::EventFlags::IN)?;
        }
        let mut executor = Self {
            hub,
            connections,
            servers: HashMap::new(),
            scheduler: Scheduler::default(),
            jobs: HashMap::new(),
            verdicts: Vec::new(),
            files,
            placings: Placings::new(Arc::clone(&waker)),
            waker,
            hung: Vec::new(),
            toolchains,
            refusals: Refusals::default(),
            identified: HashMap::new(),
            name,
            hosts,
            errors: ErrorLog::default(),
            next_server: 0,
            ticked: now,
            time: RunningTime::default(),
            ready,
            distrust: Arc::default(),
            counters: ManagerCounters { pid: std::process::id(), ..ManagerCounters::default() },
        };
        executor.connections.dial(&executor.hub, now);
        Ok(executor)
    }

    /// Returns a function that any thread can call when the set of trusted servers has changed: all
    /// connections are ended and dialled again.
    pub fn distrust(&self) -> impl Fn() + Send + use<> {
        let (distrust, waker) = (Arc::clone(&self.distrust), self.connections.waker());
        move || {
            distrust.store(true, Ordering::Relaxed);
            waker.wake();
        }
    }

    fn look_at_trust(&mut self, now: Instant) {
        if self.distrust.swap(false, Ordering::Relaxed) {
            for peer in self.servers.keys().copied().collect::<Vec<_>>() {
                self.give_up(peer, "the list of revoked nodes has changed", now);
            }
        }
    }

    fn handle(&mut self, event: HubEvent, now: Instant) {
        match event {
            HubEvent::Message { peer, bytes } => match PROTOCOL.decode(&bytes) {
                Ok(message) => self.handle_message(peer, message, now),
                Err(error) => self.give_up(peer, &error.to_string(), now),
            },
            HubEvent::Gone { peer, why } => self.lose(peer, &why, now),
            _ => {}
        }
    }

    fn handle_message(&mut self, peer: PeerId, message: ToClient, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        server.heard = self.time.pass(now);
        let id = server.id;
        match message {
            ToClient::Ready { slots } => self.handle_ready(peer, slots, now),
            ToClient::Want => self.scheduler.want(id, now),
            ToClient::Return { ticket } => {
                self.take_back(peer, ticket);
                self.scheduler.returned(id, ticket, now);
            }
            ToClient::Ask { ask, what } => self.look_for(peer, ask, what, now),
            ToClient::Describe { toolchain } => self.describe(peer, toolchain, now),
            ToClient::NeedPart { toolchain, part } => self.offer_part(peer, toolchain, part, now),
            ToClient::Equipped { .. } => self.withdraw_part(peer),
            ToClient::Part { ticket, slot, len } => self.take_part(peer, ticket, slot, len, now),
            ToClient::Outcome { ticket, outcome } => self.conclude(peer, ticket, *outcome, now),
            ToClient::Alive => {}
        }
    }

    /// Handles a server's announcement of its slots: gives it a result buffer.
    fn handle_ready(&mut self, peer: PeerId, slots: u32, now: Instant) {
        let announced = ResultBuffer::new(slots).ok().and_then(|result_buffer| {
            let memory = result_buffer.memory().ok()?;
            let exposed = self.hub.expose(peer, memory, Access::REMOTE_WRITE).ok()?;
            Some((result_buffer, exposed))
        });
        let Some((result_buffer, exposed)) = announced else {
            return self.give_up(peer, "no memory for its results", now);
        };
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if server.result_buffer.is_some() {
            return self.give_up(peer, "it says twice that it is ready", now);
        }
        server.result_buffer = Some(result_buffer);
        tracing::info!(server = self.hosts[server.host], slots, "server is ready");
        self.scheduler.add_server(server.id, slots);
        self.send(peer, &ToServer::ResultBuffer(exposed), now);
    }

    fn take_part(&mut self, peer: PeerId, ticket: TicketNumber, slot: u32, len: u32, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if !self.scheduler.has(server.id, ticket) {
            // The job was cancelled, and the server has been told.
            return;
        }
        match server
            .result_buffer
            .as_mut()
            .map(|result_buffer| result_buffer.take_part(ticket, slot, len))
        {
            Some(Ok(())) => self.send(peer, &ToServer::Taken { ticket }, now),
            Some(Err(error)) => self.give_up(peer, &error.to_string(), now),
            None => self.give_up(peer, "it has results and no place for them", now),
        }
    }

    /// Handles the end of a job on a server.
    fn conclude(&mut self, peer: PeerId, ticket: TicketNumber, outcome: JobOutcome, now: Instant) {
        self.take_back(peer, ticket);
        let Some(server) = self.servers.get_mut(&peer) else { return };
        let id = server.id;
        match outcome {
            JobOutcome::Ran(ran) => {
                let result_buffer = server.result_buffer.as_mut();
                let results =
                    result_buffer.map(|result_buffer| result_buffer.take_results(ticket, &ran));
                self.send(peer, &ToServer::Taken { ticket }, now);
                match results {
                    Some(Ok(results)) => self.finish(peer, id, ran, results, ticket),
                    Some(Err(error)) => self.give_up(peer, &error.to_string(), now),
                    None => self.give_up(peer, "it has results and no place for them", now),
                }
            }
            JobOutcome::NotRun(refusal) => {
                server
                    .result_buffer
                    .iter_mut()
                    .for_each(|result_buffer| result_buffer.forget(ticket));
                self.refused(id, ticket, refusal, now);
            }
        }
    }

    fn refused(&mut self, id: ServerId, ticket: TicketNumber, refusal: JobRefusal, now: Instant) {
        match refusal {
            JobRefusal::Toolchain => self.scheduler.lacks(id, ticket, now),
            JobRefusal::Withheld { path } => {
                self.scheduler.cancel(ticket);
                let reason = Reason::with(Cause::Refused, OsString::from_vec(path));
                if let Some(pending) = self.jobs.get(&ticket) {
                    self.refusals.note_alike(&pending.job, &reason, now);
                }
                self.run_locally(ticket, reason);
            }
            JobRefusal::Stale { .. } => {
                self.failed(id, ticket, "a file changed during the job".into(), now)
            }
            JobRefusal::Limit { what } => {
                let limited = |pending: &mut PendingJob| {
                    (pending.why, pending.is_limited) = (what, true);
                };
                self.jobs.entry(ticket).and_modify(limited);
                self.scheduler.exceeded(id, ticket, now);
            }
            JobRefusal::Trouble { what } => self.failed(id, ticket, what, now),
        }
    }

    fn failed(&mut self, id: ServerId, ticket: TicketNumber, why: String, now: Instant) {
        self.jobs.entry(ticket).and_modify(|pending| pending.why = why);
        self.scheduler.failed(id, ticket, now);
    }

    /// A server's compiler has run. If several servers ran the job, the first result counts.
    fn finish(
        &mut self,
        peer: PeerId,
        id: ServerId,
        ran: Ran,
        results: Results,
        ticket: TicketNumber,
    ) {
        let now = Instant::now();
        if !self.scheduler.done(id, ticket, now) {
            return;
        }
        let Some(pending) = self.jobs.remove(&ticket) else { return };
        self.refusals.note_run(&pending.job);
        let trace = self.trace(&pending, &ran, &results, peer, now);
        self.place(ticket, Ready { job: pending.job, ran, results, trace }, now);
    }

    fn trace(
        &self,
        pending: &PendingJob,
        ran: &Ran,
        results: &Results,
        peer: PeerId,
        now: Instant,
    ) -> Trace {
        let ago = |us: u64| now.checked_sub(Duration::from_micros(us));
        Trace {
            server: self
                .servers
                .get(&peer)
                .map_or_else(String::new, |at| self.hosts[at.host].clone()),
            slot: ran.slot,
            claimed: pending.given,
            started: ago(ran.took.run_us),
            ended: Some(now),
            bytes_out: ran.took.fetched,
            bytes_in: results.file_bytes() + (results.stdout.len() + results.stderr.len()) as u64,
            cpu_us: ran.took.cpu_us,
        }
    }

    fn run_locally(&mut self, ticket: TicketNumber, reason: Reason) {
        if self.jobs.remove(&ticket).is_some() {
            self.counters.jobs_given_up += 1;
            self.verdicts.push((Ticket(ticket), Verdict::Local(reason)));
        }
    }

    /// Carries out the scheduler's decisions.
    fn execute(&mut self, now: Instant) {
        while let Some(order) = self.scheduler.poll() {
            match order {
                Dispatch::Assign(server, ticket) => {
                    self.counters.jobs_given += 1;
                    self.assign(server, ticket, now);
                }
                Dispatch::Idle(server) => self.send_to_server(server, &ToServer::Idle, now),
                Dispatch::Cancel(server, ticket) => {
                    self.forget_results(server, ticket);
                    self.send_to_server(server, &ToServer::Cancel { ticket }, now);
                }
                Dispatch::Local(ticket, cause) => {
                    let why = self.jobs.get(&ticket).map_or("", |pending| &pending.why);
                    let is_lost = why.is_empty() && cause == LocalCause::NoServer;
                    let why = if is_lost { self.errors.latest() } else { why };
                    let reason = Reason::with(Cause::from(cause), why);
                    self.note_limited(ticket, cause, &reason, now);
                    self.run_locally(ticket, reason);
                }
            }
        }
    }

    /// Remembers a job that exceeds servers' limits, so that later builds run it locally at once.
    fn note_limited(
        &mut self,
        ticket: TicketNumber,
        cause: LocalCause,
        reason: &Reason,
        now: Instant,
    ) {
        let pending = self.jobs.get(&ticket).filter(|_| cause == LocalCause::Failures);
        if let Some(pending) = pending.filter(|pending| pending.is_limited) {
            self.refusals.note(&pending.job, reason, now);
        }
    }

    fn forget_results(&mut self, id: ServerId, ticket: TicketNumber) {
        let peer = self.peer(id);
        let result_buffer =
            peer.and_then(|peer| self.servers.get_mut(&peer)?.result_buffer.as_mut());
        result_buffer.into_iter().for_each(|result_buffer| result_buffer.forget(ticket));
    }

    fn peer(&self, id: ServerId) -> Option<PeerId> {
        self.servers.iter().find(|(_, server)| server.id == id).map(|(peer, _)| *peer)
    }

    fn send_to_server(&mut self, id: ServerId, message: &ToServer, now: Instant) {
        if let Some(peer) = self.peer(id) {
            self.send(peer, message, now);
        }
    }

    fn send(&mut self, peer: PeerId, message: &ToServer, now: Instant) {
        match self.hub.send(peer, &PROTOCOL.encode(message)) {
            Err(HubError::NoPeer) | Ok(()) => {}
            Err(error) => self.give_up(peer, &error.to_string(), now),
        }
    }

    /// Handles the end of an attempt to connect to a server.
    fn dialled(&mut self, dialled: Dialled, now: Instant) {
        let host = dialled.peer;
        let admitted = match dialled.result {
            Ok(admitted) => admitted,
            Err(why) => return self.errors.of(&self.hosts[host], &why),
        };
        let greeted = self.hub.enroll(admitted).and_then(|peer| {
            let region = self.files.memory();
            let memory = region.slice(0..region.len()).map_err(outboard_verbs::VerbsError::from)?;
            let export = self.hub.expose(peer, memory, Access::REMOTE_READ)?;
            Ok((peer, export))
        });
        let (peer, export) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => {
                self.errors.of(&self.hosts[host], &error.to_string());
                return self.connections.lost(host, now);
            }
        };
        self.next_server += 1;
        let id = ServerId(self.next_server);
        let (result_buffer, part, sources) = (None, None, HashMap::new());
        let (awaits_part, asks) = (false, 0);
        let server = ConnectedServer {
            id,
            host,
            result_buffer,
            heard: self.time.pass(now),
            sources,
            part,
            awaits_part,
            asks,
        };
        self.servers.insert(peer, server);
        self.send(peer, &ToServer::Hello { name: self.name.clone(), export }, now);
    }

    /// Ends a connection that cannot be used.
    fn give_up(&mut self, peer: PeerId, why: &str, now: Instant) {
        self.hub.dismiss(peer);
        self.lose(peer, why, now);
    }

    fn lose(&mut self, peer: PeerId, why: &str, now: Instant) {
        if let Some(server) = self.servers.remove(&peer) {
            self.counters.servers_lost += 1;
            self.errors.of(&self.hosts[server.host], &format!("lost: {why}"));
            self.connections.lost(server.host, now);
            self.scheduler.remove_server(server.id, now);
        }
    }

    /// The number of servers that may become ready soon.
    fn starting(&self) -> usize {
        let unready = self.servers.values().filter(|server| server.result_buffer.is_none()).count();
        self.connections.starting() + unready
    }

    fn tick(&mut self, now: Instant) {
        if now - self.ticked < TICK {
            return;
        }
        self.ticked = now;
        let passed = self.time.pass(now);
        let silent = |server: &ConnectedServer| {
            let owes = server.result_buffer.is_none() || self.scheduler.running(server.id) > 0;
            owes && passed - server.heard > SILENCE_MAX
        };
        let silent: Vec<_> =
            self.servers.iter().filter(|(_, at)| silent(at)).map(|(peer, _)| *peer).collect();
        for peer in silent {
            self.give_up(peer, "it sent nothing for too long", now);
        }
        self.scheduler.tick(now);
        self.look_after_files(now);
        self.look_after_placings(now);
    }
}

impl fmt::Debug for ServerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RemoteExecutor for ServerPool {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn wait(&self, timeout: Option<Duration>, events: BorrowedFd<'_>) {
        self.hub.wait(timeout, &[events]);
    }

    fn submit(&mut self, ticket: Ticket, job: Job) {
        self.accept(ticket, job, None);
    }

    fn submit_preprocessed(&mut self, ticket: Ticket, job: Job, source: Preprocessed) {
        self.accept(ticket, job, Some(source));
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.jobs.remove(&ticket.0);
        self.placings.cancel(ticket.0);
        self.scheduler.cancel(ticket.0);
        self.execute(Instant::now());
    }

    fn turn(&mut self, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        self.look_at_trust(now);
        let mut events = Vec::new();
        if self.hub.turn(&mut events).is_err() {
            // Only a fault of this program overflows a queue; servers are dialled again.
            for peer in self.servers.keys().copied().collect::<Vec<_>>() {
                self.give_up(peer, "a fault of this client", now);
            }
        }
        for event in events {
            self.handle(event, now);
        }
        while let Some(dialled) = self.connections.poll(now) {
            self.dialled(dialled, now);
        }
        self.connections.dial(&self.hub, now);
        self.take_file_replies(now);
        self.take_placed();
        self.tick(now);
        if self.starting() == 0 {
            self.scheduler.settle();
        }
        self.execute(now);
        verdicts.append(&mut self.verdicts);
    }

    fn deadline(&self) -> Option<Instant> {
        let is_unready = |server: &ConnectedServer| server.result_buffer.is_none();
        let is_idle = self.jobs.is_empty()
            && self.placings.is_empty()
            && !self.servers.values().any(is_unready);
        let tick = (!is_idle).then(|| self.ticked + TICK);
        [tick, self.connections.deadline()].into_iter().flatten().min()
    }

    fn capacity(&self) -> Capacity {
        let (servers, slots) = self.scheduler.capacity();
        Capacity { servers: servers + self.starting(), slots }
    }

    fn is_claimed(&self, ticket: Ticket) -> bool {
        let pending = self.jobs.get(&ticket.0);
        let is_preparing =
            pending.is_some_and(|pending| matches!(pending.stage, PendingStage::Preparing { .. }));
        is_preparing || self.placings.has(ticket.0) || self.scheduler.is_assigned(ticket.0)
    }

    fn slow(&self, now: Instant) -> Vec<Ticket> {
        self.scheduler.slow(now).map(Ticket).collect()
    }

    fn trouble(&self) -> &str {
        self.errors.latest()
    }

    fn report(&self) -> Option<Value> {
        let (_, slots) = self.scheduler.capacity();
        let counters = ManagerCounters {
            servers_now: self.servers.len() as u64,
            slots_now: slots as u64,
            jobs_now: self.jobs.len() as u64,
            threads_hung_now: self.hung.len() as u64,
            hub: self.hub.counters(),
            export: self.files.counters(),
            ..self.counters
        };
        serde_json::to_value(counters).ok()
    }
}
