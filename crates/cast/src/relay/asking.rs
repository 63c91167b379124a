//! What a node asks of others, and takes back: chunks, each into a slot of its window.

use super::{Action, ChunkWant, Relay, WindowSlot};
use crate::schedule::Transfer;

impl Relay {
    /// Takes back all that was asked for, and asks anew.
    pub(super) fn take_back(&mut self) {
        self.claims.forget_turns();
        self.demands.unask(&self.asked, |_| true);
        // The node that has a chunk now may have waited for it from this one.
        let asked: Vec<u32> = self.asked.keys().copied().collect();
        asked.into_iter().for_each(|chunk| self.cancel(chunk));
        self.go_on();
    }

    /// Asks for the next chunks of this node's list, as long as there are slots.
    pub(super) fn ask(&mut self) {
        self.ask_demanded();
        // Senders may wait for the first of these: it does not wait until there is room for many.
        while let Some((chunk, from, spare)) = self.claims.due() {
            if !self.ask_for(chunk, from, spare) {
                return;
            }
            self.claims.asked_due();
        }
        if !self.slots.has_room_for_many() {
            return;
        }
        if self.swarm.is_some() {
            return self.ask_swarm();
        }
        while let Some(Transfer { chunk, from, .. }) = self.inbox.peek().copied() {
            if !self.is_claimed(chunk) {
                if !self.ask_for(chunk, from, self.claims.spare()) {
                    return;
                }
            } else if self.claims.have_room() {
                self.claims.put_off(chunk, from);
            } else {
                return;
            }
            self.inbox.next();
        }
    }

    /// Asks peers for what they hold, as long as there are slots.
    fn ask_swarm(&mut self) {
        while let Some((chunk, from)) = self.next_offer() {
            if !self.ask_for(chunk, from, 0) {
                return;
            }
        }
    }

    fn next_offer(&mut self) -> Option<(u32, u32)> {
        let (asked, slots, held) = (&self.asked, &self.slots, &self.held);
        let (claims, reading) = (&self.claims, &self.reading);
        let is_open = |chunk| {
            let is_coming =
                asked.contains_key(&chunk) || slots.has(chunk) || reading.contains(&chunk);
            !is_coming && !held.contains(chunk) && !claims.is_open(chunk)
        };
        let asked_of = |peer| asked.values().filter(|(of, _)| *of == peer).count();
        self.swarm.as_mut()?.next(is_open, asked_of)
    }

    /// Asks for a chunk, or says that it is here. False if there is no slot for it.
    pub(super) fn ask_for(&mut self, chunk: u32, from: u32, spare: usize) -> bool {
        let is_of_another = self.asked.get(&chunk).is_some_and(|(of, _)| *of != from);
        if self.has_come(chunk) || is_of_another {
            self.tell(from, chunk, ChunkWant::Nothing);
        } else if !self.gone.contains(&from) && !self.asked.contains_key(&chunk) {
            let Some(slot) = self.slots.take(WindowSlot::Asked, spare) else { return false };
            self.asked.insert(chunk, (from, slot));
            self.tell(from, chunk, ChunkWant::Into { slot });
        }
        true
    }

    /// Takes back what was asked, if it was.
    pub(super) fn cancel(&mut self, chunk: u32) {
        self.demands.fulfil(chunk);
        if let Some((of, slot)) = self.asked.remove(&chunk) {
            self.cancelled.insert((of, slot), chunk);
            self.slots.set(slot, WindowSlot::TakenBack);
            self.tell(of, chunk, ChunkWant::Nothing);
        }
    }

    pub(super) fn tell(&mut self, to: u32, chunk: u32, want: ChunkWant) {
        if !self.gone.contains(&to) {
            self.actions.push_back(Action::Tell { to, chunk, want });
        }
    }
}
