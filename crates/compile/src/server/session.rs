//! One client, from Hello to the end of its connection: its jobs, its files, the messages to it.
//!
//! Knows no connection: [`ClientSession::poll`] returns the messages, reads and writes to be made.
//! `start` begins its jobs, `fetching` gets what they need of the client's files, `results` sends
//! what they made.

mod fetching;
mod results;
mod start;

use super::adopt::Adoptions;
use super::background::{Background, Threads};
use super::client_sandbox::{ClientSandbox, ClientSandboxSettings};
use super::counters::ServerCounters;
use super::files::ClientFiles;
use super::opening::Opening;
use super::package::Package;
use super::sources::Sources;
use super::stage::{Stage, StageEvent};
use super::toolchains::Programs;
use crate::protocol::{
    Bytes, Input, JobOutcome, JobRefusal, JobSpec, RESULT_BUFFER_BYTES, TicketNumber, ToClient,
    ToServer, Took,
};
use crate::view::FetchDone;
use outboard_cluster::hub::Exposed;
use outboard_cluster::line_limit::LineLimit;
use outboard_export::{Change, Fetch, FetchFault};
use outboard_store::Store;
use outboard_verbs::Remote;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An action for the connection.
#[derive(Debug)]
pub(crate) enum Out {
    Message(ToClient),
    Read { from: Remote, into: Vec<u8>, tag: u64 },
    Write { to: Remote, bytes: Vec<u8> },
}

/// Why a client is no longer served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    #[error(transparent)]
    Fault(#[from] FetchFault),
    #[error("it sends {0} at the wrong time")]
    OutOfTurn(&'static str),
    #[error("its result buffer is too small for the slots that it may have")]
    Memory,
    #[error("it has been silent for a minute while one of its jobs waits for it in a slot")]
    Silent,
}

/// One client; see the [module](self).
pub(crate) struct ClientSession {
    name: String,
    export: Option<Exposed>,
    result_buffer: Option<Exposed>,
    files: Arc<ClientFiles>,
    fetch: Fetch<FetchWaiter>,
    background: Background,
    /// Jobs that may go on.
    ready: VecDeque<TicketNumber>,
    sandbox: Option<ClientSandbox>,
    /// The sandbox to come.
    opening: Option<Opening>,
    threads: Threads,
    jobs: BTreeMap<TicketNumber, Running>,
    out: VecDeque<Out>,
    /// Slots that are free again.
    released: Vec<u32>,
    sources: Sources,
    adoptions: Adoptions,
    /// When the client last sent a message, or a read of its memory completed.
    heard: Option<Instant>,
    counters: ServerCounters,
    lines: LineLimit,
}

/// What waits for something of the client's files.
enum FetchWaiter {
    /// A job, for the metadata log.
    Job(TicketNumber),
    /// A request of the view.
    View(FetchDone),
}

/// How long slots may wait for the client.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The tag of reads of compilers' parts, of which one at a time is under way.
const PART_TAG: u64 = 1 << 62;

struct Running {
    spec: JobSpec,
    slot: u32,
    arrived: Instant,
    started: Instant,
    /// When it asked for its compiler last.
    asked: Instant,
    fetched: u64,
    stage: Stage,
    /// Its results, from its end on.
    package: Option<Package>,
    /// When its results began to be sent, or, before that, when the job arrived.
    since: Instant,
    source: Option<JobSource>,
}

/// A job's preprocessed source.
struct JobSource {
    path: Bytes,
    len: u64,
    /// Empty before it is read, and after the job has taken it.
    bytes: Vec<u8>,
}

impl Running {
    /// Moves along the table of stages; `None` where it has no such row.
    fn step(&mut self, event: StageEvent) -> Option<Stage> {
        self.stage = self.stage.after(event)?;
        Some(self.stage)
    }

    fn is_in_sandbox(&self) -> bool {
        self.stage.is_in_sandbox()
    }

    fn uses_sandbox(&self) -> bool {
        self.stage.uses_sandbox()
    }

    /// Its results, while they are being sent.
    fn sending(&self) -> Option<&Package> {
        self.package.as_ref().filter(|_| self.stage == Stage::Sending)
    }
}

impl ClientSession {
    /// With `accepts`, compilers of the client are accepted, if there is a store for them.
    pub(crate) fn new(threads: Threads, store: Option<Arc<Store>>, accepts: bool) -> Self {
        let adoptions = Adoptions::new(accepts && store.is_some());
        let files = Arc::new(ClientFiles::new(threads.waker.clone()));
        Self {
            name: String::new(),
            export: None,
            result_buffer: None,
            fetch: Fetch::new(Arc::clone(files.mirror())),
            files,
            background: Background::new(store, threads.clone()),
            ready: VecDeque::new(),
            sandbox: None,
            opening: None,
            threads,
            jobs: BTreeMap::new(),
            out: VecDeque::new(),
            released: Vec::new(),
            sources: Sources::default(),
            adoptions,
            heard: None,
            counters: ServerCounters::default(),
            lines: LineLimit::default(),
        }
    }

    /// Notes that the client has sent a message, or that a read of its memory has completed.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// The next action for the connection.
    pub(crate) fn poll(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    /// A slot that this client no longer uses.
    pub(crate) fn poll_released(&mut self) -> Option<u32> {
        self.released.pop()
    }

    /// Queues a message to the client.
    pub(crate) fn queue_message(&mut self, message: ToClient) {
        self.out.push_back(Out::Message(message));
    }

    /// What was done for the client so far.
    pub(crate) fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    /// The client's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the client may be asked for jobs.
    pub(crate) fn is_ready(&self) -> bool {
        self.result_buffer.is_some()
    }

    /// Its jobs on this server, and their slots.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (u32, &JobSpec)> {
        self.jobs.values().map(|job| (job.slot, &job.spec))
    }

    /// Handles the client's first message.
    pub(crate) fn hello(
        &mut self,
        name: String,
        export: Exposed,
        ready: ToClient,
    ) -> Result<(), SessionEnd> {
        if self.export.is_some() {
            return Err(SessionEnd::OutOfTurn("hello"));
        }
        (self.name, self.export) = (name, Some(export));
        self.queue_message(ready);
        Ok(())
    }

    /// Handles the client's announcement of its result buffer.
    pub(crate) fn set_result_buffer(
        &mut self,
        result_buffer: Exposed,
        slots: u32,
    ) -> Result<(), SessionEnd> {
        if self.result_buffer.is_some() || self.export.is_none() {
            return Err(SessionEnd::OutOfTurn("its result buffer"));
        }
        if result_buffer.len() < u64::from(slots) * RESULT_BUFFER_BYTES as u64 {
            return Err(SessionEnd::Memory);
        }
        self.result_buffer = Some(result_buffer);
        Ok(())
    }

    /// Handles a job of the client's that has been given a slot.
    pub(crate) fn begin(
        &mut self,
        spec: JobSpec,
        input: Input,
        slot: u32,
        now: Instant,
    ) -> Result<(), SessionEnd> {
        let ticket = spec.ticket;
        if self.jobs.contains_key(&ticket) {
            return Err(SessionEnd::OutOfTurn("a job that this server has already"));
        }
        let (stage, source) = match input {
            Input::Pull { position } => {
                self.fetch.reach(position, FetchWaiter::Job(ticket));
                (Stage::Waiting, None)
            }
            Input::Source { path, exposed } => {
                let (from, into, tag) = self.sources.begin(exposed, ticket, slot)?;
                self.out.push_back(Out::Read { from, into, tag });
                let (len, bytes) = (exposed.len(), Vec::new());
                (Stage::Reading, Some(JobSource { path, len, bytes }))
            }
        };
        let fetched = self.fetch.fetched();
        let (arrived, started, asked, since) = (now, now, now, now);
        let package = None;
        self.jobs.insert(
            ticket,
            Running { spec, slot, arrived, started, asked, fetched, stage, package, since, source },
        );
        Ok(())
    }

    /// Handles any other message of the client.
    pub(crate) fn handle_message(
        &mut self,
        message: ToServer,
        programs: &Programs,
    ) -> Result<(), SessionEnd> {
        match message {
            ToServer::Described { toolchain, bytes } => {
                self.adoptions.described(toolchain, &bytes, programs);
            }
            ToServer::Part { exposed } => {
                let piece = self.adoptions.offered(exposed);
                self.read_part(piece)?;
            }
            ToServer::Answer { ask, answer } => {
                self.fetch.handle_answer(ask, answer)?;
                self.notify();
            }
            ToServer::Taken { ticket } => self.taken(ticket)?,
            ToServer::Cancel { ticket } => self.cancel(ticket),
            ToServer::Hello { .. }
            | ToServer::ResultBuffer(_)
            | ToServer::Job { .. }
            | ToServer::Idle => {}
        }
        Ok(())
    }

    /// Handles bytes read from the client's memory.
    pub(crate) fn read(&mut self, tag: u64, bytes: Vec<u8>) -> Result<(), SessionEnd> {
        if tag == PART_TAG {
            self.adoptions.read(bytes);
            return Ok(());
        }
        if let Some(ticket) = self.sources.take(tag) {
            self.has_source(ticket, bytes);
            return Ok(());
        }
        let changes = self.fetch.handle_read(tag, bytes)?;
        self.notify();
        if let Some(sandbox) = &self.sandbox {
            changes.iter().for_each(|change| apply(sandbox, change));
        }
        Ok(())
    }

    fn has_source(&mut self, ticket: TicketNumber, bytes: Vec<u8>) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        match &mut job.source {
            Some(source) if job.stage == Stage::Reading => source.bytes = bytes,
            _ => self.sources.keep(job.slot, bytes),
        }
        self.supplied(ticket);
    }

    /// A job has what it needs of the client.
    fn supplied(&mut self, ticket: TicketNumber) {
        match self.step(ticket, StageEvent::Supplied) {
            Some(Stage::Ready) => self.ready.push_back(ticket),
            Some(Stage::Over) => self.forget(ticket),
            _ => {}
        }
    }

    /// Moves a job; `None` if it is not there, or does not move.
    fn step(&mut self, ticket: TicketNumber, event: StageEvent) -> Option<Stage> {
        self.jobs.get_mut(&ticket)?.step(event)
    }

    /// Does all that can be done now. New slot sandboxes are handed to `watch`, with their slots.
    pub(crate) fn advance(
        &mut self,
        settings: &ClientSandboxSettings,
        programs: &mut Programs,
        now: Instant,
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) -> Result<(), SessionEnd> {
        for (request, done) in self.files.take_requests() {
            self.fetch.request(request, FetchWaiter::View(done), now);
        }
        self.finish_work(programs, now)?;
        self.notify();
        self.take_opened(now);
        self.wake(programs);
        while let Some(ticket) = self.ready.pop_front() {
            self.start(ticket, settings, programs, now, watch);
        }
        self.adopt_on();
        Ok(())
    }

    /// Handles the end of the job in a slot; false if the slot's sandbox reported another event.
    pub(crate) fn ended(&mut self, slot: u32, now: Instant) -> bool {
        if self.handle_set_up(slot) {
            return false;
        }
        let in_slot = |job: &&mut Running| job.slot == slot && job.is_in_sandbox();
        let Some(sandbox) = self.sandbox.as_mut() else { return false };
        let Some(job) = self.jobs.values_mut().find(in_slot) else {
            sandbox.drop_slot_sandbox(slot);
            return false;
        };
        let ticket = job.spec.ticket;
        let mut result = sandbox.finish(slot);
        if let Some(bytes) = result.as_mut().ok().and_then(|(_, made)| made.source.take()) {
            self.sources.keep(slot, bytes);
        }
        if job.stage == Stage::Stopping {
            job.step(StageEvent::Ended);
            self.forget(ticket);
            return true;
        }
        let package = match result {
            Ok((ended, made)) => {
                let took = Took {
                    prepare_us: micros(job.started - job.arrived),
                    run_us: micros(now - job.started),
                    cpu_us: micros(ended.usage.user + ended.usage.system),
                    fetched: self.fetch.fetched() - job.fetched
                        + job.source.as_ref().map_or(0, |source| source.len),
                };
                self.counters.jobs_ran += 1;
                self.counters.prepare_us += took.prepare_us;
                self.counters.run_us += took.run_us;
                self.counters.cpu_us += took.cpu_us;
                self.counters.fetched_bytes += took.fetched;
                Package::new(slot, ended, made, took)
            }
            Err(error) => Err(JobRefusal::Trouble { what: error.to_string() }),
        };
        match package {
            Ok(package) => {
                job.step(StageEvent::Ended);
                (job.package, job.since) = (Some(package), now);
                self.send_waiting();
            }
            Err(refusal) => self.refuse(ticket, refusal),
        }
        true
    }

    fn cancel(&mut self, ticket: TicketNumber) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        match job.step(StageEvent::Cancelled) {
            Some(Stage::Stopping) => {
                let slot = job.slot;
                self.sandbox.iter().for_each(|sandbox| sandbox.stop(slot));
            }
            Some(Stage::Over) => self.forget(ticket),
            // It has been cancelled before, or its source is still being read.
            _ => {}
        }
    }

    /// Frees the slot of a job that is over.
    fn remove(&mut self, ticket: TicketNumber) -> Option<Running> {
        let job = self.jobs.remove(&ticket)?;
        debug_assert_eq!(job.stage, Stage::Over);
        self.released.push(job.slot);
        Some(job)
    }

    /// Ends a job that was cancelled.
    fn forget(&mut self, ticket: TicketNumber) {
        let Some(job) = self.remove(ticket) else { return };
        self.counters.jobs_cancelled += 1;
        if job.source.is_some() {
            self.queue_message(ToClient::Return { ticket });
        }
        self.send_waiting();
    }

    fn refuse(&mut self, ticket: TicketNumber, refusal: JobRefusal) {
        self.step(ticket, StageEvent::Refused);
        if self.remove(ticket).is_some() {
            self.counters.refuse(&refusal);
            if let Some(left_out) = self.lines.admit(Instant::now()) {
                let (client, why) = (&self.name, &refusal);
                tracing::info!(?client, %why, left_out, "job refused");
            }
            let outcome = Box::new(JobOutcome::NotRun(refusal));
            self.queue_message(ToClient::Outcome { ticket, outcome });
        }
    }

    /// Checks for what takes too long, and sends the client a sign of life.
    ///
    /// # Errors
    /// A client that leaves slots waiting for too long, as a stopped client does.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), SessionEnd> {
        self.fetch.expire(now);
        self.background.expire(now);
        self.notify();
        self.adoptions.tick();
        self.end_hung_set_up(now);
        if self.jobs.is_empty() {
            return Ok(());
        }
        if self.is_silent(now) {
            return Err(SessionEnd::Silent);
        }
        self.queue_message(ToClient::Alive);
        let Some(sandbox) = &self.sandbox else { return Ok(()) };
        for job in self.jobs.values().filter(|job| job.is_in_sandbox()) {
            // The client is gone: its jobs are not needed.
            if sandbox.view().is_refused(job.slot as usize) {
                sandbox.stop(job.slot);
            }
        }
        Ok(())
    }

    fn is_silent(&self, now: Instant) -> bool {
        let waits = |job: &&Running| job.stage.waits_for_client();
        let since = |job: &Running| self.heard.map_or(job.since, |heard| heard.max(job.since));
        // A long source may come over a slow link and is one read: it gets a second for each MiB.
        let patience = |job: &Running| {
            SILENT_MAX + Duration::from_secs(job.source.as_ref().map_or(0, |at| at.len >> 20))
        };
        let mut waiting = self.jobs.values().filter(waits);
        waiting.any(|job| now.saturating_duration_since(since(job)) > patience(job))
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        // Otherwise compilers that wait for the client would never end.
        self.fetch.abort();
        self.notify();
    }
}

fn apply(sandbox: &ClientSandbox, change: &Change) {
    let view = sandbox.view();
    match change {
        Change::Name { dir, name } => view.invalidate(dir, name),
        Change::Beneath { path } => match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) if path.len() > 1 => {
                view.invalidate(if at == 0 { b"/" } else { &path[..at] }, &path[at + 1..]);
            }
            _ => view.forget_all(),
        },
        Change::Everything => view.forget_all(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
