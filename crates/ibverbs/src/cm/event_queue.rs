//! Events that wait for a program, the oldest first. What waits about one identifier is found
//! without a look at the others, of which there may be thousands. Knows only their keys.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// By when they came, with the key of their identifier.
    waiting: BTreeMap<u64, (u64, T)>,
    /// By key: when they came.
    about: HashMap<u64, VecDeque<u64>>,
    last: u64,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), about: HashMap::new(), last: 0 }
    }
}

impl<T> EventQueue<T> {
    /// Adds an event about the identifier with this key.
    pub(crate) fn push(&mut self, key: u64, event: T) {
        self.last += 1;
        self.waiting.insert(self.last, (key, event));
        self.about.entry(key).or_default().push_back(self.last);
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (_, (key, event)) = self.waiting.pop_first()?;
        // The oldest of all is the oldest about its identifier.
        let left = self.about.get_mut(&key).map_or(0, |came| {
            came.pop_front();
            came.len()
        });
        if left == 0 {
            self.about.remove(&key);
        }
        Some(event)
    }

    /// Takes everything about one identifier.
    pub(crate) fn take(&mut self, key: u64) -> Vec<T> {
        let came = self.about.remove(&key).unwrap_or_default();
        came.iter().filter_map(|at| self.waiting.remove(at)).map(|(_, event)| event).collect()
    }

    pub(crate) fn has(&self, key: u64) -> bool {
        self.about.contains_key(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> EventQueue<&'static str> {
        let mut queue = EventQueue::default();
        for (key, event) in [(1, "a"), (2, "b"), (1, "c"), (3, "d"), (2, "e")] {
            queue.push(key, event);
        }
        queue
    }

    #[test]
    fn the_oldest_comes_first() {
        let mut queue = filled();
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, ["a", "b", "c", "d", "e"]);
        assert!(queue.about.is_empty() && queue.len() == 0);
    }

    #[test]
    fn one_identifiers_events_are_taken_in_order_and_the_others_stay() {
        let mut queue = filled();
        assert_eq!(queue.pop(), Some("a"));
        assert_eq!(queue.take(2), ["b", "e"]);
        assert!(!queue.has(2) && queue.has(1));
        assert_eq!(queue.take(2), [""; 0]);
        queue.push(2, "f");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, ["c", "d", "f"]);
    }
}
