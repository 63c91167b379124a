//! The binomial pipeline for any number of nodes, in closed form.
//!
//! 2^l corners of a hypercube, l = ⌊log₂ n⌋. In step s corners exchange along dimension d = s mod
//! l. With t the trailing zeros of a corner turned right by d (l of corner 0), the corner sends
//! chunk s − l + t, at most m − 1 (Ganesan and Seshadri, ICDCS'05; RDMC, DSN'18). So a corner
//! receives something new in the steps whose bit it has set (its *set steps*) and sends that on
//! until and in its next set step; what comes in other steps it never sends.
//!
//! n − 2^l corners are two nodes, twins. In each step one of them sends to other corners, the
//! other one receives from them and sends what its twin lacks to its twin; at each set step they
//! change places, so that the one that sends is always the one that received what is due. One
//! step more at the end makes them equal: m + ⌊log₂ n⌋ steps.
//!
//! Corner 0 never receives. The sends that would go there are the *tail*: chunk b in step b + l,
//! for a node that only receives.

use super::overlay::{Overlay, RankTransfer};

/// To or from which rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelinePeer {
    /// Another rank of this pipeline.
    Rank(u32),
    /// A node outside that gets every chunk once.
    Tail,
}

/// A binomial pipeline over ranks; rank 0 is the root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binomial {
    ranks: u32,
    chunks: u32,
    /// l, the dimensions.
    dimensions: u32,
}

impl Binomial {
    pub(super) fn new(ranks: u32, chunks: u32) -> Self {
        Self { ranks, chunks, dimensions: ranks.max(1).ilog2() }
    }

    /// Steps until every rank has all, the tail not counted.
    pub(super) fn own_steps(&self) -> u64 {
        match (self.chunks, self.dimensions) {
            (0, _) | (_, 0) => 0,
            (chunks, l) => u64::from(chunks) + u64::from(l) - 1 + u64::from(self.has_twins()),
        }
    }

    /// How many steps after the root a tail receives: chunk b in step b + l.
    pub(super) fn tail_delay(&self) -> u64 {
        u64::from(self.dimensions)
    }

    /// Steps until the tail has all, too.
    pub(super) fn slots(&self) -> u64 {
        if self.chunks == 0 { 0 } else { u64::from(self.chunks) + self.tail_delay() }
    }

    /// What `rank` sends in `step`: the chunk, and to whom.
    pub(super) fn send(&self, rank: u32, step: u64) -> Option<(u32, PipelinePeer)> {
        let corner = self.corner(rank);
        if corner == 0 {
            return self.root_send(step);
        }
        if !self.twins(corner) {
            return self.corner_send(corner, step);
        }
        let twin = self.twin(rank);
        if rank != self.sender(corner, step) {
            let chunk = self.share(corner, step)?;
            return Some((chunk, PipelinePeer::Rank(twin)));
        }
        if step == self.last_exchange() {
            let chunk = self.newest(corner, step)?;
            return Some((chunk, PipelinePeer::Rank(twin)));
        }
        self.corner_send(corner, step)
    }

    /// What `rank` receives in `step`: the chunk, and from which rank.
    pub(super) fn receive(&self, rank: u32, step: u64) -> Option<(u32, u32)> {
        let corner = self.corner(rank);
        if corner == 0 {
            return None;
        }
        if self.twins(corner) {
            if rank == self.sender(corner, step) {
                return Some((self.share(corner, step)?, self.twin(rank)));
            }
            if step == self.last_exchange() {
                return Some((self.newest(corner, step)?, self.twin(rank)));
            }
        }
        let chunk = self.arrival(corner, step)?;
        Some((chunk, self.sender(self.across(corner, step), step)))
    }

    /// From which rank the tail gets `chunk`.
    pub(super) fn tail_sender(&self, chunk: u32) -> u32 {
        if self.dimensions == 0 || chunk + 1 == self.chunks {
            return 0;
        }
        self.sender(1 << (chunk % self.dimensions), u64::from(chunk) + self.tail_delay())
    }

    fn root_send(&self, step: u64) -> Option<(u32, PipelinePeer)> {
        let last = self.chunks.checked_sub(1)?;
        let l = u64::from(self.dimensions);
        if step == u64::from(last) + l || (l == 0 && step < u64::from(last)) {
            return Some((u32::try_from(step - l).ok()?, PipelinePeer::Tail));
        }
        if step > u64::from(last) + l {
            return None;
        }
        let corner = self.across(0, step);
        let chunk = u32::try_from(step).unwrap_or(u32::MAX).min(last);
        Some((chunk, PipelinePeer::Rank(self.receiver(corner, step))))
    }

    fn corner_send(&self, corner: u32, step: u64) -> Option<(u32, PipelinePeer)> {
        let to = self.across(corner, step);
        if to == 0 {
            let chunk = u32::try_from(step.checked_sub(self.tail_delay())?).ok()?;
            return (chunk + 1 < self.chunks).then_some((chunk, PipelinePeer::Tail));
        }
        let chunk = self.arrival(to, step)?;
        Some((chunk, PipelinePeer::Rank(self.receiver(to, step))))
    }

    /// The chunk that comes to `corner`, which is not 0, from another corner in `step`.
    fn arrival(&self, corner: u32, step: u64) -> Option<u32> {
        if step >= self.last_exchange() {
            return None;
        }
        let from = self.turned(corner, step) ^ 1;
        let zeros = from.trailing_zeros().min(self.dimensions);
        let chunk = (step + u64::from(zeros)).checked_sub(u64::from(self.dimensions))?;
        Some(u32::try_from(chunk).unwrap_or(u32::MAX).min(self.chunks - 1))
    }

    /// What the receiving twin has that the sending one lacks.
    fn share(&self, corner: u32, step: u64) -> Option<u32> {
        let before = step.checked_sub(1)?;
        if self.is_set_step(corner, before) {
            return self.newest(corner, before);
        }
        self.arrival(corner, before)
    }

    /// What came in the last set step before `step`.
    fn newest(&self, corner: u32, step: u64) -> Option<u32> {
        let back = 1..=u64::from(self.dimensions);
        let mut earlier = back.map_while(|back| step.checked_sub(back));
        self.arrival(corner, earlier.find(|earlier| self.is_set_step(corner, *earlier))?)
    }

    /// The rank that sends for `corner` to other corners in `step`: they change at set steps.
    fn sender(&self, corner: u32, step: u64) -> u32 {
        let l = u64::from(self.dimensions);
        let begun = corner & ((1 << (step % l)) - 1);
        let set_steps = step / l * u64::from(corner.count_ones()) + u64::from(begun.count_ones());
        self.rank(corner, set_steps % 2 == 1)
    }

    fn receiver(&self, corner: u32, step: u64) -> u32 {
        let sender = self.sender(corner, step);
        if self.twins(corner) { self.twin(sender) } else { sender }
    }

    /// The step after the last exchange of corners, in which twins become equal.
    fn last_exchange(&self) -> u64 {
        (u64::from(self.chunks) + u64::from(self.dimensions)).saturating_sub(1)
    }

    fn is_set_step(&self, corner: u32, step: u64) -> bool {
        corner >> (step % u64::from(self.dimensions)) & 1 == 1
    }

    fn across(&self, corner: u32, step: u64) -> u32 {
        corner ^ (1 << (step % u64::from(self.dimensions)))
    }

    fn turned(&self, corner: u32, step: u64) -> u32 {
        let by = step % u64::from(self.dimensions);
        let mask = (1 << self.dimensions) - 1;
        (corner >> by | corner << (u64::from(self.dimensions) - by)) & mask
    }

    // Ranks below 2^l are corners of their own number; rank 2^l + i is the twin of corner 1 + i.

    fn has_twins(&self) -> bool {
        !self.ranks.is_power_of_two()
    }

    fn corner(&self, rank: u32) -> u32 {
        let corners = 1 << self.dimensions;
        if rank < corners { rank } else { rank - corners + 1 }
    }

    fn twins(&self, corner: u32) -> bool {
        corner != 0 && corner - 1 < self.ranks - (1 << self.dimensions)
    }

    fn rank(&self, corner: u32, second: bool) -> u32 {
        if second && self.twins(corner) { (1 << self.dimensions) + corner - 1 } else { corner }
    }

    fn twin(&self, rank: u32) -> u32 {
        self.rank(self.corner(rank), rank < 1 << self.dimensions)
    }

    /// Steps that show every pair of ranks that ever exchange: the start, then two rounds of the
    /// dimensions, after which the roles of twins repeat, and the last step.
    fn telling_steps(&self) -> impl Iterator<Item = u64> {
        let last = self.last_exchange();
        (0..last.min(3 * u64::from(self.dimensions))).chain([last])
    }
}

impl Overlay for Binomial {
    fn steps(&self) -> u64 {
        self.own_steps()
    }

    fn send_slots(&self, _rank: u32) -> u64 {
        self.own_steps()
    }

    fn send_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        match self.send(rank, slot)? {
            (chunk, PipelinePeer::Rank(peer)) => Some(RankTransfer { step: slot, chunk, peer }),
            (_, PipelinePeer::Tail) => None,
        }
    }

    fn receive_slots(&self, rank: u32) -> u64 {
        if rank == 0 { 0 } else { self.own_steps() }
    }

    fn receive_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let (chunk, peer) = self.receive(rank, slot)?;
        Some(RankTransfer { step: slot, chunk, peer })
    }

    fn receivers(&self, rank: u32) -> Vec<u32> {
        let slots = self.send_slots(rank);
        let steps = self.telling_steps().filter(|step| *step < slots);
        sorted(steps.filter_map(|step| Some(self.send_in(rank, step)?.peer)))
    }

    fn senders(&self, rank: u32) -> Vec<u32> {
        let slots = self.receive_slots(rank);
        let steps = self.telling_steps().filter(|step| *step < slots);
        sorted(steps.filter_map(|step| Some(self.receive_in(rank, step)?.peer)))
    }

    fn feeders(&self) -> Vec<u32> {
        let l = u64::from(self.dimensions);
        if l == 0 {
            return vec![0];
        }
        let chunks = 0..2 * self.dimensions;
        chunks
            .map(|chunk| self.sender(1 << (chunk % self.dimensions), u64::from(chunk) + l))
            .collect()
    }

    fn window(&self) -> u32 {
        self.dimensions + 2
    }

    fn hops(&self) -> u32 {
        let l = self.dimensions;
        l + u32::from(l > 1) + u32::from(self.has_twins())
    }
}

/// The ranks without repetition, ascending.
pub(super) fn sorted(ranks: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ranks: Vec<u32> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
