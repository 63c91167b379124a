//! The manager's loop.
//!
//! A turn waits for events, handles them, takes the executor's verdicts and grants local slots.
//! Nothing in a turn waits for a wrapper, a compiler or a server.

use super::ManagerError;
use super::deciding::Deciders;
use super::executor::{Finished, RemoteExecutor, Ticket, Verdict};
use super::listener::{LISTENER, WrapperListener};
use super::one_by_one::OneByOne;
use super::slots::{Id, Slots};
use super::source::SourceMode;
use super::wrapper::{UnsentReply, Wishes, Wrapper, WrapperEvent, WrapperState};
use crate::args::{Cause, Classification, CompilerCall, Reason};
use crate::stats::{Journal, LocalJob};
use outboard_cc::place::ManagerPlace;
use outboard_cc::wire::{FALLBACK, Reply};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The executor's token in epoll.
const EXECUTOR: u64 = 1;
/// The deciders' token in epoll.
const DECIDERS: u64 = 2;
/// The first wrapper's token; each further one has the next number.
const FIRST: Id = 3;
/// Wrappers that are connected at one time; more wait in the socket's queue.
const WRAPPERS_MAX: usize = 8192;
/// Events of one turn, at most.
const EVENTS_MAX: usize = 256;
/// Bytes of one read from a wrapper, at most.
const READ_BYTES: usize = 64 << 10;
/// Time until the next attempt to close a listener that could not be closed.
const CLOSE_RETRY: Duration = Duration::from_secs(1);

/// As wait(2) encodes the exit code 1.
const EXIT_FAILURE: i32 = 1 << 8;
/// Factor by which a job waits longer for a server while none has told how many slots it has.
const FIRST_PATIENCE: u32 = 20;

/// Settings of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Local compilers at one time, at most.
    pub slots: usize,
    /// How long a job waits for a server before a free local slot may take it; `None`: for ever.
    pub patience: Option<Duration>,
    /// If servers have more slots than this, jobs wait for them however long it takes.
    pub few_slots: usize,
    /// The manager ends after this long without wrappers; `None`: never by itself.
    pub idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            slots: cores,
            patience: Some(Duration::from_millis(100)),
            few_slots: 4 * cores,
            idle: Some(Duration::from_secs(60)),
        }
    }
}

/// The manager's loop.
#[derive(Debug)]
pub struct Manager<F> {
    epoll: OwnedFd,
    listener: WrapperListener,
    executor: F,
    deciders: Deciders,
    settings: Settings,
    journal: Journal,
    clients: HashMap<Id, Wrapper>,
    next: Id,
    slots: Slots,
    one_by_one: OneByOne,
    /// Jobs that were submitted, in order, with the time; some may have left the executor since.
    submitted: VecDeque<(Id, Instant)>,
    verdicts: Vec<(Ticket, Verdict)>,
    scratch: Box<[u8]>,
    idle_since: Instant,
}

impl<F: RemoteExecutor> Manager<F> {
    /// A loop over `listener`, which is bound in `place`; without a place the socket's file is not
    /// removed at the end.
    ///
    /// # Errors
    /// This machine has no descriptors left.
    pub fn new(
        listener: UnixListener,
        place: Option<ManagerPlace>,
        executor: F,
        settings: Settings,
        journal: Journal,
    ) -> Result<Self, ManagerError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(ManagerError::of("creating an epoll descriptor"))?;
        let listener = WrapperListener::new(listener.into(), place, &epoll)?;
        epoll::add(&epoll, executor.fd(), EventData::new_u64(EXECUTOR), EventFlags::IN)
            .map_err(ManagerError::of("watching its executor"))?;
        let deciders = Deciders::new().map_err(ManagerError::of("creating an event descriptor"))?;
        epoll::add(&epoll, &deciders, EventData::new_u64(DECIDERS), EventFlags::IN)
            .map_err(ManagerError::of("watching its threads"))?;
        Ok(Self {
            epoll,
            listener,
            executor,
            deciders,
            settings,
            journal,
            clients: HashMap::new(),
            next: FIRST,
            slots: Slots::new(settings.slots),
            one_by_one: OneByOne::default(),
            submitted: VecDeque::new(),
            verdicts: Vec::new(),
            scratch: vec![0; READ_BYTES].into(),
            idle_since: Instant::now(),
        })
    }

    /// Serves wrappers until none has been connected for [`Settings::idle`].
    ///
    /// # Errors
    /// This machine's epoll fails.
    pub fn run(mut self) -> Result<(), ManagerError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_over(Instant::now()) {
            self.turn(&mut events)?;
        }
        self.save(None, Instant::now());
        self.journal.end();
        Ok(())
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> Result<(), ManagerError> {
        self.executor.wait(self.timeout(Instant::now()), self.epoll.as_fd());
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ManagerError::of("waiting for events")(errno)),
        }
        let now = Instant::now();
        for event in events.iter() {
            self.handle(event, now);
        }
        self.handle_decisions(now);
        self.take_verdicts(now);
        self.run_unclaimed_locally(now);
        self.run_slow_locally(now);
        self.grant(now);
        if self.journal.deadline().is_some_and(|at| at <= now) {
            self.save(None, now);
        }
        Ok(())
    }

    /// Has the statistics written, with the executor's counters.
    fn save(&mut self, asker: Option<OwnedFd>, now: Instant) {
        self.journal.note_manager(self.executor.report());
        self.journal.save(asker, now);
    }

    fn handle(&mut self, event: &Event, now: Instant) {
        let (id, flags) = (event.data.u64(), event.flags);
        match id {
            LISTENER => self.accept(now),
            EXECUTOR | DECIDERS => {}
            _ if flags.contains(EventFlags::OUT) => self.send_rest(id),
            _ => self.receive(id, now),
        }
    }

    /// How long a turn may wait.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let idle = self.closing_time().filter(|_| self.clients.is_empty());
        let idle = idle.map(|at| if at <= now { now + CLOSE_RETRY } else { at });
        let limits = [
            self.executor.deadline(),
            self.deciders.deadline(),
            self.unclaimed_deadline(),
            self.journal.deadline(),
            idle,
        ];
        limits.into_iter().flatten().min().map(|at| at.saturating_duration_since(now))
    }

    fn closing_time(&self) -> Option<Instant> {
        Some(self.idle_since + self.settings.idle?)
    }

    fn is_over(&mut self, now: Instant) -> bool {
        let is_idle = self.clients.is_empty();
        let is_due = self.closing_time().is_some_and(|at| at <= now);
        if self.listener.is_open() && is_idle && is_due {
            self.listener.close();
            self.accept(now);
        }
        !self.listener.is_open() && self.clients.is_empty()
    }
}

/// Connections of wrappers.
impl<F: RemoteExecutor> Manager<F> {
    fn accept(&mut self, now: Instant) {
        if self.clients.len() >= WRAPPERS_MAX {
            return self.listener.pause(&self.epoll);
        }
        while self.clients.len() < WRAPPERS_MAX
            && let Some(stream) = self.listener.accept(&self.epoll)
        {
            let id = self.next;
            self.next += 1;
            if epoll::add(&self.epoll, &stream, EventData::new_u64(id), EventFlags::IN).is_ok() {
                self.clients.insert(id, Wrapper::new(stream, now));
            }
        }
        if self.clients.len() > 1 {
            self.one_by_one.note_company();
        }
    }

    fn receive(&mut self, id: Id, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.receive(&mut self.scratch) {
            WrapperEvent::Part => {}
            WrapperEvent::Gone => self.leave(id, now),
            WrapperEvent::Probe => self.answer_probe(id, now),
            WrapperEvent::Call(call) => self.consider(id, call, now),
            WrapperEvent::Source(file) => self.take_source(id, &file, now),
        }
    }

    /// A wrapper asks whether the manager is alive: it gets a byte, and the end of its connection
    /// once the statistics are written.
    fn answer_probe(&mut self, id: Id, now: Instant) {
        let Some(client) = self.clients.get(&id) else { return };
        let asker = client.stream.try_clone().ok().filter(|_| client.send_sign_of_life().is_ok());
        self.save(asker, now);
        self.leave(id, now);
    }

    fn consider(&mut self, id: Id, call: CompilerCall, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.name = call.name();
        client.wishes = Wishes::of(&call);
        client.state = WrapperState::Deciding(SourceMode::of(&call.env));
        if !self.deciders.ask(id, call, now) {
            self.queue(id, Cause::Unanswered.into());
        }
    }

    fn handle_decisions(&mut self, now: Instant) {
        while let Some((id, plan)) = self.deciders.poll() {
            self.decide(id, plan, now);
        }
        while let Some(id) = self.deciders.take_overdue(now) {
            self.queue(id, Cause::Unanswered.into());
        }
    }

    fn decide(&mut self, id: Id, plan: Classification, now: Instant) {
        let is_one_by_one = self.is_one_by_one(id);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let WrapperState::Deciding(mode) = client.state else { return };
        match plan {
            Classification::Local(reason) => self.queue(id, reason),
            Classification::Remote(_) if self.executor.capacity().servers == 0 => {
                self.queue(id, Reason::with(Cause::NoServers, self.executor.trouble()));
            }
            Classification::Remote(_) if is_one_by_one => self.queue(id, Cause::OneByOne.into()),
            Classification::Remote(job) => match mode.split(*job) {
                Ok(what) => {
                    client.state = WrapperState::QueuedToPreprocess(Box::new(what));
                    self.slots.wait(id);
                }
                Err(job) => {
                    client.state = WrapperState::Remote;
                    self.submitted.push_back((id, now));
                    self.executor.submit(Ticket(id), job);
                }
            },
        }
    }

    /// Whether a wrapper has come alone, after many that did and took little time.
    fn is_one_by_one(&self, id: Id) -> bool {
        let is_free = self.clients.len() == 1 && self.slots.is_free();
        is_free && self.one_by_one.is_in_a_row() && !self.is_only_remote(id)
    }

    /// Takes a wrapper's preprocessed source and its slot, and submits the job.
    fn take_source(&mut self, id: Id, file: &OwnedFd, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let WrapperState::Preprocessing { what, .. } = client.take_state() else { return };
        self.slots.leave(id);
        match what.with(file) {
            Ok((job, source)) => {
                client.state = WrapperState::Remote;
                self.submitted.push_back((id, now));
                self.executor.submit_preprocessed(Ticket(id), job, source);
            }
            Err(why) => self.queue(id, Reason::with(Cause::Unpreprocessed, why)),
        }
    }

    fn leave(&mut self, id: Id, now: Instant) {
        let Some(client) = self.clients.remove(&id) else { return };
        if client.state.is_of_a_remote_job() {
            self.one_by_one.note_end(now.saturating_duration_since(client.began));
        }
        match &client.state {
            WrapperState::Remote => {
                self.executor.cancel(Ticket(id));
                self.journal.note_abandoned(now);
            }
            WrapperState::Queued(_) | WrapperState::QueuedToPreprocess(_) => {
                self.slots.leave(id);
                self.journal.note_abandoned(now);
            }
            WrapperState::Local { slot, granted, reason } => {
                self.note_local(id, &client, (*slot, *granted), reason, now);
            }
            WrapperState::Preprocessing { slot, granted, .. } => {
                let reason = Cause::Unpreprocessed.into();
                self.note_local(id, &client, (*slot, *granted), &reason, now);
            }
            WrapperState::Deciding(_) => {
                self.deciders.forget(id);
                self.journal.note_abandoned(now);
            }
            WrapperState::Asking(_) | WrapperState::Answering(_) => {}
        }
        drop(client);
        self.listener.resume(&self.epoll);
        if self.clients.is_empty() {
            self.idle_since = now;
            self.executor.idle();
        }
    }

    /// A local compiler has ended.
    fn note_local(
        &mut self,
        id: Id,
        client: &Wrapper,
        (slot, granted): (usize, Instant),
        reason: &Reason,
        now: Instant,
    ) {
        self.slots.leave(id);
        let (name, began) = (client.name.clone(), client.began);
        self.journal.note_local(LocalJob { name, began, granted, slot, reason }, now);
    }

    fn send_rest(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let WrapperState::Answering(rest) = &mut client.state else { return };
        let rest = std::mem::take(rest);
        match client.send(rest) {
            Ok(rest) if !rest.is_empty() => client.state = WrapperState::Answering(rest),
            _ => self.leave(id, Instant::now()),
        }
    }
}

/// Verdicts and local slots.
impl<F: RemoteExecutor> Manager<F> {
    fn take_verdicts(&mut self, now: Instant) {
        let mut verdicts = std::mem::take(&mut self.verdicts);
        self.executor.turn(now, &mut verdicts);
        for (Ticket(id), verdict) in verdicts.drain(..) {
            match verdict {
                Verdict::Local(reason) => self.queue(id, reason),
                Verdict::Done(finished) if finished.status != 0 && !self.is_only_remote(id) => {
                    self.journal.note_failure();
                    self.queue(id, Cause::FailedRemotely.into());
                }
                Verdict::Done(finished) => self.finish(id, finished, now),
            }
        }
        self.verdicts = verdicts;
    }

    fn finish(&mut self, id: Id, finished: Finished, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Finished { status, stdout, mut stderr, trace } = finished;
        let took = now.saturating_duration_since(client.began).as_secs_f64();
        let line = || format!("{} ran on {} ({took:.2} s)", client.name, trace.server);
        stderr.extend(client.wishes.line(line));
        self.journal.note_remote(std::mem::take(&mut client.name), client.began, &trace, now);
        self.reply(id, &Reply::Done { status, stdout, stderr }, now);
    }

    /// Sends a wrapper its final reply.
    fn reply(&mut self, id: Id, reply: &Reply, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.answer(reply) {
            Ok(rest) if !rest.is_empty() => {
                client.state = WrapperState::Answering(rest);
                let flags = EventFlags::OUT;
                let _ = epoll::modify(&self.epoll, &client.stream, EventData::new_u64(id), flags);
            }
            _ => {
                client.state = WrapperState::Answering(UnsentReply::default());
                self.leave(id, now);
            }
        }
    }

    fn is_only_remote(&self, id: Id) -> bool {
        self.clients.get(&id).is_some_and(|client| client.wishes.only_remote)
    }

    /// Queues a job for a local slot; with `OUTBOARD_CC_FALLBACK=0` it fails instead.
    fn queue(&mut self, id: Id, reason: Reason) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.wishes.only_remote && !reason.cause.is_of_words() {
            let stderr =
                format!("outboard-cc: not compiled because of {FALLBACK}=0: it {reason}\n");
            let (status, stdout) = (EXIT_FAILURE, Vec::new());
            self.journal.note_refused(Instant::now());
            let reply = Reply::Done { status, stdout, stderr: stderr.into_bytes() };
            return self.reply(id, &reply, Instant::now());
        }
        match client.state {
            WrapperState::Remote => {
                tracing::info!(job = client.name, why = %reason, "job given up")
            }
            _ => tracing::debug!(job = client.name, why = %reason, "job runs locally"),
        }
        client.state = WrapperState::Queued(reason);
        self.slots.wait(id);
    }

    fn grant(&mut self, now: Instant) {
        while let Some((id, slot)) = self.slots.grant() {
            let Some(client) = self.clients.get_mut(&id) else {
                self.slots.leave(id);
                continue;
            };
            let reply = match client.take_state() {
                WrapperState::QueuedToPreprocess(what) => {
                    let reply = what.reply();
                    client.state = WrapperState::Preprocessing { slot, granted: now, what };
                    reply
                }
                WrapperState::Queued(reason) => {
                    let why =
                        client.wishes.line(|| format!("{} {reason}: it runs locally", client.name));
                    client.state = WrapperState::Local { slot, granted: now, reason };
                    Reply::Local { why }
                }
                other => {
                    client.state = other;
                    Reply::Local { why: Vec::new() }
                }
            };
            if let Some(process) = client.watch_process() {
                // Unwatched, it keeps its slot until its connection closes.
                let _ = epoll::add(&self.epoll, process, EventData::new_u64(id), EventFlags::IN);
            }
            // These replies always fit into a new socket's buffer.
            if client.answer(&reply).is_err() {
                self.leave(id, now);
            }
        }
    }

    /// When the job that has waited longest may run locally, if it may at all.
    fn unclaimed_deadline(&self) -> Option<Instant> {
        let (_, since) = self.submitted.front()?;
        let slots = self.executor.capacity().slots;
        let is_small = slots <= self.settings.few_slots;
        let patience = self.settings.patience.filter(|_| is_small && self.slots.is_free())?;
        Some(*since + if slots == 0 { patience * FIRST_PATIENCE } else { patience })
    }

    fn run_unclaimed_locally(&mut self, now: Instant) {
        while let Some((id, _)) = self.submitted.front().copied() {
            let is_there = |client: &Wrapper| matches!(client.state, WrapperState::Remote);
            let may_leave = self.clients.get(&id).is_some_and(is_there) && !self.is_only_remote(id);
            if !may_leave || self.executor.is_claimed(Ticket(id)) {
                self.submitted.pop_front();
            } else if self.unclaimed_deadline().is_some_and(|at| at <= now) {
                self.submitted.pop_front();
                self.executor.cancel(Ticket(id));
                self.queue(id, Cause::Unclaimed.into());
            } else {
                return;
            }
        }
    }

    /// Runs a job in a free local slot that has been on servers for far too long.
    fn run_slow_locally(&mut self, now: Instant) {
        if !self.slots.is_free() {
            return;
        }
        let slow = self.executor.slow(now).into_iter().find(|Ticket(id)| !self.is_only_remote(*id));
        if let Some(Ticket(id)) = slow {
            self.executor.cancel(Ticket(id));
            self.queue(id, Cause::Slow.into());
        }
    }
}
