//! Which relays feed the nodes that only receive; knows nothing of chunks.
//!
//! Relays below the leaf's own switch come first: what they hold has crossed the links between
//! switches already.

use super::overlay::FEEDERS_MAX;
use super::{NodeSwitches, Situation};
use std::collections::{BTreeMap, HashSet};

/// Ranks that may feed leaves.
pub(super) struct LeafFeeders<'a> {
    ranks: &'a [u32],
    switches: &'a NodeSwitches,
    /// By switch, the ranks below it, without the root.
    below: BTreeMap<u32, Vec<u32>>,
    /// All but the root.
    others: Vec<u32>,
    cut: HashSet<(u32, u32)>,
}

impl<'a> LeafFeeders<'a> {
    pub(super) fn new(situation: &Situation, switches: &'a NodeSwitches, ranks: &'a [u32]) -> Self {
        let mut below: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, node) in (0..).zip(ranks).skip(1) {
            below.entry(switches.switch(*node)).or_default().push(rank);
        }
        let others = (0..).zip(ranks).skip(1).map(|(rank, _)| rank).collect();
        let cut = situation.cut.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
        Self { ranks, switches, below, others, cut }
    }

    /// By leaf, the ranks that feed it in turn; `spare` are ranks that have sends to spare.
    pub(super) fn feeders(&self, leaves: &[u32], spare: &[u32]) -> Vec<Vec<u32>> {
        (0..).zip(leaves).map(|(index, leaf)| self.feed(*leaf, index, spare)).collect()
    }

    /// Ranks with sends to spare feed the first leaf, a few others any other leaf; those below the
    /// leaf's own switch come first. A rank whose connection with the leaf is cut does not feed it;
    /// if no rank is left, the root does.
    fn feed(&self, leaf: u32, index: u32, spare: &[u32]) -> Vec<u32> {
        let is_near = |rank: &u32| !self.switches.are_apart(self.ranks[*rank as usize], leaf);
        let is_cut = |rank: &u32| self.cut.contains(&(self.ranks[*rank as usize], leaf));
        let turns = index.wrapping_mul(FEEDERS_MAX) as usize;
        let few = |pool: &[u32]| -> Vec<u32> {
            let (before, after) = pool.split_at(turns % pool.len().max(1));
            let in_turn = after.iter().chain(before).copied().filter(|rank| !is_cut(rank));
            in_turn.take(FEEDERS_MAX as usize).collect()
        };
        let spare = spare.iter().copied().filter(|rank| index == 0 && !is_cut(rank));
        let near =
            self.below.get(&self.switches.switch(leaf)).map(Vec::as_slice).unwrap_or_default();
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
