//! A node's own transfers: what it sends, as an [`Outbox`] that is asked whenever there is room,
//! and what it receives, as an iterator.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use super::{ChunkSet, Schedule};

/// How far a node looks ahead in its pipeline for a transfer that is ready, if the next one is not.
/// With none, latencies add up where corners of the hypercube are two nodes: chunks that made more
/// hops hold up those that made fewer, at every step anew.
const LOOKAHEAD: usize = 16;

/// Why a chunk is sent, which is also its urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendLane {
    /// The root lacks the chunk, or the first relay below a switch: others wait for it.
    Gather,
    /// One of the schedule's steps, to be made in order.
    Pipeline {
        /// The step in lock-step execution.
        step: u64,
    },
    /// To a leaf, while there is nothing else to send.
    Leaf,
}

/// One chunk from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The chunk's number.
    pub chunk: u32,
    /// The node that sends.
    pub from: u32,
    /// The node that receives.
    pub to: u32,
    /// Why.
    pub lane: SendLane,
}

/// What a node receives, in the order of steps; owns its share of the schedule.
///
/// Transfers from different peers may overtake each other by a few steps.
#[derive(Debug, Clone)]
pub struct Inbox {
    schedule: Arc<Schedule>,
    node: u32,
    slot: u64,
}

impl Schedule {
    /// What `node` receives.
    #[must_use]
    pub fn inbox(self: &Arc<Self>, node: u32) -> Inbox {
        Inbox { schedule: Arc::clone(self), node, slot: 0 }
    }

    /// What `node` sends.
    #[must_use]
    pub fn outbox(self: &Arc<Self>, node: u32) -> Outbox {
        let mut gathers: Vec<Transfer> = self.gathers.sent(node).collect();
        gathers.sort_unstable_by_key(|transfer| Reverse(transfer.chunk));
        let feeds = (0..self.leaves.len()).filter_map(|leaf| self.feed(node, leaf)).collect();
        let (schedule, ahead) = (Arc::clone(self), VecDeque::new());
        let mut outbox = Outbox { schedule, node, gathers, slot: 0, ahead, feeds };
        outbox.look_ahead();
        outbox
    }

    /// What `node` sends to one of the leaves.
    fn feed(&self, node: u32, leaf: usize) -> Option<LeafFeed> {
        let rank = self.rank(node)?;
        let stride = self.feeders[leaf].len();
        // Leaves take their turns one after the other, so that chunks of all of them are spread.
        let first = |turn: usize| (turn + stride - leaf % stride) % stride;
        let mut turns: Vec<u64> =
            self.feeder_turns(leaf, rank).into_iter().map(|turn| first(turn) as u64).collect();
        if turns.is_empty() {
            return None;
        }
        turns.sort_unstable();
        let mut known = self.situation.nodes[self.leaves[leaf] as usize].holds.clone();
        known.unite(&self.lost);
        let chunks = self.situation.chunks;
        let mut feed = LeafFeed {
            leaf: self.leaves[leaf],
            known,
            chunks,
            turns,
            stride: stride as u64,
            at: 0,
            head: None,
        };
        feed.advance();
        Some(feed)
    }

    fn leaf_sender(&self, leaf: usize, chunk: u32) -> u32 {
        let feeders = &self.feeders[leaf];
        self.ranks[feeders[(chunk as usize + leaf) % feeders.len()] as usize]
    }

    /// What a relay sends in a slot, unless the receiver has it.
    fn pipeline_send(&self, rank: u32, slot: u64) -> Option<Transfer> {
        let step = self.overlay.send_in(rank, slot)?;
        self.transfer(step.chunk, step.step, rank, step.peer)
    }

    fn pipeline_receive(&self, rank: u32, slot: u64) -> Option<Transfer> {
        let step = self.overlay.receive_in(rank, slot)?;
        self.transfer(step.chunk, step.step, step.peer, rank)
    }

    fn transfer(&self, position: u32, step: u64, from: u32, to: u32) -> Option<Transfer> {
        let chunk = self.order.chunk(position)?;
        let [from, to] = [from, to].map(|rank| self.ranks[rank as usize]);
        let lane = SendLane::Pipeline { step };
        let is_open = !self.holds(to, chunk) && !self.gathers.has(to, chunk);
        is_open.then_some(Transfer { chunk, from, to, lane })
    }

    fn leaf_receive(&self, leaf: usize, slot: u64) -> Option<Transfer> {
        let chunk = u32::try_from(slot).ok()?;
        let to = self.leaves[leaf];
        let wanted = !self.holds(to, chunk) && !self.lost.contains(chunk);
        let from = || self.leaf_sender(leaf, chunk);
        wanted.then(|| Transfer { chunk, from: from(), to, lane: SendLane::Leaf })
    }

    fn receive_slots(&self, node: u32) -> u64 {
        let gathers = self.gathers.received(node).len() as u64;
        match (self.rank(node), self.leaf_index(node)) {
            (Some(0), _) => gathers,
            (Some(rank), _) => gathers + self.overlay.receive_slots(rank),
            (None, Some(_)) => u64::from(self.situation.chunks),
            (None, None) => 0,
        }
    }

    fn receive_in(&self, node: u32, slot: u64) -> Option<Transfer> {
        let gathers = self.gathers.received(node);
        if let Some((chunk, from)) = gathers.get(usize::try_from(slot).ok()?) {
            let (chunk, from) = (*chunk, *from);
            return Some(Transfer { chunk, from, to: node, lane: SendLane::Gather });
        }
        match (self.rank(node), self.leaf_index(node)) {
            (Some(0), _) => None,
            (Some(rank), _) => self.pipeline_receive(rank, slot - gathers.len() as u64),
            (None, Some(leaf)) => self.leaf_receive(leaf, slot),
            (None, None) => None,
        }
    }
}

impl Iterator for Inbox {
    type Item = Transfer;

    fn next(&mut self) -> Option<Transfer> {
        let end = self.schedule.receive_slots(self.node);
        while self.slot < end {
            self.slot += 1;
            let transfer = self.schedule.receive_in(self.node, self.slot - 1);
            if transfer.is_some() {
                return transfer;
            }
        }
        None
    }
}

/// What a node still has to send.
#[derive(Debug, Clone)]
pub struct Outbox {
    schedule: Arc<Schedule>,
    node: u32,
    /// What others wait for, the next one last.
    gathers: Vec<Transfer>,
    slot: u64,
    /// The next transfers of the pipeline, at most [`LOOKAHEAD`].
    ahead: VecDeque<Transfer>,
    feeds: Vec<LeafFeed>,
}

impl Outbox {
    /// Takes the next transfer for which `ready` says yes, which it must if this node holds the
    /// chunk and the receiver has room for one more. `ready` is asked about several transfers, of
    /// which one is taken.
    ///
    /// The pipeline's transfers are taken in order, but that one that is ready overtakes a few that
    /// are not. Chunks for leaves are taken when neither the root nor the pipeline has anything
    /// that is ready, the lowest chunk first; a leaf that has no room keeps no other one waiting.
    ///
    /// A situation is older than what was under way when it was made: if the receiver has got the
    /// chunk meanwhile, the transfer is ready, and its sender takes it and sends nothing.
    pub fn take(&mut self, mut ready: impl FnMut(&Transfer) -> bool) -> Option<Transfer> {
        if let Some(transfer) = self.gathers.last().copied().filter(&mut ready) {
            self.gathers.pop();
            return Some(transfer);
        }
        if let Some(at) = self.ahead.iter().position(&mut ready) {
            let transfer = self.ahead.remove(at);
            self.look_ahead();
            return transfer;
        }
        self.take_for_leaf(ready)
    }

    /// What this node should send next in its pipeline, ready or not.
    #[must_use]
    pub fn pipeline_head(&self) -> Option<Transfer> {
        self.ahead.front().copied()
    }

    /// The nodes that this one sends to next, some of them more than once: those of its next
    /// transfers, and its leaves.
    pub fn receivers(&self) -> impl Iterator<Item = u32> + '_ {
        let gathers = self.gathers.last().into_iter().map(|transfer| transfer.to);
        let fed = self.feeds.iter().filter(|feed| feed.head.is_some()).map(|feed| feed.leaf);
        gathers.chain(self.ahead.iter().map(|transfer| transfer.to)).chain(fed)
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let fed = self.feeds.iter().all(|feed| feed.head.is_none());
        self.gathers.is_empty() && self.ahead.is_empty() && fed
    }

    fn look_ahead(&mut self) {
        while self.ahead.len() < LOOKAHEAD {
            let Some(transfer) = self.next_in_pipeline() else { break };
            self.ahead.push_back(transfer);
        }
    }

    fn next_in_pipeline(&mut self) -> Option<Transfer> {
        let rank = self.schedule.rank(self.node)?;
        let end = self.schedule.overlay.send_slots(rank);
        while self.slot < end {
            self.slot += 1;
            let transfer = self.schedule.pipeline_send(rank, self.slot - 1);
            if transfer.is_some() {
                return transfer;
            }
        }
        None
    }

    fn take_for_leaf(&mut self, mut ready: impl FnMut(&Transfer) -> bool) -> Option<Transfer> {
        let node = self.node;
        let takeable = self.feeds.iter_mut().filter_map(|feed| {
            let transfer = feed.transfer(node)?;
            ready(&transfer).then_some((transfer, feed))
        });
        let (transfer, feed) =
            takeable.min_by_key(|(transfer, _)| (transfer.chunk, transfer.to))?;
        feed.advance();
        Some(transfer)
    }
}

/// What one node sends to one leaf: every chunk whose turn is one of its own.
#[derive(Debug, Clone)]
struct LeafFeed {
    leaf: u32,
    /// What the leaf holds, and what no live node holds.
    known: ChunkSet,
    chunks: u32,
    /// Chunk numbers modulo the stride, ascending.
    turns: Vec<u64>,
    stride: u64,
    /// The next candidate: which of the turns, and in which round.
    at: u64,
    head: Option<u32>,
}

impl LeafFeed {
    fn transfer(&self, from: u32) -> Option<Transfer> {
        Some(Transfer { chunk: self.head?, from, to: self.leaf, lane: SendLane::Leaf })
    }

    fn advance(&mut self) {
        let turns = self.turns.len() as u64;
        self.head = None;
        while self.head.is_none() {
            let turn = self.turns[usize::try_from(self.at % turns).unwrap_or(0)];
            let chunk = self.at / turns * self.stride + turn;
            let Some(chunk) = u32::try_from(chunk).ok().filter(|c| *c < self.chunks) else {
                return;
            };
            self.at += 1;
            self.head = (!self.known.contains(chunk)).then_some(chunk);
        }
    }
}
