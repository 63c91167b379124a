//! What a node sends to others, and how much of that at a time.

use super::window::WindowSlot;
use super::{Action, ChunkWant, Relay};
use crate::schedule::ScheduleKind;

/// Chunks that are under way to others, at most; to each of them one. Those that share a link all
/// come later than the first would alone, and each relay behind it waits; the next one is at hand
/// when one ends.
const SENDS_MAX: usize = 2;
/// A chunk that this many others have overtaken counts no more: its receiver is slow, or hangs.
const OVERTAKEN_MAX: u64 = 4;

/// A chunk that is being written to a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendUnderWay {
    pub(super) to: u32,
    /// Where it is here.
    pub(super) slot: u32,
    /// How many others had ended before it began.
    after: u64,
}

impl Relay {
    /// A peer has a chunk that this node wrote from a slot, which may change again.
    pub fn sent(&mut self, to: u32, slot: u32) {
        let its = |sending: &SendUnderWay| (sending.to, sending.slot) == (to, slot);
        if let Some(at) = self.sending.iter().position(its) {
            self.sending.swap_remove(at);
            self.sends_ended += 1;
            self.slots.note_sent(slot);
            self.release(slot);
        }
        self.go_on();
    }

    /// Whether nothing is passed on yet: in the paper's tree a relay has the whole file first
    /// (Fast Startup §4.2).
    pub(super) fn holds_back(&self) -> bool {
        matches!(self.schedule.kind(), ScheduleKind::PaperTree { .. })
            && self.swarm.is_none()
            && self.node != 0
            && !self.is_complete()
    }

    /// Sends one chunk, or begins to load it. False if nothing can be sent now.
    pub(super) fn send_next(&mut self) -> bool {
        if self.holds_back() {
            return false;
        }
        let mut to_load = None;
        let (held, wants, gone, slots) = (&self.held, &self.wants, &self.gone, &self.slots);
        let (is_busy, sending) = (self.is_busy(), &self.sending);
        let is_sent_to = |to: u32| sending.iter().any(|sending| sending.to == to);
        let mut is_ready = |to: u32, chunk: u32| match wants.of(to, chunk) {
            _ if gone.contains(&to) => true,
            Some(ChunkWant::Nothing) => true,
            Some(ChunkWant::Into { .. }) => {
                let is_there = slots.with(chunk).is_some();
                if !is_there && held.contains(chunk) {
                    to_load = to_load.or(Some(chunk));
                }
                is_there && !is_busy && !is_sent_to(to)
            }
            None => false,
        };
        let mut next = self.demands.next_hurried(&mut is_ready);
        if next.is_none() && self.swarm.is_none() {
            let planned = self.outbox.take(|transfer| is_ready(transfer.to, transfer.chunk));
            next = planned.map(|transfer| (transfer.to, transfer.chunk));
        }
        let next = next.or_else(|| wants.leftover(is_ready));
        match (next, to_load) {
            (Some((to, chunk)), _) => self.send(to, chunk),
            (None, Some(chunk)) => self.load(chunk),
            (None, None) => {}
        }
        next.is_some()
    }

    fn send(&mut self, to: u32, chunk: u32) {
        self.demands.settle(to, chunk);
        if let Some(into) = self.wants.take(to, chunk)
            && let Some(from) = self.slots.with(chunk)
        {
            self.slots.note_sending(from);
            self.sending.push(SendUnderWay { to, slot: from, after: self.sends_ended });
            self.actions.push_back(Action::Send { to, chunk, from, into });
        }
    }

    /// Whether as many chunks are under way as the schedule's steps have room for.
    fn is_busy(&self) -> bool {
        let counts = |s: &&SendUnderWay| self.sends_ended - s.after < OVERTAKEN_MAX;
        self.sending.iter().filter(counts).count() >= SENDS_MAX
    }

    /// Has a chunk read into a slot, one at a time.
    fn load(&mut self, chunk: u32) {
        if self.loading.is_none()
            && let Some(slot) = self.slots.take_any(WindowSlot::Loading { chunk })
        {
            self.loading = Some(chunk);
            self.actions.push_back(Action::Load { chunk, slot });
        }
    }
}
