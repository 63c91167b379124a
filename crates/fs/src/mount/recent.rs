//! What names were found to stand for a moment ago, in mounts that keep nothing.
//!
//! `stat` is two requests of the kernel there: what a name stands for, and that inode's attributes.
//! Where somebody replaces the name between both, the inode may be gone; then these are its last
//! attributes, as a disk's file system would show them of an inode that has just lost its name.

use crate::protocol::{FsAnswer, FsInode, FsRecord};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a request may take between both.
const MOMENT: Duration = Duration::from_secs(1);
/// Inodes that are remembered, at most.
const RECENT_MAX: usize = 1024;

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct RecentLooks(HashMap<FsInode, (FsRecord, Instant)>);

impl RecentLooks {
    /// A name was found.
    pub(super) fn found(&mut self, answer: &FsAnswer, now: Instant) {
        if self.0.len() >= RECENT_MAX {
            self.0.retain(|_, (_, then)| now.duration_since(*then) < MOMENT);
        }
        if self.0.len() < RECENT_MAX {
            self.0.insert(answer.inode, (answer.record, now));
        }
    }

    /// An inode is gone: its last attributes, without a name.
    pub(super) fn of_gone(&mut self, inode: FsInode, now: Instant) -> Option<FsAnswer> {
        let (record, then) = self.0.remove(&inode)?;
        let is_recent = now.duration_since(then) < MOMENT;
        is_recent.then_some(FsAnswer { inode, record: FsRecord { nlink: 0, ..record } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_that_is_gone_is_shown_for_a_moment() {
        let answer = |number| FsAnswer {
            inode: FsInode { number, generation: 1 },
            record: FsRecord { nlink: 1, size: 7, ..FsRecord::default() },
        };
        let (mut recent, now) = (RecentLooks::default(), Instant::now());
        recent.found(&answer(1), now);
        let gone = recent.of_gone(answer(1).inode, now).expect("a moment ago");
        assert_eq!((gone.record.nlink, gone.record.size), (0, 7));
        assert_eq!(recent.of_gone(answer(1).inode, now), None, "once");
        recent.found(&answer(1), now);
        assert_eq!(recent.of_gone(answer(1).inode, now + MOMENT), None, "long ago");
        (0..2000).for_each(|number| recent.found(&answer(number), now));
        assert_eq!(recent.0.len(), RECENT_MAX);
        recent.found(&answer(5000), now + MOMENT);
        assert_eq!(recent.0.len(), 1);
    }
}
