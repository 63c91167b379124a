//! Negative entries: paths outside the roots at which there is nothing, the least recently used of
//! which makes room for a new one. Never looks at a file system.

use crate::path::Path;
use std::collections::BTreeMap;

/// Negative entries, at most; each is looked at on every submission.
pub(crate) const NEGATIVE_ENTRIES_MAX: usize = 1024;

/// See the [module](self). A `Use` numbers the uses of all entries.
#[derive(Debug)]
pub(crate) struct NegativeEntries<Use = u64> {
    last_uses: BTreeMap<Path, Use>,
    by_last_use: BTreeMap<Use, Path>,
    uses: u64,
}

impl<Use> Default for NegativeEntries<Use> {
    fn default() -> Self {
        Self { last_uses: BTreeMap::new(), by_last_use: BTreeMap::new(), uses: 0 }
    }
}

impl<Use: Copy + Ord + From<u64>> NegativeEntries<Use> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.last_uses.keys()
    }

    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        self.last_uses.contains_key(path)
    }

    pub(crate) fn remove(&mut self, path: &[u8]) {
        if let Some(last_use) = self.last_uses.remove(path) {
            self.by_last_use.remove(&last_use);
        }
    }

    /// Adds a negative entry, or notes its use: then it is not new. If there are too many, the
    /// least recently used is dropped and returned; it can be added again.
    pub(crate) fn add(&mut self, path: &Path) -> (bool, Option<Path>) {
        self.uses += 1;
        let now = Use::from(self.uses);
        self.by_last_use.insert(now, Path::clone(path));
        if let Some(earlier) = self.last_uses.insert(Path::clone(path), now) {
            self.by_last_use.remove(&earlier);
            return (false, None);
        }
        if self.last_uses.len() <= NEGATIVE_ENTRIES_MAX {
            return (true, None);
        }
        let oldest = self.by_last_use.pop_first().map(|(_, path)| path);
        oldest.iter().for_each(|path| _ = self.last_uses.remove(path));
        (true, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// The number of a use. Comparisons of such numbers are counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct CountedUse(u64);

    impl From<u64> for CountedUse {
        fn from(number: u64) -> Self {
            Self(number)
        }
    }

    impl Ord for CountedUse {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for CountedUse {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    fn path(number: usize) -> Path {
        format!("/gap{number}").into_bytes().into()
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut entries = NegativeEntries::<u64>::default();
        for number in 0..NEGATIVE_ENTRIES_MAX {
            assert_eq!(entries.add(&path(number)), (true, None));
        }
        assert_eq!(entries.add(&path(0)), (false, None), "it is used again");
        entries.remove(&path(1));
        assert_eq!(entries.add(&path(9000)), (true, None), "one was removed");
        assert_eq!(entries.add(&path(9001)), (true, Some(path(2))));
        assert!(entries.contains(&path(0)) && !entries.contains(&path(2)));
        assert_eq!(entries.iter().count(), NEGATIVE_ENTRIES_MAX);
        assert_eq!(entries.by_last_use.len(), NEGATIVE_ENTRIES_MAX);
    }

    #[test]
    fn a_new_entry_does_not_look_at_all_others() {
        let mut entries = NegativeEntries::<CountedUse>::default();
        let mut most = 0;
        for number in 0..NEGATIVE_ENTRIES_MAX * 2 {
            COMPARISONS.set(0);
            entries.add(&path(number));
            most = most.max(COMPARISONS.get());
        }
        // A node of a B-tree has up to 11 keys, and 1024 entries make three or four levels.
        assert!((1..100).contains(&most), "{most} comparisons");
    }
}
