//! Bounded work at home: as many slots as cores, first come, first served.

use std::collections::VecDeque;

/// Names a wrapper's connection. Never used twice.
pub(super) type Id = u64;

/// Slots and those who wait for one.
#[derive(Debug)]
pub(super) struct Slots {
    holders: Vec<Option<Id>>,
    queue: VecDeque<Id>,
}

impl Slots {
    /// `count` slots, all free.
    pub(super) fn new(count: usize) -> Self {
        Self { holders: vec![None; count.max(1)], queue: VecDeque::new() }
    }

    /// Puts `id` at the queue's end.
    pub(super) fn wait(&mut self, id: Id) {
        self.queue.push_back(id);
    }

    /// Gives a slot to who has waited longest; the slot's number comes along.
    pub(super) fn grant(&mut self) -> Option<(Id, usize)> {
        let slot = self.holders.iter().position(Option::is_none)?;
        let id = self.queue.pop_front()?;
        self.holders[slot] = Some(id);
        Some((id, slot))
    }

    /// `id` has gone: it waits no more and holds no slot.
    pub(super) fn leave(&mut self, id: Id) {
        match self.holders.iter_mut().find(|holder| **holder == Some(id)) {
            Some(holder) => *holder = None,
            None => self.queue.retain(|waiting| *waiting != id),
        }
    }

    /// A slot is free and nobody waits for it.
    pub(super) fn is_free(&self) -> bool {
        self.queue.is_empty() && self.holders.iter().any(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_to_who_came_first_and_come_back() {
        let mut slots = Slots::new(2);
        assert!(slots.is_free());
        (1..=4).for_each(|id| slots.wait(id));
        assert_eq!(
            (slots.grant(), slots.grant(), slots.grant()),
            (Some((1, 0)), Some((2, 1)), None)
        );
        assert!(!slots.is_free());
        slots.leave(3);
        slots.leave(1);
        assert_eq!((slots.grant(), slots.grant()), (Some((4, 0)), None));
        slots.leave(2);
        assert!(slots.is_free());
    }

    #[test]
    fn there_is_at_least_one_slot() {
        let mut slots = Slots::new(0);
        slots.wait(7);
        assert_eq!(slots.grant(), Some((7, 0)));
    }
}
