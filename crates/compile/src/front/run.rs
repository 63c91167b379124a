//! The loop: what happened, who is affected, who goes next.
//!
//! A turn waits for events, hands them round, asks the farm for verdicts and gives out local slots.
//! Nothing in a turn waits for a wrapper, a compiler or a server.

use super::FrontError;
use super::client::{Client, Heard, State};
use super::door::{DOOR, Door};
use super::farm::{Farm, Finished, Ticket, Verdict};
use super::slots::{Id, Slots};
use super::source::Mode;
use crate::args::{Call, Cause, Plan, Reason, classify};
use crate::stats::{HomeJob, Journal};
use outboard_cc::place::Place;
use outboard_cc::wire::Reply;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// What epoll calls the farm.
const FARM: u64 = 1;
/// The first wrapper's name.
const FIRST: Id = 2;
/// Wrappers at one time; more wait in the socket's queue, and none of these is lost.
const CLIENTS_MAX: usize = 8192;
/// Events of one turn.
const EVENTS_MAX: usize = 256;
/// Octets of one read from a wrapper.
const READ_OCTETS: usize = 64 << 10;
/// When the door could not be closed it is tried again after this.
const CLOSE_RETRY: Duration = Duration::from_secs(1);

/// How the front decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Compilers at home at one time.
    pub slots: usize,
    /// How long a job waits for a server before a free local slot may have it; `None`: for ever.
    pub patience: Option<Duration>,
    /// A farm with more slots than this is left alone with its jobs, however long they wait.
    pub small_farm_slots: usize,
    /// The manager ends after this long without wrappers.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            slots: cores,
            patience: Some(Duration::from_millis(100)),
            small_farm_slots: 4 * cores,
            idle: Duration::from_secs(60),
        }
    }
}

/// The manager's loop.
#[derive(Debug)]
pub struct Front<F> {
    epoll: OwnedFd,
    door: Door,
    farm: F,
    settings: Settings,
    journal: Journal,
    clients: HashMap<Id, Client>,
    next: Id,
    slots: Slots,
    /// Jobs at the farm, in the order in which they came, and those that were.
    submitted: VecDeque<(Id, Instant)>,
    verdicts: Vec<(Ticket, Verdict)>,
    scratch: Box<[u8]>,
    idle_since: Instant,
}

impl<F: Farm> Front<F> {
    /// A loop over `listener`, which lies in `place`; without a place nobody clears the socket
    /// away.
    ///
    /// # Errors
    /// This machine has no descriptors left.
    pub fn new(
        listener: UnixListener,
        place: Option<Place>,
        farm: F,
        settings: Settings,
        journal: Journal,
    ) -> Result<Self, FrontError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(FrontError::of("makes an epoll descriptor"))?;
        let door = Door::new(listener.into(), place, &epoll)?;
        epoll::add(&epoll, farm.fd(), EventData::new_u64(FARM), EventFlags::IN)
            .map_err(FrontError::of("watches its farm"))?;
        Ok(Self {
            epoll,
            door,
            farm,
            settings,
            journal,
            clients: HashMap::new(),
            next: FIRST,
            slots: Slots::new(settings.slots),
            submitted: VecDeque::new(),
            verdicts: Vec::new(),
            scratch: vec![0; READ_OCTETS].into(),
            idle_since: Instant::now(),
        })
    }

    /// Serves wrappers until none has been there for [`Settings::idle`].
    ///
    /// # Errors
    /// This machine's epoll fails.
    pub fn run(mut self) -> Result<(), FrontError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_over(Instant::now()) {
            self.turn(&mut events)?;
        }
        self.journal.save();
        Ok(())
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> Result<(), FrontError> {
        let limit = self.limit(Instant::now()).map(timespec);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(FrontError::of("waits for events")(errno)),
        }
        let now = Instant::now();
        for event in events.iter() {
            self.handle(event, now);
        }
        self.hear_farm(now);
        self.take_home(now);
        self.grant(now);
        if self.journal.deadline().is_some_and(|at| at <= now) {
            self.journal.save();
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event, now: Instant) {
        let (id, flags) = (event.data.u64(), event.flags);
        match id {
            DOOR => self.let_in(now),
            FARM => {}
            _ if flags.contains(EventFlags::OUT) => self.answer_more(id),
            _ => self.hear(id, now),
        }
    }

    /// How long a turn may wait.
    fn limit(&self, now: Instant) -> Option<Duration> {
        let idle = self.clients.is_empty().then(|| self.closing_time(now));
        let limits = [self.farm.deadline(), self.take_home_at(), self.journal.deadline(), idle];
        limits.into_iter().flatten().min().map(|at| at.saturating_duration_since(now))
    }

    fn closing_time(&self, now: Instant) -> Instant {
        let at = self.idle_since + self.settings.idle;
        if at <= now { now + CLOSE_RETRY } else { at }
    }

    fn is_over(&mut self, now: Instant) -> bool {
        let is_idle = self.clients.is_empty();
        if self.door.is_open() && is_idle && self.idle_since + self.settings.idle <= now {
            self.door.close();
            self.let_in(now);
        }
        !self.door.is_open() && self.clients.is_empty()
    }
}

/// Wrappers come, talk and go.
impl<F: Farm> Front<F> {
    fn let_in(&mut self, now: Instant) {
        if self.clients.len() >= CLIENTS_MAX {
            return self.door.pause(&self.epoll);
        }
        while self.clients.len() < CLIENTS_MAX
            && let Some(stream) = self.door.let_in(&self.epoll)
        {
            let id = self.next;
            self.next += 1;
            if epoll::add(&self.epoll, &stream, EventData::new_u64(id), EventFlags::IN).is_ok() {
                self.clients.insert(id, Client::new(stream, now));
            }
        }
    }

    fn hear(&mut self, id: Id, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.hear(&mut self.scratch) {
            Heard::Part => {}
            Heard::Gone => self.leave(id, now),
            Heard::Call(call) => self.decide(id, call, now),
            Heard::Source(file) => self.take_source(id, &file, now),
        }
    }

    fn decide(&mut self, id: Id, call: Call, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.name = call.name();
        let mode = Mode::of(&call.env);
        match classify(call) {
            Plan::Home(reason) => self.queue(id, reason),
            Plan::Remote(_) if self.farm.capacity().servers == 0 => {
                self.queue(id, Reason::with(Cause::NoServers, self.farm.trouble()));
            }
            Plan::Remote(job) => match mode.take_apart(*job) {
                Ok(what) => {
                    client.state = State::QueuedToPreprocess(Box::new(what));
                    self.slots.wait(id);
                }
                Err(job) => {
                    client.state = State::Remote;
                    self.submitted.push_back((id, now));
                    self.farm.submit(Ticket(id), job);
                }
            },
        }
    }

    /// A wrapper has preprocessed its source and waits again, without its slot.
    fn take_source(&mut self, id: Id, file: &OwnedFd, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let State::Preprocessing { what, .. } = client.take_state() else { return };
        self.slots.leave(id);
        match what.with(file) {
            Ok((job, source)) => {
                client.state = State::Remote;
                self.submitted.push_back((id, now));
                self.farm.submit_preprocessed(Ticket(id), job, source);
            }
            Err(why) => self.queue(id, Reason::with(Cause::Unpreprocessed, why)),
        }
    }

    fn leave(&mut self, id: Id, now: Instant) {
        let Some(client) = self.clients.remove(&id) else { return };
        match &client.state {
            State::Remote => {
                self.farm.cancel(Ticket(id));
                self.journal.note_abandoned(now);
            }
            State::Queued(_) | State::QueuedToPreprocess(_) => {
                self.slots.leave(id);
                self.journal.note_abandoned(now);
            }
            State::AtHome { slot, granted, reason } => {
                self.note_home(id, &client, (*slot, *granted), reason, now);
            }
            State::Preprocessing { slot, granted, .. } => {
                let reason = Cause::Unpreprocessed.into();
                self.note_home(id, &client, (*slot, *granted), &reason, now);
            }
            // Whoever comes and says nothing wants to know how things are.
            State::Asking(said) if said.is_empty() => self.journal.save(),
            State::Asking(_) | State::Answering { .. } => {}
        }
        drop(client);
        self.door.somebody_left(&self.epoll);
        if self.clients.is_empty() {
            self.idle_since = now;
            self.farm.idle();
        }
    }

    /// A compiler at home has ended.
    fn note_home(
        &mut self,
        id: Id,
        client: &Client,
        (slot, granted): (usize, Instant),
        reason: &Reason,
        now: Instant,
    ) {
        self.slots.leave(id);
        let (name, began) = (client.name.clone(), client.began);
        self.journal.note_home(HomeJob { name, began, granted, slot, reason }, now);
    }

    fn answer_more(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let State::Answering { rest } = &mut client.state else { return };
        let rest = std::mem::take(rest);
        match client.send(rest) {
            Ok(rest) if !rest.is_empty() => client.state = State::Answering { rest },
            _ => self.leave(id, Instant::now()),
        }
    }
}

/// Verdicts, and local slots.
impl<F: Farm> Front<F> {
    fn hear_farm(&mut self, now: Instant) {
        let mut verdicts = std::mem::take(&mut self.verdicts);
        self.farm.turn(now, &mut verdicts);
        for (Ticket(id), verdict) in verdicts.drain(..) {
            match verdict {
                Verdict::Home(reason) => self.queue(id, reason),
                Verdict::Done(finished) if finished.status != 0 => {
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
        let Finished { status, stdout, stderr, trace } = finished;
        self.journal.note_remote(std::mem::take(&mut client.name), client.began, &trace, now);
        match client.answer(&Reply::Done { status, stdout, stderr }) {
            Ok(rest) if !rest.is_empty() => {
                client.state = State::Answering { rest };
                let flags = EventFlags::OUT;
                let _ = epoll::modify(&self.epoll, &client.stream, EventData::new_u64(id), flags);
            }
            _ => {
                client.state = State::Answering { rest: Vec::new() };
                self.leave(id, now);
            }
        }
    }

    fn queue(&mut self, id: Id, reason: Reason) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.state = State::Queued(reason);
        self.slots.wait(id);
    }

    fn grant(&mut self, now: Instant) {
        while let Some((id, slot)) = self.slots.grant() {
            let Some(client) = self.clients.get_mut(&id) else {
                self.slots.leave(id);
                continue;
            };
            let reply = match client.take_state() {
                State::QueuedToPreprocess(what) => {
                    let reply = what.reply();
                    client.state = State::Preprocessing { slot, granted: now, what };
                    reply
                }
                State::Queued(reason) => {
                    client.state = State::AtHome { slot, granted: now, reason };
                    Reply::Home
                }
                other => {
                    client.state = other;
                    Reply::Home
                }
            };
            // A new socket takes more than any of these has.
            if client.answer(&reply).is_err() {
                self.leave(id, now);
            }
        }
    }

    /// When the job that has waited longest may be taken home, if it may.
    fn take_home_at(&self) -> Option<Instant> {
        let (_, since) = self.submitted.front()?;
        let is_small = self.farm.capacity().slots <= self.settings.small_farm_slots;
        let patience = self.settings.patience.filter(|_| is_small && self.slots.is_free())?;
        Some(*since + patience)
    }

    fn take_home(&mut self, now: Instant) {
        while let Some((id, _)) = self.submitted.front().copied() {
            let is_there = |client: &Client| matches!(client.state, State::Remote);
            if !self.clients.get(&id).is_some_and(is_there) || self.farm.is_claimed(Ticket(id)) {
                self.submitted.pop_front();
            } else if self.take_home_at().is_some_and(|at| at <= now) {
                self.submitted.pop_front();
                self.farm.cancel(Ticket(id));
                self.queue(id, Cause::Unclaimed.into());
            } else {
                return;
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up, so that a deadline has passed when the wait is over.
    let duration = duration + Duration::from_nanos(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
