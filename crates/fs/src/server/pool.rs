//! Blocks that the service has reserved and nobody uses: writes go there, out of place.
//!
//! Knows no store and executes nothing. Blocks are reserved many at a time by a commit, and used
//! only when that commit is durable: then every commit before it is, too, and with them those that
//! have freed the blocks, so that no crash brings back a file whose bytes were overwritten.

use crate::protocol::FsBlocksRun;
use crate::store::HeldBlocks;
use std::collections::VecDeque;

/// Blocks that are reserved at a time, and when fewer are left.
const CHUNK: u64 = 4096;
const LOW: u64 = 2048;
/// Blocks that are reserved at a time for those who wait, at most.
const CHUNK_MAX: u64 = 16 * CHUNK;

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct BlockPool {
    usable: Vec<FsBlocksRun>,
    usable_len: u64,
    /// Reserved by the commit of that number.
    coming: VecDeque<(u64, Vec<FsBlocksRun>)>,
    coming_len: u64,
    /// Reserved by the commit of that number, and kept until a snapshot has copied what is in them.
    aside: Vec<(u64, Vec<FsBlocksRun>)>,
    aside_len: u64,
    /// The commit of the snapshot for which they are.
    held_at: Option<u64>,
    /// More are being reserved.
    is_asking: bool,
    /// Blocks that others wait for.
    waiting: u64,
    /// The store had no free block when it was asked last.
    is_dry: bool,
    /// A chunk is no larger part of the store than this.
    chunk_max: u64,
}

impl BlockPool {
    /// An empty one for a store of so many blocks.
    pub(super) fn new(blocks: u64) -> Self {
        Self { chunk_max: (blocks / 16).clamp(1, CHUNK), ..Self::default() }
    }

    /// Blocks that are reserved.
    pub(super) fn len(&self) -> u64 {
        self.ready() + self.aside_len
    }

    /// Those that writes get.
    fn ready(&self) -> u64 {
        self.usable_len + self.coming_len
    }

    /// Takes exactly so many blocks; `None` if there are fewer.
    pub(super) fn take(&mut self, want: u64) -> Option<Vec<FsBlocksRun>> {
        if want > self.usable_len {
            return None;
        }
        let (mut taken, mut left) = (Vec::new(), want);
        while left > 0 {
            let last = self.usable.last_mut()?;
            let len = last.len.min(left);
            taken.push(FsBlocksRun { start: last.start, len });
            (last.start, last.len) = (last.start + len, last.len - len);
            left -= len;
            if last.len == 0 {
                self.usable.pop();
            }
        }
        self.usable_len -= want;
        Some(taken)
    }

    /// Takes blocks back that no file has got.
    pub(super) fn give(&mut self, runs: Vec<FsBlocksRun>) {
        self.usable_len += runs.iter().map(|run| run.len).sum::<u64>();
        self.usable.extend(runs);
    }

    /// Somebody waits for so many blocks.
    pub(super) fn wait(&mut self, blocks: u64) {
        self.waiting += blocks;
    }

    /// Nobody waits any more: they ask again.
    pub(super) fn nobody_waits(&mut self) {
        self.waiting = 0;
    }

    /// How many more to reserve now, if any.
    pub(super) fn ask(&mut self) -> Option<u64> {
        let low = LOW.min(self.chunk_max.div_ceil(2));
        let is_low = self.ready() < self.waiting.max(low);
        if self.is_asking || !is_low || (self.is_dry && self.waiting == 0) {
            return None;
        }
        self.is_asking = true;
        let missing = self.waiting.saturating_sub(self.ready());
        Some(missing.clamp(self.chunk_max, CHUNK_MAX.max(self.chunk_max)))
    }

    /// The store's answer, by the commit of that number.
    pub(super) fn reserved(&mut self, seq: u64, runs: Vec<FsBlocksRun>) {
        self.is_asking = false;
        self.is_dry = runs.is_empty();
        self.coming_len += runs.iter().map(|run| run.len).sum::<u64>();
        if !runs.is_empty() {
            self.coming.push_back((seq, runs));
        }
    }

    /// The store could not be asked: somebody was in the way.
    pub(super) fn not_reserved(&mut self) {
        self.is_asking = false;
    }

    /// Whether those who wait can get nothing: the store is full, and nothing is on its way.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_dry && !self.is_asking && self.coming.is_empty()
    }

    /// The commit whose durability those who wait need.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.coming.back().map(|(seq, _)| *seq)
    }

    /// Commits up to this one are durable, and a snapshot holds blocks; whether blocks have become
    /// usable, or are kept for the snapshot, so that those who wait ask for others. If it begins
    /// after `seq` was durable, its commit is not before that one.
    pub(super) fn durable(&mut self, seq: u64, held: Option<&HeldBlocks>) -> bool {
        let before = self.usable_len;
        let held_at = held.map(|held| held.seq);
        if self.held_at != held_at {
            self.held_at = held_at;
            self.aside_len = 0;
            for (of, runs) in std::mem::take(&mut self.aside) {
                self.give_unless_held(of, runs, held);
            }
        }
        let coming_before = self.coming.len();
        while self.coming.front().is_some_and(|(of, _)| *of <= seq) {
            let Some((of, runs)) = self.coming.pop_front() else { break };
            self.coming_len -= runs.iter().map(|run| run.len).sum::<u64>();
            self.give_unless_held(of, runs, held);
        }
        self.usable_len > before || self.coming.len() < coming_before
    }

    /// Of blocks that were reserved after a snapshot, those that had bytes in it stay aside.
    fn give_unless_held(&mut self, of: u64, runs: Vec<FsBlocksRun>, held: Option<&HeldBlocks>) {
        let Some(held) = held.filter(|held| of > held.seq) else { return self.give(runs) };
        let parts = runs.into_iter().flat_map(|run| held.parts(run));
        let (kept, free): (Vec<_>, Vec<_>) = parts.partition(|(_, is_taken)| *is_taken);
        let kept: Vec<FsBlocksRun> = kept.into_iter().map(|(run, _)| run).collect();
        self.give(free.into_iter().map(|(run, _)| run).collect());
        self.aside_len += kept.iter().map(|run| run.len).sum::<u64>();
        self.aside.push((of, kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_usable_when_their_commit_is_durable() {
        let mut pool = BlockPool::new(1 << 20);
        assert_eq!(pool.ask(), Some(CHUNK));
        assert_eq!(pool.ask(), None, "one at a time");
        pool.reserved(7, vec![FsBlocksRun { start: 10, len: CHUNK }]);
        assert_eq!(pool.take(1), None);
        assert!(!pool.durable(6, None) && pool.durable(7, None));
        assert_eq!(pool.take(3), Some(vec![FsBlocksRun { start: 10, len: 3 }]));
        assert_eq!((pool.len(), pool.ask()), (CHUNK - 3, None));
    }

    #[test]
    fn a_full_store_is_asked_again_only_for_somebody() {
        let mut pool = BlockPool::new(64);
        assert_eq!(pool.ask(), Some(4));
        pool.reserved(1, Vec::new());
        assert!(pool.ask().is_none() && pool.is_exhausted());
        pool.wait(9);
        assert_eq!(pool.ask(), Some(9));
        assert!(!pool.is_exhausted());
    }

    #[test]
    fn runs_are_joined_for_a_large_write() {
        let mut pool = BlockPool::new(1 << 20);
        pool.give(vec![FsBlocksRun { start: 0, len: 2 }, FsBlocksRun { start: 8, len: 2 }]);
        let taken = pool.take(3);
        assert_eq!(
            taken,
            Some(vec![FsBlocksRun { start: 8, len: 2 }, FsBlocksRun { start: 0, len: 1 }])
        );
        assert_eq!(pool.take(2), None);
        pool.give(taken.unwrap_or_default());
        assert_eq!(pool.take(4).map(|runs| runs.len()), Some(3));
    }

    #[test]
    fn what_a_snapshot_has_is_kept_aside() {
        let mut pool = BlockPool::new(1 << 20);
        let held = HeldBlocks::made(5, vec![0b110]);
        let run = FsBlocksRun { start: 0, len: 4 };
        pool.reserved(5, vec![run]);
        assert!(pool.durable(5, Some(&held)));
        assert_eq!(pool.take(4).map(|runs| runs.len()), Some(1), "reserved in the snapshot");
        pool.reserved(6, vec![run]);
        assert!(pool.durable(6, Some(&held)));
        assert_eq!((pool.len(), pool.ready()), (4, 2));
        assert!(pool.take(3).is_none());
        assert!(pool.durable(6, None), "the snapshot is over");
        assert_eq!(pool.take(4).map(|runs| runs.iter().map(|run| run.len).sum()), Some(4));
    }

    #[test]
    fn who_waits_for_blocks_asks_again_when_a_snapshot_has_all_that_came() {
        let mut pool = BlockPool::new(64);
        let held = HeldBlocks::made(5, vec![0b1111]);
        pool.wait(4);
        assert_eq!(pool.ask(), Some(4));
        pool.reserved(6, vec![FsBlocksRun { start: 0, len: 4 }]);
        assert!(pool.durable(6, Some(&held)), "nothing else would have it ask");
        assert!(pool.take(4).is_none() && !pool.is_exhausted());
        assert_eq!(pool.ask(), Some(4));
        pool.not_reserved();
        assert!(!pool.is_exhausted(), "the store did not say that it has none");
        assert_eq!(pool.ask(), Some(4));
    }
}
