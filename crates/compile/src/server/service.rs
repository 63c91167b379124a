//! The service: all clients of a server on one thread, their jobs in its slots.

use super::client_sandbox::Plan;
use super::counters::ServerCounters;
use super::session::{ClientSession, Out, SessionEnd};
use super::slot_allocator::{ClientId, SlotAllocator};
use super::toolchains::Programs;
use crate::protocol::{ToClient, ToServer};
use crate::sandbox::{Launch, Limits};
use outboard_cluster::arrivals::{Arrivals, Arrived};
use outboard_cluster::codec;
use outboard_cluster::hub::{Hub, HubCounters, HubError, HubEvent, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::waker::Waker;
use outboard_secure::NodeId;
use outboard_store::{Store, Usage};
use outboard_verbs::Secured;
use rustix::event::epoll;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often clients hear that their jobs are worked on.
const TICK: Duration = Duration::from_secs(1);
/// What the service's own descriptors are called; slot sandboxes have slots and clients.
const HUB: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// What a server is.
#[derive(Debug)]
pub struct Options {
    /// Jobs at a time.
    pub slots: u32,
    /// What compilers it has.
    pub programs: Programs,
    /// Where contents stay that it has seen; without it they stay as long as their client does.
    pub store: Option<Store>,
    /// Whether it takes compilers that it lacks from its clients, if it has a store.
    pub accept_toolchains: bool,
    /// How sandboxes start.
    pub launch: Launch,
    /// What one job may use.
    pub limits: Limits,
}

/// What a server does now.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Slots.
    pub slots: usize,
    /// Slots without a job.
    pub free: usize,
    /// Jobs done since its start.
    pub done: u64,
    /// Clients.
    pub clients: Vec<ClientStatus>,
    /// What it has done since its start.
    pub counters: ServerCounters,
    /// Its store, if it has one.
    pub store: Option<Usage>,
    /// Its connections.
    pub hub: HubCounters,
}

/// What a server does for one client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// Its jobs: slot and source.
    pub jobs: Vec<(u32, String)>,
}

/// A server for any number of clients: what its process does with its slots.
pub struct Service {
    hub: Hub,
    sessions: BTreeMap<ClientId, ClientSession>,
    peers: HashMap<PeerId, ClientId>,
    connections: HashMap<ClientId, PeerId>,
    slots: SlotAllocator,
    programs: Programs,
    store: Option<Arc<Store>>,
    accepts: bool,
    plan: Plan,
    permits: HashMap<ClientId, (NodeId, Option<Permit>)>,
    arrivals: Arrivals,
    waker: Waker,
    ready: OwnedFd,
    next: u32,
    done: u64,
    ticked: Instant,
    /// What was done for clients that are gone.
    past: ServerCounters,
}

impl Service {
    /// A service without clients.
    ///
    /// # Errors
    /// This machine's.
    pub fn new(options: Options) -> Result<Self, HubError> {
        let hub = Hub::new()?;
        let waker = Waker::new()?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (name, fd) in [(HUB, hub.as_fd()), (BELL, waker.as_fd())] {
            epoll::add(&ready, fd, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?;
        }
        let Options { slots, mut programs, store, accept_toolchains, launch, limits } = options;
        programs.set_waker(waker.clone());
        Ok(Self {
            hub,
            sessions: BTreeMap::new(),
            peers: HashMap::new(),
            connections: HashMap::new(),
            slots: SlotAllocator::new(slots),
            programs,
            store: store.map(Arc::new),
            accepts: accept_toolchains,
            plan: Plan { launch, limits, slots },
            permits: HashMap::new(),
            arrivals: Arrivals::new(waker.clone()),
            waker,
            ready,
            next: 0,
            done: 0,
            ticked: Instant::now(),
            past: ServerCounters::default(),
        })
    }

    /// Takes a client's session over. A thread sets the connection up.
    ///
    /// # Errors
    /// This machine's.
    pub fn admit(&mut self, stream: Secured, permit: Option<Permit>) -> Result<(), HubError> {
        self.arrivals.admit(&self.hub, stream, permit)
    }

    /// Ends what a node that is revoked has here.
    pub fn shut_out(&mut self, node: NodeId) {
        self.arrivals.shut_out(node);
        let is_its = |id: &ClientId| self.permits.get(id).is_some_and(|(of, _)| *of == node);
        let revoked = |(peer, id): (&PeerId, &ClientId)| is_its(id).then_some(*peer);
        for peer in self.peers.iter().filter_map(revoked).collect::<Vec<_>>() {
            self.end(peer, "it is revoked");
        }
    }

    /// When to call [`Self::turn`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.ticked + TICK
    }

    /// What it does now.
    #[must_use]
    pub fn status(&self) -> Status {
        let (slots, free) = self.slots.slots();
        let jobs = |session: &ClientSession| {
            let job = |(slot, spec): (u32, &crate::protocol::JobSpec)| {
                (slot, super::package::shown(spec.argv.last().map_or(&[][..], |word| word)))
            };
            session.jobs().map(job).collect()
        };
        let client = |session: &ClientSession| ClientStatus {
            name: session.name().to_owned(),
            jobs: jobs(session),
        };
        Status {
            slots,
            free,
            done: self.done,
            clients: self.sessions.values().map(client).collect(),
            counters: self.sessions.values().fold(self.past, |sum, one| sum.add(one.counters())),
            store: self.store.as_ref().map(|store| store.usage()),
            hub: self.hub.counters(),
        }
    }

    /// Does what there is to do. Does not wait: sleep on the descriptor, until the deadline.
    ///
    /// # Errors
    /// This machine's, or a fault of Outboard: the service is of no use any more.
    pub fn turn(&mut self, now: Instant) -> Result<(), HubError> {
        for slot in self.ended_cells()? {
            self.cell_ended(slot, now);
        }
        while let Some(arrived) = self.arrivals.poll() {
            self.arrive(arrived)?;
        }
        let mut events = Vec::new();
        self.hub.turn(&mut events)?;
        for event in events {
            self.handle(event, now);
        }
        if now - self.ticked >= TICK {
            self.ticked = now;
            self.tick(now);
        }
        self.programs.learn(now);
        self.settle(now);
        Ok(())
    }

    fn tick(&mut self, now: Instant) {
        let mut broken = Vec::new();
        for (id, session) in &mut self.sessions {
            if let Err(error) = session.tick(now) {
                broken.extend(self.connections.get(id).map(|peer| (*peer, error.to_string())));
            }
        }
        for (peer, why) in broken {
            self.end(peer, &why);
        }
    }

    /// Slots whose slot sandboxes have something to say, with their clients.
    fn ended_cells(&self) -> Result<Vec<(ClientId, u32)>, HubError> {
        let mut events = Vec::with_capacity(64);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.ready, room, Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.waker.clear();
        let names = events.iter().map(|event| event.data.u64());
        Ok(names.filter(|name| *name < BELL).map(cell_of).collect())
    }

    fn cell_ended(&mut self, (client, slot): (ClientId, u32), now: Instant) {
        if let Some(session) = self.sessions.get_mut(&client) {
            self.done += u64::from(session.ended(slot, now));
        }
    }

    fn arrive(&mut self, arrived: Arrived) -> Result<(), HubError> {
        let Arrived { node, admitted, permit } = arrived;
        let peer = self.hub.enroll(admitted)?;
        self.next += 1;
        let id = ClientId(self.next);
        let session = ClientSession::new(self.waker.clone(), self.store.clone(), self.accepts);
        self.sessions.insert(id, session);
        self.peers.insert(peer, id);
        self.connections.insert(id, peer);
        self.permits.insert(id, (node, permit));
        Ok(())
    }

    fn handle(&mut self, event: HubEvent, now: Instant) {
        let peer = event.peer();
        if let HubEvent::Gone { why, .. } = &event {
            return self.end(peer, why);
        }
        let Some(id) = self.peers.get(&peer).copied() else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.heard(now);
        }
        let result = match event {
            HubEvent::Message { bytes, .. } => match codec::decode(&bytes) {
                Ok(message) => self.hear(id, message, now),
                Err(error) => return self.end(peer, &error.to_string()),
            },
            HubEvent::Read { tag, bytes, .. } => match self.sessions.get_mut(&id) {
                Some(session) => session.read(tag, bytes, &self.programs),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.end(peer, &error.to_string());
        }
    }

    fn hear(&mut self, id: ClientId, message: ToServer, now: Instant) -> Result<(), SessionEnd> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        match message {
            ToServer::Hello { name, export } => {
                let ready = ToClient::Ready { slots: self.plan.slots };
                session.hello(name, export, ready)?;
            }
            ToServer::ResultBuffer(result_buffer) => {
                session.land(result_buffer, self.plan.slots)?;
                self.slots.add(id);
            }
            ToServer::Idle => self.slots.idle(id),
            ToServer::Job { spec, input } if session.is_ready() => match self.slots.take(id) {
                Some(slot) => session.begin(*spec, input, slot, now)?,
                None => session.say(ToClient::Return { ticket: spec.ticket }),
            },
            ToServer::Job { .. } => return Err(SessionEnd::OutOfTurn("a job")),
            other => session.hear(other, &self.programs)?,
        }
        Ok(())
    }

    /// Lets everything take its course until nothing moves.
    fn settle(&mut self, now: Instant) {
        let mut broken = Vec::new();
        for (id, session) in &mut self.sessions {
            let ready = &self.ready;
            let mut watch = |slot: u32, fd: BorrowedFd<'_>| {
                let name = epoll::EventData::new_u64(name_of(*id, slot));
                // A slot sandbox that is not watched is found when its client cancels.
                let _watched = epoll::add(ready, fd, name, epoll::EventFlags::IN);
            };
            if let Err(error) = session.advance(&self.plan, &mut self.programs, now, &mut watch) {
                broken.push((*id, error.to_string()));
            }
            while let Some(slot) = session.poll_released() {
                self.slots.release(slot);
            }
        }
        while let Some(client) = self.slots.poll() {
            if let Some(session) = self.sessions.get_mut(&client) {
                session.say(ToClient::Want);
            }
        }
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            if let Err(error) = self.speak(id) {
                broken.push((id, error.to_string()));
            }
        }
        for (id, why) in broken {
            if let Some(peer) = self.connections.get(&id).copied() {
                self.end(peer, &why);
            }
        }
    }

    /// Says what a session has to say.
    fn speak(&mut self, id: ClientId) -> Result<(), HubError> {
        let Some(peer) = self.connections.get(&id).copied() else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        while let Some(out) = session.poll() {
            match out {
                Out::Say(message) => self.hub.send(peer, &codec::encode(&message))?,
                Out::Read { from, into, tag } => self.hub.read_into(peer, from, into, tag)?,
                Out::Write { to, bytes } => self.hub.write(peer, to, bytes)?,
            }
        }
        Ok(())
    }

    /// A client is gone, or has to go.
    fn end(&mut self, peer: PeerId, why: &str) {
        self.hub.dismiss(peer);
        let Some(id) = self.peers.remove(&peer) else { return };
        self.connections.remove(&id);
        if let Some((node, _permit)) = self.permits.remove(&id) {
            tracing::info!(%node, why, "session ended");
        }
        self.slots.remove(id);
        // With the session its sandbox ends, and so do its jobs.
        if let Some(session) = self.sessions.remove(&id) {
            self.past = self.past.add(session.counters());
        }
        self.slots.release_all(id);
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl AsFd for Service {
    /// Readable when a turn has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

fn name_of(client: ClientId, slot: u32) -> u64 {
    u64::from(client.0) << 32 | u64::from(slot)
}

fn cell_of(name: u64) -> (ClientId, u32) {
    let part = |word: u64| u32::try_from(word & u64::from(u32::MAX)).expect("masked");
    (ClientId(part(name >> 32)), part(name))
}
