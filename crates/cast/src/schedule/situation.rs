//! What a schedule is made from besides its kind: which nodes are there, which are slow, and what
//! each holds.
//!
//! One node (the source, or the node that takes its place) sends the same situation to all; every
//! node then computes the same schedule from it. Measures nothing and asks nobody.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::ChunkSet;

/// A receiver becomes a leaf below this fraction of the median rate. Above it, it costs a
/// binomial pipeline of 16 nodes at most 10 % (l·B'/(B+(l−1)·B'), RDMC, DSN'18), and rates as
/// nodes measure them waver by as much as the rest.
const LEAF_BELOW: f64 = 0.7;

/// A leaf becomes a relay again from this fraction on, so that one whose rate wavers does not
/// change its role again and again.
const RELAY_FROM: f64 = 0.94;

/// And only when it lacks at most so many chunks more than the relay that is farthest behind: all
/// relays would wait until it had them.
const CAUGHT_UP_CHUNKS: u64 = 32;

/// How a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NodeRole {
    /// Inbox and passes on.
    #[default]
    Relay,
    /// Inbox, and nobody waits for it: a slow node, or one that came late.
    Leaf,
    /// Neither: it is dead, or was given up.
    Dead,
}

/// A node as the schedule sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// How it takes part.
    pub role: NodeRole,
    /// The chunks that it holds, verified.
    pub holds: ChunkSet,
}

/// All nodes at a chunk boundary. Node 0 is the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Situation {
    /// Number of chunks in the cast; a node that is sent a situation compares it with its own.
    pub chunks: u32,
    /// The nodes by number; neighbours in this order should be near each other in the network
    /// (see [`Topology`](super::Topology)).
    pub nodes: Vec<NodeState>,
    /// How many nodes follow each other below one switch, switch by switch in the order of the
    /// nodes; used by [`ScheduleKind::Switches`](super::ScheduleKind::Switches) only. Nodes
    /// beyond the sum are one more switch.
    pub switches: Vec<u32>,
    /// Pairs of nodes between which nothing goes any more, although both may live: the node that
    /// said so, then the other one. A pair of a node with itself: only the source serves it.
    pub cut: Vec<(u32, u32)>,
}

impl Situation {
    /// The beginning: the source holds all `chunks`, the other nodes none; `nodes` counts the
    /// source.
    #[must_use]
    pub fn fresh(nodes: u32, chunks: u32) -> Self {
        let mut states = vec![NodeState::default(); nodes as usize];
        if let Some(source) = states.first_mut() {
            source.holds = ChunkSet::below(chunks);
        }
        Self { chunks, nodes: states, switches: Vec::new(), cut: Vec::new() }
    }

    /// Makes leaves of the relays that are slow, and relays of the leaves that are fast and have
    /// caught up, by the measured rate of each node in bytes a second (`None`: not measured, left
    /// as it is). The source is never a leaf.
    ///
    /// Call it with rates of links, not of progress: a node that waits for a slow one makes no
    /// progress either.
    pub fn assign_leaves(&mut self, rates: &[Option<u64>]) {
        let Some(median) = self.median_rate(rates) else { return };
        let relays = self.nodes.iter().skip(1).filter(|state| state.role == NodeRole::Relay);
        let least = relays.map(|state| state.holds.len()).min().unwrap_or(0);
        for (state, rate) in self.nodes.iter_mut().zip(rates).skip(1) {
            let Some(rate) = *rate else { continue };
            let caught_up = state.holds.len() + CAUGHT_UP_CHUNKS >= least;
            let fraction = fraction(rate, median);
            state.role = match state.role {
                NodeRole::Relay if fraction < LEAF_BELOW => NodeRole::Leaf,
                NodeRole::Leaf if fraction >= RELAY_FROM && caught_up => NodeRole::Relay,
                role => role,
            };
        }
    }

    /// Makes leaves of relays until no two relays are left whose connection is cut: first those
    /// that have most such connections, and of two that have as many the one that complained. So a
    /// node that slanders others harms itself, and costs nobody more than a connection.
    pub fn part_relays(&mut self) {
        loop {
            let mut cuts: BTreeMap<u32, usize> = BTreeMap::new();
            for &(by, of) in self.cut.iter().filter(|cut| self.are_relays(**cut)) {
                *cuts.entry(by).or_default() += 2;
                *cuts.entry(of).or_default() += 2;
            }
            for &(by, _) in self.cut.iter().filter(|cut| self.are_relays(**cut)) {
                // More than the one that was complained about, less than one with one cut more.
                let count = cuts.entry(by).or_default();
                *count |= 1;
            }
            let most = cuts.into_iter().max_by_key(|(node, count)| (*count, *node));
            let Some((node, _)) = most else { return };
            self.nodes[node as usize].role = NodeRole::Leaf;
        }
    }

    /// Whether both are relays, and neither is the source.
    fn are_relays(&self, (a, b): (u32, u32)) -> bool {
        let is_relay = |node: u32| {
            let state = self.nodes.get(node as usize).filter(|_| node > 0);
            state.is_some_and(|state| state.role == NodeRole::Relay)
        };
        a != b && is_relay(a) && is_relay(b)
    }

    fn median_rate(&self, rates: &[Option<u64>]) -> Option<u64> {
        let live = self.nodes.iter().zip(rates).filter(|(state, _)| state.role != NodeRole::Dead);
        let mut known: Vec<u64> = live.filter_map(|(_, rate)| *rate).collect();
        known.sort_unstable();
        known.get(known.len() / 2).copied()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn fraction(rate: u64, median: u64) -> f64 {
    rate as f64 / median.max(1) as f64
}
