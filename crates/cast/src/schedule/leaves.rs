//! Which relays feed the nodes that only receive.
//!
//! Those below the leaf's own switch, where there are any: what they have has crossed the links
//! between switches already. Knows nothing of chunks.

use super::overlay::FEEDERS_MAX;
use super::{NodeSwitches, Situation};
use std::collections::{BTreeMap, HashSet};

/// Ranks that may feed leaves.
pub(super) struct LeafFeeders<'a> {
    ranks: &'a [u32],
    switches: &'a NodeSwitches,
    /// By switch, the ranks below it but for the root.
    below: BTreeMap<u32, Vec<u32>>,
    /// All but the root.
    others: Vec<u32>,
    cut: HashSet<(u32, u32)>,
}

impl<'a> LeafFeeders<'a> {
    pub(super) fn new(situation: &Situation, switches: &'a NodeSwitches, ranks: &'a [u32]) -> Self {
        let mut below: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, node) in (0..).zip(ranks).skip(1) {
            below.entry(switches.of(*node)).or_default().push(rank);
        }
        let others = (0..).zip(ranks).skip(1).map(|(rank, _)| rank).collect();
        let cut = situation.cut.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
        Self { ranks, switches, below, others, cut }
    }

    /// By leaf, the ranks that serve it, in turn; `spare` are ranks that have sends to spare.
    pub(super) fn of_all(&self, leaves: &[u32], spare: &[u32]) -> Vec<Vec<u32>> {
        (0..).zip(leaves).map(|(index, leaf)| self.of(*leaf, index, spare)).collect()
    }

    /// Of those that are below the leaf's switch, the first leaf is served by ranks that have sends
    /// to spare, any other one by a few of all but the root; of other switches' only if there are
    /// none. Those whose connection with it is cut do not serve it; if that leaves none, the root
    /// does.
    fn of(&self, leaf: u32, index: u32, spare: &[u32]) -> Vec<u32> {
        let is_near = |rank: &u32| !self.switches.are_apart(self.ranks[*rank as usize], leaf);
        let is_cut = |rank: &u32| self.cut.contains(&(self.ranks[*rank as usize], leaf));
        let turns = index.wrapping_mul(FEEDERS_MAX) as usize;
        let few = |pool: &[u32]| -> Vec<u32> {
            let (before, after) = pool.split_at(turns % pool.len().max(1));
            let in_turn = after.iter().chain(before).copied().filter(|rank| !is_cut(rank));
            in_turn.take(FEEDERS_MAX as usize).collect()
        };
        let spare = spare.iter().copied().filter(|rank| index == 0 && !is_cut(rank));
        let near = self.below.get(&self.switches.of(leaf)).map(Vec::as_slice).unwrap_or_default();
        let choices = [
            spare.filter(is_near).collect(),
            few(near),
            if is_near(&0) { vec![0] } else { Vec::new() },
            few(&self.others),
        ];
        let is_alone = self.cut.contains(&(leaf, leaf));
        let mut choices = choices.into_iter().filter(|feeders| !is_alone && !feeders.is_empty());
        choices.next().unwrap_or_else(|| vec![0])
    }
}
