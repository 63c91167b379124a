//! Nodes that come late: the source names those that they can read from, and feeds none of them as
//! long as they get on by themselves.
//!
//! They are in no plan, so that no other node notices. One that cannot reach a holder, or gains
//! nothing for a while, becomes a leaf of the next plan.

use super::nodes::{CastNode, CastNodes};
use super::service::SourceService;
use crate::member::{CastHub, send};
use crate::protocol::CastMessage;
use crate::schedule::NodeSwitches;
use outboard_cluster::hub::PeerId;
use std::time::{Duration, Instant};

/// A node that has gained nothing by reading for this long is fed.
const STALL_MAX: Duration = Duration::from_secs(10);

impl SourceService {
    /// Tells late nodes which ones they can read from, if that has changed.
    pub(super) fn name_holders(&mut self, hub: &mut CastHub) {
        let holders = self.nodes.ready();
        let is_new = holders != self.named;
        let switches = NodeSwitches::new(self.nodes.len(), &self.switches);
        for (number, peer) in self.nodes.readers() {
            let Some(node) = self.nodes.get(number) else { continue };
            if is_new || !std::mem::replace(&mut node.knows_holders, true) {
                node.knows_holders = true;
                let holders = self.nodes.holders_for(number, &switches);
                send(hub, peer, &CastMessage::ReadFrom { holders });
            }
        }
        self.named = holders;
    }

    /// A node that came late is put into the plan.
    pub(super) fn feed(&mut self, number: u32) {
        let reader = self.nodes.get(number).filter(|node| node.reads_since.is_some());
        if let Some(node) = reader {
            tracing::warn!(host = node.host, "it cannot read from others: it is fed");
            node.reads_since = None;
            self.is_plan_due = true;
        }
    }

    /// Puts those into the plan that gain nothing by reading.
    pub(super) fn feed_stalled(&mut self, now: Instant) {
        for number in self.nodes.stalled_readers(now) {
            self.feed(number);
        }
    }
}

impl CastNodes {
    /// A node is ready when there is a plan already. Says whether it is to read from others.
    pub(super) fn begin_reading(&mut self, number: u32, now: Instant) -> bool {
        let has_others = self.iter().any(|(other, node)| other != number && node.takes_part());
        if let Some(node) = self.get(number) {
            (node.knows_holders, node.reads_since) = (false, has_others.then_some(now));
        }
        has_others
    }

    /// The nodes that may have chunks to read.
    fn ready(&self) -> Vec<u32> {
        self.iter().filter(|(_, node)| node.is_ready).map(|(number, _)| number).collect()
    }

    /// Those that a late node can read from: below its own switch, if a relay is there that gets
    /// everything; else all.
    fn holders_for(&self, number: u32, switches: &NodeSwitches) -> Vec<u32> {
        let is_near = |other: u32| !switches.are_apart(other, number);
        let is_relay = |node: &CastNode| node.takes_part() && !node.is_leaf;
        let has_relay = self.iter().any(|(other, node)| is_near(other) && is_relay(node));
        let others = self.ready().into_iter().filter(|other| *other != number);
        others.filter(|other| !has_relay || is_near(*other)).collect()
    }

    /// Those that read.
    pub(super) fn readers(&self) -> Vec<(u32, PeerId)> {
        let readers = self.iter().filter(|(_, node)| node.is_ready && node.reads_since.is_some());
        readers.filter_map(|(number, node)| Some((number, node.peer?))).collect()
    }

    /// A node says how much it holds. True if it reads by itself.
    pub(super) fn note_reader(&mut self, number: u32, held_chunks: u64, now: Instant) -> bool {
        let Some(node) = self.get(number).filter(|node| node.reads_since.is_some()) else {
            return false;
        };
        if held_chunks > node.held_chunks {
            node.reads_since = Some(now);
        }
        true
    }

    fn stalled_readers(&self, now: Instant) -> Vec<u32> {
        let is_stalled = |node: &CastNode| {
            let since = node.reads_since.filter(|_| node.is_ready && node.published.is_none());
            since.is_some_and(|since| now > since + STALL_MAX)
        };
        self.iter().filter(|(_, node)| is_stalled(node)).map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_node_reads_below_its_own_switch_where_a_relay_is() {
        let hosts: Vec<String> = (0..7).map(|node| format!("n{node}")).collect();
        let mut nodes = CastNodes::new(&hosts, &[0, 1, 2, 3, 4, 5]);
        let switches = NodeSwitches::new(7, &[3, 4]);
        let now = Instant::now();
        for (number, node) in nodes.iter_mut() {
            node.is_ready = true;
            // These came late.
            let is_late = [2, 5, 6].contains(&number);
            (node.is_leaf, node.reads_since) = (is_late, is_late.then_some(now));
        }
        assert_eq!(nodes.holders_for(2, &switches), [1]);
        assert_eq!(nodes.holders_for(6, &switches), [3, 4, 5]);
        assert_eq!(nodes.holders_for(6, &NodeSwitches::default()), [1, 2, 3, 4, 5]);
        // Late ones have nothing but what they read, and one that is slow has little.
        for lost in [3, 4] {
            assert_eq!(nodes.holders_for(6, &switches), [3, 4, 5]);
            nodes.get(lost).expect("there").is_leaf = true;
        }
        assert_eq!(nodes.holders_for(6, &switches), [1, 2, 3, 4, 5]);
    }
}
