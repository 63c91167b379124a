//! One node's part in a cast: which chunks it asks of which node, which it passes on, and from
//! where; a value without I/O, time or bytes.
//!
//! A node walks its own list of the schedule and asks the senders in it for chunks ahead, each
//! into a slot of its window; a sender answers as soon as it has the chunk, in the order of its own
//! list. So a chunk crosses each connection once, a sender never waits for room that is there, and
//! after a death the same question goes to another node. What a node has by another way it says
//! to the sender in its list, which then passes over it. What it takes back may be under way
//! already: its slot is free when the chunk has come, or the sender says that it drops it. Until
//! then it is asked of no other node, if the sender is a relay still.
//!
//! A chunk that a program waits for is demanded: asked for out of turn.
//!
//! Modules: `action` (what it wants done), `fault` (what peers must not do), `window` (the memory),
//! `asking` (what it asks of others), `wants` (what others have asked of this node), `claims` (what
//! may be here without being sent), `swarm` (how it goes on when the source has left), `demands`
//! (what goes before its turn), `sending` (what is under way to others),
//! `reads` (what is read from others' memory).

mod action;
mod asking;
mod claims;
mod demands;
mod fault;
mod reads;
mod sending;
mod swarm;
#[cfg(test)]
mod tests;
mod wants;
mod window;

pub use action::Action;
pub use demands::DemandFrom;
pub use fault::RelayFault;
pub use wants::ChunkWant;

use crate::schedule::{ChunkSet, Inbox, Outbox, Schedule, Situation};
use claims::Claims;
use demands::Demands;
use sending::SendUnderWay;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;
use swarm::Swarm;
use wants::Wants;
use window::{Window, WindowSlot};

/// See the [module](self).
#[derive(Debug)]
pub struct Relay {
    node: u32,
    schedule: Arc<Schedule>,
    inbox: Peekable<Inbox>,
    outbox: Outbox,
    held: ChunkSet,
    claims: Claims,
    slots: Window,
    wants: Wants,
    /// Chunks that were asked for: of which node, and into which slot.
    asked: BTreeMap<u32, (u32, u32)>,
    /// By node and slot, the chunks that are no longer wanted of it: it still writes them, or says
    /// that it drops them.
    cancelled: BTreeMap<(u32, u32), u32>,
    /// Those of them, with their nodes, that are asked of no other node before that is known.
    coming: BTreeSet<(u32, u32)>,
    /// The chunk that is read from files.
    loading: Option<u32>,
    sending: Vec<SendUnderWay>,
    /// How many have ended.
    sends_ended: u64,
    /// Peers whose connections have ended.
    gone: BTreeSet<u32>,
    /// While there is no schedule to go by.
    swarm: Option<Swarm>,
    demands: Demands,
    /// Chunks that are read from others' memory.
    reading: BTreeSet<u32>,
    actions: VecDeque<Action>,
}

impl Relay {
    /// Node `node`'s part, with `slots` slots of memory: at least three.
    #[must_use]
    pub fn new(node: u32, schedule: &Arc<Schedule>, slots: u32) -> Self {
        Self::claiming(node, schedule, slots, ChunkSet::empty())
    }

    /// The part of a node that may have chunks by itself: it asks for none of these before it
    /// was [checked](Self::checked) whether they are there.
    #[must_use]
    pub fn claiming(node: u32, schedule: &Arc<Schedule>, slots: u32, claimed: ChunkSet) -> Self {
        let held = schedule.situation().nodes[node as usize].holds.clone();
        let mut relay = Self {
            node,
            schedule: Arc::clone(schedule),
            inbox: schedule.inbox(node).peekable(),
            outbox: schedule.outbox(node),
            held,
            claims: Claims::new(claimed),
            slots: Window::new(slots),
            wants: Wants::default(),
            asked: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            coming: BTreeSet::new(),
            loading: None,
            sending: Vec::new(),
            sends_ended: 0,
            gone: BTreeSet::new(),
            swarm: None,
            demands: Demands::new(slots),
            reading: BTreeSet::new(),
            actions: VecDeque::new(),
        };
        relay.go_on();
        relay
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The chunks that this node holds, checked and written.
    #[must_use]
    pub fn held(&self) -> &ChunkSet {
        &self.held
    }

    /// Whether this node holds every chunk that there is.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.held.contains_all(self.schedule.situation().chunks)
    }

    /// The chunks that were asked for and have not come, and of which node.
    pub fn outstanding(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.asked.iter().map(|(chunk, (of, _))| (*chunk, *of))
    }

    /// The chunks that were taken back and may still come, and of which node.
    pub fn taken_back(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.cancelled.iter().map(|((of, _), chunk)| (*chunk, *of))
    }

    /// A peer says what it wants of this node.
    ///
    /// # Errors
    /// The peer is at fault.
    pub fn wanted(&mut self, by: u32, chunk: u32, want: ChunkWant) -> Result<(), RelayFault> {
        let chunks = self.schedule.situation().chunks;
        if chunk >= chunks {
            return Err(RelayFault::NoSuchChunk { chunk, chunks });
        }
        let dropped = self.wants.note(by, chunk, want)?;
        if want == ChunkWant::Nothing {
            self.demands.settle(by, chunk);
        }
        if let Some(slot) = dropped {
            self.actions.push_back(Action::Drop { to: by, slot });
        }
        self.go_on();
        Ok(())
    }

    /// A peer has written a chunk into a slot.
    ///
    /// # Errors
    /// The peer is at fault.
    pub fn arrived(&mut self, from: u32, chunk: u32, slot: u32) -> Result<(), RelayFault> {
        if self.asked.get(&chunk) == Some(&(from, slot)) {
            self.asked.remove(&chunk);
        } else if self.cancelled.get(&(from, slot)) == Some(&chunk) {
            self.cancelled.remove(&(from, slot));
            self.coming.remove(&(chunk, from));
        } else {
            return Err(RelayFault::Unasked { chunk, slot });
        }
        self.demands.fulfil(chunk);
        if self.has_come(chunk) {
            self.slots.set(slot, WindowSlot::Free);
        } else {
            self.slots.set(slot, WindowSlot::Kept { chunk });
            self.actions.push_back(Action::Keep { chunk, slot });
            self.cancel(chunk);
        }
        self.go_on();
        Ok(())
    }

    /// A peer will not send a chunk that was asked of it and then cancelled.
    ///
    /// # Errors
    /// The peer is at fault.
    pub fn dropped(&mut self, by: u32, slot: u32) -> Result<(), RelayFault> {
        let chunk = self.cancelled.remove(&(by, slot)).ok_or(RelayFault::NotCancelled { slot })?;
        self.slots.set(slot, WindowSlot::Free);
        self.handle_dropped(chunk, by);
        self.go_on();
        Ok(())
    }

    /// The chunk in a slot is what the source signed: it is passed on while it is being written.
    pub fn verified(&mut self, chunk: u32, slot: u32) {
        if self.slots.state(slot) == Some(WindowSlot::Kept { chunk }) {
            // Writing it holds its slot as sending does.
            self.slots.set(slot, WindowSlot::Held { chunk, sending: 1 });
            self.go_on();
        }
    }

    /// The chunk in a slot was checked and written, or it is not what the source signed: then the
    /// node that sent it [is lost](Self::lost) to this one, and the next schedule says who else
    /// sends it.
    pub fn kept(&mut self, chunk: u32, slot: u32, is_good: bool) {
        match self.slots.state(slot) {
            Some(WindowSlot::Held { .. }) => self.slots.note_sent(slot),
            _ if is_good => self.slots.set(slot, WindowSlot::Held { chunk, sending: 0 }),
            _ => self.slots.set(slot, WindowSlot::Free),
        }
        match is_good {
            true => self.holds(chunk),
            false => self.take_up(chunk),
        }
        self.release(slot);
        self.go_on();
    }

    /// A chunk was read from files into a slot.
    pub fn loaded(&mut self, chunk: u32, slot: u32) {
        self.loading = None;
        self.slots.set(slot, WindowSlot::Held { chunk, sending: 0 });
        self.go_on();
    }

    /// Frees a slot whose chunk is in its files, and which no node will ask for as far as the
    /// schedule says. After a death it is read back.
    fn release(&mut self, slot: u32) {
        let Some(chunk) = self.slots.idle(slot) else { return };
        let is_settled = |to| self.wants.is_settled(to, chunk) || self.gone.contains(&to);
        let is_done = self.held.contains(chunk)
            && self.swarm.is_none()
            && !self.wants.has(chunk)
            && self.outbox.receivers().all(is_settled);
        if is_done {
            self.slots.set(slot, WindowSlot::Free);
        }
    }

    /// A peer's connection has ended: what it was asked for comes from another node, once there is
    /// a schedule without it.
    pub fn lost(&mut self, peer: u32) {
        self.gone.insert(peer);
        if let Some(swarm) = &mut self.swarm {
            swarm.forget(peer);
        }
        self.demands.unask(&self.asked, |of| of == peer);
        self.wants.forget(peer);
        self.demands.forget(peer);
        let asked = self.asked.extract_if(.., |_, (of, _)| *of == peer).map(|(_, (_, slot))| slot);
        let cancelled = self.cancelled.extract_if((peer, 0)..=(peer, u32::MAX), |_, _| true);
        let free: Vec<u32> = asked.chain(cancelled.map(|((_, slot), _)| slot)).collect();
        free.into_iter().for_each(|slot| self.slots.set(slot, WindowSlot::Free));
        let came: Vec<u32> = self.coming.iter().filter(|c| c.1 == peer).map(|c| c.0).collect();
        came.into_iter().for_each(|chunk| self.handle_dropped(chunk, peer));
        let sends = self.sending.extract_if(.., |sending| sending.to == peer);
        sends.for_each(|sending| self.slots.note_sent(sending.slot));
        self.go_on();
    }

    /// What may be here by itself is known better: these chunks and no others.
    pub fn claim(&mut self, claimed: ChunkSet) {
        let asked: Vec<u32> = self.asked.keys().copied().filter(|c| claimed.contains(*c)).collect();
        asked.into_iter().for_each(|chunk| self.cancel(chunk));
        self.claims = Claims::new(claimed);
        self.demands.take_up(|_| true);
        self.inbox = self.schedule.inbox(self.node).peekable();
        self.go_on();
    }

    /// Whether a chunk may be here by itself, and was not checked.
    #[must_use]
    pub fn is_claimed(&self, chunk: u32) -> bool {
        self.claims.is_open(chunk) && !self.held.contains(chunk)
    }

    /// A chunk that was claimed is here, verified and written, or it is not.
    pub fn checked(&mut self, chunk: u32, is_here: bool) {
        if is_here {
            self.cancel(chunk);
            self.holds(chunk);
        } else {
            self.claims.refute(chunk);
            self.take_up(chunk);
        }
        self.demands.take_up(|known| known == chunk);
        self.go_on();
    }

    fn holds(&mut self, chunk: u32) {
        self.held.insert(chunk);
        if let Some(swarm) = &mut self.swarm {
            swarm.obtained(chunk);
        }
        if let Some(from) = self.claims.confirm(chunk) {
            self.tell(from, chunk, ChunkWant::Nothing);
        }
    }

    /// A peer whose connection had ended has another one.
    pub fn back(&mut self, peer: u32) {
        self.gone.remove(&peer);
        self.go_on();
    }

    /// Whether what is sent to a node crosses a link between switches.
    #[must_use]
    pub fn crosses(&self, to: u32) -> bool {
        self.schedule.switches().are_apart(self.node, to)
    }

    /// The nodes that want of this one what it holds and has not begun to send to them.
    #[must_use]
    pub fn owes(&self) -> BTreeSet<u32> {
        if self.holds_back() {
            return BTreeSet::new();
        }
        self.wants.all().filter(|(_, chunk)| self.held.contains(*chunk)).map(|(by, _)| by).collect()
    }

    /// Goes on without a schedule, by what [peers hold](Self::peer_holds).
    pub fn leave_schedule(&mut self) {
        let Situation { chunks, nodes, .. } = self.schedule.situation();
        self.swarm = Some(Swarm::new(self.node, nodes.len(), *chunks));
        self.wants.serve_all();
        self.take_back();
        self.go_on();
    }

    /// A peer says what it holds: chunks of this cast. Counts [without a
    /// schedule](Self::leave_schedule) alone.
    pub fn peer_holds(&mut self, peer: u32, holds: ChunkSet) {
        if let Some(swarm) = self.swarm.as_mut().filter(|_| !self.gone.contains(&peer)) {
            let lacking = self.held.missing(self.schedule.situation().chunks);
            swarm.note(peer, holds, lacking.iter());
            self.go_on();
        }
    }

    /// Goes on by another schedule of the same cast.
    pub fn replan(&mut self, schedule: &Arc<Schedule>) {
        self.swarm = None;
        self.schedule = Arc::clone(schedule);
        self.inbox = schedule.inbox(self.node).peekable();
        self.outbox = schedule.outbox(self.node);
        self.wants.keep_as_leftovers();
        self.take_back();
        self.await_relays();
        self.go_on();
    }

    /// Asks and sends what can be asked and sent now.
    fn go_on(&mut self) {
        self.ask();
        while self.send_next() {}
    }
}
