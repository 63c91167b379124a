//! Trees of one arity, numbered like a heap: the pipelined tree, the chain (arity 1), the star
//! (arity n − 1) and the paper's tree, in which a node has all chunks before it sends the first.
//!
//! All four are one formula: rank v can send for the first time R(v) hops after the start, a hop
//! being a step in a pipelined tree and m steps in the paper's.

use super::overlay::{FEEDERS_MAX, Overlay, RankTransfer};

/// A tree over ranks, the root being rank 0.
#[derive(Debug, Clone)]
pub(super) struct ArityTree {
    arity: u64,
    ranks: u32,
    chunks: u32,
    /// Steps from one child's turn to the next child's.
    hop: u64,
    /// Steps from one chunk to the next on the same edge.
    stride: u64,
    /// R(v) for each rank: in how many hops it can send chunk 0.
    ready: Vec<u32>,
}

impl ArityTree {
    /// Every chunk goes on as soon as it is there.
    pub(super) fn pipelined(arity: u32, ranks: u32, chunks: u32) -> Self {
        let arity = u64::from(arity.clamp(1, ranks.max(2) - 1));
        Self { arity, ranks, chunks, hop: 1, stride: arity, ready: ready(arity, ranks) }
    }

    /// The whole file goes to one child after the other.
    pub(super) fn whole_file(arity: u32, ranks: u32, chunks: u32) -> Self {
        let hop = u64::from(chunks.max(1));
        Self { hop, stride: 1, ..Self::pipelined(arity, ranks, chunks) }
    }

    fn first_child(&self, rank: u32) -> u64 {
        self.arity * u64::from(rank) + 1
    }

    fn children(&self, rank: u32) -> u64 {
        match self.chunks {
            0 => 0,
            _ => u64::from(self.ranks).saturating_sub(self.first_child(rank)).min(self.arity),
        }
    }

    fn child(&self, rank: u32, turn: u64) -> u32 {
        u32::try_from(self.first_child(rank) + turn).unwrap_or(u32::MAX)
    }

    fn parent(&self, rank: u32) -> u32 {
        u32::try_from((u64::from(rank).max(1) - 1) / self.arity).unwrap_or(u32::MAX)
    }

    fn step(&self, hops: u64, chunk: u32) -> u64 {
        hops * self.hop + u64::from(chunk) * self.stride
    }

    fn depth(&self, rank: u32) -> u32 {
        if self.arity == 1 { rank } else { self.climb(rank) }
    }

    fn climb(&self, mut rank: u32) -> u32 {
        let mut depth = 0;
        while rank != 0 {
            rank = self.parent(rank);
            depth += 1;
        }
        depth
    }
}

fn ready(arity: u64, ranks: u32) -> Vec<u32> {
    let mut ready: Vec<u32> = Vec::with_capacity(ranks as usize);
    for rank in 0..u64::from(ranks) {
        let hops = match rank.checked_sub(1) {
            None => 0,
            Some(before) => {
                let parent = usize::try_from(before / arity).unwrap_or(usize::MAX);
                ready[parent] + u32::try_from(before % arity).unwrap_or(u32::MAX) + 1
            }
        };
        ready.push(hops);
    }
    ready
}

impl Overlay for ArityTree {
    fn steps(&self) -> u64 {
        let latest = self.ready.iter().max().copied().unwrap_or(0);
        match (latest, self.chunks) {
            (0, _) | (_, 0) => 0,
            _ => self.step(u64::from(latest) - 1, self.chunks - 1) + 1,
        }
    }

    fn send_slots(&self, rank: u32) -> u64 {
        self.children(rank) * u64::from(self.chunks)
    }

    fn send_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let children = self.children(rank);
        let (chunk, turn) = if self.hop == 1 {
            (slot / children, slot % children)
        } else {
            (slot % u64::from(self.chunks), slot / u64::from(self.chunks))
        };
        let chunk = u32::try_from(chunk).ok()?;
        let step = self.step(u64::from(self.ready[rank as usize]) + turn, chunk);
        Some(RankTransfer { step, chunk, peer: self.child(rank, turn) })
    }

    fn receive_slots(&self, rank: u32) -> u64 {
        if rank == 0 { 0 } else { u64::from(self.chunks) }
    }

    fn receive_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let chunk = u32::try_from(slot).ok()?;
        let step = self.step(u64::from(self.ready[rank as usize]) - 1, chunk);
        Some(RankTransfer { step, chunk, peer: self.parent(rank) })
    }

    fn receivers(&self, rank: u32) -> Vec<u32> {
        (0..self.children(rank)).map(|turn| self.child(rank, turn)).collect()
    }

    fn senders(&self, rank: u32) -> Vec<u32> {
        if rank == 0 || self.chunks == 0 { Vec::new() } else { vec![self.parent(rank)] }
    }

    fn feeders(&self) -> Vec<u32> {
        let idle = (0..self.ranks).rev().filter(|rank| self.children(*rank) == 0);
        idle.take(FEEDERS_MAX as usize).collect()
    }

    fn window(&self) -> u32 {
        if self.hop == 1 { 2 } else { self.chunks }
    }

    fn hops(&self) -> u32 {
        self.depth(self.ranks.max(1) - 1)
    }
}
