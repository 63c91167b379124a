//! Limits the sessions and slots of a service that one identity has: each session holds a permit,
//! and gives it back when it is dropped.
//!
//! Identities are counted, and not keys, because a key may be shared.

use super::config::Grant;
use outboard_secure::NodeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Permits of one service.
#[derive(Debug, Default)]
pub(super) struct Permits {
    held: Mutex<HashMap<NodeId, u32>>,
}

/// What one session may use. To be kept as long as the session is used.
#[derive(Debug)]
pub struct Permit {
    node: NodeId,
    slots: u32,
    permits: Arc<Permits>,
}

impl Permits {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one more session of a node; `None` when the node has as many as it may have.
    pub(super) fn take(self: &Arc<Self>, node: NodeId, grant: Grant) -> Option<Permit> {
        let mut held = self.lock();
        let count = held.entry(node).or_default();
        if *count >= grant.sessions {
            return None;
        }
        *count += 1;
        Some(Permit { node, slots: grant.slots, permits: Arc::clone(self) })
    }
}

impl Permit {
    /// A permit of a service that runs outside a node: nothing counts it.
    #[must_use]
    pub fn outside_a_node(node: NodeId, slots: u32) -> Self {
        Self { node, slots, permits: Arc::default() }
    }

    /// Which identity.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Slots of the service that all sessions of this identity together may have.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.permits.lock();
        if let Some(count) = held.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_as_many_as_it_may_and_then_as_many_again() {
        let permits = Arc::new(Permits::default());
        let grant = Grant { sessions: 2, slots: 3 };
        let [one, other] = [NodeId::of(&[1; 32]), NodeId::of(&[2; 32])];
        let first = permits.take(one, grant).expect("the first");
        let _second = permits.take(one, grant).expect("the second");
        assert!(permits.take(one, grant).is_none());
        assert_eq!(permits.take(other, grant).expect("another's").slots(), 3);
        drop(first);
        permits.take(one, grant).expect("there is room again");
        assert_eq!(permits.lock().len(), 1, "only those that have some are counted");
    }
}
