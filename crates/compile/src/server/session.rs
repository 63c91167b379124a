//! One client, from Hello to the end of its connection: its jobs, its files, what is said to it.
//!
//! Knows no connection: what is to be said, read and written is left in [`Session::poll`]. `start`
//! is how its jobs begin.

mod start;

use super::adopt::{Adoptions, Piece as PartPiece};
use super::fetch::{Fault, Fetch, Need};
use super::files::Files;
use super::package::{Package, Piece};
use super::room::{Plan, Room};
use super::sources::Sources;
use super::toolchains::Programs;
use crate::protocol::{
    Input, JobSpec, LANDING, Octets, Outcome, Ran, Refusal, TicketNumber, ToClient, ToServer, Took,
};
use outboard_cluster::hub::Exposed;
use outboard_export::Change;
use outboard_store::Store;
use outboard_verbs::Remote;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is to be done with the connection.
#[derive(Debug)]
pub(crate) enum Out {
    Say(ToClient),
    Read { from: Remote, into: Vec<u8>, tag: u64 },
    Write { to: Remote, octets: Vec<u8> },
}

/// Why a client is not served any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("it says {0} at the wrong time")]
    OutOfTurn(&'static str),
    #[error("it says that its memory is smaller than it must be")]
    Memory,
    #[error("it has said nothing for a minute, and a job of its waits for it in a slot")]
    Silent,
}

/// See the [module](self).
pub(crate) struct Session {
    name: String,
    export: Option<Exposed>,
    landing: Option<Exposed>,
    files: Arc<Files>,
    fetch: Fetch,
    room: Option<Room>,
    jobs: BTreeMap<TicketNumber, Running>,
    out: VecDeque<Out>,
    /// Slots that are free again.
    released: Vec<u32>,
    sources: Sources,
    adoptions: Adoptions,
    /// When the client last said something, or let something be read.
    heard: Option<Instant>,
}

/// How long a client may leave slots waiting for it.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The tag of reads of compilers' parts, of which there is one at a time.
const PART_TAG: u64 = 1 << 62;

struct Running {
    spec: JobSpec,
    slot: u32,
    arrived: Instant,
    started: Instant,
    fetched: u64,
    stage: Stage,
    /// When its results began to go out, or else when it came.
    since: Instant,
    source: Option<Source>,
}

/// A job's preprocessed source.
struct Source {
    path: Octets,
    len: u64,
    /// Empty before it is read, and once the job has it.
    octets: Vec<u8>,
}

enum Stage {
    /// For the catalogue.
    Waiting,
    /// For its source. False: nobody wants it any more.
    Reading(bool),
    /// For its compiler, which is being fetched.
    Equipping,
    /// Until those jobs have ended whose room shows other compilers.
    Held,
    /// In its cell. False: nobody wants it any more.
    InCell(bool),
    /// Results go out, piece by piece.
    Sending(Package),
    /// The client has all of them, and has not taken them yet.
    Sent,
}

impl Stage {
    fn may_start(&self) -> bool {
        matches!(self, Self::Waiting | Self::Reading(true) | Self::Equipping | Self::Held)
    }

    /// Whether nothing goes on before the client does something.
    fn is_for_the_client(&self) -> bool {
        matches!(self, Self::Waiting | Self::Reading(_) | Self::Sending(_) | Self::Sent)
    }
}

impl Running {
    fn is_in_cell(&self) -> bool {
        matches!(self.stage, Stage::InCell(_))
    }
}

impl Session {
    /// With `accepts` it takes a client's compilers, if there is a store for them.
    pub(crate) fn new(bell: Arc<OwnedFd>, store: Option<Arc<Store>>, accepts: bool) -> Self {
        let adoptions = Adoptions::new(store.clone().filter(|_| accepts));
        let files = Arc::new(Files::new(bell));
        Self {
            name: String::new(),
            export: None,
            landing: None,
            fetch: Fetch::new(Arc::clone(&files), store),
            files,
            room: None,
            jobs: BTreeMap::new(),
            out: VecDeque::new(),
            released: Vec::new(),
            sources: Sources::default(),
            adoptions,
            heard: None,
        }
    }

    /// The client has said something, or something of its memory is here.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// The next thing to be done with the connection.
    pub(crate) fn poll(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    /// A slot that this client has no longer.
    pub(crate) fn poll_released(&mut self) -> Option<u32> {
        self.released.pop()
    }

    /// Says something.
    pub(crate) fn say(&mut self, message: ToClient) {
        self.out.push_back(Out::Say(message));
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may be asked for jobs.
    pub(crate) fn is_ready(&self) -> bool {
        self.landing.is_some()
    }

    /// Jobs that it has here, and their slots.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (u32, &JobSpec)> {
        self.jobs.values().map(|job| (job.slot, &job.spec))
    }

    /// Its first words.
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
        self.say(ready);
        Ok(())
    }

    /// Where its results go.
    pub(crate) fn land(&mut self, landing: Exposed, slots: u32) -> Result<(), SessionEnd> {
        if self.landing.is_some() || self.export.is_none() {
            return Err(SessionEnd::OutOfTurn("where results go"));
        }
        if landing.len() < u64::from(slots) * LANDING as u64 {
            return Err(SessionEnd::Memory);
        }
        self.landing = Some(landing);
        Ok(())
    }

    /// A job of its has a slot.
    pub(crate) fn begin(
        &mut self,
        spec: JobSpec,
        input: Input,
        slot: u32,
        now: Instant,
    ) -> Result<(), SessionEnd> {
        let ticket = spec.ticket;
        if self.jobs.contains_key(&ticket) {
            return Err(SessionEnd::OutOfTurn("a job that it has here already"));
        }
        let (stage, source) = match input {
            Input::Pull { position } => {
                self.fetch.reach(position, ticket);
                (Stage::Waiting, None)
            }
            Input::Source { path, exposed } => {
                let (from, into, tag) = self.sources.begin(exposed, ticket, slot)?;
                self.out.push_back(Out::Read { from, into, tag });
                let (len, octets) = (exposed.len(), Vec::new());
                (Stage::Reading(true), Some(Source { path, len, octets }))
            }
        };
        let fetched = self.fetch.fetched();
        let (arrived, started, since) = (now, now, now);
        let running = Running { spec, slot, arrived, started, fetched, stage, since, source };
        self.jobs.insert(ticket, running);
        Ok(())
    }

    /// Anything else that it says.
    pub(crate) fn hear(
        &mut self,
        message: ToServer,
        programs: &Programs,
    ) -> Result<(), SessionEnd> {
        match message {
            ToServer::Described { toolchain, octets } => {
                self.adoptions.described(toolchain, &octets, programs);
            }
            ToServer::Part { exposed } => {
                let piece = self.adoptions.offered(exposed);
                self.read_part(piece)?;
            }
            ToServer::Answer { ask, answer } => self.fetch.handle_answer(ask, answer)?,
            ToServer::Taken { ticket } => self.taken(ticket)?,
            ToServer::Cancel { ticket } => self.cancel(ticket),
            ToServer::Hello { .. }
            | ToServer::Landing(_)
            | ToServer::Job { .. }
            | ToServer::Idle => {}
        }
        Ok(())
    }

    /// Octets of its memory are here.
    pub(crate) fn read(
        &mut self,
        tag: u64,
        octets: Vec<u8>,
        programs: &Programs,
    ) -> Result<(), SessionEnd> {
        if tag == PART_TAG {
            let piece = self.adoptions.read(&octets, programs);
            return self.read_part(piece);
        }
        if let Some(ticket) = self.sources.take(tag) {
            self.has_source(ticket, octets);
            return Ok(());
        }
        let changes = self.fetch.handle_read(tag, octets)?;
        if let Some(room) = &self.room {
            changes.iter().for_each(|change| apply(room, change));
        }
        Ok(())
    }

    fn read_part(&mut self, piece: Option<PartPiece>) -> Result<(), SessionEnd> {
        let Some((exposed, at, len)) = piece else { return Ok(()) };
        let from = exposed.range(at, len).ok_or(SessionEnd::Memory)?;
        let into = vec![0; usize::try_from(len).map_err(|_| SessionEnd::Memory)?];
        self.out.push_back(Out::Read { from, into, tag: PART_TAG });
        Ok(())
    }

    fn has_source(&mut self, ticket: TicketNumber, octets: Vec<u8>) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        let (Stage::Reading(wanted), Some(source)) = (&job.stage, &mut job.source) else { return };
        if *wanted {
            source.octets = octets;
            self.sources.ready.push_back(ticket);
        } else {
            self.sources.keep(job.slot, octets);
            self.forget(ticket);
        }
    }

    /// Does what can be done now. New cells are handed to `watch`, with their slots.
    pub(crate) fn advance(
        &mut self,
        plan: &Plan,
        programs: &mut Programs,
        now: Instant,
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) -> Result<(), SessionEnd> {
        for (ask, done) in self.files.take_asks() {
            self.fetch.ask(ask, done, now);
        }
        self.wake();
        while let Some(ticket) = self.fetch.poll_ready().or_else(|| self.sources.ready.pop_front())
        {
            self.start(ticket, plan, programs, now, watch);
        }
        while let Some(need) = self.fetch.poll() {
            self.meet(need)?;
        }
        while let Some(message) = self.adoptions.poll() {
            self.say(message);
        }
        Ok(())
    }

    fn meet(&mut self, need: Need) -> Result<(), SessionEnd> {
        let out = match need {
            Need::Say { ask, what } => Out::Say(ToClient::Ask { ask, what }),
            Need::Read { at, len, tag } => {
                let range = self.export.and_then(|export| export.range(at, len));
                let len = usize::try_from(len).map_err(|_| SessionEnd::Memory)?;
                Out::Read { from: range.ok_or(SessionEnd::Memory)?, into: vec![0; len], tag }
            }
        };
        self.out.push_back(out);
        Ok(())
    }

    /// A slot's cell says that its job has ended.
    pub(crate) fn ended(&mut self, slot: u32, now: Instant) {
        let in_cell =
            |job: &&mut Running| job.slot == slot && matches!(job.stage, Stage::InCell(_));
        let Some(room) = self.room.as_mut() else { return };
        let Some(job) = self.jobs.values_mut().find(in_cell) else { return room.drop_cell(slot) };
        let ticket = job.spec.ticket;
        let mut result = room.finish(slot);
        if let Some(octets) = result.as_mut().ok().and_then(|(_, made)| made.source.take()) {
            self.sources.keep(slot, octets);
        }
        if matches!(job.stage, Stage::InCell(false)) {
            return self.forget(ticket);
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
                Package::new(slot, ended, made, took)
            }
            Err(error) => Err(Refusal::Trouble { what: error.to_string() }),
        };
        match package {
            Ok(package) => {
                (job.stage, job.since) = (Stage::Sending(package), now);
                self.send(ticket);
            }
            Err(refusal) => self.refuse(ticket, refusal),
        }
    }

    /// Sends the next piece of a job's results.
    fn send(&mut self, ticket: TicketNumber) {
        let (Some(job), Some(landing)) = (self.jobs.get_mut(&ticket), self.landing) else { return };
        let Stage::Sending(package) = &mut job.stage else { return };
        let slot = job.slot;
        let (octets, message) = match package.next() {
            Piece::Part(octets) => {
                let len = u32::try_from(octets.len()).expect("a landing place is small");
                (octets, ToClient::Part { ticket, slot, len })
            }
            Piece::Last(octets, ran) => {
                job.stage = Stage::Sent;
                (octets, outcome(ticket, ran))
            }
        };
        let at = u64::from(slot) * LANDING as u64;
        // It was checked that the memory is large enough.
        if let Some(to) = landing.range(at, octets.len() as u64) {
            self.out.push_back(Out::Write { to, octets });
        }
        self.out.push_back(Out::Say(message));
    }

    fn taken(&mut self, ticket: TicketNumber) -> Result<(), SessionEnd> {
        match self.jobs.get(&ticket).map(|job| (&job.stage, job.slot)) {
            Some((Stage::Sending(_), _)) => self.send(ticket),
            Some((Stage::Sent, slot)) => {
                self.jobs.remove(&ticket);
                self.released.push(slot);
            }
            Some(_) => return Err(SessionEnd::OutOfTurn("that it has taken results")),
            // Cancelled meanwhile.
            None => {}
        }
        Ok(())
    }

    fn cancel(&mut self, ticket: TicketNumber) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        match &mut job.stage {
            Stage::InCell(wanted) => {
                *wanted = false;
                let slot = job.slot;
                self.room.iter().for_each(|room| room.stop(slot));
            }
            // What is being read must not be taken back yet.
            Stage::Reading(wanted) => *wanted = false,
            Stage::Waiting | Stage::Equipping | Stage::Held | Stage::Sending(_) | Stage::Sent => {
                self.forget(ticket)
            }
        }
    }

    /// A job that was cancelled is over.
    fn forget(&mut self, ticket: TicketNumber) {
        let Some(job) = self.jobs.remove(&ticket) else { return };
        self.released.push(job.slot);
        if job.source.is_some() {
            self.say(ToClient::Return { ticket });
        }
    }

    fn refuse(&mut self, ticket: TicketNumber, refusal: Refusal) {
        if let Some(job) = self.jobs.remove(&ticket) {
            self.released.push(job.slot);
            let outcome = Box::new(Outcome::NotRun(refusal));
            self.say(ToClient::Outcome { ticket, outcome });
        }
    }

    /// Looks after what takes too long, and says that this server works.
    ///
    /// # Errors
    /// A client that leaves slots waiting for too long, as one does that is stopped.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), SessionEnd> {
        self.fetch.expire(now);
        self.adoptions.tick();
        if self.jobs.is_empty() {
            return Ok(());
        }
        if self.is_silent(now) {
            return Err(SessionEnd::Silent);
        }
        self.say(ToClient::Alive);
        let Some(room) = &self.room else { return Ok(()) };
        for job in self.jobs.values().filter(|job| matches!(job.stage, Stage::InCell(_))) {
            // Nothing that it still does is of use.
            if room.view().is_refused(job.slot as usize) {
                room.stop(job.slot);
            }
        }
        Ok(())
    }

    fn is_silent(&self, now: Instant) -> bool {
        let waits = |job: &&Running| job.stage.is_for_the_client();
        let since = |job: &Running| self.heard.map_or(job.since, |heard| heard.max(job.since));
        // A long source may come over a slow line, and is one read: a second for each MiB.
        let patience = |job: &Running| {
            SILENT_MAX + Duration::from_secs(job.source.as_ref().map_or(0, |at| at.len >> 20))
        };
        let mut waiting = self.jobs.values().filter(waits);
        waiting.any(|job| now.saturating_duration_since(since(job)) > patience(job))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Compilers that wait for the client would wait for ever.
        self.fetch.abort();
    }
}

fn outcome(ticket: TicketNumber, ran: Ran) -> ToClient {
    ToClient::Outcome { ticket, outcome: Box::new(Outcome::Ran(ran)) }
}

fn apply(room: &Room, change: &Change) {
    let view = room.view();
    match change {
        Change::Name { dir, name } => view.invalidate(dir, name),
        Change::Beneath { path } => match path.iter().rposition(|octet| *octet == b'/') {
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
