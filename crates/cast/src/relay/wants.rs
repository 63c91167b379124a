//! What other nodes want of this one.

use super::RelayFault;
use crate::schedule::ChunkSet;
use std::collections::{BTreeMap, BTreeSet};

/// What a receiver wants of a sender, for one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ChunkWant {
    /// The chunk, in this slot of the receiver's memory.
    Into {
        /// The slot.
        slot: u32,
    },
    /// Nothing: it has the chunk, or gets it from another node.
    Nothing,
}

/// By chunk and receiver. A receiver wants no two chunks in one slot: what it may want at a time is
/// bounded by its slots.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// The slots of what is wanted and was not sent.
    slots: BTreeMap<(u32, u32), u32>,
    /// The same by receiver and slot: the chunk.
    chunks: BTreeMap<(u32, u32), u32>,
    /// What each receiver does not want, or was sent, unless it wants it again.
    settled: BTreeMap<u32, ChunkSet>,
    /// Those of earlier schedules, which may not be in this one.
    leftovers: BTreeSet<(u32, u32)>,
    /// Whether there is no schedule that says what is sent.
    is_served: bool,
}

impl Wants {
    /// The slot of a chunk that was wanted and is dropped by this.
    ///
    /// # Errors
    /// The receiver wants another chunk in this slot.
    pub(super) fn note(
        &mut self,
        by: u32,
        chunk: u32,
        want: ChunkWant,
    ) -> Result<Option<u32>, RelayFault> {
        Ok(match want {
            ChunkWant::Into { slot } => {
                if self.chunks.get(&(by, slot)).is_some_and(|other| *other != chunk) {
                    return Err(RelayFault::SlotTaken { chunk, slot });
                }
                // The schedule's list may have passed over what was not wanted.
                if self.is_served || self.is_settled(by, chunk) {
                    self.leftovers.insert((by, chunk));
                }
                let before = self.slots.insert((chunk, by), slot);
                before.and_then(|before| self.chunks.remove(&(by, before)));
                self.chunks.insert((by, slot), chunk);
                before
            }
            ChunkWant::Nothing => self.take(by, chunk),
        })
    }

    pub(super) fn of(&self, by: u32, chunk: u32) -> Option<ChunkWant> {
        let slot = self.slots.get(&(chunk, by)).map(|slot| ChunkWant::Into { slot: *slot });
        slot.or_else(|| self.is_settled(by, chunk).then_some(ChunkWant::Nothing))
    }

    /// Whether any receiver wants the chunk.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.slots.range((chunk, 0)..=(chunk, u32::MAX)).next().is_some()
    }

    /// Receivers and chunks.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.slots.keys().map(|(chunk, by)| (*by, *chunk))
    }

    /// Whether a receiver was sent the chunk, or does not want it.
    pub(super) fn is_settled(&self, by: u32, chunk: u32) -> bool {
        self.settled.get(&by).is_some_and(|settled| settled.contains(chunk))
    }

    /// The slot for a chunk that a node wanted; it is sent now, or never.
    pub(super) fn take(&mut self, by: u32, chunk: u32) -> Option<u32> {
        self.settled.entry(by).or_default().insert(chunk);
        self.leftovers.remove(&(by, chunk));
        let slot = self.slots.remove(&(chunk, by))?;
        self.chunks.remove(&(by, slot));
        Some(slot)
    }

    pub(super) fn forget(&mut self, by: u32) {
        self.settled.remove(&by);
        for (_, chunk) in self.chunks.extract_if((by, 0)..=(by, u32::MAX), |_, _| true) {
            self.slots.remove(&(chunk, by));
            self.leftovers.remove(&(by, chunk));
        }
    }

    /// A new schedule begins: what is wanted already is sent, whether it is in that or not.
    pub(super) fn keep_as_leftovers(&mut self) {
        self.is_served = false;
        self.leftovers.extend(self.slots.keys().map(|(chunk, by)| (*by, *chunk)));
    }

    /// There is no schedule any more: whatever is wanted is sent.
    pub(super) fn serve_all(&mut self) {
        self.keep_as_leftovers();
        self.is_served = true;
    }

    /// The first of an earlier schedule that is ready.
    pub(super) fn leftover(
        &self,
        mut is_ready: impl FnMut(u32, u32) -> bool,
    ) -> Option<(u32, u32)> {
        self.leftovers.iter().find(|(by, chunk)| is_ready(*by, *chunk)).copied()
    }
}
