//! The kernel of a simulation: events, in the order of their time. Knows no network.
//!
//! One thread; the same events in the same order whenever it is run. Of events at the same time the
//! one that was added first comes first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events that are to come, and the time of the latest that came.
#[derive(Debug)]
pub struct Kernel<E> {
    now_ns: u64,
    added: u64,
    events: BinaryHeap<Reverse<TimedEvent<E>>>,
}

/// Ordered by its time and its number; the event itself has no order.
#[derive(Debug)]
struct TimedEvent<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> TimedEvent<E> {
    fn order(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl<E> PartialEq for TimedEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for TimedEvent<E> {}

impl<E> PartialOrd for TimedEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for TimedEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl<E> Default for Kernel<E> {
    fn default() -> Self {
        Self { now_ns: 0, added: 0, events: BinaryHeap::new() }
    }
}

impl<E> Kernel<E> {
    /// Nanoseconds since the beginning.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Adds an event at a time; at a time that has passed, it comes now.
    pub fn add(&mut self, at_ns: u64, event: E) {
        let at_ns = at_ns.max(self.now_ns);
        self.events.push(Reverse(TimedEvent { at_ns, number: self.added, event }));
        self.added += 1;
    }

    /// The next event; its time is now.
    pub fn next_event(&mut self) -> Option<E> {
        let Reverse(TimedEvent { at_ns, event, .. }) = self.events.pop()?;
        self.now_ns = at_ns;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_adding() {
        let mut kernel = Kernel::default();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (5, 'e')] {
            kernel.add(at, name);
        }
        let mut seen = Vec::new();
        while let Some(name) = kernel.next_event() {
            seen.push((kernel.now_ns(), name));
        }
        assert_eq!(seen, [(1, 'a'), (3, 'b'), (5, 'c'), (5, 'd'), (5, 'e')]);
    }

    #[test]
    fn time_never_goes_back() {
        let mut kernel = Kernel::default();
        kernel.add(9, 'a');
        assert_eq!(kernel.next_event(), Some('a'));
        kernel.add(3, 'b');
        assert_eq!((kernel.next_event(), kernel.now_ns()), (Some('b'), 9));
        assert_eq!(kernel.next_event(), None);
    }
}
