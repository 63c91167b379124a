//! How far a cast has come, as its source knows it: a value to be shown.
//!
//! The source makes one after each question to its nodes, and drops it when the one before has not
//! been taken: a reader that is slow, or gone, holds nothing up.

use super::nodes::{CastNode, CastNodes};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Where progress goes; one place in it is enough.
pub type ProgressSender = SyncSender<CastProgress>;

/// What a node does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStage {
    /// It is dialled, or makes its staging directory.
    Begins,
    /// It makes the tree's files, or looks at those that are there, and keeps no chunk meanwhile.
    Makes,
    /// It receives, and passes on.
    Relays,
    /// It receives only: it is slow, or came late.
    Receives,
    /// It has everything, and gives it attributes and names.
    Publishes,
    /// It has published; it may still pass chunks on.
    Published,
    /// It takes no part any more.
    Failed,
}

/// A node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeProgress {
    /// What it does.
    pub stage: NodeStage,
    /// Chunks that it holds, verified, as it said last.
    pub held_chunks: u64,
    /// Entries that it has made, looked at, given attributes, moved or removed, as it said last:
    /// one may count several times.
    pub steps: u64,
}

/// All nodes at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastProgress {
    /// Since the first dial.
    pub elapsed: Duration,
    /// Bytes that each node gets.
    pub stream_len: u64,
    /// Chunks that each node gets.
    pub chunks: u32,
    /// Chunks that the source itself has written to nodes.
    pub sent_chunks: u64,
    /// Entries that the source has looked at once more, after it has read the last chunk: what
    /// has changed since the scan ends the cast, and no node publishes before.
    pub checked_entries: u32,
    /// Files, directories and links.
    pub entries: u32,
    /// In the order of the request's list.
    pub nodes: Vec<NodeProgress>,
}

impl CastProgress {
    /// Bytes that the nodes hold together, of those that have not failed; the last chunk counts as
    /// a whole one.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let live = self.live().map(|node| self.bytes_of(node)).sum::<u64>();
        live.min(self.wanted_bytes())
    }

    /// Bytes that the nodes will hold together, without those that have failed.
    #[must_use]
    pub fn wanted_bytes(&self) -> u64 {
        self.stream_len.saturating_mul(self.live().count() as u64)
    }

    /// Bytes that a node holds.
    #[must_use]
    pub fn bytes_of(&self, node: &NodeProgress) -> u64 {
        match u64::from(self.chunks) {
            0 => 0,
            chunks if node.held_chunks >= chunks => self.stream_len,
            chunks => {
                let bytes = u128::from(self.stream_len) * u128::from(node.held_chunks);
                u64::try_from(bytes / u128::from(chunks)).unwrap_or(u64::MAX)
            }
        }
    }

    /// How many nodes are in a stage.
    #[must_use]
    pub fn count(&self, stage: NodeStage) -> usize {
        self.nodes.iter().filter(|node| node.stage == stage).count()
    }

    fn live(&self) -> impl Iterator<Item = &NodeProgress> {
        self.nodes.iter().filter(|node| node.stage != NodeStage::Failed)
    }
}

impl CastNodes {
    /// All nodes now, in the list's order.
    pub(super) fn progress(&self, chunks: u32) -> Vec<NodeProgress> {
        let mut nodes: Vec<_> =
            self.iter().map(|(_, node)| (node.place, of(node, chunks))).collect();
        nodes.sort_unstable_by_key(|(place, _)| *place);
        nodes.into_iter().map(|(_, node)| node).collect()
    }
}

fn of(node: &CastNode, chunks: u32) -> NodeProgress {
    let stage = match (node.published, node.is_ready, node.is_leaf) {
        (Some(_), ..) => NodeStage::Published,
        (None, false, _) if node.is_out() => NodeStage::Failed,
        (None, false, _) => NodeStage::Begins,
        (None, true, _) if node.held_chunks == u64::from(chunks) => NodeStage::Publishes,
        (None, true, _) if node.is_making => NodeStage::Makes,
        (None, true, false) => NodeStage::Relays,
        (None, true, true) => NodeStage::Receives,
    };
    let held_chunks =
        if stage == NodeStage::Published { u64::from(chunks) } else { node.held_chunks };
    NodeProgress { stage, held_chunks, steps: node.steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_of_the_nodes_that_live() {
        let node = |stage, held_chunks| NodeProgress { stage, held_chunks, steps: 0 };
        let progress = CastProgress {
            elapsed: Duration::ZERO,
            stream_len: 1_000,
            chunks: 10,
            sent_chunks: 0,
            checked_entries: 0,
            entries: 3,
            nodes: vec![
                node(NodeStage::Relays, 5),
                node(NodeStage::Failed, 9),
                node(NodeStage::Published, 10),
            ],
        };
        assert_eq!((progress.held_bytes(), progress.wanted_bytes()), (1_500, 2_000));
        assert_eq!(progress.count(NodeStage::Failed), 1);
        let empty = CastProgress { chunks: 0, stream_len: 0, ..progress };
        assert_eq!((empty.held_bytes(), empty.wanted_bytes()), (0, 0));
    }
}
