//! The inodes that the kernel knows: its numbers for them, and how often it was told of each.
//!
//! The kernel's number is the file system's own, so that a program finds the same one tomorrow.
//! Only a number that was used again while the kernel still has the former inode, and that of the
//! root directory, are others.

use crate::protocol::{FsAnswer, FsInode, FsRecord};
use std::collections::HashMap;

/// The kernel's number of the root directory.
pub(super) const ROOT_NODE: u64 = 1;
/// Numbers from here on are this side's own.
const OWN: u64 = 1 << 63;

/// A file's bytes as the kernel has them cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBytes {
    version: u64,
    mtime_ns: i64,
    size: u64,
}

impl KeptBytes {
    pub(super) fn of(record: &FsRecord) -> Self {
        Self { version: record.version, mtime_ns: record.mtime_ns, size: record.size }
    }

    /// Whether the bytes are still those.
    fn are(&self, record: &FsRecord) -> bool {
        self.version == record.version
            || (self.mtime_ns == record.mtime_ns && self.size == record.size)
    }
}

#[derive(Debug)]
struct KnownInode {
    inode: FsInode,
    /// Look-ups that returned it, less those that the kernel has forgotten.
    told: u64,
    kept: Option<KeptBytes>,
    /// The version of the record that the kernel was shown last; 0 for none.
    version: u64,
    /// When it was last changed from here, by the map's clock.
    touched: u64,
    /// Of a directory that was looked up: the one above it, and how many moves there were then.
    above: Option<(u64, u64)>,
    /// Of a directory, the record that the kernel was shown last.
    dir: Option<Box<FsRecord>>,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct InodeMap {
    by_node: HashMap<u64, KnownInode>,
    nodes: HashMap<FsInode, u64>,
    next: u64,
    /// Counts changes that were made here.
    clock: u64,
    /// Counts directories that have moved, as far as is known here.
    moves: u64,
}

impl KnownInode {
    fn new(inode: FsInode) -> Self {
        Self { inode, told: 1, kept: None, version: 0, touched: 0, above: None, dir: None }
    }
}

impl InodeMap {
    pub(super) fn new(root: FsInode) -> Self {
        let by_node = HashMap::from([(ROOT_NODE, KnownInode::new(root))]);
        let nodes = HashMap::from([(root, ROOT_NODE)]);
        Self { by_node, nodes, next: OWN, clock: 0, moves: 0 }
    }

    /// The inode that the kernel names.
    pub(super) fn inode(&self, node: u64) -> Option<FsInode> {
        self.by_node.get(&node).map(|known| known.inode)
    }

    /// The kernel's number of an inode, if it has been told of it.
    pub(super) fn node(&self, inode: FsInode) -> Option<u64> {
        self.nodes.get(&inode).copied()
    }

    /// The number that listings show of an inode.
    pub(super) fn shown(&self, inode: FsInode) -> u64 {
        self.node(inode).unwrap_or(inode.number)
    }

    /// The kernel's number of an inode that it is about to be told of once more.
    pub(super) fn tell(&mut self, inode: FsInode) -> u64 {
        if let Some(node) = self.node(inode) {
            if let Some(known) = self.by_node.get_mut(&node) {
                known.told = known.told.saturating_add(1);
            }
            return node;
        }
        let is_free = inode.number > ROOT_NODE
            && inode.number < OWN
            && !self.by_node.contains_key(&inode.number);
        let node = if is_free { inode.number } else { self.own_number() };
        self.by_node.insert(node, KnownInode::new(inode));
        self.nodes.insert(inode, node);
        node
    }

    fn own_number(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1) | OWN;
        while self.by_node.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) | OWN;
        }
        self.next
    }

    /// The kernel has forgotten so many look-ups.
    pub(super) fn forget(&mut self, node: u64, times: u64) {
        let Some(known) = self.by_node.get_mut(&node).filter(|_| node != ROOT_NODE) else { return };
        known.told = known.told.saturating_sub(times);
        if known.told == 0
            && let Some(known) = self.by_node.remove(&node)
        {
            self.nodes.remove(&known.inode);
        }
    }

    /// A file is opened: whether the bytes that the kernel has of it are still its own. What it
    /// reads from now on is that of this record.
    pub(super) fn keeps(&mut self, node: u64, record: &FsRecord) -> bool {
        let Some(known) = self.by_node.get_mut(&node) else { return false };
        let keeps = known.kept.is_some_and(|kept| kept.are(record));
        known.kept = Some(KeptBytes::of(record));
        keeps
    }

    /// The kernel is shown a record: whether it has perhaps another one of it.
    pub(super) fn shows(&mut self, node: u64, record: &FsRecord) -> bool {
        let Some(known) = self.by_node.get_mut(&node) else { return false };
        let before = std::mem::replace(&mut known.version, record.version);
        if before != record.version && record.mode & libc::S_IFMT == libc::S_IFDIR {
            known.dir = Some(Box::new(*record));
        }
        before != 0 && before != record.version
    }

    /// A directory that is gone, for programs that have it open or work in it: its last attributes.
    pub(super) fn removed_dir(&self, node: u64) -> Option<FsAnswer> {
        let known = self.by_node.get(&node)?;
        let record = **known.dir.as_ref()?;
        Some(FsAnswer { inode: known.inode, record: FsRecord { nlink: 0, ..record } })
    }

    /// Whether the kernel may have bytes of a file.
    pub(super) fn has_kept(&self, node: u64) -> bool {
        self.by_node.get(&node).is_some_and(|known| known.kept.is_some())
    }

    /// This mount has changed a file's record; if nobody else has, the kernel's bytes are good.
    pub(super) fn changed_here(&mut self, inode: FsInode, record: &FsRecord) {
        self.touch(inode);
        let node = self.node(inode);
        let Some(known) = node.and_then(|node| self.by_node.get_mut(&node)) else { return };
        known.version = record.version;
        let next = known.kept.filter(|kept| kept.version.checked_add(1) == Some(record.version));
        known.kept = next.map(|_| KeptBytes::of(record));
    }

    /// The kernel's bytes of an inode are no good.
    pub(super) fn lose_kept(&mut self, inode: FsInode) {
        let node = self.node(inode);
        if let Some(known) = node.and_then(|node| self.by_node.get_mut(&node)) {
            known.kept = None;
        }
    }

    /// This mount changes an inode: attributes of it that were asked for before are old.
    pub(super) fn touch(&mut self, inode: FsInode) {
        self.clock += 1;
        let (clock, node) = (self.clock, self.node(inode));
        if let Some(known) = node.and_then(|node| self.by_node.get_mut(&node)) {
            known.touched = clock;
        }
    }

    /// The time by the map's clock.
    pub(super) fn now(&self) -> u64 {
        self.clock
    }

    /// Whether an inode was changed from here since.
    pub(super) fn is_touched_since(&self, inode: FsInode, then: u64) -> bool {
        let known = self.node(inode).and_then(|node| self.by_node.get(&node));
        known.is_some_and(|known| known.touched > then)
    }

    /// A directory was found in another one.
    pub(super) fn found_in(&mut self, node: u64, above: u64) {
        let moves = self.moves;
        if let Some(known) = self.by_node.get_mut(&node) {
            known.above = Some((above, moves));
        }
    }

    /// A directory may have moved from one to another.
    pub(super) fn moved(&mut self) {
        self.moves += 1;
    }

    /// The directory above one, if it was looked up and nothing has moved since.
    pub(super) fn above(&self, node: u64) -> Option<u64> {
        let (above, moves) = self.by_node.get(&node)?.above?;
        (moves == self.moves).then_some(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(number: u64, generation: u64) -> FsInode {
        FsInode { number, generation }
    }

    fn record(version: u64, mtime_ns: i64, size: u64) -> FsRecord {
        FsRecord { version, mtime_ns, size, ..FsRecord::default() }
    }

    #[test]
    fn a_number_that_is_used_again_is_another_inode() {
        let mut map = InodeMap::new(inode(1, 1));
        assert_eq!(map.tell(inode(7, 1)), 7);
        let again = map.tell(inode(7, 2));
        assert_ne!(again, 7);
        assert_eq!((map.inode(7), map.inode(again)), (Some(inode(7, 1)), Some(inode(7, 2))));
        map.forget(7, 1);
        assert_eq!((map.inode(7), map.inode(again)), (None, Some(inode(7, 2))));
        assert_eq!(map.tell(inode(7, 2)), again, "it keeps its number");
        map.forget(again, 2);
        assert_eq!(map.tell(inode(7, 2)), 7);
    }

    #[test]
    fn no_inode_has_the_roots_number_but_the_root() {
        let mut map = InodeMap::new(inode(3, 1));
        assert_eq!(map.tell(inode(3, 1)), ROOT_NODE);
        let others = [map.tell(inode(1, 1)), map.tell(inode(0, 1)), map.tell(inode(u64::MAX, 1))];
        assert!(others.iter().all(|node| *node >= OWN), "{others:?}");
        map.forget(ROOT_NODE, u64::MAX);
        assert_eq!(map.inode(ROOT_NODE), Some(inode(3, 1)), "the root stays");
    }

    #[test]
    fn it_goes_with_the_last_look_up_and_not_before() {
        let mut map = InodeMap::new(inode(1, 1));
        for _ in 0..3 {
            assert_eq!(map.tell(inode(9, 4)), 9);
        }
        map.forget(9, 2);
        assert_eq!(map.inode(9), Some(inode(9, 4)));
        map.forget(9, 1);
        assert_eq!((map.inode(9), map.node(inode(9, 4))), (None, None));
        map.forget(9, 1);
    }

    #[test]
    fn what_was_changed_here_is_known() {
        let mut map = InodeMap::new(inode(1, 1));
        map.tell(inode(9, 1));
        let then = map.now();
        assert!(!map.is_touched_since(inode(9, 1), then));
        map.touch(inode(9, 1));
        map.touch(inode(1, 1));
        assert!(map.is_touched_since(inode(9, 1), then));
        assert!(!map.is_touched_since(inode(9, 1), map.now()));
        map.found_in(9, ROOT_NODE);
        assert_eq!((map.above(9), map.above(7)), (Some(ROOT_NODE), None));
        map.moved();
        assert_eq!(map.above(9), None);
    }

    #[test]
    fn bytes_are_kept_until_somebody_else_changes_them() {
        let mut map = InodeMap::new(inode(1, 1));
        let node = map.tell(inode(9, 1));
        assert!(!map.keeps(node, &record(5, 100, 10)), "it had none");
        assert!(map.keeps(node, &record(5, 100, 10)));
        assert!(map.keeps(node, &record(6, 100, 10)), "another name, not other bytes");
        map.changed_here(inode(9, 1), &record(7, 200, 20));
        assert!(map.keeps(node, &record(7, 200, 20)), "its own write");
        map.changed_here(inode(9, 1), &record(9, 300, 30));
        assert!(!map.keeps(node, &record(9, 300, 30)), "somebody wrote between");
        assert!(!map.keeps(node, &record(10, 400, 30)));
        map.lose_kept(inode(9, 1));
        assert!(!map.keeps(node, &record(10, 400, 30)));
    }
}
