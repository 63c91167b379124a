//! Chunks that go to a node before it can pass them on: the root, and the first relay below each
//! switch.
//!
//! The root lacks chunks after the source has left. The first relay below a switch lacks some after
//! the one before it was lost: what others below that switch hold does not cross the link to it
//! once more.

use super::{ChunkSet, SendLane, Situation, Transfer};
use std::collections::BTreeMap;

/// By receiver and by sender, the chunks, ascending by receiver and chunk, and the other end.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    received: BTreeMap<u32, Vec<(u32, u32)>>,
    sent: BTreeMap<u32, Vec<(u32, u32)>>,
}

impl Gathers {
    /// Relays send to the root in turn; a leaf sends what no relay holds.
    pub(super) fn to_root(
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

    /// Adds what the first relay below each other switch lacks and nodes below that switch hold.
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
        for (chunk, from) in &gathers {
            self.sent.entry(*from).or_default().push((*chunk, to));
        }
        if !gathers.is_empty() {
            self.received.insert(to, gathers);
        }
        self
    }

    /// Chunks and their senders.
    pub(super) fn received(&self, to: u32) -> &[(u32, u32)] {
        self.received.get(&to).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn has(&self, to: u32, chunk: u32) -> bool {
        self.received(to).binary_search_by_key(&chunk, |(chunk, _)| *chunk).is_ok()
    }

    pub(super) fn sent(&self, from: u32) -> impl Iterator<Item = Transfer> + '_ {
        let sent = self.sent.get(&from).map(Vec::as_slice).unwrap_or_default();
        sent.iter().map(move |(chunk, to)| {
            let (chunk, to) = (*chunk, *to);
            Transfer { chunk, from, to, lane: SendLane::Gather }
        })
    }

    pub(super) fn peers(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let senders = self.received(node).iter().map(|(_, from)| *from);
        senders.chain(self.sent(node).map(|transfer| transfer.to))
    }
}

fn holds(situation: &Situation, node: u32) -> &ChunkSet {
    &situation.nodes[node as usize].holds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Below each switch the first relay lacks eight chunks that the four others hold.
    fn gathers(switches: u32) -> Gathers {
        let (size, nodes) = (5, switches * 5);
        let mut situation = Situation::fresh(nodes, 8);
        for (number, node) in (0_u32..).zip(&mut situation.nodes) {
            let holds = if number > 0 && number.is_multiple_of(size) { 0 } else { 8 };
            node.holds = ChunkSet::below(holds);
        }
        let (ranks, sizes): (Vec<u32>, _) = ((0..nodes).collect(), vec![size; switches as usize]);
        Gathers::default().with_switches(&situation, &ranks, &sizes)
    }

    #[test]
    fn all_nodes_together_look_at_each_transfer_once_however_many_switches_there_are() {
        for switches in [2, 20, 200] {
            let gathers = gathers(switches);
            let looked_at = |node| gathers.sent(node).size_hint().1;
            let looked_at: Option<usize> = (0..switches * 5).map(looked_at).sum();
            // An iterator that skips the transfers of other nodes counts these, or has no bound.
            assert_eq!(looked_at, Some((switches as usize - 1) * 8), "{switches} switches");
            let sent = (0..switches * 5).flat_map(|node| gathers.sent(node));
            let received = sent.filter(|t| gathers.received(t.to).contains(&(t.chunk, t.from)));
            assert_eq!(received.count(), (switches as usize - 1) * 8);
        }
    }
}
