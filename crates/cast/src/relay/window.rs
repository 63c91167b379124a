//! A node's memory for chunks: slots that peers write into and that chunks are sent from. A chunk
//! that was written to its files stays in its slot until the slot is needed.

use std::collections::VecDeque;

/// Window that are never given to peers, so that a chunk can always be read from files and sent.
const RESERVED: u32 = 1;

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
    /// Window that hold a chunk, the one that came first in front.
    held: VecDeque<u32>,
}

impl Window {
    pub(super) fn new(count: u32) -> Self {
        Self { states: vec![WindowSlot::Free; count as usize], held: VecDeque::new() }
    }

    pub(super) fn state(&self, slot: u32) -> Option<WindowSlot> {
        self.states.get(slot as usize).copied()
    }

    pub(super) fn set(&mut self, slot: u32, state: WindowSlot) {
        if matches!(state, WindowSlot::Held { .. }) {
            self.held.push_back(slot);
        }
        self.states[slot as usize] = state;
    }

    /// Whether a chunk is here, checked or not.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.states.contains(&WindowSlot::Kept { chunk }) || self.with(chunk).is_some()
    }

    /// The slot that holds a chunk.
    pub(super) fn with(&self, chunk: u32) -> Option<u32> {
        let holds = |slot: &u32| match self.state(*slot) {
            Some(WindowSlot::Held { chunk: found, .. }) => found == chunk,
            _ => false,
        };
        self.held.iter().copied().find(holds)
    }

    /// A slot for a peer's chunk, if `spare` slots are left for others. Peers get half of all at
    /// most: what has come stays in the other half until it is passed on. What was taken back does
    /// not count, or a peer that neither sends nor drops it would hold up all others.
    pub(super) fn take(&mut self, state: WindowSlot, spare: usize) -> Option<u32> {
        let (given, len) = (self.given(), self.states.len());
        let most = len.div_ceil(2).min(len - RESERVED as usize).saturating_sub(spare);
        if given >= most || !self.has_room() { None } else { self.take_any(state) }
    }

    /// A slot for a chunk that is demanded: from four slots on there are some that [`Self::take`]
    /// never gives.
    pub(super) fn take_for_demand(&mut self) -> Option<u32> {
        if self.has_room() { self.take_any(WindowSlot::Asked) } else { None }
    }

    /// Whether a slot is left that can always be read into.
    fn has_room(&self) -> bool {
        let taken_back = |state: &&WindowSlot| matches!(state, WindowSlot::TakenBack);
        let taken_back = self.states.iter().filter(taken_back).count();
        self.given() + taken_back < self.states.len() - RESERVED as usize
    }

    /// How many slots peers write into, or have just written into.
    fn given(&self) -> usize {
        let busy =
            |state: &&WindowSlot| matches!(state, WindowSlot::Asked | WindowSlot::Kept { .. });
        self.states.iter().filter(busy).count()
    }

    /// Any slot that is free, or whose chunk has been there longest and is not being sent.
    pub(super) fn take_any(&mut self, state: WindowSlot) -> Option<u32> {
        let free = self.states.iter().position(|state| *state == WindowSlot::Free);
        let slot = match free.and_then(|at| u32::try_from(at).ok()) {
            Some(slot) => slot,
            None => self.evict()?,
        };
        self.states[slot as usize] = state;
        Some(slot)
    }

    fn evict(&mut self) -> Option<u32> {
        let is_idle =
            |slot: &u32| matches!(self.state(*slot), Some(WindowSlot::Held { sending: 0, .. }));
        let at = self.held.iter().position(is_idle)?;
        self.held.remove(at)
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
