//! Servers as a farm: what the manager's loop submits goes out over verbs and comes back placed.
//!
//! One thread, and nothing here waits for a peer. Servers drive: they ask for jobs, read sources
//! out of the export and write results into their landing places; this side answers, and places
//! outputs. `giving` is how a job goes out, `offering` how a compiler does.

mod giving;
mod offering;

use super::board::{Board, HomeCause, Order, ServerId};
use super::complaints::Complaints;
use super::lines::{Dial, Dialled, Lines};
use super::places;
use super::results::{Landing, Results};
use super::roots::Roots;
use crate::args::{Cause, Job, Reason};
use crate::front::{Capacity, Farm, Finished, Placement, Preprocessed, Ticket, Trace, Verdict};
use crate::protocol::{Digest, JobSpec, Outcome, Ran, Refusal, TicketNumber, ToClient, ToServer};
use crate::toolchain::{Toolchain, Toolchains};
use outboard_cluster::codec;
use outboard_cluster::hub::{Exposed, Hub, HubError, HubEvent, PeerId};
use outboard_export::{Export, ExportError, Sizes};
use outboard_verbs::{Access, SharedRegion};
use rustix::event::epoll;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that has jobs and says nothing for this long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often jobs and servers are looked after while there are any.
const TICK: Duration = Duration::from_millis(250);

/// Why there is no farm.
#[derive(Debug, thiserror::Error)]
pub enum FarmError {
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

/// A farm of servers that are reached over the network.
pub struct Cluster {
    hub: Hub,
    lines: Lines,
    servers: HashMap<PeerId, Server>,
    board: Board,
    jobs: HashMap<TicketNumber, Pending>,
    verdicts: Vec<(Ticket, Verdict)>,
    export: Export,
    roots: Roots,
    toolchains: Toolchains,
    /// Compilers that servers may have.
    identified: HashMap<Digest, Arc<Toolchain>>,
    name: String,
    hosts: Vec<String>,
    complaints: Complaints,
    next_server: u32,
    ticked: Instant,
    ready: OwnedFd,
}

/// A server that is connected. Before it has said its slots it gets no jobs.
struct Server {
    id: ServerId,
    line: usize,
    landing: Option<Landing>,
    heard: Instant,
    /// Sources that it may read (the paper's SRC TX regions).
    sources: HashMap<TicketNumber, Exposed>,
    /// The part of a compiler that it may read.
    part: Option<Exposed>,
}

struct Pending {
    job: Job,
    spec: JobSpec,
    given: Option<Instant>,
    /// Its source, if that is preprocessed.
    source: Option<SharedRegion>,
    /// Why a server did not run it, in that server's words.
    why: String,
}

impl Cluster {
    /// A farm of these servers, which `dial` knows how to reach by their places in the list. `name`
    /// is for their people; `toolchains` identifies compilers.
    ///
    /// # Errors
    /// This machine's: memory, descriptors, inotify.
    pub fn new(
        hosts: Vec<String>,
        dial: Dial,
        name: String,
        toolchains: Toolchains,
    ) -> Result<Self, FarmError> {
        let now = Instant::now();
        let (hub, lines) = (Hub::new()?, Lines::new(hosts.len(), dial, now)?);
        let export = Export::new(Sizes::default())?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, fd) in [hub.as_fd(), lines.as_fd(), export.watch_fd()].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&ready, fd, data, epoll::EventFlags::IN)?;
        }
        let mut farm = Self {
            hub,
            lines,
            servers: HashMap::new(),
            board: Board::default(),
            jobs: HashMap::new(),
            verdicts: Vec::new(),
            export,
            roots: Roots::default(),
            toolchains,
            identified: HashMap::new(),
            name,
            hosts,
            complaints: Complaints::default(),
            next_server: 0,
            ticked: now,
            ready,
        };
        farm.lines.dial(&farm.hub, now);
        Ok(farm)
    }

    fn handle(&mut self, event: HubEvent, now: Instant) {
        match event {
            HubEvent::Message { peer, octets } => match codec::decode(&octets) {
                Ok(message) => self.hear(peer, message, now),
                Err(error) => self.give_up(peer, &error.to_string(), now),
            },
            HubEvent::Gone { peer, why } => self.lose(peer, &why, now),
            HubEvent::Read { .. } => {}
        }
    }

    fn hear(&mut self, peer: PeerId, message: ToClient, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        server.heard = now;
        let id = server.id;
        match message {
            ToClient::Ready { slots } => self.welcome(peer, slots, now),
            ToClient::Want => self.board.want(id, now),
            ToClient::Return { ticket } => {
                self.take_back(peer, ticket);
                self.board.returned(id, ticket, now);
            }
            ToClient::Ask { ask, what } => {
                let answer = self.export.answer(&what);
                self.tell(peer, &ToServer::Answer { ask, answer }, now);
            }
            ToClient::Describe { toolchain } => self.describe(peer, toolchain, now),
            ToClient::NeedPart { toolchain, part } => self.offer_part(peer, toolchain, part, now),
            ToClient::Equipped { .. } => self.withdraw_part(peer),
            ToClient::Part { ticket, slot, len } => self.take_part(peer, ticket, slot, len, now),
            ToClient::Outcome { ticket, outcome } => self.conclude(peer, ticket, *outcome, now),
            ToClient::Alive => {}
        }
    }

    /// A server says what it has.
    fn welcome(&mut self, peer: PeerId, slots: u32, now: Instant) {
        let landed = Landing::new(slots).ok().and_then(|landing| {
            let memory = landing.memory().ok()?;
            let exposed = self.hub.expose(peer, memory, Access::REMOTE_WRITE).ok()?;
            Some((landing, exposed))
        });
        let Some((landing, exposed)) = landed else {
            return self.give_up(peer, "no memory for its results", now);
        };
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if server.landing.is_some() {
            return self.give_up(peer, "it says twice that it is ready", now);
        }
        server.landing = Some(landing);
        self.board.add_server(server.id, slots);
        self.tell(peer, &ToServer::Landing(exposed), now);
    }

    fn take_part(&mut self, peer: PeerId, ticket: TicketNumber, slot: u32, len: u32, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if !self.board.has(server.id, ticket) {
            // Cancelled meanwhile; it knows by now.
            return;
        }
        match server.landing.as_mut().map(|landing| landing.take_part(ticket, slot, len)) {
            Some(Ok(())) => self.tell(peer, &ToServer::Taken { ticket }, now),
            Some(Err(error)) => self.give_up(peer, &error.to_string(), now),
            None => self.give_up(peer, "it has results and no place for them", now),
        }
    }

    /// A server is done with a job.
    fn conclude(&mut self, peer: PeerId, ticket: TicketNumber, outcome: Outcome, now: Instant) {
        self.take_back(peer, ticket);
        let Some(server) = self.servers.get_mut(&peer) else { return };
        let id = server.id;
        match outcome {
            Outcome::Ran(ran) => {
                let landing = server.landing.as_mut();
                let results = landing.map(|landing| landing.take_results(ticket, &ran));
                self.tell(peer, &ToServer::Taken { ticket }, now);
                match results {
                    Some(Ok(results)) => self.finish(peer, id, &ran, results, ticket),
                    Some(Err(error)) => self.give_up(peer, &error.to_string(), now),
                    None => self.give_up(peer, "it has results and no place for them", now),
                }
            }
            Outcome::NotRun(refusal) => {
                server.landing.iter_mut().for_each(|landing| landing.forget(ticket));
                self.refused(id, ticket, refusal, now);
            }
        }
    }

    fn refused(&mut self, id: ServerId, ticket: TicketNumber, refusal: Refusal, now: Instant) {
        match refusal {
            Refusal::Toolchain => self.board.lacks(id, ticket, now),
            Refusal::Withheld { path } => {
                self.board.cancel(ticket);
                let path = OsString::from_vec(path);
                self.go_home(ticket, Reason::with(Cause::Refused, path));
            }
            Refusal::Stale { .. } => {
                self.failed(id, ticket, "a file changed meanwhile".into(), now)
            }
            Refusal::Limit { what } | Refusal::Trouble { what } => {
                self.failed(id, ticket, what, now);
            }
        }
    }

    fn failed(&mut self, id: ServerId, ticket: TicketNumber, why: String, now: Instant) {
        self.jobs.entry(ticket).and_modify(|pending| pending.why = why);
        self.board.failed(id, ticket, now);
    }

    /// A compiler ran: the first that did counts.
    fn finish(
        &mut self,
        peer: PeerId,
        id: ServerId,
        ran: &Ran,
        results: Results,
        ticket: TicketNumber,
    ) {
        let now = Instant::now();
        if !self.board.done(id, ticket, now) {
            return;
        }
        let Some(pending) = self.jobs.remove(&ticket) else { return };
        let trace = self.trace(&pending, ran, &results, peer, now);
        let verdict = match place_all(&pending.job, ran, &results) {
            Ok(()) => Verdict::Done(Finished {
                status: ran.status,
                stdout: results.stdout,
                stderr: results.stderr,
                trace,
            }),
            Err(reason) => Verdict::Home(reason),
        };
        self.verdicts.push((Ticket(ticket), verdict));
    }

    fn trace(
        &self,
        pending: &Pending,
        ran: &Ran,
        results: &Results,
        peer: PeerId,
        now: Instant,
    ) -> Trace {
        let ago = |us: u64| now.checked_sub(Duration::from_micros(us));
        let files: u64 = ran.files.iter().map(|made| made.len).sum();
        Trace {
            server: self
                .servers
                .get(&peer)
                .map_or_else(String::new, |at| self.hosts[at.line].clone()),
            slot: ran.slot,
            claimed: pending.given,
            started: ago(ran.took.run_us),
            ended: Some(now),
            octets_out: ran.took.fetched,
            octets_in: files + (results.stdout.len() + results.stderr.len()) as u64,
            cpu_us: ran.took.cpu_us,
        }
    }

    fn go_home(&mut self, ticket: TicketNumber, reason: Reason) {
        if self.jobs.remove(&ticket).is_some() {
            self.verdicts.push((Ticket(ticket), Verdict::Home(reason)));
        }
    }

    /// Does what the board wants done.
    fn obey(&mut self, now: Instant) {
        while let Some(order) = self.board.poll() {
            match order {
                Order::Give(server, ticket) => self.give(server, ticket, now),
                Order::Idle(server) => self.tell_server(server, &ToServer::Idle, now),
                Order::Cancel(server, ticket) => {
                    self.forget_results(server, ticket);
                    self.tell_server(server, &ToServer::Cancel { ticket }, now);
                }
                Order::Home(ticket, cause) => {
                    let why = self.jobs.get(&ticket).map_or("", |pending| &pending.why);
                    let is_lost = why.is_empty() && cause == HomeCause::NoServer;
                    let why = if is_lost { self.complaints.latest() } else { why };
                    let reason = Reason::with(cause_of(cause), why);
                    self.go_home(ticket, reason);
                }
            }
        }
    }

    fn forget_results(&mut self, id: ServerId, ticket: TicketNumber) {
        let peer = self.peer(id);
        let landing = peer.and_then(|peer| self.servers.get_mut(&peer)?.landing.as_mut());
        landing.into_iter().for_each(|landing| landing.forget(ticket));
    }

    fn peer(&self, id: ServerId) -> Option<PeerId> {
        self.servers.iter().find(|(_, server)| server.id == id).map(|(peer, _)| *peer)
    }

    fn tell_server(&mut self, id: ServerId, message: &ToServer, now: Instant) {
        if let Some(peer) = self.peer(id) {
            self.tell(peer, message, now);
        }
    }

    fn tell(&mut self, peer: PeerId, message: &ToServer, now: Instant) {
        match self.hub.send(peer, &codec::encode(message)) {
            Err(HubError::NoPeer) | Ok(()) => {}
            Err(error) => self.give_up(peer, &error.to_string(), now),
        }
    }

    /// An attempt to reach a server is over.
    fn dialled(&mut self, dialled: Dialled, now: Instant) {
        let line = dialled.line;
        let admitted = match dialled.result {
            Ok(admitted) => admitted,
            Err(why) => return self.complaints.of(&self.hosts[line], &why),
        };
        let greeted = self.hub.enroll(admitted).and_then(|peer| {
            let region = self.export.memory();
            let memory = region.slice(0..region.len()).map_err(outboard_verbs::VerbsError::from)?;
            let export = self.hub.expose(peer, memory, Access::REMOTE_READ)?;
            Ok((peer, export))
        });
        let (peer, export) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => {
                self.complaints.of(&self.hosts[line], &error.to_string());
                return self.lines.lost(line, now);
            }
        };
        self.next_server += 1;
        let id = ServerId(self.next_server);
        let (landing, part, sources) = (None, None, HashMap::new());
        let server = Server { id, line, landing, heard: now, sources, part };
        self.servers.insert(peer, server);
        self.tell(peer, &ToServer::Hello { name: self.name.clone(), export }, now);
    }

    /// Ends a connection that is of no use.
    fn give_up(&mut self, peer: PeerId, why: &str, now: Instant) {
        self.hub.dismiss(peer);
        self.lose(peer, why, now);
    }

    fn lose(&mut self, peer: PeerId, why: &str, now: Instant) {
        if let Some(server) = self.servers.remove(&peer) {
            self.complaints.of(&self.hosts[server.line], &format!("lost: {why}"));
            self.lines.lost(server.line, now);
            self.board.remove_server(server.id, now);
        }
    }

    /// Servers that may be ready soon.
    fn hopeful(&self) -> usize {
        let unready = self.servers.values().filter(|server| server.landing.is_none()).count();
        self.lines.hopeful() + unready
    }

    fn tick(&mut self, now: Instant) {
        if now - self.ticked < TICK {
            return;
        }
        self.ticked = now;
        let silent = |server: &Server| {
            let owes = server.landing.is_none() || self.board.running(server.id) > 0;
            owes && now - server.heard > SILENCE_MAX
        };
        let silent: Vec<_> =
            self.servers.iter().filter(|(_, at)| silent(at)).map(|(peer, _)| *peer).collect();
        for peer in silent {
            self.give_up(peer, "it says nothing", now);
        }
        self.board.tick(now);
    }
}

/// Places what a compiler made; nothing of one that failed.
fn place_all(job: &Job, ran: &Ran, results: &Results) -> Result<(), Reason> {
    if ran.status != 0 {
        return Ok(());
    }
    let mut placement = Placement::new(job.umask);
    for (made, octets) in &results.files {
        let path = Path::new(OsStr::from_bytes(&made.path));
        if !places::may_hold(job, path) {
            return Err(Reason::with(Cause::Placement, path));
        }
        let added = placement.add(path, made.mode, octets);
        added.map_err(|error| Reason::with(Cause::Placement, error.to_string()))?;
    }
    if let Some(missing) = places::missing(job, ran) {
        return Err(Reason::with(Cause::Placement, missing));
    }
    placement.commit().map_err(|error| Reason::with(Cause::Placement, error.to_string()))
}

fn cause_of(cause: HomeCause) -> Cause {
    match cause {
        HomeCause::NoServer => Cause::NoServers,
        HomeCause::NoToolchain => Cause::NoToolchain,
        HomeCause::Failures => Cause::ServersFailed,
        HomeCause::Waited => Cause::Unclaimed,
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Farm for Cluster {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn submit(&mut self, ticket: Ticket, job: Job) {
        self.accept(ticket, job, None);
    }

    fn submit_preprocessed(&mut self, ticket: Ticket, job: Job, source: Preprocessed) {
        self.accept(ticket, job, Some(source));
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.jobs.remove(&ticket.0);
        self.board.cancel(ticket.0);
        self.obey(Instant::now());
    }

    fn turn(&mut self, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        let mut events = Vec::new();
        if self.hub.turn(&mut events).is_err() {
            // Only our own fault overflows a queue; servers are dialled again.
            for peer in self.servers.keys().copied().collect::<Vec<_>>() {
                self.give_up(peer, "a fault of ours", now);
            }
        }
        for event in events {
            self.handle(event, now);
        }
        while let Some(dialled) = self.lines.poll(now) {
            self.dialled(dialled, now);
        }
        self.lines.dial(&self.hub, now);
        self.export.refresh();
        self.tick(now);
        if self.hopeful() == 0 {
            self.board.settle();
        }
        self.obey(now);
        verdicts.append(&mut self.verdicts);
    }

    fn deadline(&self) -> Option<Instant> {
        let tick = (!self.jobs.is_empty()).then(|| self.ticked + TICK);
        [tick, self.lines.deadline()].into_iter().flatten().min()
    }

    fn capacity(&self) -> Capacity {
        let (servers, slots) = self.board.capacity();
        Capacity { servers: servers + self.hopeful(), slots }
    }

    fn is_claimed(&self, ticket: Ticket) -> bool {
        self.board.is_given(ticket.0)
    }

    fn trouble(&self) -> &str {
        self.complaints.latest()
    }
}
