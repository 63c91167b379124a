//! Decides which client is asked for a job when a slot is free: a plain value without clock or
//! network.
//!
//! The client with the fewest jobs here is asked first. A client that had no job is not asked
//! again; it sends its next job unasked. If no slot is free when that job arrives, the job is sent
//! back, and the client is asked when a slot is free. A client that was asked and says nothing for
//! some ticks, as one that is stopped, keeps no slot from the others any more. All clients of one
//! identity together have no more slots than the identity may have. A client's slots have numbers
//! of its own, from 0.

use outboard_secure::NodeId;
use std::collections::BTreeMap;

/// Identifies a client's session; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u32);

/// Ticks after which a client that was asked keeps no free slot any more.
const ANSWER_TICKS_MAX: u32 = 2;

/// The slots of a server; see the [module](self).
#[derive(Debug)]
pub(crate) struct SlotAllocator {
    slots: u32,
    clients: BTreeMap<ClientId, ClientSlots>,
}

/// What one client has.
#[derive(Debug)]
struct ClientSlots {
    identity: NodeId,
    /// Slots of its identity, at most.
    slots_max: u32,
    standing: Standing,
    /// Which of its slots have a job.
    taken: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The client may have jobs and can be asked.
    Open,
    /// The client was asked and has not answered since.
    Asked { ticks: u32 },
    /// The client was asked long ago: its answer is heard, but no slot is kept for it.
    Silent,
    /// The client had no job and sends its next one unasked.
    Armed,
}

impl ClientSlots {
    fn running(&self) -> usize {
        self.taken.iter().filter(|is_taken| **is_taken).count()
    }

    fn is_asked(&self) -> bool {
        matches!(self.standing, Standing::Asked { .. })
    }
}

impl SlotAllocator {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots, clients: BTreeMap::new() }
    }

    /// The number of slots, and of free slots.
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.slots as usize, self.free())
    }

    /// The slots of a client whose identity may have `slots_max`.
    pub(crate) fn most(&self, slots_max: u32) -> u32 {
        self.slots.min(slots_max)
    }

    /// A client may have jobs from now on.
    pub(crate) fn add(&mut self, client: ClientId, identity: NodeId, slots_max: u32) {
        let slots_max = self.most(slots_max);
        let taken = vec![false; slots_max as usize];
        let standing = Standing::Open;
        self.clients.insert(client, ClientSlots { identity, slots_max, standing, taken });
    }

    /// A client is gone, and its slots are free.
    pub(crate) fn remove(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Some time has passed: the same time from call to call.
    pub(crate) fn tick(&mut self) {
        for at in self.clients.values_mut() {
            at.standing = match at.standing {
                Standing::Asked { ticks } if ticks + 1 >= ANSWER_TICKS_MAX => Standing::Silent,
                Standing::Asked { ticks } => Standing::Asked { ticks: ticks + 1 },
                standing => standing,
            };
        }
    }

    /// The client to ask now.
    pub(crate) fn poll(&mut self) -> Option<ClientId> {
        let asked = self.clients.values().filter(|at| at.is_asked()).count();
        if asked >= self.free() {
            return None;
        }
        let open = self.clients.iter().filter(|(_, at)| at.standing == Standing::Open);
        let open = open.filter(|(_, at)| self.has_left(at));
        let client = open.map(|(id, at)| (at.running(), *id)).min()?.1;
        self.clients.get_mut(&client)?.standing = Standing::Asked { ticks: 0 };
        Some(client)
    }

    /// Whether a client's identity may have a slot besides those that its clients have or were
    /// asked to fill.
    fn has_left(&self, client: &ClientSlots) -> bool {
        let its = self.clients.values().filter(|at| at.identity == client.identity);
        let used = its.map(|at| at.running() + usize::from(at.is_asked())).sum::<usize>();
        used < client.slots_max as usize
    }

    /// A client has no job now.
    pub(crate) fn idle(&mut self, client: ClientId) {
        if let Some(at) = self.clients.get_mut(&client) {
            at.standing = Standing::Armed;
        }
    }

    /// Gives a client's job a slot, if one is free.
    pub(crate) fn take(&mut self, client: ClientId) -> Option<u32> {
        self.clients.get_mut(&client)?.standing = Standing::Open;
        if self.free() == 0 || !self.has_left(self.clients.get(&client)?) {
            return None;
        }
        let taken = &mut self.clients.get_mut(&client)?.taken;
        let slot = taken.iter().position(|is_taken| !is_taken)?;
        taken[slot] = true;
        u32::try_from(slot).ok()
    }

    /// A client's slot is free again.
    pub(crate) fn release(&mut self, client: ClientId, slot: u32) {
        let taken = self.clients.get_mut(&client).map(|at| &mut at.taken);
        if let Some(is_taken) = taken.and_then(|taken| taken.get_mut(slot as usize)) {
            *is_taken = false;
        }
    }

    fn free(&self) -> usize {
        let taken: usize = self.clients.values().map(ClientSlots::running).sum();
        (self.slots as usize).saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);
    const THREE: ClientId = ClientId(3);

    /// Clients of different identities.
    fn slots(slots: u32, clients: &[ClientId]) -> SlotAllocator {
        let mut slots = SlotAllocator::new(slots);
        for client in clients {
            slots.add(*client, identity(client.0), u32::MAX);
        }
        slots
    }

    fn identity(number: u32) -> NodeId {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        NodeId::of(&bytes)
    }

    #[test]
    fn no_client_is_asked_without_a_free_slot() {
        let mut slots = slots(1, &[ONE, TWO]);
        assert_eq!(slots.poll(), Some(ONE));
        assert_eq!(slots.poll(), None, "the client that was asked may use the only slot");
        assert_eq!(slots.take(ONE), Some(0));
        assert_eq!(slots.poll(), None);
        slots.release(ONE, 0);
        assert_eq!(slots.poll(), Some(ONE));
    }

    #[test]
    fn the_client_with_the_fewest_jobs_is_asked_first() {
        let mut slots = slots(3, &[ONE, TWO]);
        assert_eq!(slots.poll(), Some(ONE));
        assert_eq!(slots.take(ONE), Some(0));
        assert_eq!(slots.poll(), Some(TWO));
        assert_eq!(slots.poll(), Some(ONE));
        assert_eq!(slots.take(ONE), Some(1));
        assert_eq!(slots.take(TWO), Some(0), "each client has numbers of its own");
        slots.release(ONE, 0);
        slots.release(ONE, 1);
        assert_eq!(slots.poll(), Some(ONE), "one of its two is left to none");
    }

    #[test]
    fn a_client_without_jobs_is_not_asked_and_sends_unasked() {
        let mut slots = slots(2, &[ONE]);
        assert_eq!(slots.poll(), Some(ONE));
        slots.idle(ONE);
        assert_eq!(slots.poll(), None);
        assert_eq!(slots.take(ONE), Some(0));
        assert_eq!(slots.poll(), Some(ONE), "a client that had a job may have more");
    }

    #[test]
    fn an_unasked_job_without_a_slot_goes_back_and_its_client_is_asked_next() {
        let mut slots = slots(1, &[ONE, TWO]);
        assert_eq!(slots.poll(), Some(ONE));
        slots.idle(ONE);
        assert_eq!(slots.poll(), Some(TWO));
        assert_eq!(slots.take(TWO), Some(0));
        assert_eq!(slots.take(ONE), None);
        slots.release(TWO, 0);
        assert_eq!(slots.poll(), Some(ONE));
    }

    #[test]
    fn a_client_that_does_not_answer_keeps_no_slot_for_long() {
        let mut slots = slots(2, &[ONE, TWO]);
        assert_eq!(slots.take(ONE), Some(0));
        assert_eq!(slots.poll(), Some(TWO));
        slots.idle(TWO);
        assert_eq!(slots.poll(), Some(ONE), "it is stopped now, and does not answer");
        assert_eq!(slots.take(TWO), Some(0));
        slots.release(TWO, 0);
        slots.tick();
        assert_eq!(slots.poll(), None, "it still has time");
        slots.tick();
        assert_eq!([slots.poll(), slots.poll()], [Some(TWO), None], "it is not asked again");
        assert_eq!(slots.take(TWO), Some(0));
        assert_eq!(slots.take(ONE), None, "its late job goes back");
        slots.release(TWO, 0);
        assert_eq!(slots.poll(), Some(TWO));
        assert_eq!(slots.take(ONE), Some(1), "it answered, and a slot is free");
    }

    #[test]
    fn slots_of_a_client_that_is_gone_are_free() {
        let mut slots = slots(3, &[ONE, TWO]);
        assert_eq!([ONE, TWO, ONE].map(|client| slots.take(client)), [0, 0, 1].map(Some));
        slots.remove(ONE);
        assert_eq!((slots.poll(), slots.slots()), (Some(TWO), (3, 2)));
        slots.release(ONE, 0);
        assert_eq!(slots.slots(), (3, 2), "released twice");
    }

    #[test]
    fn an_identity_has_no_more_slots_than_it_may_have_in_all_its_sessions() {
        let mut slots = SlotAllocator::new(8);
        slots.add(ONE, identity(1), 2);
        slots.add(TWO, identity(1), 2);
        slots.add(THREE, identity(3), u32::MAX);
        assert_eq!([slots.poll(), slots.poll()], [ONE, TWO].map(Some));
        assert_eq!([ONE, TWO, ONE].map(|client| slots.take(client)), [Some(0), Some(0), None]);
        assert_eq!(slots.poll(), Some(THREE), "the others have six left");
        slots.idle(THREE);
        assert_eq!(slots.poll(), None);
        slots.release(TWO, 0);
        assert_eq!((slots.poll(), slots.poll()), (Some(TWO), None));
        assert_eq!(slots.take(ONE), None, "the slot is spoken for");
        assert_eq!(slots.take(TWO), Some(0));
    }

    #[test]
    fn an_identity_without_slots_is_not_asked() {
        let mut slots = SlotAllocator::new(8);
        slots.add(ONE, identity(1), 0);
        assert_eq!((slots.poll(), slots.take(ONE), slots.most(0)), (None, None, 0));
    }
}
