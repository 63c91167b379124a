//! What the service does: all clients of a server, their jobs in its slots. The loop around it is
//! cluster's.

use super::background::Threads;
use super::client_sandbox::ClientSandboxSettings;
use super::counters::ServerCounters;
use super::session::{ClientSession, Out, SessionEnd};
use super::slot_allocator::{ClientId, SlotAllocator};
use super::toolchains::Programs;
use crate::protocol::{JobSpec, PROTOCOL, ToClient, ToServer};
use crate::sandbox::{JobLimits, Launch};
use outboard_cluster::hub::{Hub, HubError, HubEvent, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceError};
use outboard_cluster::waker::Waker;
use outboard_secure::NodeId;
use outboard_store::{Store, StoreUsage};
use rustix::event::epoll;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often clients hear that their jobs are worked on.
const TICK: Duration = Duration::from_secs(1);
/// What the service's waker is called; slot sandboxes have slots and clients.
const WAKER: u64 = u64::MAX;

/// What a server is.
#[derive(Debug)]
pub struct ServiceOptions {
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
    pub limits: JobLimits,
}

/// What a server does now.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceStatus {
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
    pub store: Option<StoreUsage>,
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
pub struct CompileService {
    clients: BTreeMap<ClientId, ConnectedClient>,
    slots: SlotAllocator,
    programs: Programs,
    store: Option<Arc<Store>>,
    accepts: bool,
    settings: ClientSandboxSettings,
    threads: Threads,
    /// The waker, and slot sandboxes that may have something to say.
    ready: OwnedFd,
    done: u64,
    ticked: Instant,
    /// What was done for clients that are gone.
    past: ServerCounters,
}

/// A client, and what it may use.
struct ConnectedClient {
    session: ClientSession,
    peer: PeerId,
    identity: NodeId,
    slots_max: u32,
}

impl CompileService {
    /// A service without clients.
    ///
    /// # Errors
    /// This machine's.
    pub fn new(options: ServiceOptions) -> Result<Self, HubError> {
        let waker = Waker::new()?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let name = epoll::EventData::new_u64(WAKER);
        epoll::add(&ready, &waker, name, epoll::EventFlags::IN)?;
        let ServiceOptions { slots, mut programs, store, accept_toolchains, launch, limits } =
            options;
        programs.set_waker(waker.clone());
        Ok(Self {
            clients: BTreeMap::new(),
            slots: SlotAllocator::new(slots),
            programs,
            store: store.map(Arc::new),
            accepts: accept_toolchains,
            settings: ClientSandboxSettings { launch, limits, slots },
            threads: Threads::new(waker),
            ready,
            done: 0,
            ticked: Instant::now(),
            past: ServerCounters::default(),
        })
    }

    fn tick(&mut self, now: Instant, ends: &mut Vec<(PeerId, ServiceError)>) {
        self.slots.tick();
        for ConnectedClient { session, peer, .. } in self.clients.values_mut() {
            if let Err(error) = session.tick(now) {
                ends.push((*peer, error.into()));
            }
        }
    }

    /// Slots whose slot sandboxes have something to say, with their clients.
    fn ready_sandboxes(&self) -> Result<Vec<(ClientId, u32)>, HubError> {
        let mut events = Vec::with_capacity(64);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.ready, room, Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.threads.waker.clear();
        let names = events.iter().map(|event| event.data.u64());
        Ok(names.filter(|name| *name != WAKER).map(slot_of).collect())
    }

    fn job_ended(&mut self, (client, slot): (ClientId, u32), now: Instant) {
        if let Some(ConnectedClient { session, .. }) = self.clients.get_mut(&client) {
            self.done += u64::from(session.ended(slot, now));
        }
    }

    fn handle_message(
        &mut self,
        id: ClientId,
        message: ToServer,
        now: Instant,
    ) -> Result<(), SessionEnd> {
        let Some(ConnectedClient { session, identity, slots_max, .. }) = self.clients.get_mut(&id)
        else {
            return Ok(());
        };
        let slots = self.slots.most(*slots_max);
        match message {
            ToServer::Hello { name, export } => {
                session.hello(name, export, ToClient::Ready { slots })?;
            }
            ToServer::ResultBuffer(result_buffer) => {
                session.set_result_buffer(result_buffer, slots)?;
                self.slots.add(id, *identity, *slots_max);
            }
            ToServer::Idle => self.slots.idle(id),
            ToServer::Job { spec, input } if session.is_ready() => match self.slots.take(id) {
                Some(slot) => session.begin(*spec, input, slot, now)?,
                None => session.queue_message(ToClient::Return { ticket: spec.ticket }),
            },
            ToServer::Job { .. } => return Err(SessionEnd::OutOfTurn("a job")),
            other => session.handle_message(other, &self.programs)?,
        }
        Ok(())
    }

    /// Lets everything take its course until nothing moves.
    fn settle(&mut self, hub: &mut Hub, now: Instant, ends: &mut Vec<(PeerId, ServiceError)>) {
        for (id, ConnectedClient { session, peer, .. }) in &mut self.clients {
            let ready = &self.ready;
            let mut watch = |slot: u32, fd: BorrowedFd<'_>| {
                let name = epoll::EventData::new_u64(name_of(*id, slot));
                // A slot sandbox that is not watched is found when its client cancels.
                let _watched = epoll::add(ready, fd, name, epoll::EventFlags::IN);
            };
            if let Err(error) = session.advance(&self.settings, &mut self.programs, now, &mut watch)
            {
                ends.push((*peer, error.into()));
            }
            while let Some(slot) = session.poll_released() {
                self.slots.release(*id, slot);
            }
        }
        while let Some(id) = self.slots.poll() {
            if let Some(ConnectedClient { session, .. }) = self.clients.get_mut(&id) {
                session.queue_message(ToClient::Want);
            }
        }
        for client in self.clients.values_mut() {
            if let Err(error) = client.speak(hub) {
                ends.push((client.peer, error.into()));
            }
        }
    }
}

impl ConnectedClient {
    /// Says what its session has to say.
    fn speak(&mut self, hub: &mut Hub) -> Result<(), HubError> {
        while let Some(out) = self.session.poll() {
            match out {
                Out::Message(message) => hub.send(self.peer, &PROTOCOL.encode(&message))?,
                Out::Read { from, into, tag } => hub.read_into(self.peer, from, into, tag)?,
                Out::Write { to, bytes } => hub.write(self.peer, to, bytes)?,
            }
        }
        Ok(())
    }

    /// What it has at present.
    fn status(&self) -> ClientStatus {
        let job = |(slot, spec): (u32, &JobSpec)| {
            (slot, super::package::shown(spec.argv.last().map_or(&[][..], |word| word)))
        };
        let jobs = self.session.jobs().map(job).collect();
        ClientStatus { name: self.session.name().to_owned(), jobs }
    }
}

impl Service for CompileService {
    type Tag = u64;
    type Report = ServiceStatus;

    fn arrived(
        &mut self,
        _hub: &mut Hub,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError> {
        let session = ClientSession::new(self.threads.clone(), self.store.clone(), self.accepts);
        let (identity, slots_max) = (permit.node(), permit.slots());
        self.clients.insert(id_of(peer), ConnectedClient { session, peer, identity, slots_max });
        Ok(())
    }

    fn handle(&mut self, _hub: &mut Hub, event: HubEvent) -> Result<(), ServiceError> {
        let (id, now) = (id_of(event.peer()), Instant::now());
        let Some(ConnectedClient { session, .. }) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        session.heard(now);
        match event {
            HubEvent::Message { bytes, .. } => {
                self.handle_message(id, PROTOCOL.decode(&bytes)?, now)?
            }
            HubEvent::Read { tag, bytes, .. } => session.read(tag, bytes)?,
            _ => {}
        }
        Ok(())
    }

    fn gone(&mut self, _hub: &mut Hub, peer: PeerId) {
        let id = id_of(peer);
        // With the session its sandbox ends, and so do its jobs.
        if let Some(client) = self.clients.remove(&id) {
            self.past = self.past.add(client.session.counters());
        }
        self.slots.remove(id);
    }

    fn turn(
        &mut self,
        hub: &mut Hub,
        now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        for slot in self.ready_sandboxes()? {
            self.job_ended(slot, now);
        }
        let mut ends = Vec::new();
        if now - self.ticked >= TICK {
            self.ticked = now;
            self.tick(now, &mut ends);
        }
        self.programs.learn(now);
        self.settle(hub, now, &mut ends);
        Ok(ends)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.ticked + TICK)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn report(&self) -> ServiceStatus {
        let (slots, free) = self.slots.slots();
        let sessions = || self.clients.values().map(|client| &client.session);
        ServiceStatus {
            slots,
            free,
            done: self.done,
            clients: self.clients.values().map(ConnectedClient::status).collect(),
            counters: sessions().fold(self.past, |sum, one| sum.add(one.counters())),
            store: self.store.as_ref().map(|store| store.usage()),
        }
    }
}

impl fmt::Debug for CompileService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileService").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn id_of(peer: PeerId) -> ClientId {
    ClientId(peer.number())
}

fn name_of(client: ClientId, slot: u32) -> u64 {
    u64::from(client.0) << 32 | u64::from(slot)
}

fn slot_of(name: u64) -> (ClientId, u32) {
    let part = |word: u64| u32::try_from(word & u64::from(u32::MAX)).expect("masked");
    (ClientId(part(name >> 32)), part(name))
}
