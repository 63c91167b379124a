//! Inodes that have just lost their last names: they are kept for a moment, because a client that
//! has looked one up may be about to open it. So a name that is replaced again and again can always
//! be opened.

use crate::protocol::FsInode;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long they are kept.
const KEPT: Duration = Duration::from_secs(1);
/// How many are kept, at most.
const INODES_MAX: usize = 256;
/// Blocks that they have in all, at most, and as a part of the store.
const BLOCKS_MAX: u64 = 16 << 10;
const PART: u64 = 64;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct LingeringInodes {
    /// When the time of each is over, and its blocks.
    all: VecDeque<(Instant, FsInode, u64)>,
    blocks: u64,
    blocks_max: u64,
}

impl LingeringInodes {
    /// For a store of that many blocks.
    pub(super) fn new(store: u64) -> Self {
        Self { all: VecDeque::new(), blocks: 0, blocks_max: BLOCKS_MAX.min(store / PART) }
    }

    /// One more; those for which there is no room any more.
    pub(super) fn add(&mut self, inode: FsInode, blocks: u64, now: Instant) -> Vec<FsInode> {
        self.all.push_back((now + KEPT, inode, blocks));
        self.blocks += blocks;
        let mut ended = Vec::new();
        while self.all.len() > INODES_MAX || self.blocks > self.blocks_max {
            ended.extend(self.end_first());
        }
        ended
    }

    /// Whether an inode is among them.
    pub(super) fn has(&self, inode: FsInode) -> bool {
        self.all.iter().any(|(_, one, _)| *one == inode)
    }

    /// Those whose time is over.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<FsInode> {
        let mut ended = Vec::new();
        while self.deadline().is_some_and(|until| until <= now) {
            ended.extend(self.end_first());
        }
        ended
    }

    /// When the time of the next one is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.front().map(|(until, ..)| *until)
    }

    fn end_first(&mut self) -> Option<FsInode> {
        let (_, inode, blocks) = self.all.pop_front()?;
        self.blocks -= blocks;
        Some(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_few_small_and_kept_for_a_moment() {
        let inode = |number| FsInode { number, generation: 1 };
        let (mut kept, now) = (LingeringInodes::new(PART * 100), Instant::now());
        assert!(kept.add(inode(1), 60, now).is_empty());
        assert_eq!(kept.add(inode(2), 60, now), [inode(1)]);
        assert_eq!(kept.add(inode(3), 1000, now), [inode(2), inode(3)]);
        assert!(kept.add(inode(4), 100, now).is_empty() && kept.expire(now).is_empty());
        assert_eq!((kept.deadline(), kept.has(inode(4))), (Some(now + KEPT), true));
        assert_eq!(kept.expire(now + KEPT), [inode(4)]);
        for number in 0..2 * INODES_MAX as u64 {
            kept.add(inode(number), 0, now);
        }
        assert_eq!(kept.expire(now + KEPT).len(), INODES_MAX);
    }
}
