//! Chunks that this node may have without asking for them: those that a broken cast has left, those
//! in files that are there, and those that were taken back and may be under way. Until that is
//! known they are neither asked for nor held; what turns out not to be here is asked for then, of
//! the node whose turn it was.
//!
//! Senders go by their lists and look ahead a little only. The first chunk whose turn was put off
//! therefore finds a slot when it turns out not to be here: one is kept for it.

use crate::schedule::ChunkSet;
use std::collections::BTreeMap;

/// Turns that are put off, at most: a list of the schedule is walked no further.
const PUT_OFF_MAX: usize = 4096;

/// A chunk, and the node to ask for it.
type Turn = (u32, u32);

#[derive(Debug, Default)]
pub(super) struct Claims {
    claimed: ChunkSet,
    /// Those of them that are not here.
    refuted: ChunkSet,
    /// Turns that were put off, by their order.
    put_off: BTreeMap<u64, Turn>,
    /// Their order by chunk.
    order: BTreeMap<u32, u64>,
    next: u64,
    /// Turns whose chunks turned out not to be here, by their order.
    due: BTreeMap<u64, Turn>,
}

impl Claims {
    pub(super) fn new(claimed: ChunkSet) -> Self {
        Self { claimed, ..Self::default() }
    }

    /// Whether a chunk may be here, and was not found missing.
    pub(super) fn is_open(&self, chunk: u32) -> bool {
        self.claimed.contains(chunk) && !self.refuted.contains(chunk)
    }

    /// Whether more turns can be put off.
    pub(super) fn have_room(&self) -> bool {
        self.put_off.len() < PUT_OFF_MAX
    }

    /// How many slots others than the first must leave.
    pub(super) fn spare(&self) -> usize {
        usize::from(!self.put_off.is_empty())
    }

    /// A claimed chunk's turn to be asked of a node has come.
    pub(super) fn put_off(&mut self, chunk: u32, from: u32) {
        self.put_off.insert(self.next, (chunk, from));
        self.order.insert(chunk, self.next);
        self.next += 1;
    }

    /// A chunk is here; returns the node that waits to hear it.
    pub(super) fn confirm(&mut self, chunk: u32) -> Option<u32> {
        let at = self.order.remove(&chunk)?;
        self.put_off.remove(&at).map(|(_, from)| from)
    }

    /// A chunk is not here.
    pub(super) fn refute(&mut self, chunk: u32) {
        self.refuted.insert(chunk);
    }

    /// A chunk is to be asked for, if its turn has come.
    pub(super) fn take_up(&mut self, chunk: u32) {
        if let Some(at) = self.order.remove(&chunk)
            && let Some(turn) = self.put_off.remove(&at)
        {
            self.due.insert(at, turn);
        }
    }

    /// What is to be asked for first of all, of which node, and how many slots it must leave.
    pub(super) fn due(&self) -> Option<(u32, u32, usize)> {
        let (at, (chunk, from)) = self.due.first_key_value()?;
        let is_first = self.put_off.first_key_value().is_none_or(|(first, _)| at < first);
        Some((*chunk, *from, usize::from(!is_first)))
    }

    pub(super) fn asked_due(&mut self) {
        self.due.pop_first();
    }

    /// The schedule's list is walked from its beginning.
    pub(super) fn forget_turns(&mut self) {
        self.put_off.clear();
        self.order.clear();
        self.due.clear();
    }
}
