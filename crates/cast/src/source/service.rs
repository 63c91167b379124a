//! What the source does with its nodes.

use super::nodes::CastNodes;
use super::order::NodeNumbers;
use super::progress::{CastProgress, ProgressSender};
use super::signing::{self, SourceStore};
use super::{CastError, CastOutcome};
use crate::member::{
    CastHub, CastMember, CastTag, CastWork, DialNode, MemberSetup, NodeReach, WorkDone,
    WorkThreads, send,
};
use crate::protocol::{CastBegin, CastMessage, PROTOCOL, of_immediate};
use crate::schedule::{ChunkSet, NodeRole, Schedule};
use crate::sign::{CastHeader, CastKey};
use crate::tree::SourceReader;
use outboard_cluster::hub::{Admitted, HubEvent, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceError};
use outboard_cluster::waker::Waker;
use outboard_secure::NodeId;
use serde::Serialize;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long a node may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How often nodes are asked what they hold, so that one that hangs is noticed.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// A node that says nothing for so long is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// What is cast.
pub(super) struct SourceSetup {
    pub(super) header: CastHeader,
    pub(super) key: CastKey,
    pub(super) reader: Arc<SourceReader>,
    /// For every node, but its number.
    pub(super) begin: CastBegin,
    /// Nodes that must be reached and publish; all if `None`.
    pub(super) min_nodes: Option<u32>,
    pub(super) dial: DialNode,
    pub(super) numbers: NodeNumbers,
    pub(super) progress: Option<ProgressSender>,
}

/// What the source does now.
#[derive(Debug, Serialize)]
pub(super) struct SourceStatus {
    nodes_ready: usize,
}

/// See the [module](self).
pub(super) struct SourceService {
    header: CastHeader,
    begin: CastBegin,
    store: Arc<SourceStore>,
    reach: NodeReach,
    results: mpsc::Receiver<CastWork>,
    waker: Waker,
    nodes: CastNodes,
    member: Option<CastMember>,
    /// The runs that are signed.
    runs: Vec<Vec<u8>>,
    /// Of the plan that is made from what nodes say they hold; `None` if none is.
    planning: Option<u32>,
    version: u32,
    is_begun: bool,
    began: Instant,
    /// As in [`Situation::switches`](crate::schedule::Situation::switches).
    switches: Vec<u32>,
    progress: Option<ProgressSender>,
    ready_until: Instant,
    asked: Instant,
    dialled: VecDeque<(u32, Admitted, NodeId)>,
    arriving: Option<u32>,
    ends: Vec<(PeerId, ServiceError)>,
    sent_chunks: u64,
    min_nodes: Option<u32>,
    outcome: mpsc::Sender<CastOutcome>,
}

impl SourceService {
    pub(super) fn new(
        setup: SourceSetup,
        outcome: mpsc::Sender<CastOutcome>,
    ) -> Result<Self, CastError> {
        let waker = Waker::new()?;
        let (threads, results) = WorkThreads::new(waker.clone());
        let SourceSetup { header, key, reader, begin, min_nodes, dial, numbers, progress } = setup;
        let signs = signing::start(Arc::clone(&reader), header, key, threads.clone());
        signs.map_err(|error| CastError::Source(format!("no thread: {error}")))?;
        Ok(Self {
            header,
            nodes: CastNodes::new(&begin.nodes, &numbers.places),
            begin,
            store: Arc::new(SourceStore(reader)),
            reach: NodeReach { dial, threads },
            results,
            waker,
            member: None,
            runs: Vec::new(),
            planning: None,
            version: 0,
            is_begun: false,
            began: Instant::now(),
            switches: numbers.switches,
            progress,
            ready_until: Instant::now() + READY_LIMIT,
            asked: Instant::now(),
            dialled: VecDeque::new(),
            arriving: None,
            ends: Vec::new(),
            sent_chunks: 0,
            min_nodes,
            outcome,
        })
    }

    fn message(
        &mut self,
        hub: &mut CastHub,
        (peer, number): (PeerId, u32),
        message: CastMessage,
    ) -> Result<(), ServiceError> {
        match message {
            CastMessage::Ready => self.ready(hub, peer, number),
            CastMessage::Failed { why } => return Err(why.into()),
            CastMessage::Held { version, held } => self.held(number, version, held)?,
            CastMessage::Lost { node } => self.suspect(hub, number, node),
            CastMessage::Done { names } => {
                if let Some(node) = self.nodes.get(number) {
                    (node.result, node.ended) = (Some(Ok(names)), Some(Instant::now()));
                }
            }
            CastMessage::Want { chunk, into } => {
                let member = self.member.as_mut().ok_or("it wants a chunk before a plan")?;
                member.wanted(number, chunk, into)?;
            }
            CastMessage::Dropped { slot } => {
                let member = self.member.as_mut().ok_or("it drops a chunk before a plan")?;
                member.dropped(hub, number, slot)?;
            }
            _ => return Err("it sent a message that has no place here".into()),
        }
        Ok(())
    }

    fn ready(&mut self, hub: &mut CastHub, peer: PeerId, number: u32) {
        if let Some(node) = self.nodes.get(number) {
            node.is_ready = true;
            node.held = Some(ChunkSet::empty());
        }
        self.runs.iter().for_each(|run| send(hub, peer, &CastMessage::Run(run.clone())));
    }

    fn held(&mut self, number: u32, version: u32, held: ChunkSet) -> Result<(), ServiceError> {
        if held.end() > u64::from(self.header.shape.chunks()) {
            return Err("it says that it holds chunks that there are not".into());
        }
        if let Some(node) = self.nodes.get(number) {
            node.held_chunks = held.len();
            if self.planning == Some(version) {
                node.held = Some(held);
            }
        }
        Ok(())
    }

    /// A relay says that another is lost to it: that one no longer passes chunks on.
    fn suspect(&mut self, hub: &mut CastHub, by: u32, number: u32) {
        let Some(node) = self.nodes.get(number) else { return };
        if by != number && node.role == NodeRole::Relay && node.result.is_none() {
            tracing::warn!(by, host = node.host, "a node is lost to another");
            node.role = NodeRole::Leaf;
            self.ask_all(hub);
        }
    }

    /// A node is gone, or failed.
    fn lost(&mut self, hub: &mut CastHub, number: u32, why: &str) -> Result<(), ServiceError> {
        if !self.nodes.fail(number, why) {
            return Ok(());
        }
        if let Some(member) = &mut self.member {
            member.lost(hub, number)?;
            self.ask_all(hub);
        }
        Ok(())
    }

    /// Asks all nodes what they hold, for a new plan.
    fn ask_all(&mut self, hub: &mut CastHub) {
        self.version += 1;
        self.planning = Some(self.version);
        self.nodes.iter_mut().for_each(|(_, node)| node.held = None);
        for (_, peer) in self.nodes.live() {
            send(hub, peer, &CastMessage::Report { version: self.version });
        }
    }

    /// Sends a plan, if one is due and everything for it is known.
    fn plan(&mut self, hub: &mut CastHub) -> Result<(), ServiceError> {
        let is_due = self.planning.is_some() || (self.member.is_none() && self.nodes.are_settled());
        if !is_due || self.nodes.live().is_empty() {
            return Ok(());
        }
        let Some(mut situation) = self.nodes.situation(self.header.shape.chunks()) else {
            return Ok(());
        };
        situation.switches.clone_from(&self.switches);
        self.planning = None;
        let message = CastMessage::Plan(situation.clone());
        let schedule = Schedule::new(self.begin.kind, situation)?;
        let live = self.nodes.live();
        live.iter().for_each(|(_, peer)| send(hub, *peer, &message));
        match &mut self.member {
            Some(member) => member.replan(hub, &schedule)?,
            None => {
                let setup = MemberSetup {
                    cast: self.header.cast,
                    node: 0,
                    shape: self.header.shape,
                    store: Arc::clone(&self.store) as _,
                    threads: self.reach.threads.clone(),
                };
                let member = self.member.insert(CastMember::new(setup, &schedule)?);
                live.iter().try_for_each(|(number, peer)| member.link(hub, *number, *peer))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, hub: &mut CastHub, done: WorkDone) -> Result<(), ServiceError> {
        match done {
            WorkDone::Loaded { at, outcome } => {
                if let Some(member) = &mut self.member {
                    member.loaded(at, outcome)?;
                }
            }
            WorkDone::Kept { at, outcome } => {
                if let Some(member) = &mut self.member {
                    member.kept(at, outcome)?;
                }
            }
            WorkDone::Signed(run) => {
                let run = run?;
                for (_, peer) in self.nodes.live() {
                    send(hub, peer, &CastMessage::Run(run.clone()));
                }
                self.runs.push(run);
            }
            WorkDone::Dialled { node, outcome: Ok((admitted, peer)) } => {
                self.dialled.push_back((node, admitted, peer));
            }
            WorkDone::Dialled { node, outcome: Err(why) } => self.lost(hub, node, &why)?,
            WorkDone::Opened(_) | WorkDone::Published(_) | WorkDone::Checked { .. } => {}
        }
        Ok(())
    }

    /// Dials every node.
    fn begin(&mut self, hub: &CastHub) {
        for (number, node) in self.nodes.iter() {
            self.reach.begin(hub, self.header.cast, number, &node.host);
        }
    }

    /// Asks all nodes for a sign of life, and gives up those that give none.
    fn look_after(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        let since = now.saturating_duration_since(self.asked);
        if since < ASK_EVERY {
            return Ok(());
        }
        self.asked = now;
        if since > 2 * ASK_EVERY {
            // This process itself was held up: that says nothing of the nodes.
            self.nodes.iter_mut().for_each(|(_, node)| node.heard = Some(now));
        }
        for (number, peer) in self.nodes.silent(now, SILENCE_LIMIT) {
            let why = format!("it has said nothing for {} s: it hangs", SILENCE_LIMIT.as_secs());
            self.ends.push((peer, why.clone().into()));
            self.lost(hub, number, &why)?;
        }
        self.tell_progress(now);
        for peer in self.nodes.connected() {
            send(hub, peer, &CastMessage::Report { version: self.version });
        }
        Ok(())
    }

    /// Tells how far the cast has come, unless what was told last has not been taken.
    fn tell_progress(&self, now: Instant) {
        let Some(sender) = &self.progress else { return };
        let shape = &self.header.shape;
        // Full, or nobody listens: the next one is soon.
        let _told = sender.try_send(CastProgress {
            elapsed: now.saturating_duration_since(self.began),
            stream_len: shape.stream_len(),
            chunks: shape.chunks(),
            sent_chunks: self.sent_chunks,
            nodes: self.nodes.progress(shape.chunks()),
        });
    }

    fn give_up_on_late(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        if self.member.is_some() || now < self.ready_until {
            return Ok(());
        }
        let late = self.nodes.iter().filter(|(_, node)| !node.is_ready && node.result.is_none());
        let late: Vec<(u32, Option<PeerId>)> = late.map(|(n, node)| (n, node.peer)).collect();
        for (number, peer) in late {
            let why = format!("it was not ready within {} s", READY_LIMIT.as_secs());
            self.ends.extend(peer.map(|peer| (peer, why.clone().into())));
            self.lost(hub, number, &why)?;
        }
        Ok(())
    }
}

impl Service for SourceService {
    type Tag = CastTag;
    type Report = SourceStatus;

    fn arrived(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        _permit: &Permit,
    ) -> Result<(), ServiceError> {
        let number = self.arriving.take().ok_or("nobody dials a source")?;
        let node = self.nodes.get(number).ok_or("there is no such node")?;
        if node.role == NodeRole::Dead {
            return Err("it is late".into());
        }
        node.peer = Some(peer);
        node.heard = Some(Instant::now());
        let begin = CastBegin { you: number, ..self.begin.clone() };
        send(hub, peer, &CastMessage::Begin(Box::new(begin)));
        Ok(())
    }

    fn handle(&mut self, hub: &mut CastHub, event: HubEvent<CastTag>) -> Result<(), ServiceError> {
        let Some(number) = self.nodes.number(event.peer()) else { return Ok(()) };
        match event {
            HubEvent::Message { peer, bytes } => {
                if let Some(node) = self.nodes.get(number) {
                    node.heard = Some(Instant::now());
                }
                let handled = PROTOCOL.decode(&bytes).map_err(ServiceError::from);
                let handled =
                    handled.and_then(|message| self.message(hub, (peer, number), message));
                if let Err(why) = &handled {
                    // The reason, before the end of the session gives another one.
                    self.lost(hub, number, &why.to_string())?;
                }
                handled
            }
            HubEvent::Immediate { immediate, .. } => {
                let member = self.member.as_mut().ok_or("it writes before there is a plan")?;
                Ok(member.arrived(hub, number, of_immediate(immediate))?)
            }
            HubEvent::Written { tag, .. } => {
                self.sent_chunks += 1;
                if let Some(member) = &mut self.member {
                    member.written(tag.to, tag.slot);
                }
                Ok(())
            }
            HubEvent::Gone { .. } | HubEvent::Read { .. } | HubEvent::Atomic { .. } => Ok(()),
        }
    }

    fn gone(&mut self, hub: &mut CastHub, peer: PeerId) {
        if let Some(number) = self.nodes.number(peer) {
            let why = "its connection has ended: its node or machine may have died";
            if let Err(error) = self.lost(hub, number, why) {
                tracing::error!(%error, "the source cannot go on");
            }
        }
    }

    fn turn(
        &mut self,
        hub: &mut CastHub,
        now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        self.waker.clear();
        if !std::mem::replace(&mut self.is_begun, true) {
            self.begin(hub);
        }
        while let Ok((_, done)) = self.results.try_recv() {
            self.finish(hub, done)?;
        }
        self.give_up_on_late(hub, now)?;
        self.look_after(hub, now)?;
        self.plan(hub)?;
        if let Some(member) = &mut self.member {
            member.act(hub)?;
        }
        if let Some(nodes) = self.nodes.outcomes(self.began, self.header.shape.chunks()) {
            let (stream_len, chunks) = (self.header.shape.stream_len(), self.header.shape.chunks());
            let (kind, took) = (self.begin.kind, self.began.elapsed());
            let required = self.min_nodes.map_or(nodes.len(), |min| min as usize);
            let sent_chunks = self.sent_chunks;
            let outcome =
                CastOutcome { nodes, stream_len, chunks, kind, sent_chunks, took, required };
            // The caller waits for the first.
            let _sent = self.outcome.send(outcome);
        }
        Ok(std::mem::take(&mut self.ends))
    }

    fn dialled(&mut self) -> Option<(Admitted, Permit)> {
        let (number, admitted, identity) = self.dialled.pop_front()?;
        self.arriving = Some(number);
        Some((admitted, Permit::outside_a_node(identity, 0)))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.asked + ASK_EVERY)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn report(&self) -> SourceStatus {
        SourceStatus { nodes_ready: self.nodes.live().len() }
    }
}
