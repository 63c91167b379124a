//! Two binary trees over the ranks but the root, for even and odd chunks (Sanders, Speck and
//! Träff, ParCo 2009).
//!
//! The first tree numbers ranks in order, so that odd ranks are its leaves; the second is its
//! mirror image, or the first moved by one if the number of ranks is odd, so that no rank is
//! inside of both. Edges have two colours, of which each rank receives by one of each and sends by
//! one of each; edges of one colour are used in even steps, those of the other in odd ones. The
//! root sends even chunks to the top of the first tree and odd ones to the top of the second.

use super::binomial::sorted;
use super::overlay::{Overlay, RankTransfer};

/// An edge: the tree (0 or 1) and the rank that receives by it.
type Edge = (usize, u32);

/// Two trees over ranks; rank 0 is the root, and in neither.
#[derive(Debug, Clone)]
pub(super) struct TwoTree {
    ranks: u32,
    chunks: u32,
    /// For each tree and rank, the step in which its first chunk comes; of rank 0 nothing.
    first_steps: [Vec<u32>; 2],
}

impl TwoTree {
    pub(super) fn new(ranks: u32, chunks: u32) -> Self {
        let empty = || vec![0; ranks as usize];
        let mut trees = Self { ranks, chunks, first_steps: [empty(), empty()] };
        if trees.members() > 0 {
            let odd = trees.colours();
            for (tree, odd) in odd.iter().enumerate() {
                trees.time(tree, odd);
            }
        }
        trees
    }

    fn members(&self) -> u32 {
        self.ranks.saturating_sub(1)
    }

    /// The rank in the place `position` of `tree`, and the other way round.
    fn rank_at(&self, tree: usize, position: u32) -> u32 {
        let members = self.members();
        match (tree, members % 2) {
            (0, _) => position,
            (_, 0) => members + 1 - position,
            _ => position % members + 1,
        }
    }

    fn position(&self, tree: usize, rank: u32) -> u32 {
        let members = self.members();
        match (tree, members % 2) {
            (0, _) => rank,
            (_, 0) => members + 1 - rank,
            _ => (rank + members - 2) % members + 1,
        }
    }

    fn top(&self, tree: usize) -> u32 {
        self.rank_at(tree, 1 << self.members().max(1).ilog2())
    }

    fn parent(&self, (tree, rank): Edge) -> u32 {
        let position = self.position(tree, rank);
        let height = position.trailing_zeros();
        if rank == self.top(tree) {
            return 0;
        }
        let up = position + (1 << height);
        if position >> (height + 1) & 1 == 1 || up > self.members() {
            self.rank_at(tree, position - (1 << height))
        } else {
            self.rank_at(tree, up)
        }
    }

    /// The edges by which `rank` sends, in the order of their first steps.
    fn outgoing(&self, rank: u32) -> Vec<Edge> {
        let mut edges = self.edges_below(rank);
        edges.sort_unstable_by_key(|(tree, to)| self.first_steps[*tree][*to as usize]);
        edges
    }

    fn edges_below(&self, rank: u32) -> Vec<Edge> {
        match (rank, self.members()) {
            (_, 0) => Vec::new(),
            (0, _) => vec![(0, self.top(0)), (1, self.top(1))],
            _ => (0..2).flat_map(|tree| self.children(tree, rank)).collect(),
        }
    }

    fn children(&self, tree: usize, rank: u32) -> Vec<Edge> {
        let position = self.position(tree, rank);
        let height = position.trailing_zeros();
        if height == 0 {
            return Vec::new();
        }
        let half = 1 << (height - 1);
        let left = position - half;
        let right = self.right_child(position, half);
        [Some(left), right].into_iter().flatten().map(|p| (tree, self.rank_at(tree, p))).collect()
    }

    /// The top of what lies right of `position`, where ranks may be too few for a full subtree.
    fn right_child(&self, position: u32, mut half: u32) -> Option<u32> {
        while half > 0 && position + half > self.members() {
            half /= 2;
        }
        (half > 0).then_some(position + half)
    }

    /// The other edge by which the sender of an edge sends.
    fn sibling(&self, edge: Edge) -> Option<Edge> {
        self.edges_below(self.parent(edge)).into_iter().find(|other| *other != edge)
    }

    /// Whether edges are used in odd steps. Edges that share a sender or a receiver form paths and
    /// even cycles, along which the colours alternate.
    fn colours(&self) -> [Vec<bool>; 2] {
        let none = || vec![None; self.ranks as usize];
        let mut colours = [none(), none()];
        self.colour_from((0, self.top(0)), &mut colours);
        for rank in 1..self.ranks {
            for tree in 0..2 {
                self.colour_from((tree, rank), &mut colours);
            }
        }
        colours.map(|tree| tree.into_iter().map(|odd| odd.unwrap_or(false)).collect())
    }

    fn colour_from(&self, start: Edge, colours: &mut [Vec<Option<bool>>; 2]) {
        if colours[start.0][start.1 as usize].is_some() {
            return;
        }
        colours[start.0][start.1 as usize] = Some(false);
        for by_receiver_first in [true, false] {
            let (mut edge, mut by_receiver, mut odd) = (start, by_receiver_first, true);
            loop {
                let next =
                    if by_receiver { Some((1 - edge.0, edge.1)) } else { self.sibling(edge) };
                let Some(next) = next.filter(|next| colours[next.0][next.1 as usize].is_none())
                else {
                    break;
                };
                colours[next.0][next.1 as usize] = Some(odd);
                (edge, by_receiver, odd) = (next, !by_receiver, !odd);
            }
        }
    }

    /// Each rank receives in the first step of its edge's colour after the one above it.
    fn time(&mut self, tree: usize, odd: &[bool]) {
        let top = self.top(tree);
        self.first_steps[tree][top as usize] = u32::from(odd[top as usize]);
        let mut above = vec![top];
        while let Some(rank) = above.pop() {
            let after = self.first_steps[tree][rank as usize] + 1;
            for (_, child) in self.children(tree, rank) {
                let fits = (after % 2 == 1) == odd[child as usize];
                self.first_steps[tree][child as usize] = after + u32::from(!fits);
                above.push(child);
            }
        }
    }

    /// How many chunks go through a tree.
    fn chunks_of(&self, tree: usize) -> u64 {
        u64::from(self.chunks).div_ceil(2) - u64::from(tree == 1 && self.chunks % 2 == 1)
    }

    fn step(&self, edge: Edge, round: u64, peer: u32) -> Option<RankTransfer> {
        let (tree, to) = edge;
        if round >= self.chunks_of(tree) {
            return None;
        }
        let chunk = u32::try_from(2 * round).ok()? + u32::from(tree == 1);
        let step = u64::from(self.first_steps[tree][to as usize]) + 2 * round;
        Some(RankTransfer { step, chunk, peer })
    }
}

impl Overlay for TwoTree {
    fn steps(&self) -> u64 {
        let last = |tree: usize| {
            let rounds = self.chunks_of(tree).checked_sub(1)?;
            let first = self.first_steps[tree].iter().skip(1).max()?;
            Some(u64::from(*first) + 2 * rounds + 1)
        };
        (0..2).filter_map(last).max().unwrap_or(0)
    }

    fn send_slots(&self, rank: u32) -> u64 {
        self.edges_below(rank).len() as u64 * self.chunks_of(0)
    }

    fn send_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let edges = self.outgoing(rank);
        let turns = edges.len() as u64;
        let edge = edges[usize::try_from(slot % turns).ok()?];
        self.step(edge, slot / turns, edge.1)
    }

    fn receive_slots(&self, rank: u32) -> u64 {
        if rank == 0 { 0 } else { 2 * self.chunks_of(0) + self.lead(rank).1 }
    }

    fn receive_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let (early, lead) = self.lead(rank);
        let (tree, round) = match slot.checked_sub(lead) {
            None => (early, slot),
            Some(slot) if slot % 2 == 0 => (1 - early, slot / 2),
            Some(slot) => (early, lead + slot / 2),
        };
        self.step((tree, rank), round, self.parent((tree, rank)))
    }

    fn receivers(&self, rank: u32) -> Vec<u32> {
        sorted(self.used(self.edges_below(rank)).map(|(_, to)| to))
    }

    fn senders(&self, rank: u32) -> Vec<u32> {
        if rank == 0 {
            return Vec::new();
        }
        sorted(self.used(vec![(0, rank), (1, rank)]).map(|edge| self.parent(edge)))
    }

    fn feeders(&self) -> Vec<u32> {
        if self.members() == 0 {
            return vec![0];
        }
        let spare = |rank: u32| vec![rank; 2 - self.edges_below(rank).len()];
        (1..self.ranks).flat_map(spare).collect()
    }

    fn window(&self) -> u32 {
        3
    }

    fn hops(&self) -> u32 {
        if self.members() == 0 { 0 } else { self.members().ilog2() + 1 }
    }
}

impl TwoTree {
    fn used(&self, edges: Vec<Edge>) -> impl Iterator<Item = Edge> {
        edges.into_iter().filter(|(tree, _)| self.chunks_of(*tree) > 0)
    }

    /// The tree from which a rank gets its first chunk, and how many come before the other tree's
    /// first.
    fn lead(&self, rank: u32) -> (usize, u64) {
        let [first, second] = [0, 1].map(|tree: usize| self.first_steps[tree][rank as usize]);
        (usize::from(second < first), u64::from(first.abs_diff(second)).div_ceil(2))
    }
}
