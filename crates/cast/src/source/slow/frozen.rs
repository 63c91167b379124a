//! Which relays' disks do not answer: a value without I/O that is given the time.
//!
//! Such a relay has chunks that it has checked and cannot write, and gains none. It answers, and
//! when its memory is full it asks for nothing more: neither silence nor a wait shows it, and all
//! behind it wait for what it cannot hold. Where the disks of most stop at once, they share one,
//! and another order of the nodes would not help.

use super::NodeStanding;
use crate::pause::excuse;
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

/// A node whose reports are farther apart did not run, which says nothing of its disk.
const REPORT_GAP: Duration = Duration::from_secs(1);

/// A node that has chunks to write.
#[derive(Clone, Copy, Debug)]
struct UnwrittenChunks {
    held: u64,
    steps: u64,
    /// Since when it has gained nothing.
    since: Instant,
    /// When it reported last.
    reported: Instant,
}

impl UnwrittenChunks {
    /// Whether it has reported for this long that nothing is written.
    fn is_for(&self, span: Duration) -> bool {
        self.reported >= self.since + span
    }
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
        let new = UnwrittenChunks { held, steps, since: now, reported: now };
        let known = self.unwritten.entry(node).or_insert(new);
        if held > known.held || steps > known.steps {
            *known = new;
        }
        let gap = now.saturating_duration_since(known.reported);
        if gap > REPORT_GAP {
            excuse(&mut known.since, now, gap);
        }
        known.reported = now;
    }

    /// A node takes no part any more; it may begin anew.
    pub(in crate::source) fn forget(&mut self, node: u32) {
        self.unwritten.remove(&node);
    }

    pub(in crate::source) fn held_up(&mut self, now: Instant, late: Duration) {
        let times = self.unwritten.values_mut();
        let times = times.flat_map(|known| [&mut known.since, &mut known.reported]);
        times.for_each(|since| excuse(since, now, late));
    }

    /// The relays whose disks do not answer: of the nodes, without the source.
    pub(in crate::source) fn find(&self, nodes: &[NodeStanding]) -> Vec<u32> {
        if !self.unwritten.values().any(|known| known.is_for(FROZEN_FOR)) {
            return Vec::new();
        }
        let ready = nodes.iter().filter(|node| node.role != NodeRole::Dead).count();
        let doubtful = self.unwritten.values().filter(|known| known.is_for(DOUBTFUL_FOR)).count();
        if doubtful * SHARE > ready {
            return Vec::new();
        }
        let is_frozen = |node: &&NodeStanding| {
            let known = self.unwritten.get(&node.number);
            node.role == NodeRole::Relay && known.is_some_and(|known| known.is_for(FROZEN_FOR))
        };
        nodes.iter().filter(is_frozen).map(|node| node.number).collect()
    }
}

#[cfg(test)]
mod tests;
