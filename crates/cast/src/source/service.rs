//! What the source does with its nodes: messages, chunks, ends.

use super::absence::SourceAbsence;
use super::buffers::{SourceBuffers, SourceStore};
use super::nodes::{CastNodes, NodeReturn};
use super::order::NodeNumbers;
use super::progress::{CastProgress, ProgressSender};
use super::signing::{self, SignWatch};
use super::slow::SlowWatch;
use super::start::StartPatience;
use super::watch::CastWatch;
use super::{CastError, CastOutcome};
use crate::member::{
    CastHub, CastMember, CastTag, CastWork, DialNode, LinkPurpose, NodeReach, SessionId, WorkDone,
    WorkThreads, send,
};
use crate::protocol::{
    CastBegin, CastMessage, NodeReport, PROTOCOL, of_immediate, publish_step_max,
};
use crate::schedule::ChunkSet;
use crate::sign::{CastHeader, CastKey};
use crate::tree::{SkippedFiles, SourceReader};
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

/// How long a node that is connected may take until it is ready.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(30);
/// How often a node is dialled before it counts as unreachable; it is dialled again later.
const DIAL_TRIES: u32 = 1;

/// What is cast.
pub(super) struct SourceSetup {
    pub(super) header: CastHeader,
    pub(super) key: CastKey,
    pub(super) reader: Arc<SourceReader>,
    pub(super) buffers: SourceBuffers,
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
    pub(super) header: CastHeader,
    pub(super) begin: CastBegin,
    pub(super) store: Arc<SourceStore>,
    pub(super) reach: NodeReach,
    results: mpsc::Receiver<CastWork>,
    waker: Waker,
    pub(super) nodes: CastNodes,
    pub(super) watch: CastWatch,
    /// The nodes that late ones read from, as they were named last.
    pub(super) named: Vec<u32>,
    pub(super) slow: SlowWatch,
    pub(super) signs: SignWatch,
    pub(super) member: Option<CastMember>,
    /// The runs that are signed.
    pub(super) runs: Vec<Vec<u8>>,
    /// Whether another plan must be made.
    pub(super) is_plan_due: bool,
    /// When the latest was made.
    pub(super) planned: Instant,
    pub(super) version: u32,
    is_begun: bool,
    began: Instant,
    /// As in [`Situation::switches`](crate::schedule::Situation::switches).
    pub(super) switches: Vec<u32>,
    progress: Option<ProgressSender>,
    pub(super) start: StartPatience,
    /// Files, directories and links.
    entries: u32,
    pub(super) asked: Instant,
    pub(super) absence: SourceAbsence,
    dialled: VecDeque<(u32, Admitted, NodeId)>,
    arriving: Option<u32>,
    pub(super) ends: Vec<(PeerId, ServiceError)>,
    sent_chunks: u64,
    pub(super) min_nodes: Option<u32>,
    outcome: mpsc::Sender<CastOutcome>,
}

impl SourceService {
    pub(super) fn new(
        setup: SourceSetup,
        outcome: mpsc::Sender<CastOutcome>,
    ) -> Result<Self, CastError> {
        let waker = Waker::new()?;
        let (threads, results) = WorkThreads::new(waker.clone());
        let SourceSetup { header, key, reader, buffers, mut begin, .. } = setup;
        let (min_nodes, dial, numbers, progress) =
            (setup.min_nodes, setup.dial, setup.numbers, setup.progress);
        let signs = SignWatch::new(Instant::now());
        if begin.only.is_none() {
            let (reader, steps) = (Arc::clone(&reader), Arc::clone(&signs.steps));
            let signs = signing::start(reader, (header, key), threads.clone(), steps);
            signs.map_err(|error| CastError::Source(format!("no thread: {error}")))?;
        }
        let entries = reader.tree().manifest().len();
        let nodes = CastNodes::new(&begin.nodes, &numbers.places);
        if begin.only.is_some() {
            // No node has to do with another.
            begin.nodes.clear();
        }
        Ok(Self {
            header,
            nodes,
            watch: CastWatch::new(
                Instant::now(),
                header.shape.chunks(),
                publish_step_max(begin.flush, header.shape.stream_len()),
            )
            .of_kind(begin.kind),
            slow: SlowWatch::new(header.shape.chunks(), header.shape.chunk_len().bytes()),
            signs,
            begin,
            store: Arc::new(SourceStore::new(reader, buffers)),
            reach: NodeReach::new(dial, DIAL_TRIES, threads),
            results,
            waker,
            named: Vec::new(),
            member: None,
            runs: Vec::new(),
            is_plan_due: false,
            planned: Instant::now(),
            version: 0,
            is_begun: false,
            began: Instant::now(),
            switches: numbers.switches,
            progress,
            start: StartPatience::new(Instant::now()),
            entries,
            asked: Instant::now(),
            absence: SourceAbsence::default(),
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
            CastMessage::SameNode { node } => return Err(self.same_node(node)),
            CastMessage::Held(report) => self.held(number, &report)?,
            CastMessage::Lost { node } => self.suspect(number, node),
            CastMessage::Feed => self.feed(number),
            CastMessage::Done { names, read_chunks } => {
                // One that was lost may say so again.
                let node = self.nodes.get(number).filter(|node| node.published.is_none());
                if let Some(node) = node {
                    node.read_chunks = read_chunks;
                    (node.published, node.ended) = (Some(names), Some(Instant::now()));
                }
                self.watch.published(number);
                if self.begin.only.is_some() {
                    self.part_with(hub, peer);
                }
            }
            CastMessage::Want { chunk, into } => {
                let member = self.member.as_mut().ok_or("it wants a chunk before a plan")?;
                member.wanted(number, chunk, into)?;
            }
            CastMessage::Hurry { chunk } => {
                let member = self.member.as_mut().ok_or("it waits for a chunk before a plan")?;
                member.hurried(number, chunk)?;
            }
            CastMessage::Dropped { slot } => {
                let member = self.member.as_mut().ok_or("it drops a chunk before a plan")?;
                member.dropped(hub, number, slot)?;
            }
            _ => return Err("it sent a message that has no place here".into()),
        }
        Ok(())
    }

    /// Why a node is in no plan that is there under another name.
    fn same_node(&mut self, other: u32) -> ServiceError {
        let other = self.nodes.get(other).map_or_else(String::new, |node| node.host.clone());
        format!("it is the same node as {other}: name each machine once").into()
    }

    fn ready(&mut self, hub: &mut CastHub, peer: PeerId, number: u32) {
        let is_late = self.member.is_some();
        if let Some(node) = self.nodes.get(number).filter(|node| !node.is_ready) {
            node.is_ready = true;
            node.is_leaf = is_late;
            node.held = ChunkSet::empty();
            self.is_plan_due |= is_late && !self.nodes.begin_reading(number, Instant::now());
            self.runs.iter().for_each(|run| send(hub, peer, &CastMessage::Run(run.clone())));
            self.name_holders(hub);
        }
    }

    fn held(&mut self, number: u32, report: &NodeReport) -> Result<(), ServiceError> {
        if report.held.end() > u64::from(self.header.shape.chunks()) {
            return Err("it says that it holds chunks that there are not".into());
        }
        let is_reader = self.nodes.note_reader(number, report.held.len(), Instant::now());
        if let Some(node) = self.nodes.get(number).filter(|node| node.is_ready) {
            let held = report.held.len();
            node.is_making = report.steps > node.steps && held == node.held_chunks;
            (node.held_chunks, node.steps) = (held, report.steps);
            node.held = report.held.clone();
            if is_reader {
                return Ok(());
            }
            let (now, has_published) = (Instant::now(), node.published.is_some());
            self.watch.report(now, number, report);
            if has_published {
                self.watch.published(number);
            }
            self.slow.report(now, number, report);
        }
        Ok(())
    }

    /// A node says that its connection with another is lost. That other one stays what it is to
    /// everyone else.
    fn suspect(&mut self, by: u32, number: u32) {
        if !self.nodes.get(by).is_some_and(|node| node.takes_part()) {
            return;
        }
        let Some(other) = self.nodes.get(number).filter(|node| node.is_ready) else { return };
        tracing::warn!(by, host = other.host, "a connection between two nodes is lost");
        self.watch.complain(by, number);
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
                for (_, peer) in self.nodes.live().into_iter().chain(self.nodes.readers()) {
                    send(hub, peer, &CastMessage::Run(run.clone()));
                }
                self.runs.push(run);
                // Nodes could not keep what waited for it.
                self.watch.excuse(Instant::now());
            }
            WorkDone::Dialled { node, outcome: Ok((admitted, peer)), .. } => {
                self.dialled.push_back((node, admitted, peer));
            }
            WorkDone::Dialled { node, outcome: Err(why), .. } => {
                self.lost(hub, node, &why, NodeReturn::Possible)?;
            }
            WorkDone::Broken => return Err("a thread of this command has panicked".into()),
            WorkDone::Verified { .. }
            | WorkDone::Checked { .. }
            | WorkDone::Opened(_)
            | WorkDone::Published(_)
            | WorkDone::ReadKept { .. }
            | WorkDone::Lent { .. }
            | WorkDone::Taken(_)
            | WorkDone::Demanded { .. } => {}
        }
        Ok(())
    }

    /// A node has published, and there is nothing that it could do for others.
    fn part_with(&mut self, hub: &mut CastHub, peer: PeerId) {
        send(hub, peer, &CastMessage::Over);
        self.ends.push((peer, "it has published".into()));
    }

    /// Dials every node.
    fn begin(&mut self, hub: &CastHub) {
        for (number, node) in self.nodes.iter() {
            let node_and_purpose = (number, LinkPurpose::Relay);
            self.reach.begin(hub, SessionId::default(), node_and_purpose, &node.host);
        }
    }

    /// Reports how far the cast has come, unless the last report has not been taken.
    pub(super) fn tell_progress(&self, now: Instant) {
        let Some(sender) = &self.progress else { return };
        let shape = &self.header.shape;
        // It may be full or closed: the next one is soon.
        let _sent = sender.try_send(CastProgress {
            elapsed: now.saturating_duration_since(self.began),
            stream_len: shape.stream_len(),
            chunks: shape.chunks(),
            sent_chunks: self.sent_chunks,
            checked_entries: self.signs.steps.checked_entries(),
            entries: self.entries,
            nodes: self.nodes.progress(shape.chunks()),
        });
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
        let number = self.arriving.take().ok_or("no peer dials a source")?;
        self.nodes.connect(number, peer, Instant::now());
        self.sent_chunks += u64::from(self.begin.only.is_some());
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
                    self.lost(hub, number, &why.to_string(), NodeReturn::Never)?;
                }
                handled
            }
            HubEvent::Immediate { immediate, .. } => {
                let member = self.member.as_mut().ok_or("it writes before there is a plan")?;
                Ok(member.arrived(hub, number, of_immediate(immediate))?)
            }
            HubEvent::Written { tag, .. } => {
                self.sent_chunks += 1;
                if let Some(node) = self.nodes.get(number) {
                    // What it is asked waits behind what it is sent.
                    node.heard = Some(Instant::now());
                }
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
            let why = self.absence.why_lost(Instant::now(), self.asked);
            if let Err(error) = self.lost(hub, number, &why, NodeReturn::Possible) {
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
        self.look_after(hub, now)?;
        self.plan(hub, now)?;
        if let Some(member) = &mut self.member {
            member.has_looked(now);
            member.act(hub)?;
        }
        if let Some(nodes) = self.nodes.outcomes(now, self.began, self.header.shape.chunks()) {
            let (stream_len, chunks) = (self.header.shape.stream_len(), self.header.shape.chunks());
            let chunk_len = self.header.shape.chunk_len();
            let (kind, took) = (self.begin.kind, self.began.elapsed());
            let required = self.min_nodes.map_or(nodes.len(), |min| min as usize);
            let sent_chunks = self.sent_chunks;
            let outcome = CastOutcome {
                nodes,
                stream_len,
                chunk_len,
                chunks,
                kind,
                sent_chunks,
                plans: self.version + 1,
                took,
                required,
                // The caller adds them.
                skipped: SkippedFiles::default(),
            };
            for peer in self.nodes.connected() {
                send(hub, peer, &CastMessage::Over);
            }
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
        let next = self.member.as_ref().and_then(CastMember::deadline);
        next.into_iter().chain(self.plan_at()).chain([self.asked + self.ask_every()]).min()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn report(&self) -> SourceStatus {
        SourceStatus { nodes_ready: self.nodes.live().len() }
    }
}
