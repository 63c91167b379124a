//! Decides which client is asked for a job when a slot is free: a plain value without clock or
//! network.
//!
//! The client with the fewest jobs here is asked first. A client that had no job is not asked
//! again; it sends its next job unasked. If no slot is free when that job arrives, the job is sent
//! back, and the client is asked when a slot is free.

use std::collections::BTreeMap;

/// Identifies a client's session; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u32);

/// The slots of a server; see the [module](self).
#[derive(Debug)]
pub(crate) struct SlotAllocator {
    slots: Vec<Option<ClientId>>,
    clients: BTreeMap<ClientId, Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The client may have jobs and can be asked.
    Open,
    /// The client was asked and has not answered.
    Asked,
    /// The client had no job and sends its next one unasked.
    Armed,
}

impl SlotAllocator {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots: vec![None; slots as usize], clients: BTreeMap::new() }
    }

    /// The number of slots, and of free slots.
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.slots.len(), self.free())
    }

    pub(crate) fn add(&mut self, client: ClientId) {
        self.clients.insert(client, Standing::Open);
    }

    /// A client is gone. Its slots stay taken until they are released.
    pub(crate) fn remove(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// The client to ask now.
    pub(crate) fn poll(&mut self) -> Option<ClientId> {
        let asked = self.clients.values().filter(|at| **at == Standing::Asked).count();
        if asked >= self.free() {
            return None;
        }
        let open = self.clients.iter().filter(|(_, at)| **at == Standing::Open);
        let client = open.map(|(id, _)| *id).min_by_key(|id| (self.running(*id), *id))?;
        self.clients.insert(client, Standing::Asked);
        Some(client)
    }

    /// A client has no job now.
    pub(crate) fn idle(&mut self, client: ClientId) {
        if let Some(standing) = self.clients.get_mut(&client) {
            *standing = Standing::Armed;
        }
    }

    /// Gives a client's job a slot, if one is free.
    pub(crate) fn take(&mut self, client: ClientId) -> Option<u32> {
        *self.clients.get_mut(&client)? = Standing::Open;
        let at = self.slots.iter().position(Option::is_none)?;
        self.slots[at] = Some(client);
        u32::try_from(at).ok()
    }

    /// A slot is free again.
    pub(crate) fn release(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            *slot = None;
        }
    }

    /// Frees all slots of a client.
    pub(crate) fn release_all(&mut self, client: ClientId) {
        let slots = self.slots.iter_mut().filter(|slot| **slot == Some(client));
        slots.for_each(|slot| *slot = None);
    }

    /// The number of slots that a client has.
    pub(crate) fn running(&self, client: ClientId) -> usize {
        self.slots.iter().filter(|slot| **slot == Some(client)).count()
    }

    fn free(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);

    fn slots(slots: u32, clients: &[ClientId]) -> SlotAllocator {
        let mut slots = SlotAllocator::new(slots);
        for client in clients {
            slots.add(*client);
        }
        slots
    }

    #[test]
    fn no_client_is_asked_without_a_free_slot() {
        let mut slots = slots(1, &[ONE, TWO]);
        assert_eq!(slots.poll(), Some(ONE));
        assert_eq!(slots.poll(), None, "the client that was asked may use the only slot");
        assert_eq!(slots.take(ONE), Some(0));
        assert_eq!(slots.poll(), None);
        slots.release(0);
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
        assert_eq!(slots.take(TWO), Some(2));
        slots.release(0);
        slots.release(1);
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
        slots.release(0);
        assert_eq!(slots.poll(), Some(ONE));
    }

    #[test]
    fn slots_of_a_client_that_is_gone_are_free_when_they_are_released() {
        let mut slots = slots(3, &[ONE, TWO]);
        assert_eq!([slots.take(ONE), slots.take(TWO), slots.take(ONE)], [0, 1, 2].map(Some));
        slots.remove(ONE);
        assert_eq!((slots.poll(), slots.slots()), (None, (3, 0)));
        slots.release_all(ONE);
        assert_eq!((slots.poll(), slots.slots()), (Some(TWO), (3, 2)));
    }
}
