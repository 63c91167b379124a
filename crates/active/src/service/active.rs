//! All regions, modules and connections: what the service's loop does.
//!
//! A request's cost does not depend on how many connections, regions or modules there are: each is
//! found by a number or a hash. A connection whose batch takes longer than [`TURN_MAX`] gets its
//! next turn after the others.

use super::backend::BackedRegion;
use super::counters::{ActiveCounters, ActiveReport};
use super::execute::RunningCall;
use super::gone::GoneSessions;
use super::identities::ModuleHolders;
use super::loads::{ActiveWorkDone, QueuedLoad};
use super::options::{ActiveLimits, ActiveServiceOptions};
use super::regions::ServedRegion;
use super::session::{ActiveSession, WaitingBatch, bound, tenant_of};
use crate::protocol::{ActiveAnswer, ActiveClientId, ActiveRequest, PROTOCOL};
use outboard_cluster::hub::{Hub, HubEvent, PeerId, PeerMap};
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceError, SpinMode};
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use outboard_offcode::executor::Moment;
use outboard_offcode::journal::RequestId;
use outboard_offcode::store::TenantId;
use outboard_offcode::{Executor, ModuleHash, ModuleStore, Wasmtime};
use outboard_secure::NodeId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long the requests of one connection may take before it is the others' turn.
const TURN_MAX: Duration = Duration::from_micros(500);
/// How long the loop may be busy with requests that have waited before it looks for new ones.
const WAITING_TURNS_MAX: Duration = Duration::from_millis(2);
/// After so many requests of any connections, answers are sent.
const ANSWERS_TOGETHER: usize = 32;
/// Requests between two looks at the clock.
const CLOCK_EVERY: usize = 8;
/// Threads that load modules, of which one identity has a few at a time, and that write files.
pub(super) const LOADERS: usize = 8;
const WRITERS: usize = 4;

/// The hub of the service.
pub(super) type ActiveHub = Hub<ActiveTag>;

/// What a Read of a client's memory is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveTag {
    /// A module, to be loaded.
    Module {
        /// The request's number.
        number: u64,
        /// The module's name.
        name: String,
    },
    /// What a backend needs for a request.
    Bytes {
        /// The request's.
        token: u64,
    },
}

/// See this file's first lines.
pub struct ActiveService {
    pub(super) executor: Executor<Wasmtime>,
    pub(super) store: Arc<ModuleStore<Wasmtime>>,
    /// Modules of the operator's.
    pub(super) operators: HashSet<ModuleHash>,
    pub(super) regions: Vec<ServedRegion>,
    pub(super) backed: Option<BackedRegion>,
    pub(super) region_names: HashMap<String, usize>,
    pub(super) sessions: PeerMap<ActiveSession>,
    /// The connection of each client.
    clients: HashMap<[u8; 16], PeerId>,
    /// Executions that go on elsewhere, by token.
    pub(super) running: HashMap<u64, RunningCall>,
    pub(super) gone: GoneSessions,
    /// The tokens of these, by request.
    pub(super) by_request: HashMap<RequestId, u64>,
    pub(super) next_token: u64,
    /// Memory for the next request's entry and arguments.
    pub(super) spare: (String, Vec<u8>),
    /// The time, and for how many more requests of this turn it is recent enough.
    moment: (Moment, usize),
    /// Connections with answers that have not been sent.
    pub(super) unsent: Vec<PeerId>,
    /// Requests since answers were sent.
    answered: usize,
    /// Connections with requests that wait for their turn.
    turns: VecDeque<PeerId>,
    pub(super) ends: Vec<(PeerId, ServiceError)>,
    pub(super) loading: HashMap<NodeId, usize>,
    pub(super) queued_loads: HashMap<NodeId, VecDeque<QueuedLoad>>,
    pub(super) holders: ModuleHolders,
    pub(super) flushes: HashMap<usize, super::admin::RegionFlushes>,
    pub(super) loaders: Workers,
    pub(super) writers: Workers,
    pub(super) sender: mpsc::Sender<ActiveWorkDone>,
    finished: mpsc::Receiver<ActiveWorkDone>,
    pub(super) waker: Waker,
    pub(super) limits: ActiveLimits,
    spin: SpinMode,
    pub(super) counters: ActiveCounters,
}

impl fmt::Debug for ActiveService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveService").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl ActiveService {
    /// A service without clients.
    ///
    /// # Errors
    /// This machine's: no descriptors, no threads.
    pub fn new(options: ActiveServiceOptions) -> std::io::Result<Self> {
        let ActiveServiceOptions { regions, store, operators, limits, spin } = options;
        let waker = Waker::new()?;
        let (sender, finished) = mpsc::channel();
        let wakes = waker.clone();
        let executor = Executor::new(Arc::clone(&store), limits.executor(), move || wakes.wake())?;
        let names = regions.iter().enumerate().map(|(at, one)| (one.setup.name.clone(), at));
        Ok(Self {
            executor,
            store,
            operators,
            region_names: names.collect(),
            regions,
            backed: None,
            sessions: PeerMap::default(),
            clients: HashMap::new(),
            running: HashMap::new(),
            gone: GoneSessions::default(),
            by_request: HashMap::new(),
            next_token: 1,
            spare: (String::new(), Vec::new()),
            moment: (Moment::now(), 0),
            unsent: Vec::new(),
            turns: VecDeque::new(),
            ends: Vec::new(),
            loading: HashMap::new(),
            queued_loads: HashMap::new(),
            holders: ModuleHolders::default(),
            answered: 0,
            flushes: HashMap::new(),
            loaders: Workers::new("outboard-load", LOADERS),
            writers: Workers::new("outboard-flush", WRITERS),
            sender,
            finished,
            waker,
            limits,
            spin,
            counters: ActiveCounters::default(),
        })
    }

    /// A batch of a client's.
    fn batch(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        bytes: Vec<u8>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&peer) else { return Ok(()) };
        if session.is_over {
            return Ok(());
        }
        if session.waiting.is_empty() {
            self.requests(hub, peer, WaitingBatch { bytes, at: 0 })?;
            if self.answered >= ANSWERS_TOGETHER {
                // Those that were asked first do not wait for all others of this turn.
                self.send_answers(hub);
            }
            return Ok(());
        }
        Ok(session.wait(bytes)?)
    }

    /// The requests of a batch, or as many as fit into a turn.
    fn requests(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        batch: WaitingBatch,
    ) -> Result<(), ServiceError> {
        let WaitingBatch { bytes, at } = batch;
        let mut rest = match at {
            0 => PROTOCOL.open_batch(&bytes)?,
            _ => &bytes[at..],
        };
        let (mut begun, mut count) = (None, 0);
        while let Some(request) = PROTOCOL.decode_next(&mut rest)? {
            self.request(hub, peer, request)?;
            (count, self.answered) = (count + 1, self.answered + 1);
            if count % CLOCK_EVERY == 0 && !rest.is_empty() {
                let now = Instant::now();
                if now - *begun.get_or_insert(now) > TURN_MAX {
                    let at = bytes.len() - rest.len();
                    self.interrupt(peer, WaitingBatch { bytes, at });
                    break;
                }
            }
        }
        Ok(())
    }

    /// The time of a request.
    pub(super) fn moment(&mut self, token: u64) -> Moment {
        let (moment, left) = &mut self.moment;
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => (*moment, *left) = (Moment::now(), CLOCK_EVERY - 1),
        }
        moment.with_seed_of(token)
    }

    fn interrupt(&mut self, peer: PeerId, batch: WaitingBatch) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.put_back(batch);
            if !std::mem::replace(&mut session.has_turn, true) {
                self.turns.push_back(peer);
            }
        }
    }

    fn request(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        request: ActiveRequest<'_>,
    ) -> Result<(), ServiceError> {
        match request {
            ActiveRequest::Execute(execute) => self.execute(hub, peer, &execute),
            ActiveRequest::Hello { client } => self.hello(hub, peer, client),
            ActiveRequest::Note { bytes } => self.note(hub, peer, bytes),
            other => self.serve(hub, peer, other),
        }
    }

    /// A client says who it is: an older connection of it is over.
    fn hello(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        client: ActiveClientId,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&peer) else { return Ok(()) };
        if session.client.is_some() {
            return Err("it says twice who it is".into());
        }
        let TenantId(caller) = tenant_of(session.node);
        let client = bound(session.node, client.0);
        session.client = Some(client);
        if let Some(older) = self.clients.insert(client, peer) {
            // What is left of it must not be executed behind what the new one asks again.
            if let Some(session) = self.sessions.get_mut(&older) {
                session.is_over = true;
            }
            self.ends.push((older, "its client has another connection".into()));
            self.waker.wake();
        }
        self.answer(hub, peer, &ActiveAnswer::Welcome { caller })
    }

    /// Appends an answer to those that leave at the end of the turn.
    pub(super) fn answer(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        answer: &ActiveAnswer<'_>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&peer) else { return Ok(()) };
        if session.answers.is_empty() {
            self.unsent.push(peer);
        }
        match session.answer(answer) {
            Some(full) => Ok(hub.send(peer, &full)?),
            None => Ok(()),
        }
    }

    /// Appends an answer of which the turn is not one of its connection's.
    pub(super) fn answer_later(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        answer: &ActiveAnswer<'_>,
    ) {
        if let Err(why) = self.answer(hub, peer, answer) {
            self.ends.push((peer, why));
        }
    }

    fn send_answers(&mut self, hub: &mut ActiveHub) {
        self.answered = 0;
        let mut unsent = std::mem::take(&mut self.unsent);
        for peer in unsent.drain(..) {
            let Some(session) = self.sessions.get_mut(&peer) else { continue };
            let sent = hub.send(peer, &session.answers);
            session.answers.clear();
            if let Err(error) = sent {
                session.is_over = true;
                self.ends.push((peer, error.into()));
            }
        }
        self.unsent = unsent;
    }

    /// Connections whose requests have waited get their turns, one after the other.
    fn take_turns(&mut self, hub: &mut ActiveHub, now: Instant) {
        let mut time = now;
        while time - now < WAITING_TURNS_MAX
            && let Some(peer) = self.turns.pop_front()
        {
            let session = self.sessions.get_mut(&peer).filter(|session| !session.is_over);
            let Some(session) = session else { continue };
            let batch = session.next_batch();
            session.has_turn = !session.waiting.is_empty();
            if session.has_turn {
                self.turns.push_back(peer);
            }
            let done = batch.map_or(Ok(()), |batch| self.requests(hub, peer, batch));
            if let Err(why) = done {
                self.ends.push((peer, why));
            }
            self.send_answers(hub);
            time = Instant::now();
        }
        if !self.turns.is_empty() {
            self.waker.wake();
        }
    }
}

impl Service for ActiveService {
    type Tag = ActiveTag;
    type Report = ActiveReport;

    fn arrived(
        &mut self,
        _hub: &mut ActiveHub,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError> {
        self.sessions.insert(peer, ActiveSession::new(permit.node()));
        self.holders.arrived(permit.node());
        Ok(())
    }

    fn handle(
        &mut self,
        hub: &mut ActiveHub,
        event: HubEvent<ActiveTag>,
    ) -> Result<(), ServiceError> {
        match event {
            HubEvent::Message { peer, bytes } => self.batch(hub, peer, bytes),
            HubEvent::Read { peer, tag: ActiveTag::Module { number, name }, bytes } => {
                self.read_module(hub, (peer, number), name, bytes)
            }
            HubEvent::Read { tag: ActiveTag::Bytes { token }, bytes, .. } => {
                self.fetched(hub, token, bytes)
            }
            HubEvent::Immediate { .. } => Err("it sends immediate data, which mean nothing".into()),
            HubEvent::Written { .. } | HubEvent::Atomic { .. } | HubEvent::Gone { .. } => Ok(()),
        }
    }

    /// A new connection of the client may still ask for its executions that go on elsewhere.
    fn gone(&mut self, hub: &mut ActiveHub, peer: PeerId) {
        let Some(session) = self.sessions.remove(&peer) else { return };
        self.stop_reading(hub, &session);
        self.holders.left(session.node);
        self.gone.add(peer, session.deferred, Instant::now());
        if let Some(backed) = &mut self.backed {
            backed.backend.gone(peer);
        }
        if let Some(client) = session.client
            && self.clients.get(&client) == Some(&peer)
        {
            self.clients.remove(&client);
        }
    }

    fn turn(
        &mut self,
        hub: &mut ActiveHub,
        now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        self.waker.clear();
        // Until the next turn any time may pass.
        self.moment.1 = 0;
        self.abandon_gone(now);
        self.take_turns(hub, now);
        self.take_outcomes(hub);
        self.turn_backed(hub, now);
        while let Ok(finished) = self.finished.try_recv() {
            self.finish(hub, finished);
        }
        self.send_answers(hub);
        Ok(std::mem::take(&mut self.ends))
    }

    fn deadline(&self) -> Option<Instant> {
        let backend = self.backed.as_ref().and_then(|backed| backed.backend.deadline());
        self.gone.deadline().into_iter().chain(backend).min()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn spin(&self) -> SpinMode {
        match self.spin {
            // Spinning, it would yield its processor to a module for longer than waking up takes.
            SpinMode::Adaptive if self.executor.needs_processors() => SpinMode::Never,
            mode => mode,
        }
    }

    fn revoked(&mut self, node: NodeId) {
        let tenant = tenant_of(node);
        let its = self.running.iter().filter(|(_, call)| call.tenant == tenant);
        for token in its.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.executor.kill(tenant, token);
        }
    }

    fn ended(&mut self) -> Result<(), ServiceError> {
        if let Some(backed) = &mut self.backed {
            backed.backend.ended()?;
        }
        self.flush_all()
    }

    fn report(&self) -> ActiveReport {
        ActiveReport {
            regions: self.regions.iter().map(|region| region.setup.name.clone()).collect(),
            executions_now: self.running.len(),
            waiting_now: self.turns.len(),
            counters: self.counters,
            executor: self.executor.counters(),
            backend: self.backed.as_ref().map(|backed| backed.backend.report()),
        }
    }
}
