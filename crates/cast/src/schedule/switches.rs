//! A chain of binomial pipelines, one below each switch, so that a chunk crosses the links
//! between switches once.
//!
//! The first rank of each switch is its pipeline's root. The tail of a pipeline (see
//! [`Binomial`]) is the root of the next one, so that the handing over costs no node a send that
//! was needed elsewhere: every node still sends and receives at most one chunk a step. Steps: m −
//! 1 + the sum of ⌊log₂ size⌋ + 1 over the switches.

use super::binomial::{Binomial, PipelinePeer, sorted};
use super::overlay::{Overlay, RankTransfer};

/// One switch's ranks.
#[derive(Debug, Clone, Copy)]
struct SwitchPipeline {
    first_rank: u32,
    /// The step in which its root can send chunk 0.
    start: u64,
    pipeline: Binomial,
}

/// Pipelines that follow each other.
#[derive(Debug, Clone)]
pub(super) struct SwitchChain {
    chunks: u32,
    switches: Vec<SwitchPipeline>,
}

impl SwitchChain {
    /// `sizes` are the numbers of ranks below each switch, none of them 0.
    pub(super) fn new(sizes: &[u32], chunks: u32) -> Self {
        let (mut first_rank, mut start) = (0, 0);
        let mut switches = Vec::with_capacity(sizes.len());
        for size in sizes {
            let pipeline = Binomial::new(*size, chunks);
            switches.push(SwitchPipeline { first_rank, start, pipeline });
            first_rank += size;
            start += pipeline.tail_delay() + 1;
        }
        Self { chunks, switches }
    }

    fn index(&self, rank: u32) -> usize {
        self.switches.partition_point(|switch| switch.first_rank <= rank) - 1
    }

    /// The switch before this one, if `rank` is this one's root.
    fn switch_before(&self, rank: u32) -> Option<&SwitchPipeline> {
        let at = self.index(rank);
        if self.switches[at].first_rank != rank {
            return None;
        }
        at.checked_sub(1).map(|before| &self.switches[before])
    }

    fn feeders_of(&self, switch: &SwitchPipeline) -> Vec<u32> {
        switch.pipeline.feeders().into_iter().map(|rank| switch.first_rank + rank).collect()
    }

    /// The ranks that send to the root after `switch`: all in turn, and its own root at the end.
    fn tail_senders(&self, switch: &SwitchPipeline) -> Vec<u32> {
        let turns = u32::try_from(switch.pipeline.feeders().len()).unwrap_or(u32::MAX);
        let chunks = (0..self.chunks.min(turns)).chain(self.chunks.checked_sub(1));
        sorted(chunks.map(|chunk| switch.first_rank + switch.pipeline.tail_sender(chunk)))
    }
}

impl Overlay for SwitchChain {
    fn steps(&self) -> u64 {
        let ends = self.switches.iter().map(|switch| switch.start + switch.pipeline.own_steps());
        let handed = self.switches.last().map_or(0, |last| match last.start {
            0 => 0,
            start => start + u64::from(self.chunks) - u64::from(self.chunks > 0),
        });
        if self.chunks == 0 { 0 } else { ends.max().unwrap_or(0).max(handed) }
    }

    fn send_slots(&self, rank: u32) -> u64 {
        self.switches[self.index(rank)].pipeline.slots()
    }

    fn send_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        let at = self.index(rank);
        let switch = &self.switches[at];
        let (chunk, peer) = switch.pipeline.send(rank - switch.first_rank, slot)?;
        let peer = match peer {
            PipelinePeer::Rank(peer) => switch.first_rank + peer,
            PipelinePeer::Tail => self.switches.get(at + 1)?.first_rank,
        };
        Some(RankTransfer { step: switch.start + slot, chunk, peer })
    }

    fn receive_slots(&self, rank: u32) -> u64 {
        let switch = &self.switches[self.index(rank)];
        match self.switch_before(rank) {
            Some(_) => u64::from(self.chunks),
            None if rank == switch.first_rank => 0,
            None => switch.pipeline.own_steps(),
        }
    }

    fn receive_in(&self, rank: u32, slot: u64) -> Option<RankTransfer> {
        if let Some(before) = self.switch_before(rank) {
            let chunk = u32::try_from(slot).ok()?;
            let step = before.start + slot + before.pipeline.tail_delay();
            let peer = before.first_rank + before.pipeline.tail_sender(chunk);
            return Some(RankTransfer { step, chunk, peer });
        }
        let switch = &self.switches[self.index(rank)];
        let (chunk, peer) = switch.pipeline.receive(rank - switch.first_rank, slot)?;
        Some(RankTransfer { step: switch.start + slot, chunk, peer: switch.first_rank + peer })
    }

    fn receivers(&self, rank: u32) -> Vec<u32> {
        let at = self.index(rank);
        let switch = &self.switches[at];
        let inside = switch.pipeline.receivers(rank - switch.first_rank);
        let next = self.switches.get(at + 1).map(|next| next.first_rank);
        let next = next.filter(|_| self.tail_senders(switch).contains(&rank));
        sorted(inside.into_iter().map(|peer| switch.first_rank + peer).chain(next))
    }

    fn senders(&self, rank: u32) -> Vec<u32> {
        if let Some(before) = self.switch_before(rank) {
            return self.tail_senders(before);
        }
        let switch = &self.switches[self.index(rank)];
        let inside = switch.pipeline.senders(rank - switch.first_rank);
        inside.into_iter().map(|peer| switch.first_rank + peer).collect()
    }

    fn feeders(&self) -> Vec<u32> {
        self.switches.last().map_or_else(|| vec![0], |last| self.feeders_of(last))
    }

    fn window(&self) -> u32 {
        let windows = self.switches.iter().map(|switch| switch.pipeline.window());
        windows.max().unwrap_or(0) + 1
    }

    fn hops(&self) -> u32 {
        let mut before = 0;
        let mut most = 0;
        for switch in &self.switches {
            most = most.max(before + switch.pipeline.hops());
            before += u32::try_from(switch.pipeline.tail_delay()).unwrap_or(u32::MAX) + 1;
        }
        most
    }
}
