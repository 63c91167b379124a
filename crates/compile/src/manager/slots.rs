//! Slots for local compilers: as many as cores, first come, first served.

use std::collections::VecDeque;

/// Identifies a wrapper's connection. A number is never used twice.
pub(super) type Id = u64;

/// Slots, and the queue of wrappers that wait for one.
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

    /// Gives a free slot to the wrapper that has waited longest; returns both.
    pub(super) fn grant(&mut self) -> Option<(Id, usize)> {
        let slot = self.holders.iter().position(Option::is_none)?;
        let id = self.queue.pop_front()?;
        self.holders[slot] = Some(id);
        Some((id, slot))
    }

    /// Takes `id` out of the queue, or its slot away.
    pub(super) fn leave(&mut self, id: Id) {
        match self.holders.iter_mut().find(|holder| **holder == Some(id)) {
            Some(holder) => *holder = None,
            None => self.queue.retain(|waiting| *waiting != id),
        }
    }

    /// Whether a slot is free and no wrapper waits for it.
    pub(super) fn is_free(&self) -> bool {
        self.queue.is_empty() && self.holders.iter().any(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_granted_in_order_and_returned() {
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
