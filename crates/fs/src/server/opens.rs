//! Who has which inodes open, so that one that loses its last name is kept as long as somebody has.
//!
//! Only counts. Connections come and go: what a client had open stays open for a while after its
//! connection has ended, so that it can come back.

use crate::protocol::FsInode;
use outboard_cluster::hub::PeerId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a client may be gone.
const GRACE: Duration = Duration::from_secs(10);
/// Inodes that one connection may have open.
const OPEN_MAX: usize = 1 << 20;

type Key = (u64, u64);

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct OpenInodes {
    counts: HashMap<Key, u32>,
    by_peer: HashMap<PeerId, HashSet<Key>>,
    gone: VecDeque<(Instant, HashSet<Key>)>,
}

fn key(inode: FsInode) -> Key {
    (inode.number, inode.generation)
}

impl OpenInodes {
    /// A client has opened an inode; false: it has more open than it may.
    pub(super) fn open(&mut self, peer: PeerId, inode: FsInode) -> bool {
        let its = self.by_peer.entry(peer).or_default();
        if its.len() >= OPEN_MAX {
            return false;
        }
        if its.insert(key(inode)) {
            *self.counts.entry(key(inode)).or_default() += 1;
        }
        true
    }

    /// A client has closed an inode; whether nobody has it open any more.
    pub(super) fn close(&mut self, peer: PeerId, inode: FsInode) -> bool {
        let had = self.by_peer.get_mut(&peer).is_some_and(|its| its.remove(&key(inode)));
        had && self.one_less(key(inode))
    }

    /// A connection has ended.
    pub(super) fn gone(&mut self, peer: PeerId, now: Instant) {
        if let Some(its) = self.by_peer.remove(&peer).filter(|its| !its.is_empty()) {
            self.gone.push_back((now + GRACE, its));
        }
    }

    /// When the next one's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.gone.front().map(|(until, _)| *until)
    }

    /// Inodes that nobody has open any more, because their clients have not come back.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<FsInode> {
        let mut closed = Vec::new();
        while self.gone.front().is_some_and(|(until, _)| *until <= now) {
            let its = self.gone.pop_front().map(|(_, its)| its).unwrap_or_default();
            closed.extend(its.into_iter().filter(|key| self.one_less(*key)));
        }
        closed.into_iter().map(|(number, generation)| FsInode { number, generation }).collect()
    }

    /// Whether somebody has an inode open.
    pub(super) fn is_open(&self, inode: FsInode) -> bool {
        self.counts.contains_key(&key(inode))
    }

    /// Whether anybody has anything open.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many inodes are open.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    fn one_less(&mut self, key: Key) -> bool {
        let Some(count) = self.counts.get_mut(&key) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(&key);
        }
        is_last
    }
}
