//! Nodes that come late: the source names those that they can read from, and feeds none of them as
//! long as they get on by themselves.
//!
//! They are in no plan, so that nobody else notices. One that cannot reach a holder, or gains
//! nothing for a while, becomes a leaf of the next plan.

use super::nodes::{CastNode, CastNodes};
use super::service::SourceService;
use crate::member::{CastHub, send};
use crate::protocol::CastMessage;
use outboard_cluster::hub::PeerId;
use std::time::{Duration, Instant};

/// A node that has gained nothing by reading for so long is fed.
const STALL_MAX: Duration = Duration::from_secs(10);

impl SourceService {
    /// Tells late nodes which ones they can read from, if that has changed.
    pub(super) fn name_holders(&mut self, hub: &mut CastHub) {
        let holders = self.nodes.ready();
        let is_new = holders != self.named;
        for (number, peer) in self.nodes.readers() {
            let Some(node) = self.nodes.get(number) else { continue };
            if is_new || !std::mem::replace(&mut node.knows_holders, true) {
                let others = holders.iter().copied().filter(|holder| *holder != number);
                send(hub, peer, &CastMessage::ReadFrom { holders: others.collect() });
                node.knows_holders = true;
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
