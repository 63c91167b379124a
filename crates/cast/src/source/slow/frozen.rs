//! Which relays' disks do not answer: a value without I/O that is given the time.
//!
//! Such a relay has chunks that it has checked and cannot write, and gains none. It answers, and
//! when its memory is full it asks for nothing more: neither silence nor a wait shows it, and all
//! behind it wait for what it cannot hold. Where the disks of most stop at once, they share one,
//! and another order of the nodes would not help.

use super::NodeStanding;
use crate::protocol::NodeReport;
use crate::schedule::NodeRole;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A disk that has written nothing for this long does not answer.
const FROZEN_FOR: Duration = Duration::from_secs(2);
/// At most one node in this many is found, counting those that have written nothing for
/// `DOUBTFUL_FOR`.
const SHARE: usize = 2;
const DOUBTFUL_FOR: Duration = Duration::from_secs(1);

/// A node that has chunks to write.
#[derive(Clone, Copy, Debug)]
struct UnwrittenChunks {
    held: u64,
    steps: u64,
    /// Since when it has gained nothing.
    since: Instant,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::source) struct FrozenWatch {
    unwritten: BTreeMap<u32, UnwrittenChunks>,
}

impl FrozenWatch {
    /// A node says how it is doing.
    pub(in crate::source) fn report(&mut self, now: Instant, node: u32, report: &NodeReport) {
        let (held, steps) = (report.held.len(), report.steps);
        if report.unwritten_chunks == 0 {
            self.unwritten.remove(&node);
            return;
        }
        let new = UnwrittenChunks { held, steps, since: now };
        let known = self.unwritten.entry(node).or_insert(new);
        if held > known.held || steps > known.steps {
            *known = new;
        }
    }

    /// A node takes no part any more; it may begin anew.
    pub(in crate::source) fn forget(&mut self, node: u32) {
        self.unwritten.remove(&node);
    }

    pub(in crate::source) fn held_up(&mut self, now: Instant, late: Duration) {
        self.unwritten.values_mut().for_each(|known| known.since = now.min(known.since + late));
    }

    /// The relays whose disks do not answer: of the nodes, without the source.
    pub(in crate::source) fn find(&self, now: Instant, nodes: &[NodeStanding]) -> Vec<u32> {
        let is_for = |known: &UnwrittenChunks, span| now >= known.since + span;
        if !self.unwritten.values().any(|known| is_for(known, FROZEN_FOR)) {
            return Vec::new();
        }
        let ready = nodes.iter().filter(|node| node.role != NodeRole::Dead).count();
        let doubtful = self.unwritten.values().filter(|known| is_for(known, DOUBTFUL_FOR)).count();
        if doubtful * SHARE > ready {
            return Vec::new();
        }
        let is_frozen = |node: &&NodeStanding| {
            let known = self.unwritten.get(&node.number);
            node.role == NodeRole::Relay && known.is_some_and(|known| is_for(known, FROZEN_FOR))
        };
        nodes.iter().filter(is_frozen).map(|node| node.number).collect()
    }
}

#[cfg(test)]
mod tests;
