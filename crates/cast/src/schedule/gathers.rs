//! What those lack from whom others get it, and others hold: it goes to them first.
//!
//! The root lacks chunks after the source has left. The first relay below a switch lacks some after
//! the one before it was lost: what others below that switch hold does not cross the link to it
//! once more.

use super::{ChunkSet, SendLane, Situation, Transfer};
use std::collections::BTreeMap;

/// By receiver, the chunks, ascending, and the node that sends each.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    of: BTreeMap<u32, Vec<(u32, u32)>>,
}

impl Gathers {
    /// What the root lacks, and from whom it comes: from the relays in turn, from a leaf only if it
    /// alone has it.
    pub(super) fn of_root(
        situation: &Situation,
        ranks: &[u32],
        leaves: &[u32],
        lost: &ChunkSet,
    ) -> Self {
        let mut known = holds(situation, ranks[0]).clone();
        known.unite(lost);
        let missing = known.missing(situation.chunks);
        Self::default().add(situation, (ranks[0], missing.iter()), (ranks, leaves))
    }

    /// And what the first relays below other switches lack, from those below the same one.
    pub(super) fn with_switches(
        mut self,
        situation: &Situation,
        ranks: &[u32],
        sizes: &[u32],
    ) -> Self {
        let mut rest = ranks;
        for size in sizes {
            let (below, after) = rest.split_at(rest.len().min(*size as usize));
            let is_first = rest.len() == ranks.len();
            rest = after;
            let Some(head) = below.first().filter(|_| !is_first) else { continue };
            let mut there = ChunkSet::empty();
            below[1..].iter().for_each(|node| there.unite(holds(situation, *node)));
            let end = u32::try_from(there.end()).unwrap_or(u32::MAX);
            let missing = holds(situation, *head).missing(end);
            let missing = missing.iter().filter(|chunk| there.contains(*chunk));
            self = self.add(situation, (*head, missing), (below, &[]));
        }
        self
    }

    fn add(
        mut self,
        situation: &Situation,
        (to, missing): (u32, impl Iterator<Item = u32>),
        (relays, leaves): (&[u32], &[u32]),
    ) -> Self {
        let holder = |turn: usize, chunk| {
            let (before, after) = relays.split_at(turn % relays.len());
            let mut nodes = after.iter().chain(before).chain(leaves).copied();
            nodes.find(|node| holds(situation, *node).contains(chunk))
        };
        let gathers = missing.enumerate();
        let gathers = gathers.filter_map(|(turn, chunk)| Some((chunk, holder(turn, chunk)?)));
        let gathers: Vec<(u32, u32)> = gathers.collect();
        if !gathers.is_empty() {
            self.of.insert(to, gathers);
        }
        self
    }

    /// What a node receives so.
    pub(super) fn received(&self, to: u32) -> &[(u32, u32)] {
        self.of.get(&to).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a node receives a chunk so.
    pub(super) fn has(&self, to: u32, chunk: u32) -> bool {
        self.received(to).binary_search_by_key(&chunk, |(chunk, _)| *chunk).is_ok()
    }

    /// What a node sends so.
    pub(super) fn sent(&self, from: u32) -> impl Iterator<Item = Transfer> + '_ {
        let all = self.of.iter().flat_map(|(to, gathers)| gathers.iter().map(|g| (*to, *g)));
        let its = all.filter(move |(_, (_, sender))| *sender == from);
        its.map(move |(to, (chunk, _))| Transfer { chunk, from, to, lane: SendLane::Gather })
    }

    /// The nodes with which one is connected by that.
    pub(super) fn peers(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let senders = self.received(node).iter().map(|(_, from)| *from);
        senders.chain(self.sent(node).map(|transfer| transfer.to))
    }
}

fn holds(situation: &Situation, node: u32) -> &ChunkSet {
    &situation.nodes[node as usize].holds
}
