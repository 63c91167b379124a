//! What this mount knows of names and attributes, so that it need not ask: as long as a lease runs,
//! the service tells what changes.
//!
//! The kernel has names for moments only ([`LentNames`]). A value without I/O; an answer that was
//! asked for before something changed is not learnt.

use super::lent::LentNames;
use crate::protocol::{FsAnswer, FsInode, FsRecord, LEASE};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Names and inodes that are known, at most; more make everything be forgotten.
const KNOWN_MAX: usize = 1 << 18;

/// When something was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedAt {
    clock: u64,
    until: Instant,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownName {
    /// It stands for this inode.
    Is(FsInode),
    /// There is none.
    Absent,
    /// Nothing.
    Unknown,
}

#[derive(Debug)]
struct KnownDir {
    until: Instant,
    /// What is not among the names is not there.
    is_whole: bool,
    names: HashMap<Box<[u8]>, Option<FsInode>>,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct KnownTree {
    /// Counts changes.
    clock: u64,
    /// Answers that were asked for before are not learnt.
    floor: u64,
    /// When others have changed something, by the clock; and this mount.
    changed: HashMap<FsInode, u64>,
    changed_here: HashMap<FsInode, u64>,
    dirs: HashMap<FsInode, KnownDir>,
    records: HashMap<FsInode, (FsRecord, Instant)>,
    names: usize,
    lent: LentNames,
}

impl KnownDir {
    fn of(&self, name: &[u8]) -> KnownName {
        match self.names.get(name) {
            Some(Some(inode)) => KnownName::Is(*inode),
            Some(None) => KnownName::Absent,
            None if self.is_whole => KnownName::Absent,
            None => KnownName::Unknown,
        }
    }
}

impl KnownTree {
    /// Something is asked now.
    pub(super) fn ask(&self, now: Instant) -> AskedAt {
        AskedAt { clock: self.clock, until: now + LEASE }
    }

    /// What is known of a name.
    pub(super) fn name(&self, dir: FsInode, name: &[u8], now: Instant) -> KnownName {
        let known = self.dirs.get(&dir).filter(|known| now < known.until);
        known.map_or(KnownName::Unknown, |known| known.of(name))
    }

    /// The kernel is told what a name stands for: how long it may keep that.
    pub(super) fn lend(
        &mut self,
        (dir, name): (FsInode, &[u8]),
        inode: FsInode,
        now: Instant,
    ) -> Duration {
        let known = self.dirs.get(&dir).filter(|known| known.of(name) == KnownName::Is(inode));
        let left = known.map(|known| known.until.saturating_duration_since(now));
        left.map_or(Duration::ZERO, |left| self.lent.lend(dir, left, now))
    }

    /// Others change a directory's names: when the kernel has none of them any more.
    pub(super) fn recall(&mut self, dir: FsInode, now: Instant) -> Instant {
        self.lent.recall(dir, now)
    }

    /// An inode's attributes, and for how long they are good.
    pub(super) fn record(&self, inode: FsInode, now: Instant) -> Option<(FsAnswer, Duration)> {
        let (record, until) = self.records.get(&inode)?;
        let left = until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some((FsAnswer { inode, record: *record }, left))
    }

    fn is_news(&self, inode: FsInode, asked: AskedAt) -> bool {
        let changed = self.changed.get(&inode).copied().unwrap_or(0);
        asked.clock >= self.floor && asked.clock >= changed
    }

    /// The service says what a name stood for; `None`: it stood for nothing.
    pub(super) fn learn_name(
        &mut self,
        asked: AskedAt,
        (dir, name): (FsInode, &[u8]),
        stands_for: Option<FsInode>,
    ) {
        let here = self.changed_here.get(&dir).copied().unwrap_or(0);
        if self.is_news(dir, asked) && asked.clock >= here {
            self.put_name(asked, (dir, name), stands_for);
        }
    }

    fn put_name(
        &mut self,
        asked: AskedAt,
        (dir, name): (FsInode, &[u8]),
        stands_for: Option<FsInode>,
    ) {
        self.make_room();
        let known = self.dirs.entry(dir).or_insert_with(|| KnownDir::new(asked.until));
        if known.until < Instant::now() {
            // What was known has no lease; others may have changed it.
            self.names -= known.names.len();
            *known = KnownDir::new(asked.until);
        }
        known.until = known.until.max(asked.until);
        if known.names.insert(name.into(), stands_for).is_none() {
            self.names += 1;
        }
    }

    /// The service says what an inode's attributes were.
    pub(super) fn learn(&mut self, asked: AskedAt, answer: &FsAnswer) {
        let FsAnswer { inode, record } = *answer;
        if inode.number == 0 || record.nlink == 0 || !self.is_news(inode, asked) {
            return;
        }
        self.make_room();
        let known = self.records.entry(inode).or_insert((record, asked.until));
        if known.0.version <= record.version {
            *known = (record, known.1.max(asked.until));
        }
    }

    /// Learns what a directory's name stands for since this mount has changed it.
    pub(super) fn changed_name(
        &mut self,
        asked: AskedAt,
        (dir, name): (FsInode, &[u8]),
        stands_for: Option<FsInode>,
    ) {
        self.clock += 1;
        self.changed_here.insert(dir, self.clock);
        match self.is_news(dir, asked) {
            true => self.put_name(asked, (dir, name), stands_for),
            false => drop(self.forget_dir(dir)),
        }
    }

    /// This mount has made a directory: it has no names.
    pub(super) fn made_dir(&mut self, asked: AskedAt, dir: FsInode) {
        if self.is_news(dir, asked) {
            self.make_room();
            let known = KnownDir { is_whole: true, ..KnownDir::new(asked.until) };
            self.dirs.insert(dir, known);
        }
    }

    /// Others have changed a directory's names.
    pub(super) fn names_changed(&mut self, dir: FsInode) -> Vec<FsInode> {
        self.clock += 1;
        self.changed.insert(dir, self.clock);
        self.records.remove(&dir);
        let known = self.forget_dir(dir);
        // What has another name, or one fewer, has other attributes.
        known.iter().for_each(|inode| self.attributes_changed(*inode));
        known
    }

    /// An inode's attributes have changed, and how is not known.
    pub(super) fn attributes_changed(&mut self, inode: FsInode) {
        self.clock += 1;
        self.changed.insert(inode, self.clock);
        self.records.remove(&inode);
    }

    fn forget_dir(&mut self, dir: FsInode) -> Vec<FsInode> {
        let Some(known) = self.dirs.remove(&dir) else { return Vec::new() };
        self.names -= known.names.len();
        known.names.into_values().flatten().collect()
    }

    /// Nothing is known any more, and nothing that was asked for before is learnt.
    pub(super) fn forget_all(&mut self) {
        self.clock += 1;
        let lent = std::mem::take(&mut self.lent);
        *self = Self { clock: self.clock, floor: self.clock, lent, ..Self::default() };
    }

    fn make_room(&mut self) {
        let marks = self.changed.len() + self.changed_here.len();
        let counts = [self.names, self.dirs.len(), self.records.len(), marks];
        if counts.into_iter().any(|count| count >= KNOWN_MAX) {
            self.forget_all();
        }
    }
}

impl KnownDir {
    fn new(until: Instant) -> Self {
        Self { until, is_whole: false, names: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: FsInode = FsInode { number: 1, generation: 1 };
    const FILE: FsInode = FsInode { number: 9, generation: 1 };

    fn answer(version: u64) -> FsAnswer {
        FsAnswer { inode: FILE, record: FsRecord { version, nlink: 1, ..FsRecord::default() } }
    }

    fn name(tree: &KnownTree, name: &[u8]) -> KnownName {
        tree.name(DIR, name, Instant::now())
    }

    fn version(tree: &KnownTree) -> Option<u64> {
        tree.record(FILE, Instant::now()).map(|(answer, _)| answer.record.version)
    }

    #[test]
    fn what_was_asked_before_a_change_is_not_learnt() {
        let mut tree = KnownTree::default();
        let asked = tree.ask(Instant::now());
        drop(tree.names_changed(DIR));
        tree.attributes_changed(FILE);
        tree.learn_name(asked, (DIR, b"a"), Some(FILE));
        tree.learn(asked, &answer(5));
        assert_eq!((name(&tree, b"a"), version(&tree)), (KnownName::Unknown, None));
        let asked = tree.ask(Instant::now());
        tree.learn_name(asked, (DIR, b"a"), Some(FILE));
        tree.learn_name(asked, (DIR, b"b"), None);
        tree.learn(asked, &answer(6));
        assert_eq!(
            (name(&tree, b"a"), name(&tree, b"b")),
            (KnownName::Is(FILE), KnownName::Absent)
        );
        assert_eq!((name(&tree, b"c"), version(&tree)), (KnownName::Unknown, Some(6)));
        tree.learn(asked, &answer(5));
        assert_eq!(version(&tree), Some(6), "it is older");
        assert_eq!(tree.names_changed(DIR), [FILE]);
        assert_eq!((name(&tree, b"a"), version(&tree)), (KnownName::Unknown, None));
        tree.forget_all();
        tree.learn(asked, &answer(9));
        assert_eq!(version(&tree), None);
    }

    #[test]
    fn what_is_changed_here_is_known_unless_others_have_changed_it_too() {
        let mut tree = KnownTree::default();
        let asked = tree.ask(Instant::now());
        let looked = tree.ask(Instant::now());
        tree.changed_name(asked, (DIR, b"a"), Some(FILE));
        tree.learn_name(looked, (DIR, b"a"), None);
        assert_eq!(name(&tree, b"a"), KnownName::Is(FILE), "that look was before");
        let asked = tree.ask(Instant::now());
        drop(tree.names_changed(DIR));
        tree.changed_name(asked, (DIR, b"a"), None);
        assert_eq!(name(&tree, b"a"), KnownName::Unknown);
    }

    #[test]
    fn a_directory_that_was_made_here_has_no_other_names() {
        let mut tree = KnownTree::default();
        let asked = tree.ask(Instant::now());
        tree.made_dir(asked, DIR);
        assert_eq!(name(&tree, b"a"), KnownName::Absent);
        tree.changed_name(asked, (DIR, b"a"), Some(FILE));
        assert_eq!(
            (name(&tree, b"a"), name(&tree, b"b")),
            (KnownName::Is(FILE), KnownName::Absent)
        );
        drop(tree.names_changed(DIR));
        assert_eq!(name(&tree, b"b"), KnownName::Unknown);
    }

    #[test]
    fn nothing_is_known_longer_than_its_lease() {
        let mut tree = KnownTree::default();
        let begun = Instant::now() - LEASE;
        let asked = tree.ask(begun);
        tree.made_dir(asked, DIR);
        tree.learn(asked, &answer(5));
        assert_eq!((name(&tree, b"a"), version(&tree)), (KnownName::Unknown, None));
        // A lease that was over cannot be made longer: others may have changed it between.
        let asked = tree.ask(Instant::now());
        tree.changed_name(asked, (DIR, b"a"), Some(FILE));
        assert_eq!(
            (name(&tree, b"a"), name(&tree, b"b")),
            (KnownName::Is(FILE), KnownName::Unknown)
        );
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut tree = KnownTree::default();
        // No lease ends meanwhile.
        let asked = tree.ask(Instant::now() + LEASE * 1000);
        for number in 0..KNOWN_MAX as u64 {
            tree.learn_name(asked, (DIR, &number.to_le_bytes()), None);
        }
        assert_eq!(tree.names, KNOWN_MAX);
        tree.learn_name(asked, (DIR, b"one more"), None);
        assert!(tree.names <= 1);
        for number in 0..2 * KNOWN_MAX as u64 {
            let asked = tree.ask(Instant::now());
            tree.made_dir(asked, FsInode { number, generation: 1 });
            assert!(tree.dirs.len() <= KNOWN_MAX);
        }
    }
}
