//! A node's memory for chunks: slots that peers write into and that chunks are sent from. A chunk
//! that was written to its files stays in its slot while others may want it, or until the slot is
//! needed. The lowest free slot is used first: memory that was used a moment ago is in the
//! processor's cache, and what was never used costs a page fault.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Slots that are never given to peers, so that a chunk can always be read from files and sent.
const RESERVED: usize = 1;
/// Slots that peers write into, or have just written into, at most: enough that a sender never
/// waits for one. More would only spread what is written over memory.
const GIVEN_MAX: usize = 32;

/// What is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowSlot {
    Free,
    /// A peer may write into it at any time.
    Asked,
    /// So it may, but need not: the chunk was taken back.
    TakenBack,
    /// It is checked and written to files.
    Kept {
        chunk: u32,
    },
    /// It is read from files.
    Loading {
        chunk: u32,
    },
    /// The chunk, and how many peers it is being sent to.
    Held {
        chunk: u32,
        sending: u32,
    },
}

#[derive(Debug)]
pub(super) struct Window {
    states: Vec<WindowSlot>,
    free: BTreeSet<u32>,
    /// Slots that hold a chunk, the one that came first in front.
    held: VecDeque<u32>,
    /// The slot in which a chunk is, checked or not.
    of_chunk: BTreeMap<u32, u32>,
    /// How many slots peers write into, or have just written into.
    given: usize,
    /// How many they may still write into, though nothing is wanted of them.
    taken_back: usize,
}

impl Window {
    pub(super) fn new(count: u32) -> Self {
        Self {
            states: vec![WindowSlot::Free; count as usize],
            free: (0..count).collect(),
            held: VecDeque::new(),
            of_chunk: BTreeMap::new(),
            given: 0,
            taken_back: 0,
        }
    }

    pub(super) fn state(&self, slot: u32) -> Option<WindowSlot> {
        self.states.get(slot as usize).copied()
    }

    pub(super) fn set(&mut self, slot: u32, state: WindowSlot) {
        self.leave(slot);
        match state {
            WindowSlot::Free => {
                self.free.insert(slot);
            }
            WindowSlot::Asked => self.given += 1,
            WindowSlot::TakenBack => self.taken_back += 1,
            WindowSlot::Kept { chunk } => {
                self.given += 1;
                self.of_chunk.insert(chunk, slot);
            }
            WindowSlot::Held { chunk, .. } => {
                self.held.push_back(slot);
                self.of_chunk.insert(chunk, slot);
            }
            WindowSlot::Loading { .. } => {}
        }
        self.states[slot as usize] = state;
    }

    /// Forgets what is in a slot.
    fn leave(&mut self, slot: u32) {
        match self.states[slot as usize] {
            WindowSlot::Free => {
                self.free.remove(&slot);
            }
            WindowSlot::Asked => self.given -= 1,
            WindowSlot::TakenBack => self.taken_back -= 1,
            WindowSlot::Kept { chunk } => {
                self.given -= 1;
                self.forget(chunk, slot);
            }
            WindowSlot::Held { chunk, .. } => {
                self.held.retain(|held| *held != slot);
                self.forget(chunk, slot);
            }
            WindowSlot::Loading { .. } => {}
        }
    }

    fn forget(&mut self, chunk: u32, slot: u32) {
        if self.of_chunk.get(&chunk) == Some(&slot) {
            self.of_chunk.remove(&chunk);
        }
    }

    /// Whether a chunk is here, checked or not.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.of_chunk.contains_key(&chunk)
    }

    /// The slot that holds a chunk.
    pub(super) fn with(&self, chunk: u32) -> Option<u32> {
        let slot = *self.of_chunk.get(&chunk)?;
        matches!(self.state(slot), Some(WindowSlot::Held { .. })).then_some(slot)
    }

    /// A slot for a peer's chunk, if `spare` slots are left for others. What was taken back does
    /// not count as given, or a peer that neither sends nor drops it would hold up all others.
    pub(super) fn take(&mut self, state: WindowSlot, spare: usize) -> Option<u32> {
        let most = self.given_max().saturating_sub(spare);
        if self.given >= most || !self.has_room() { None } else { self.take_any(state) }
    }

    /// How many slots peers get at most: half of all, because what has come stays in the other
    /// half until it is passed on.
    fn given_max(&self) -> usize {
        let len = self.states.len();
        len.div_ceil(2).min(len - RESERVED).min(GIVEN_MAX)
    }

    /// Whether enough slots are free that asking for them together saves messages: a quarter
    /// of those that peers get.
    pub(super) fn has_room_for_many(&self) -> bool {
        let most = self.given_max();
        self.given + most.div_ceil(4) <= most
    }

    /// A slot for a chunk that is demanded: from four slots on there are some that [`Self::take`]
    /// never gives.
    pub(super) fn take_for_demand(&mut self) -> Option<u32> {
        if self.has_room() { self.take_any(WindowSlot::Asked) } else { None }
    }

    /// Whether a slot is left that can always be read into.
    fn has_room(&self) -> bool {
        self.given + self.taken_back < self.states.len() - RESERVED
    }

    /// The lowest free slot, or the one whose chunk has been there longest and is not being sent.
    pub(super) fn take_any(&mut self, state: WindowSlot) -> Option<u32> {
        let is_idle =
            |slot: &u32| matches!(self.state(*slot), Some(WindowSlot::Held { sending: 0, .. }));
        let longest = || self.held.iter().copied().find(is_idle);
        let slot = self.free.first().copied().or_else(longest)?;
        self.set(slot, state);
        Some(slot)
    }

    /// The chunk that a slot holds, if it is not being sent.
    pub(super) fn idle(&self, slot: u32) -> Option<u32> {
        match self.state(slot) {
            Some(WindowSlot::Held { chunk, sending: 0 }) => Some(chunk),
            _ => None,
        }
    }

    pub(super) fn note_sending(&mut self, slot: u32) {
        if let Some(WindowSlot::Held { sending, .. }) = self.states.get_mut(slot as usize) {
            *sending += 1;
        }
    }

    pub(super) fn note_sent(&mut self, slot: u32) {
        if let Some(WindowSlot::Held { sending, .. }) = self.states.get_mut(slot as usize) {
            *sending = sending.saturating_sub(1);
        }
    }
}
