//! What a node asks of others, and takes back: chunks, each into a slot of its window.

use super::{Action, ChunkWant, Relay, WindowSlot};
use crate::schedule::{NodeRole, Situation, Transfer};

impl Relay {
    /// Takes back all that was asked for.
    pub(super) fn take_back(&mut self) {
        self.claims.forget_turns();
        self.coming.clear();
        self.demands.unask(&self.asked, |_| true);
        // The node that has a chunk now may have waited for it from this one.
        let asked: Vec<u32> = self.asked.keys().copied().collect();
        asked.into_iter().for_each(|chunk| self.cancel(chunk));
    }

    /// A chunk that was taken back may be under way. The relay that it was asked of sends it or
    /// drops it, and no other node is asked before: it would cross slow links twice. Leaves, and
    /// nodes whose connection is cut, are not waited for.
    pub(super) fn await_relays(&mut self) {
        let Situation { nodes, cut, .. } = self.schedule.situation();
        let is_cut = |of| cut.contains(&(self.node, of)) || cut.contains(&(of, self.node));
        let answers = |of: u32| {
            let is_relay = nodes.get(of as usize).is_some_and(|node| node.role == NodeRole::Relay);
            is_relay && !is_cut(of) && !self.gone.contains(&of)
        };
        let awaited = self.cancelled.iter().filter(|((of, _), _)| answers(*of));
        self.coming = awaited.map(|((of, _), chunk)| (*chunk, *of)).collect();
    }

    /// Whether a chunk may come without being asked for.
    fn is_put_off(&self, chunk: u32) -> bool {
        let may_come = self.coming.range((chunk, 0)..=(chunk, u32::MAX)).next().is_some();
        may_come || self.is_claimed(chunk)
    }

    /// The peer has dropped what was taken back.
    pub(super) fn handle_dropped(&mut self, chunk: u32, from: u32) {
        self.coming.remove(&(chunk, from));
        self.take_up(chunk);
    }

    /// Asks for a chunk whose turn was put off, unless it may still come.
    pub(super) fn take_up(&mut self, chunk: u32) {
        if !self.is_put_off(chunk) {
            self.claims.take_up(chunk);
        }
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
            if !self.is_put_off(chunk) {
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
