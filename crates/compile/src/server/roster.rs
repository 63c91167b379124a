//! Which client is asked for work when a slot is free: a plain value without clock or network.
//!
//! The client with the fewest jobs here is asked first. One that had nothing is not asked again; it
//! sends its next job unasked. If no slot is free then, the job goes back and the client is asked
//! when one is.

use std::collections::BTreeMap;

/// Names a client's session; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u32);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Roster {
    slots: Vec<Option<ClientId>>,
    clients: BTreeMap<ClientId, Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It may have work: worth asking.
    Open,
    /// It was asked and has not answered.
    Asked,
    /// It had none and sends what comes.
    Armed,
}

impl Roster {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots: vec![None; slots as usize], clients: BTreeMap::new() }
    }

    /// Slots, and those that are free.
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

    /// Whom to ask now.
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

    /// A client has nothing now.
    pub(crate) fn idle(&mut self, client: ClientId) {
        if let Some(standing) = self.clients.get_mut(&client) {
            *standing = Standing::Armed;
        }
    }

    /// A client's job takes a slot, if one is free.
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

    /// Nothing of a client runs any more.
    pub(crate) fn release_all(&mut self, client: ClientId) {
        let slots = self.slots.iter_mut().filter(|slot| **slot == Some(client));
        slots.for_each(|slot| *slot = None);
    }

    /// Slots that a client has.
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

    fn roster(slots: u32, clients: &[ClientId]) -> Roster {
        let mut roster = Roster::new(slots);
        for client in clients {
            roster.add(*client);
        }
        roster
    }

    #[test]
    fn nobody_is_asked_without_a_free_slot() {
        let mut roster = roster(1, &[ONE, TWO]);
        assert_eq!(roster.poll(), Some(ONE));
        assert_eq!(roster.poll(), None, "the only slot is spoken for");
        assert_eq!(roster.take(ONE), Some(0));
        assert_eq!(roster.poll(), None);
        roster.release(0);
        assert_eq!(roster.poll(), Some(ONE));
    }

    #[test]
    fn who_has_fewest_is_asked_first() {
        let mut roster = roster(3, &[ONE, TWO]);
        assert_eq!(roster.poll(), Some(ONE));
        assert_eq!(roster.take(ONE), Some(0));
        assert_eq!(roster.poll(), Some(TWO));
        assert_eq!(roster.poll(), Some(ONE));
        assert_eq!(roster.take(ONE), Some(1));
        assert_eq!(roster.take(TWO), Some(2));
        roster.release(0);
        roster.release(1);
        assert_eq!(roster.poll(), Some(ONE), "one of its two is left to none");
    }

    #[test]
    fn who_had_nothing_is_left_alone_and_sends_unasked() {
        let mut roster = roster(2, &[ONE]);
        assert_eq!(roster.poll(), Some(ONE));
        roster.idle(ONE);
        assert_eq!(roster.poll(), None);
        assert_eq!(roster.take(ONE), Some(0));
        assert_eq!(roster.poll(), Some(ONE), "where one job came from there may be more");
    }

    #[test]
    fn an_unasked_job_without_a_slot_goes_back_and_its_client_is_asked_next() {
        let mut roster = roster(1, &[ONE, TWO]);
        assert_eq!(roster.poll(), Some(ONE));
        roster.idle(ONE);
        assert_eq!(roster.poll(), Some(TWO));
        assert_eq!(roster.take(TWO), Some(0));
        assert_eq!(roster.take(ONE), None);
        roster.release(0);
        assert_eq!(roster.poll(), Some(ONE));
    }

    #[test]
    fn slots_of_a_client_that_is_gone_are_free_when_they_are_released() {
        let mut roster = roster(3, &[ONE, TWO]);
        assert_eq!([roster.take(ONE), roster.take(TWO), roster.take(ONE)], [0, 1, 2].map(Some));
        roster.remove(ONE);
        assert_eq!((roster.poll(), roster.slots()), (None, (3, 0)));
        roster.release_all(ONE);
        assert_eq!((roster.poll(), roster.slots()), (Some(TWO), (3, 2)));
    }
}
