//! Chunks that programs wait for: they go before their turn.
//!
//! A demand goes from node to node towards the root, over connections that the schedule has anyway,
//! until it meets a node that holds the chunk; every node on its way then holds it too. So what
//! many nodes demand at once crosses each connection once, and because each node is nearer to the
//! root than the one before, no two wait for each other. Demands have slots that the schedule
//! leaves free: if its senders were asked for all, these could wait for a node that waits for a
//! demand.

use super::{Action, ChunkWant, Relay, RelayFault};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// At most one slot in this many is for demands.
const SHARE: u32 = 4;

/// Of which node a chunk is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemandFrom {
    /// The next one towards the root.
    Upstream,
    /// The source itself, because the next one does not answer.
    Source,
}

/// What is demanded here and by others. Bounded by the chunks of the cast, and by what peers want.
#[derive(Debug)]
pub(super) struct Demands {
    asked_max: usize,
    /// To be asked for when there is a slot.
    waiting: VecDeque<(u32, DemandFrom)>,
    /// To be asked for when it is known that this node does not have them by itself.
    put_off: BTreeSet<u32>,
    /// Asked for.
    asked: BTreeSet<u32>,
    /// By receiver and chunk, what others wait for.
    hurried: BTreeSet<(u32, u32)>,
}

impl Demands {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            asked_max: (slots / SHARE).max(1) as usize,
            waiting: VecDeque::new(),
            put_off: BTreeSet::new(),
            asked: BTreeSet::new(),
            hurried: BTreeSet::new(),
        }
    }

    fn wait(&mut self, chunk: u32, from: DemandFrom) {
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == chunk) {
            Some(waiting) => waiting.1 = waiting.1.max(from),
            None => self.waiting.push_back((chunk, from)),
        }
    }

    /// A chunk has come, or is not asked for any more.
    pub(super) fn fulfil(&mut self, chunk: u32) {
        self.asked.remove(&chunk);
    }

    /// What this node has by itself is known better: what was put off is looked at again.
    pub(super) fn take_up(&mut self, is_known: impl Fn(u32) -> bool) {
        let again = self.put_off.extract_if(.., |chunk| is_known(*chunk));
        self.waiting.extend(again.map(|chunk| (chunk, DemandFrom::Upstream)));
    }

    /// What was asked of these nodes is asked again.
    pub(super) fn unask(&mut self, asked: &BTreeMap<u32, (u32, u32)>, is_of: impl Fn(u32) -> bool) {
        let concerned = |chunk: &u32| asked.get(chunk).is_none_or(|(of, _)| is_of(*of));
        let again = self.asked.extract_if(.., concerned);
        self.waiting.extend(again.map(|chunk| (chunk, DemandFrom::Upstream)));
    }

    /// A receiver was sent a chunk, or does not want it.
    pub(super) fn settle(&mut self, by: u32, chunk: u32) {
        self.hurried.remove(&(by, chunk));
    }

    pub(super) fn forget(&mut self, by: u32) {
        self.hurried.retain(|(node, _)| *node != by);
    }

    /// The first that another node waits for and that is ready.
    pub(super) fn next_hurried(
        &self,
        mut is_ready: impl FnMut(u32, u32) -> bool,
    ) -> Option<(u32, u32)> {
        self.hurried.iter().find(|(by, chunk)| is_ready(*by, *chunk)).copied()
    }
}

impl Relay {
    /// A program at this node waits for a chunk. Nothing happens if it has come already.
    pub fn demand(&mut self, chunk: u32, from: DemandFrom) {
        if chunk < self.schedule.situation().chunks && !self.has_come(chunk) {
            self.demands.wait(chunk, from);
            self.go_on();
        }
    }

    /// A peer says that what it wants of this node is waited for.
    ///
    /// # Errors
    /// The peer is at fault.
    pub fn hurried(&mut self, by: u32, chunk: u32) -> Result<(), RelayFault> {
        let chunks = self.schedule.situation().chunks;
        if chunk >= chunks {
            return Err(RelayFault::NoSuchChunk { chunk, chunks });
        }
        // It was sent meanwhile, or dropped.
        if !matches!(self.wants.of(by, chunk), Some(ChunkWant::Into { .. })) {
            return Ok(());
        }
        self.demands.hurried.insert((by, chunk));
        match self.has_come(chunk) {
            true => self.go_on(),
            false => self.demand(chunk, DemandFrom::Upstream),
        }
        Ok(())
    }

    /// Whether a chunk is here, checked or not.
    pub(super) fn has_come(&self, chunk: u32) -> bool {
        self.held.contains(chunk) || self.slots.has(chunk)
    }

    /// Asks for what is demanded, as long as there are slots for it.
    pub(super) fn ask_demanded(&mut self) {
        while let Some(&(chunk, from)) = self.demands.waiting.front() {
            if from == DemandFrom::Upstream && self.is_claimed(chunk) {
                self.demands.put_off.insert(chunk);
            } else if !self.has_come(chunk) {
                match self.demand_of(chunk, from) {
                    // It comes when a peer says that it has it.
                    None if self.swarm.is_some() => {}
                    None => return,
                    Some(of) if self.is_on_its_way(chunk, of, from) => {}
                    Some(of) if self.ask_of(chunk, of) => {}
                    Some(_) => return,
                }
            }
            self.demands.waiting.pop_front();
        }
    }

    /// The node that a demand goes to; `None` while there is none.
    fn demand_of(&self, chunk: u32, from: DemandFrom) -> Option<u32> {
        let is_there = |node: &u32| !self.gone.contains(node);
        if let Some(swarm) = &self.swarm {
            return swarm.holder(chunk).filter(is_there);
        }
        let upstream = self.schedule.upstream(self.node)?;
        let source = Some(0).filter(|_| self.schedule.root() == 0);
        match from {
            DemandFrom::Upstream => Some(upstream).filter(is_there).or(source).filter(is_there),
            DemandFrom::Source => source.filter(is_there).or(Some(upstream)).filter(is_there),
        }
    }

    /// Whether nothing but haste is needed.
    fn is_on_its_way(&mut self, chunk: u32, of: u32, from: DemandFrom) -> bool {
        let Some(&(asked_of, _)) = self.asked.get(&chunk) else { return false };
        let is_demanded = self.demands.asked.contains(&chunk);
        if asked_of == of && !is_demanded {
            self.demands.asked.insert(chunk);
            self.actions.push_back(Action::Hurry { to: of, chunk });
        }
        asked_of == of || is_demanded && from == DemandFrom::Upstream
    }

    /// Asks a node for a chunk, and no other any more. False if there is no slot.
    fn ask_of(&mut self, chunk: u32, of: u32) -> bool {
        self.demands.asked.remove(&chunk);
        if self.demands.asked.len() >= self.demands.asked_max {
            return false;
        }
        let Some(slot) = self.slots.take_for_demand() else { return false };
        self.cancel(chunk);
        self.asked.insert(chunk, (of, slot));
        self.demands.asked.insert(chunk);
        self.tell(of, chunk, ChunkWant::Into { slot });
        self.actions.push_back(Action::Hurry { to: of, chunk });
        true
    }
}
