//! All casts of a node, and all its peers.

mod begin;
mod message;
use begin::OwnNumber;

pub(super) use message::unexpected;

use super::options::CastServiceOptions;
use super::session::CastSession;
use super::status::CastStatus;
use super::storage::{CastAllowance, NodeStore};
use super::sweep::Sweep;
use crate::member::{
    CastHub, CastTag, CastWork, LinkPurpose, MemberError, NodeReach, SessionId, WorkDone,
    WorkThreads, send,
};
use crate::pause::{excuse, pause};
use crate::protocol::{CastMessage, PROTOCOL, SOURCE_SILENCE_MAX, of_immediate};
use crate::sign::CastId;
use outboard_cluster::hub::{Admitted, HubEvent, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceError};
use outboard_cluster::waker::Waker;
use outboard_secure::NodeId;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// How long a peer may be connected without a part in a cast.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// How often the loop looks at its peers, so that it notices when this process did not run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often another node of a cast is dialled: one that starts may refuse the first time.
const DIAL_TRIES: u32 = 4;

/// The identity that receives files if only one source may begin: the user of this process. No
/// private key belongs to it.
const LAUNCHED: &[u8; 32] = b"outboard receivers of their user";

/// What a peer is in this node.
#[derive(Clone, Copy, Debug)]
enum PeerPart {
    /// It has said nothing.
    New,
    /// The source of a cast.
    Source(SessionId),
    /// This node has dialled it, and it has not answered.
    Reached(SessionId, u32),
    /// A relay of a cast, by its number.
    Relay(SessionId, u32),
    /// A node of a cast that this one, having come late, has dialled to read from it.
    Holder(SessionId, u32),
    /// One that came late, and reads from this one.
    Reader(SessionId),
}

/// A connection that this node has made: for which session, with which node, and what for.
type DialledFor = (SessionId, u32, LinkPurpose);

/// What is left of a cast that has ended, as long as threads have to do with it.
struct LeavingCast {
    destination: Vec<u8>,
    files: Weak<NodeStore>,
    tasks: Weak<()>,
}

/// What a node's service does now.
#[derive(Clone, Debug, Serialize)]
pub struct CastServiceStatus {
    /// Casts under way.
    pub casts_now: usize,
    /// Casts begun.
    pub casts: u64,
    /// Casts that were published.
    pub published: u64,
    /// Casts that this machine could not take part in to the end.
    pub failed: u64,
    /// The casts under way, by number.
    pub now: Vec<CastStatus>,
}

/// The service: all casts that this node takes part in, and all its peers.
pub struct CastService {
    allowed: Arc<CastAllowance>,
    only_source: Option<NodeId>,
    memory: u64,
    reach: NodeReach,
    results: mpsc::Receiver<CastWork>,
    waker: Waker,
    sessions: HashMap<SessionId, CastSession>,
    /// Sessions that were begun, refused ones too.
    begun: u64,
    peers: HashMap<PeerId, (PeerPart, NodeId)>,
    /// Peers as they have come, until they must have a part.
    recent: VecDeque<(Instant, PeerId)>,
    dialled: VecDeque<(DialledFor, Admitted, NodeId)>,
    arriving: Option<DialledFor>,
    ends: Vec<(PeerId, ServiceError)>,
    /// Files of casts that have ended, as long as a thread has anything to do with them.
    leaving: Vec<LeavingCast>,
    looked: Instant,
    /// This node's numbers in the latest casts.
    numbers: VecDeque<OwnNumber>,
    status: CastServiceStatus,
}

impl fmt::Debug for CastService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastService").field("status", &self.status).finish_non_exhaustive()
    }
}

impl CastService {
    /// A service without casts.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new(options: CastServiceOptions) -> rustix::io::Result<Self> {
        let waker = Waker::new()?;
        let (threads, results) = WorkThreads::new(waker.clone());
        let CastServiceOptions { roots, policy, .. } = options;
        let sweep = Sweep::start(&roots, policy.keep_broken);
        let allowed = CastAllowance { roots, policy, sweep };
        Ok(Self {
            allowed: allowed.into(),
            only_source: None,
            memory: options.memory,
            reach: NodeReach::new(options.dial, DIAL_TRIES, threads),
            results,
            waker,
            sessions: HashMap::new(),
            begun: 0,
            peers: HashMap::new(),
            recent: VecDeque::new(),
            dialled: VecDeque::new(),
            arriving: None,
            ends: Vec::new(),
            leaving: Vec::new(),
            looked: Instant::now(),
            numbers: VecDeque::new(),
            status: CastServiceStatus {
                casts_now: 0,
                casts: 0,
                published: 0,
                failed: 0,
                now: vec![],
            },
        })
    }

    /// Lets only this identity begin casts.
    #[must_use]
    pub fn only_from(self, source: NodeId) -> Self {
        Self { only_source: Some(source), ..self }
    }

    /// Whether a cast has begun here.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.status.casts > 0
    }

    /// Whether no cast is under way and no peer is connected.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sessions.is_empty() && self.peers.is_empty()
    }

    /// The source of a cast has gone: the nodes go on, if they can.
    fn source_gone(&mut self, hub: &mut CastHub, id: SessionId, peer: PeerId) {
        let session = self.sessions.get_mut(&id).filter(|session| session.source() == peer);
        let Some(session) = session else { return };
        match session.orphan(hub, Instant::now()) {
            Ok(true) => self.waker.wake(),
            Ok(false) => drop(self.end_session(id, "the source has left")),
            Err(error) => self.check(hub, id, Err(error)),
        }
    }

    /// Takes the time in which this process did not run out of the times of all peers.
    fn look(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.looked);
        self.looked = now;
        let Some(late) = pause(since, LOOK_EVERY) else { return };
        self.recent.iter_mut().for_each(|(since, _)| excuse(since, now, late));
        self.sessions.values_mut().for_each(|session| session.held_up(now, late));
    }

    /// The next peer that has been here for too long without a part.
    fn next_silent(&mut self, now: Instant) -> Option<PeerId> {
        while let Some((since, peer)) = self.recent.front().copied() {
            if now < since + SILENT_MAX {
                return None;
            }
            self.recent.pop_front();
            if let Some((PeerPart::New | PeerPart::Reached(..), _)) = self.peers.get(&peer) {
                return Some(peer);
            }
        }
        None
    }

    fn set_part(&mut self, peer: PeerId, part: PeerPart) {
        if let Some((known, _)) = self.peers.get_mut(&peer) {
            *known = part;
        }
    }

    /// A cast that this machine cannot go on with ends here; its source hears why.
    fn check(&mut self, hub: &mut CastHub, id: SessionId, outcome: Result<(), MemberError>) {
        let Err(error) = outcome else { return };
        self.status.failed += 1;
        if let Some(session) = self.end_session(id, "the cast has failed at this node") {
            tracing::warn!(cast = ?session.cast, %error, "the cast fails here");
            let why = error.to_string();
            send(hub, session.source(), &CastMessage::Failed { why });
        }
    }

    fn end_session(&mut self, id: SessionId, why: &'static str) -> Option<CastSession> {
        let session = self.sessions.remove(&id)?;
        let destination = session.destination().to_owned();
        let (files, tasks) = (session.files(), session.reach.threads.tasks());
        self.leaving.push(LeavingCast { destination, files, tasks });
        self.ends.extend(session.relays().into_iter().map(|peer| (peer, why.into())));
        // Those that have not joined yet are of no use either.
        let reached = self
            .peers
            .iter()
            .filter(|(_, (part, _))| matches!(part, PeerPart::Reached(of, _) if *of == id));
        self.ends.extend(reached.map(|(peer, _)| (*peer, why.into())));
        self.waker.wake();
        Some(session)
    }

    fn event(&mut self, hub: &mut CastHub, event: HubEvent<CastTag>) -> Result<(), ServiceError> {
        match event {
            HubEvent::Message { peer, bytes } => self.message(hub, peer, PROTOCOL.decode(&bytes)?),
            HubEvent::Immediate { peer, immediate } => {
                let (id, node) = match self.peers.get(&peer) {
                    Some((PeerPart::Source(id), _)) => (*id, 0),
                    Some((PeerPart::Relay(id, node), _)) => (*id, *node),
                    _ => return Err("it writes before it has a part in a cast".into()),
                };
                let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
                if node == 0 && session.source() != peer {
                    // The source has another connection by now.
                    return Ok(());
                }
                session.hear(node);
                session.member().map_or(Ok(()), |member| {
                    Ok(member.arrived(hub, node, of_immediate(immediate))?)
                })
            }
            HubEvent::Written { tag: CastTag { session: id, to, slot }, .. } => {
                if let Some(member) = self.sessions.get_mut(&id).and_then(CastSession::member) {
                    member.written(to, slot);
                }
                Ok(())
            }
            HubEvent::Read { tag: CastTag { session: id, to, slot }, bytes, .. } => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    let read = session.was_read(to, slot, bytes);
                    self.check(hub, id, read);
                }
                Ok(())
            }
            HubEvent::Atomic { .. } | HubEvent::Gone { .. } => Ok(()),
        }
    }

    fn go_on(&mut self, hub: &mut CastHub, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !session.is_orphan() && now > session.heard + SOURCE_SILENCE_MAX {
            session.heard = now;
            let why = format!("its source has said nothing for {} s", SOURCE_SILENCE_MAX.as_secs());
            self.ends.push((session.source(), why.into()));
        }
        let outcome = session.go_on(hub, now).and_then(|()| session.tell_neighbours(hub, now));
        self.ends.extend(session.ends.drain(..).map(|(peer, why)| (peer, why.into())));
        match outcome {
            Ok(None) => {}
            Ok(Some(why)) => {
                tracing::info!(cast = ?session.cast, why, "the cast is over here");
                drop(self.end_session(id, why));
            }
            Err(error) => self.check(hub, id, Err(error)),
        }
    }

    fn finish(&mut self, hub: &mut CastHub, id: SessionId, done: WorkDone) {
        if let WorkDone::Dialled { node, purpose, outcome: Ok((admitted, identity)) } = done {
            self.dialled.push_back(((id, node, purpose), admitted, identity));
            return;
        }
        self.status.published +=
            u64::from(matches!(done, WorkDone::Published(Ok(_)) | WorkDone::Taken(Ok(_))));
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let outcome = session.done(hub, done);
        self.check(hub, id, outcome);
    }

    /// What this node does for a cast.
    fn of_cast(&mut self, cast: CastId) -> Option<&mut CastSession> {
        self.sessions.values_mut().find(|session| session.cast == cast)
    }
}

impl Service for CastService {
    type Tag = CastTag;
    type Report = CastServiceStatus;

    fn arrived(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError> {
        let part = match self.arriving.take() {
            None => PeerPart::New,
            Some((id, node, purpose)) => {
                let session = self.sessions.get_mut(&id).ok_or("the cast is over")?;
                match purpose {
                    LinkPurpose::Relay => {
                        session.reached(hub, peer);
                        PeerPart::Reached(id, node)
                    }
                    LinkPurpose::Read => {
                        session.reached_holder(hub, node, peer)?;
                        PeerPart::Holder(id, node)
                    }
                }
            }
        };
        self.peers.insert(peer, (part, permit.node()));
        self.recent.push_back((Instant::now(), peer));
        Ok(())
    }

    fn handle(&mut self, hub: &mut CastHub, event: HubEvent<CastTag>) -> Result<(), ServiceError> {
        let peer = event.peer();
        let handled = self.event(hub, event);
        if let (Err(_), Some((PeerPart::Source(id), _))) = (&handled, self.peers.get(&peer))
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.is_deceived = true;
        }
        handled
    }

    fn gone(&mut self, hub: &mut CastHub, peer: PeerId) {
        match self.peers.remove(&peer) {
            Some((PeerPart::Source(id), _)) => self.source_gone(hub, id, peer),
            Some((PeerPart::Relay(id, node) | PeerPart::Reached(id, node), _)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    let lost = session.gone(hub, node, peer);
                    self.check(hub, id, lost);
                }
            }
            Some((PeerPart::Holder(id, node), _)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.holder_gone(node, Some(peer));
                }
            }
            Some((PeerPart::Reader(id), _)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.reader_gone(peer);
                }
            }
            Some((PeerPart::New, _)) | None => {}
        }
    }

    fn turn(
        &mut self,
        hub: &mut CastHub,
        now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        self.waker.clear();
        self.look(now);
        while let Some(peer) = self.next_silent(now) {
            let why = format!("it has had no part in a cast for {} s", SILENT_MAX.as_secs());
            self.ends.push((peer, why.into()));
        }
        while let Ok((id, done)) = self.results.try_recv() {
            self.finish(hub, id, done);
        }
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in sessions {
            self.go_on(hub, id, now);
        }
        Ok(std::mem::take(&mut self.ends))
    }

    fn dialled(&mut self) -> Option<(Admitted, Permit)> {
        let (dialled_for, admitted, identity) = self.dialled.pop_front()?;
        self.arriving = Some(dialled_for);
        Some((admitted, Permit::outside_a_node(identity, 0)))
    }

    fn deadline(&self) -> Option<Instant> {
        let silent = self.recent.front().map(|(since, _)| *since + SILENT_MAX);
        let sessions = self.sessions.values().filter_map(CastSession::deadline);
        // An idle node sleeps.
        let next = sessions.chain(silent).min()?;
        Some(next.min(self.looked + LOOK_EVERY))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn report(&self) -> CastServiceStatus {
        let mut now: Vec<_> = self.sessions.values().map(CastSession::status).collect();
        now.sort_unstable_by(|one, other| one.cast.cmp(&other.cast));
        CastServiceStatus { casts_now: now.len(), now, ..self.status.clone() }
    }
}
