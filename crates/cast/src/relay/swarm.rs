//! How a node goes on without a schedule, when the source has left: it asks any node that it is
//! connected with for what that one says it holds.

use crate::schedule::ChunkSet;
use std::collections::{BTreeMap, BTreeSet};

/// What peers hold that this node lacks.
#[derive(Debug, Default)]
pub(super) struct Swarm {
    holds: BTreeMap<u32, ChunkSet>,
    /// By chunk that this node lacks, the peers that hold it.
    offers: BTreeMap<u32, BTreeSet<u32>>,
    /// Where to look for the next chunk: each node begins elsewhere, so that they have different
    /// chunks to give each other.
    at: u32,
}

impl Swarm {
    pub(super) fn new(node: u32, nodes: usize, chunks: u32) -> Self {
        let at = u64::from(chunks) * u64::from(node) / (nodes as u64).max(1);
        Self { at: u32::try_from(at).unwrap_or(0), ..Self::default() }
    }

    /// A peer holds these chunks, all that are below `chunks`.
    pub(super) fn note(&mut self, peer: u32, holds: ChunkSet, lacking: impl Iterator<Item = u32>) {
        let known = self.holds.insert(peer, ChunkSet::empty()).unwrap_or_default();
        for chunk in lacking.filter(|chunk| holds.contains(*chunk) && !known.contains(*chunk)) {
            self.offers.entry(chunk).or_default().insert(peer);
        }
        self.holds.insert(peer, holds);
    }

    /// A peer that holds a chunk which this node lacks.
    pub(super) fn holder(&self, chunk: u32) -> Option<u32> {
        self.offers.get(&chunk)?.first().copied()
    }

    pub(super) fn forget(&mut self, peer: u32) {
        self.holds.remove(&peer);
        self.offers.retain(|_, peers| {
            peers.remove(&peer);
            !peers.is_empty()
        });
    }

    /// This node has a chunk.
    pub(super) fn obtained(&mut self, chunk: u32) {
        self.offers.remove(&chunk);
    }

    /// A chunk to ask for, and of which peer: the one of which least was asked.
    pub(super) fn next(
        &mut self,
        is_open: impl Fn(u32) -> bool,
        asked: impl Fn(u32) -> usize,
    ) -> Option<(u32, u32)> {
        let in_turn = self.offers.range(self.at..).chain(self.offers.range(..self.at));
        let mut open = in_turn.filter(|(chunk, _)| is_open(**chunk));
        let (chunk, peer) = open.find_map(|(chunk, peers)| {
            let peer = peers.iter().min_by_key(|peer| asked(**peer))?;
            Some((*chunk, *peer))
        })?;
        self.at = chunk.wrapping_add(1);
        Some((chunk, peer))
    }
}
