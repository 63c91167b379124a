//! A relay near the beginning of a chain that all behind it may wait for, although too few others
//! have shown that they can do more: it is made a leaf once, to see whether they can.
//!
//! Of one behind others, these show what links can here; the first one is behind the source alone,
//! and in an even network looks the same. So a trial of that needs a cast that takes far longer
//! than a plan.

use super::lag::{LagWatch, Suspect};
use super::{NodeStanding, SlowFinding};
use crate::pause::excuse;
use crate::schedule::NodeRole;
use std::time::{Duration, Instant};

/// It has been the only one that lags for this long.
const SUSPECTED_FOR: Duration = Duration::from_secs(1);
/// And it would take at least this long to get the rest,
const LEFT_MIN: Duration = Duration::from_secs(5);
/// or this long if the source feeds it.
const LEFT_MIN_OF_FIRST: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct SlowTrial {
    suspect: Option<(u32, Instant)>,
    is_over: bool,
}

impl SlowTrial {
    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        self.suspect.iter_mut().for_each(|(_, since)| excuse(since, now, late));
    }

    /// The node to make a leaf now, if any; once.
    pub(super) fn find(
        &mut self,
        now: Instant,
        lags: &LagWatch,
        nodes: &[NodeStanding],
    ) -> Option<SlowFinding> {
        if self.is_over {
            return None;
        }
        let is_relay = |suspect: &Suspect| {
            let its = nodes.iter().find(|node| node.number == suspect.node);
            its.filter(|node| node.role == NodeRole::Relay).is_some()
        };
        let Some(suspect) = lags.suspect(now).filter(is_relay) else {
            self.suspect = None;
            return None;
        };
        let before = self.suspect.filter(|(node, _)| *node == suspect.node);
        let (_, since) = *self.suspect.insert(before.unwrap_or((suspect.node, now)));
        let least = if suspect.is_first { LEFT_MIN_OF_FIRST } else { LEFT_MIN };
        self.is_over = now >= since + SUSPECTED_FOR && suspect.left >= least;
        let leaves = vec![suspect.node];
        self.is_over.then_some(SlowFinding { leaves, relays: Vec::new() })
    }
}
