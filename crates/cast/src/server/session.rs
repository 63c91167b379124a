//! One cast at a node, from its source's first word to its last.

use super::storage::{CastAllowance, NodeStore};
use crate::member::{
    CastHub, CastMember, MemberError, MemberResult, MemberSetup, NodeReach, WorkDone, send,
};
use crate::protocol::{CastBegin, CastMessage, JoinToken, NODES_MAX};
use crate::schedule::{NodeRole, Schedule, Situation};
use crate::sign::{CastId, ChunkHashes, SignError};
use outboard_cluster::hosts::HostList;
use outboard_cluster::hub::PeerId;
use outboard_secure::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes in a chunk, at most: a window has some of them.
const CHUNK_LEN_MAX: u32 = 8 << 20;
/// Bytes in a node's name, at most.
const NAME_LEN_MAX: usize = 256;

/// What a source did that no source of this program does, or that this node does not take.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceFault {
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("it begins a cast as node {you} of {nodes}; {NODES_MAX} are possible")]
    Nodes { you: u32, nodes: usize },
    #[error("it names a node {name:?}, which is not one host")]
    Name { name: String },
    #[error("it begins a cast with chunks of {len} bytes: {CHUNK_LEN_MAX} are possible")]
    ChunkLen { len: u32 },
    #[error("it sent a plan of {chunks} chunks and {nodes} nodes, which is not this cast's")]
    Plan { chunks: u32, nodes: usize },
    #[error("it sent a plan before this node was ready")]
    Early,
    #[error(transparent)]
    Schedule(#[from] crate::schedule::ScheduleError),
    #[error(transparent)]
    Machine(#[from] MemberError),
}

/// See the [module](self).
pub(super) struct CastSession {
    pub(super) cast: CastId,
    /// Whose cast it is.
    pub(super) identity: NodeId,
    begin: CastBegin,
    source: PeerId,
    hashes: Arc<ChunkHashes>,
    store: Option<Arc<NodeStore>>,
    member: Option<CastMember>,
    schedule: Option<Arc<Schedule>>,
    /// Relays that have joined before the first plan came.
    joined: BTreeMap<u32, PeerId>,
    /// Relays that were dialled, successfully or not.
    dialled: BTreeSet<u32>,
    is_publishing: bool,
    reach: NodeReach,
    /// Relays whose sessions end, and why.
    pub(super) ends: Vec<(PeerId, &'static str)>,
}

impl CastSession {
    /// Begins what a source asks for.
    pub(super) fn new(
        begin: CastBegin,
        (source, identity): (PeerId, NodeId),
        allowed: &Arc<CastAllowance>,
        reach: &NodeReach,
    ) -> Result<Self, SourceFault> {
        let hashes = check(&begin)?;
        let cast = hashes.header().cast;
        let (own, known, allowed) = (begin.clone(), Arc::clone(&hashes), Arc::clone(allowed));
        reach.threads.run(cast, move || {
            WorkDone::Opened(NodeStore::open(&allowed, &own, known, identity).map(Arc::new))
        })?;
        Ok(Self {
            cast,
            identity,
            begin,
            source,
            hashes,
            store: None,
            member: None,
            schedule: None,
            joined: BTreeMap::new(),
            dialled: BTreeSet::new(),
            is_publishing: false,
            reach: reach.clone(),
            ends: Vec::new(),
        })
    }

    pub(super) fn source(&self) -> PeerId {
        self.source
    }

    pub(super) fn member(&mut self) -> Option<&mut CastMember> {
        self.member.as_mut()
    }

    /// All peers but the source.
    pub(super) fn relays(&self) -> Vec<PeerId> {
        let linked = self.member.iter().flat_map(|member| member.links().values());
        let relays = linked.chain(self.joined.values()).copied();
        relays.filter(|peer| *peer != self.source).collect()
    }

    /// Whether a relay that joins is one of this cast, and not there yet.
    pub(super) fn admits(&self, node: u32, token: &JoinToken) -> bool {
        let is_linked = self.member.as_ref().is_some_and(|m| m.links().contains_key(&node));
        let is_new = !is_linked && !self.joined.contains_key(&node);
        // Compared by their hashes: the time tells nothing.
        let is_known = blake3::hash(&token.0) == blake3::hash(&self.begin.token.0);
        is_known && is_new && (1..self.begin.you).contains(&node)
    }

    /// A relay has joined, having dialled this node.
    pub(super) fn join(&mut self, hub: &mut CastHub, node: u32, peer: PeerId) -> MemberResult {
        match &mut self.member {
            None => {
                self.joined.insert(node, peer);
                Ok(())
            }
            Some(member) => {
                send(hub, peer, &CastMessage::Joined);
                member.link(hub, node, peer)
            }
        }
    }

    /// A relay that this node has dialled is connected.
    pub(super) fn reached(&self, hub: &mut CastHub, peer: PeerId) {
        let (cast, node, token) = (self.cast, self.begin.you, self.begin.token.clone());
        send(hub, peer, &CastMessage::Join { cast, node, token });
    }

    /// That relay takes this one.
    pub(super) fn was_joined(
        &mut self,
        hub: &mut CastHub,
        node: u32,
        peer: PeerId,
    ) -> MemberResult {
        self.member.as_mut().map_or(Ok(()), |member| member.link(hub, node, peer))
    }

    /// A relay is gone, or cannot be reached.
    pub(super) fn lost(&mut self, hub: &mut CastHub, node: u32) -> MemberResult {
        self.joined.remove(&node);
        send(hub, self.source, &CastMessage::Lost { node });
        self.member.as_mut().map_or(Ok(()), |member| member.lost(hub, node))
    }

    /// A message of the source's.
    pub(super) fn told(
        &mut self,
        hub: &mut CastHub,
        message: CastMessage,
    ) -> Result<bool, SourceFault> {
        match message {
            CastMessage::Run(bytes) => {
                self.hashes.add_run(&bytes)?;
                if let Some(member) = &mut self.member {
                    member.run_came()?;
                }
            }
            CastMessage::Plan(situation) => self.plan(hub, situation)?,
            CastMessage::Report { version } => {
                let held = self.member.as_ref().map(|member| member.relay().held().clone());
                let held = held.unwrap_or_default();
                send(hub, self.source, &CastMessage::Held { version, held });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn plan(&mut self, hub: &mut CastHub, situation: Situation) -> Result<(), SourceFault> {
        let (chunks, nodes) = (situation.chunks, situation.nodes.len());
        let own = self.hashes.header().shape.chunks();
        if chunks != own || nodes != self.begin.nodes.len() {
            return Err(SourceFault::Plan { chunks, nodes });
        }
        let schedule = Schedule::new(self.begin.kind, situation)?;
        self.schedule = Some(Arc::clone(&schedule));
        match &mut self.member {
            None => self.start(hub, &schedule)?,
            Some(member) => {
                for node in dead(&schedule) {
                    let why = "the source has given it up";
                    self.ends.extend(member.links().get(&node).map(|peer| (*peer, why)));
                    member.lost(hub, node)?;
                }
                member.replan(hub, &schedule)?;
            }
        }
        self.dial(hub, &schedule);
        Ok(())
    }

    fn start(&mut self, hub: &mut CastHub, schedule: &Arc<Schedule>) -> Result<(), SourceFault> {
        let store = self.store.clone().ok_or(SourceFault::Early)?;
        let setup = MemberSetup {
            cast: self.cast,
            node: self.begin.you,
            shape: self.hashes.header().shape,
            store,
            threads: self.reach.threads.clone(),
        };
        let member = self.member.insert(CastMember::new(setup, schedule)?);
        member.link(hub, 0, self.source)?;
        for (node, peer) in std::mem::take(&mut self.joined) {
            send(hub, peer, &CastMessage::Joined);
            member.link(hub, node, peer)?;
        }
        Ok(())
    }

    /// Dials the relays with higher numbers that the schedule connects with this one.
    fn dial(&mut self, hub: &CastHub, schedule: &Schedule) {
        let you = self.begin.you;
        for node in schedule.peers(you).into_iter().filter(|node| *node > you) {
            if self.dialled.insert(node) {
                self.reach.begin(hub, self.cast, node, &self.begin.nodes[node as usize]);
            }
        }
    }

    /// A thread has done something.
    pub(super) fn done(&mut self, hub: &mut CastHub, done: WorkDone) -> MemberResult {
        match done {
            WorkDone::Opened(opened) => {
                self.store = Some(opened.map_err(MemberError)?);
                send(hub, self.source, &CastMessage::Ready);
            }
            WorkDone::Kept { at, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                if let Some(forger) = member.kept(at, outcome)? {
                    let why = "it sent a chunk that the source has not signed";
                    self.ends.extend(member.links().get(&forger).map(|peer| (*peer, why)));
                    return self.lost(hub, forger);
                }
            }
            WorkDone::Loaded { at, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                member.loaded(at, outcome)?;
            }
            WorkDone::Checked { chunk, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                member.checked(chunk, outcome)?;
            }
            WorkDone::Published(report) => {
                let report = report.map_err(MemberError)?;
                let names = u32::try_from(report.names).unwrap_or(u32::MAX);
                send(hub, self.source, &CastMessage::Done { names });
            }
            WorkDone::Dialled { node, outcome: Err(why) } => {
                tracing::warn!(node = self.begin.nodes[node as usize], why, "not reached");
                return self.lost(hub, node);
            }
            WorkDone::Dialled { .. } | WorkDone::Signed(_) => {}
        }
        Ok(())
    }

    /// Does what has become possible.
    pub(super) fn go_on(&mut self, hub: &mut CastHub) -> MemberResult {
        let Some(member) = &mut self.member else { return Ok(()) };
        member.act(hub)?;
        if member.relay().is_complete()
            && !self.is_publishing
            && let Some(store) = self.store.clone()
        {
            self.is_publishing = true;
            let publish = move || WorkDone::Published(store.publish());
            self.reach.threads.run(self.cast, publish)?;
        }
        Ok(())
    }
}

fn dead(schedule: &Schedule) -> impl Iterator<Item = u32> + '_ {
    let nodes = (0..).zip(&schedule.situation().nodes);
    nodes.filter(|(_, state)| state.role == NodeRole::Dead).map(|(node, _)| node)
}

/// The header's hashes, if all of it can be done here.
fn check(begin: &CastBegin) -> Result<Arc<ChunkHashes>, SourceFault> {
    let (you, nodes) = (begin.you, begin.nodes.len());
    if you == 0 || you as usize >= nodes || nodes > NODES_MAX {
        return Err(SourceFault::Nodes { you, nodes });
    }
    let is_host = |name: &&String| {
        let one = |hosts: HostList| hosts.hosts().len() == 1;
        name.len() <= NAME_LEN_MAX && name.parse::<HostList>().is_ok_and(one)
    };
    if let Some(name) = begin.nodes[1..].iter().find(|name| !is_host(name)) {
        return Err(SourceFault::Name { name: name.chars().take(NAME_LEN_MAX).collect() });
    }
    let hashes = ChunkHashes::new(&begin.header, begin.key)?;
    let len = hashes.header().shape.chunk_len().bytes();
    if len > CHUNK_LEN_MAX {
        return Err(SourceFault::ChunkLen { len });
    }
    Ok(Arc::new(hashes))
}
