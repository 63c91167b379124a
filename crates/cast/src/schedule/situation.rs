//! What a schedule is made from besides its kind: which nodes are there, which are slow, and what
//! each holds.
//!
//! One node (the source, or the node that takes its place) sends the same situation to all; every
//! node then computes the same schedule from it. Measures nothing and sends nothing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::ChunkSet;

/// How a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NodeRole {
    /// Receives and passes on.
    #[default]
    Relay,
    /// Receives only: a slow node, or one that came late.
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

/// Which switch each node is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSwitches(Vec<u32>);

impl NodeSwitches {
    /// `sizes` are as in [`Situation::switches`].
    #[must_use]
    pub fn new(nodes: usize, sizes: &[u32]) -> Self {
        let mut of_node = Vec::with_capacity(nodes);
        for (number, size) in (0..).zip(sizes.iter().map(|size| *size as usize)) {
            of_node.resize(of_node.len().saturating_add(size).min(nodes), number);
        }
        of_node.resize(nodes, u32::MAX);
        Self(of_node)
    }

    /// Whether what one node sends to another crosses a link between switches.
    #[must_use]
    pub fn are_apart(&self, one: u32, other: u32) -> bool {
        self.0.get(one as usize) != self.0.get(other as usize)
    }

    /// The number of a node's switch.
    pub(super) fn switch(&self, node: u32) -> u32 {
        self.0.get(node as usize).copied().unwrap_or(u32::MAX)
    }
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

    /// Makes leaves of relays until no two relays are left whose connection is cut: first those
    /// that have most such connections, and of two that have as many the one that complained. So a
    /// node that slanders others harms itself, and costs each of them one connection.
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
}
