//! One cast at a node, from its source's first word to its last.

use super::check::check;
use super::late::LateJoin;
use super::orphan::OrphanCast;
use super::room::{SessionRoom, window};
use super::source_fault::SourceFault;
use super::storage::{CastAllowance, NodeStore};
use crate::late::Lender;
use crate::lazy::DemandChunks;
use crate::member::{
    CastHub, CastMember, LinkPurpose, MemberError, MemberResult, NodeReach, PlanParts, SessionId,
    WorkDone, send,
};
use crate::pause::excuse;
use crate::protocol::{CastBegin, CastMessage, JoinToken, NodeReport, SOURCE_SILENCE_MAX};
use crate::receive::PublishReport;
use crate::sign::{CastId, ChunkHashes, StreamShape};
use outboard_cluster::hub::PeerId;
use outboard_secure::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// See the [module](self).
pub(super) struct CastSession {
    pub(super) id: SessionId,
    pub(super) cast: CastId,
    pub(super) begin: CastBegin,
    pub(super) source: PeerId,
    /// The source's identity.
    pub(super) identity: NodeId,
    /// When the source said something last.
    pub(super) heard: Instant,
    /// Whether the source has broken the rules: then nothing goes on without it.
    pub(super) is_deceived: bool,
    /// While the source is not here.
    pub(super) orphan: Option<OrphanCast>,
    pub(super) hashes: Arc<ChunkHashes>,
    pub(super) store: Option<Arc<NodeStore>>,
    pub(super) member: Option<CastMember>,
    pub(super) parts: PlanParts,
    /// Bytes of its window.
    pub(super) window: u64,
    /// Relays that have joined before the first plan came.
    pub(super) joined: BTreeMap<u32, PeerId>,
    /// Relays that were dialled, and have not been lost since.
    pub(super) dialled: BTreeSet<u32>,
    is_publishing: bool,
    /// The message to the source when all is published.
    done: Option<CastMessage>,
    pub(super) reach: NodeReach,
    /// While it reads by itself, because it came late.
    pub(super) late: Option<LateJoin>,
    /// The nodes that read from this one.
    pub(super) lender: Lender,
    /// Relays whose sessions end, and why.
    pub(super) ends: Vec<(PeerId, &'static str)>,
}

impl CastSession {
    /// Begins what a source asks for.
    pub(super) fn new(
        id: SessionId,
        mut begin: CastBegin,
        (source, identity): (PeerId, NodeId),
        allowed: &Arc<CastAllowance>,
        reach: &NodeReach,
        room: SessionRoom,
    ) -> Result<Self, SourceFault> {
        let hashes = check(&begin)?;
        let reach = reach.of_session();
        let only = begin.only.take();
        let window = if only.is_some() { 0 } else { window(&hashes, room.memory)? };
        let cast = hashes.header().cast;
        let (own, known, allowed) = (begin.clone(), Arc::clone(&hashes), Arc::clone(allowed));
        let threads = reach.threads.clone();
        let demand: DemandChunks = Arc::new(move |chunks, from| {
            threads.answer(id, WorkDone::Demanded { chunks, from });
        });
        reach.threads.run(id, move || {
            room.wait();
            let opened = NodeStore::open(&allowed, &own, known, identity, demand);
            match only {
                None => WorkDone::Opened(opened.map(Arc::new)),
                Some(only) => WorkDone::Taken(opened.and_then(|files| files.take_at_once(&only))),
            }
        })?;
        Ok(Self {
            id,
            cast,
            begin,
            source,
            identity,
            heard: Instant::now(),
            is_deceived: false,
            orphan: None,
            hashes,
            store: None,
            member: None,
            parts: PlanParts::default(),
            window,
            joined: BTreeMap::new(),
            dialled: BTreeSet::new(),
            is_publishing: false,
            done: None,
            reach,
            late: None,
            lender: Lender::default(),
            ends: Vec::new(),
        })
    }

    pub(super) fn source(&self) -> PeerId {
        self.source
    }

    /// The directory in which the names appear, as the source has it.
    pub(super) fn destination(&self) -> &[u8] {
        &self.begin.destination
    }

    pub(super) fn shape(&self) -> StreamShape {
        self.hashes.header().shape
    }

    /// What the source calls a node.
    pub(super) fn host(&self, node: u32) -> &str {
        self.begin.nodes.get(node as usize).map_or("", String::as_str)
    }

    pub(super) fn member_now(&self) -> Option<&CastMember> {
        self.member.as_ref()
    }

    pub(super) fn set_source(&mut self, source: PeerId) {
        self.source = source;
        self.heard = Instant::now();
        self.parts = PlanParts::default();
    }

    /// Its files, as long as a thread has anything to do with them.
    pub(super) fn files(&self) -> Weak<NodeStore> {
        self.store.as_ref().map_or_else(Weak::new, Arc::downgrade)
    }

    pub(super) fn chunks(&self) -> u32 {
        self.hashes.header().shape.chunks()
    }

    pub(super) fn has_published(&self) -> bool {
        self.done.is_some()
    }

    pub(super) fn is_busy_publishing(&self) -> bool {
        self.is_publishing && !self.has_published()
    }

    /// Steps that are done of making the tree and of publishing it.
    pub(super) fn steps(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.steps())
    }

    /// Whether a source begins the cast that this is, once more.
    pub(super) fn is_of(&self, begin: &CastBegin) -> bool {
        let own = &self.begin;
        own.header == begin.header && own.token == begin.token && own.you == begin.you
    }

    /// When there is something to do, if nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let sends = self.member.as_ref().and_then(CastMember::deadline);
        let source = self.orphan_deadline().unwrap_or(self.heard + SOURCE_SILENCE_MAX);
        sends.into_iter().chain(self.read_deadline()).chain([source]).min()
    }

    /// Something has come from a node; of the source, that counts.
    pub(super) fn hear(&mut self, node: u32) {
        if node == 0 {
            self.heard = Instant::now();
        }
    }

    /// This process itself was held up.
    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        excuse(&mut self.heard, now, late);
        self.orphan_held_up(now, late);
        self.reads_held_up(now, late);
        self.lender.held_up(now, late);
    }

    pub(super) fn member(&mut self) -> Option<&mut CastMember> {
        self.member.as_mut()
    }

    /// All peers but the source.
    pub(super) fn relays(&self) -> Vec<PeerId> {
        let linked = self.member.iter().flat_map(|member| member.links().values());
        let relays = linked.chain(self.joined.values()).copied();
        let relays = relays.chain(self.lender.readers()).chain(self.holders());
        relays.filter(|peer| *peer != self.source).collect()
    }

    /// Whether a relay that joins is one of this cast, and not there yet.
    pub(super) fn admits(&self, node: u32, token: &JoinToken) -> bool {
        let is_linked = self.member.as_ref().is_some_and(|m| m.links().contains_key(&node));
        let is_new = !is_linked && !self.joined.contains_key(&node);
        // A cast that came with its first message names no nodes, and has no relays.
        let has_relays = !self.begin.nodes.is_empty();
        self.is_known(token) && is_new && has_relays && (1..self.begin.you).contains(&node)
    }

    /// Whether a peer has its token from the source of this cast.
    pub(super) fn is_known(&self, token: &JoinToken) -> bool {
        // Compared by their hashes: the time tells nothing.
        blake3::hash(&token.0) == blake3::hash(&self.begin.token.0)
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

    /// A relay's connection has ended, which may not be its latest one.
    pub(super) fn gone(&mut self, hub: &mut CastHub, node: u32, peer: PeerId) -> MemberResult {
        let linked = self.member.as_ref().and_then(|member| member.links().get(&node));
        match linked.or_else(|| self.joined.get(&node)) {
            Some(other) if *other != peer => Ok(()),
            Some(_) | None => self.lost(hub, node),
        }
    }

    /// A relay is gone, or cannot be reached.
    pub(super) fn lost(&mut self, hub: &mut CastHub, node: u32) -> MemberResult {
        self.joined.remove(&node);
        self.dialled.remove(&node);
        send(hub, self.source, &CastMessage::Lost { node });
        self.member.as_mut().map_or(Ok(()), |member| member.lost(hub, node))
    }

    /// A message of the source's; given back if it has no place here.
    pub(super) fn source_says(
        &mut self,
        hub: &mut CastHub,
        message: CastMessage,
    ) -> Result<Option<CastMessage>, SourceFault> {
        match message {
            CastMessage::Run(bytes) => {
                self.hashes.add_run(&bytes)?;
                if let Some(member) = &mut self.member {
                    member.run_came()?;
                }
            }
            CastMessage::Plan(part) => self.plan_part(hub, part)?,
            CastMessage::ReadFrom { holders } => self.read_from(hub, &holders)?,
            CastMessage::Report { version } => {
                let report = self.member.as_mut().map(|member| member.report(version));
                let report =
                    report.unwrap_or_else(|| NodeReport { version, ..NodeReport::default() });
                let report = NodeReport { steps: self.steps(), ..report };
                send(hub, self.source, &CastMessage::Held(Box::new(report)));
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// A thread has done something.
    pub(super) fn done(&mut self, hub: &mut CastHub, done: WorkDone) -> MemberResult {
        match done {
            WorkDone::Opened(opened) => {
                self.store = Some(opened.map_err(MemberError)?);
                send(hub, self.source, &CastMessage::Ready);
            }
            WorkDone::Verified { at } => {
                if let Some(member) = &mut self.member {
                    member.verified(at);
                }
            }
            WorkDone::Kept { at, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                if let Some(forger) = member.kept(at, outcome)? {
                    let why = "it sent a chunk that the source has not signed";
                    self.is_deceived |= forger == 0;
                    self.ends.extend(member.links().get(&forger).map(|peer| (*peer, why)));
                    return self.lost(hub, forger);
                }
            }
            WorkDone::Loaded { at, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                member.loaded(at, outcome)?;
            }
            WorkDone::Demanded { chunks, from } => {
                // Before the first plan there is no node to ask: the view asks again.
                self.demand_reads(&chunks);
                let Some(member) = &mut self.member else { return Ok(()) };
                member.demand(hub, &chunks, from)?;
            }
            WorkDone::Checked { chunk, outcome } => {
                let Some(member) = &mut self.member else { return Ok(()) };
                member.checked(chunk, outcome)?;
            }
            WorkDone::Published(report) => self.published(hub, &report.map_err(MemberError)?),
            WorkDone::Taken(taken) => {
                let (files, report) = taken.map_err(MemberError)?;
                self.store = Some(files);
                self.published(hub, &report);
            }
            WorkDone::ReadKept { from, chunk, outcome, bytes } => {
                self.read_kept((from, chunk), &outcome, bytes)?;
            }
            WorkDone::Lent { reader, chunks } => self.lent(hub, reader, chunks)?,
            WorkDone::Dialled { node, purpose, outcome: Err(why) } => {
                return self.not_reached(hub, (node, purpose), &why);
            }
            WorkDone::Broken => {
                let why = "a thread of this node has panicked: its log says where";
                return Err(MemberError(why.into()));
            }
            WorkDone::Dialled { .. } | WorkDone::Signed(_) => {}
        }
        Ok(())
    }

    /// A node that was dialled cannot be reached.
    fn not_reached(
        &mut self,
        hub: &mut CastHub,
        (node, purpose): (u32, LinkPurpose),
        why: &str,
    ) -> MemberResult {
        tracing::warn!(node = self.host(node), ?purpose, why, "not reached");
        let is_linked = self.member.as_ref().is_some_and(|m| m.links().contains_key(&node));
        match purpose {
            LinkPurpose::Read => self.holder_gone(node, None),
            LinkPurpose::Relay if is_linked => {}
            LinkPurpose::Relay => return self.lost(hub, node),
        }
        Ok(())
    }

    fn published(&mut self, hub: &mut CastHub, report: &PublishReport) {
        let names = u32::try_from(report.names).unwrap_or(u32::MAX);
        let read_chunks = self.member.as_ref().map_or(0, CastMember::read_chunks);
        self.done = Some(CastMessage::Done { names, read_chunks });
        self.tell_done(hub);
    }

    /// Tells the source that all is published, if it is.
    pub(super) fn tell_done(&self, hub: &mut CastHub) {
        self.done.iter().for_each(|done| send(hub, self.source, done));
    }

    /// Does what has become possible.
    pub(super) fn go_on(&mut self, hub: &mut CastHub, now: Instant) -> MemberResult {
        self.read_on(hub, now);
        self.lend(hub, now)?;
        let Some(member) = &mut self.member else { return Ok(()) };
        member.has_looked(now);
        member.act(hub)?;
        if member.relay().is_complete()
            && !self.is_publishing
            && let Some(store) = self.store.clone()
        {
            self.is_publishing = true;
            let publish = move || WorkDone::Published(store.publish());
            self.reach.threads.run(self.id, publish)?;
        }
        Ok(())
    }
}
