//! Which identities have how many bytes of modules, so that all together are bounded: anybody with
//! the key can make identities.
//!
//! Modules of identities without a connection stay, until others need the room: they are loaded
//! again when they are missed.

use outboard_secure::NodeId;
use std::collections::{HashMap, VecDeque};

#[derive(Debug, Default)]
struct IdentityHoldings {
    bytes: usize,
    sessions: usize,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct ModuleHolders {
    holders: HashMap<NodeId, IdentityHoldings>,
    /// Those without a connection, as they left.
    absent: VecDeque<NodeId>,
    bytes: usize,
}

impl ModuleHolders {
    pub(super) fn arrived(&mut self, node: NodeId) {
        let holder = self.holders.entry(node).or_default();
        holder.sessions += 1;
        if holder.sessions == 1 {
            self.absent.retain(|absent| *absent != node);
        }
    }

    pub(super) fn left(&mut self, node: NodeId) {
        let Some(holder) = self.holders.get_mut(&node) else { return };
        holder.sessions = holder.sessions.saturating_sub(1);
        if holder.sessions > 0 {
            return;
        }
        match holder.bytes {
            0 => drop(self.holders.remove(&node)),
            _ => self.absent.push_back(node),
        }
    }

    /// Bytes of an identity's modules, after it has loaded or lost one.
    pub(super) fn set(&mut self, node: NodeId, bytes: usize) {
        let is_new = !self.holders.contains_key(&node);
        let holder = self.holders.entry(node).or_default();
        self.bytes = self.bytes - holder.bytes + bytes;
        holder.bytes = bytes;
        let is_absent = holder.sessions == 0;
        match (is_absent, bytes) {
            (true, 0) => {
                self.holders.remove(&node);
                self.absent.retain(|absent| *absent != node);
            }
            // It left while its module was being compiled.
            (true, _) if is_new => self.absent.push_back(node),
            _ => {}
        }
    }

    /// Whether so many bytes more are within the limit.
    pub(super) fn has_room(&self, bytes: usize, limit: usize) -> bool {
        self.bytes.saturating_add(bytes) <= limit
    }

    /// The identity whose modules are to go first.
    pub(super) fn oldest_absent(&self) -> Option<NodeId> {
        self.absent.front().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_left_first_make_room_first() {
        let mut holders = ModuleHolders::default();
        let [one, two, three] = [1, 2, 3].map(|byte| NodeId::of(&[byte; 32]));
        for node in [one, two, three] {
            holders.arrived(node);
            holders.set(node, 100);
        }
        assert!(holders.has_room(0, 300) && !holders.has_room(1, 300));
        assert_eq!(holders.oldest_absent(), None, "all are there");
        holders.arrived(two);
        holders.left(two);
        assert_eq!(holders.oldest_absent(), None, "it has another connection");
        holders.left(two);
        holders.left(one);
        holders.arrived(one);
        holders.left(one);
        assert_eq!(holders.oldest_absent(), Some(two));
        holders.set(two, 0);
        assert_eq!(holders.oldest_absent(), Some(one));
        assert!(holders.has_room(100, 300));
        holders.set(one, 0);
        holders.left(three);
        holders.set(three, 0);
        assert_eq!((holders.bytes, holders.holders.len(), holders.absent.len()), (0, 0, 0));
        // It left before its module was compiled.
        holders.set(two, 50);
        assert_eq!(holders.oldest_absent(), Some(two));
        holders.arrived(two);
        assert_eq!(holders.oldest_absent(), None);
    }
}
