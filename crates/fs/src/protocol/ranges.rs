//! Ranges of a file that one owner has locked: set, split and joined as fcntl(2) says.
//!
//! Both sides keep them; nothing here knows of other owners.

use super::locks::LockKind;
use std::collections::BTreeMap;

/// A range: first byte and last byte.
pub type ByteRange = (u64, u64);

/// See this file's first lines. Ranges do not overlap, and those of a kind do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRanges(BTreeMap<u64, (u64, LockKind)>);

impl LockRanges {
    /// Has a range locked so, or not at all, whatever it was.
    pub fn set(&mut self, (start, end): ByteRange, kind: Option<LockKind>) {
        let touched = self.touching(start, end);
        for (first, last, old) in touched {
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, (start - 1, old));
            }
            if last > end {
                self.0.insert(end + 1, (last, old));
            }
        }
        if let Some(kind) = kind {
            self.join((start, end), kind);
        }
    }

    fn join(&mut self, (mut start, mut end): ByteRange, kind: LockKind) {
        let before =
            self.0.range(..start).next_back().map(|(first, (last, of))| (*first, *last, *of));
        if let Some((first, last, of)) = before
            && of == kind
            && last.checked_add(1) == Some(start)
        {
            self.0.remove(&first);
            start = first;
        }
        let behind = end.checked_add(1).and_then(|next| self.0.get(&next).copied().zip(Some(next)));
        if let Some(((last, of), first)) = behind
            && of == kind
        {
            self.0.remove(&first);
            end = last;
        }
        self.0.insert(start, (end, kind));
    }

    /// Those that have a byte of a range: first byte, last byte, kind.
    fn touching(&self, start: u64, end: u64) -> Vec<(u64, u64, LockKind)> {
        let before = self.0.range(..=start).next_back().filter(|(_, (last, _))| *last >= start);
        let from = before.map_or(start, |(first, _)| *first);
        self.0.range(from..=end).map(|(first, (last, kind))| (*first, *last, *kind)).collect()
    }

    /// One that excludes a lock of this kind on a range, the first.
    #[must_use]
    pub fn in_the_way(
        &self,
        (start, end): ByteRange,
        kind: LockKind,
    ) -> Option<(ByteRange, LockKind)> {
        let before = self.0.range(..=start).next_back().filter(|(_, (last, _))| *last >= start);
        let from = before.map_or(start, |(first, _)| *first);
        let mut all = self.0.range(from..=end);
        all.find(|(_, (_, of))| of.excludes(kind)).map(|(first, (last, of))| ((*first, *last), *of))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, LockKind)> + '_ {
        self.0.iter().map(|(first, (last, kind))| ((*first, *last), *kind))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_split_and_join_as_bytes_do() {
        const BYTES: usize = 24;
        let mut random = 5_u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).expect("31 bits") % limit
        };
        let (mut ranges, mut bytes) = (LockRanges::default(), [None; BYTES]);
        for _ in 0..20_000 {
            let (one, other) = (below(BYTES), below(BYTES));
            let (first, last) = (one.min(other), one.max(other));
            let (start, end) = (first as u64, last as u64);
            let kind = [None, Some(LockKind::Shared), Some(LockKind::Exclusive)][below(3)];
            ranges.set((start, end), kind);
            bytes[first..=last].fill(kind);
            let mut runs = Vec::new();
            for (at, kind) in bytes.iter().enumerate() {
                match (kind, runs.last_mut()) {
                    (Some(kind), Some(((_, last), of))) if *last + 1 == at as u64 && of == kind => {
                        *last = at as u64;
                    }
                    (Some(kind), _) => runs.push(((at as u64, at as u64), *kind)),
                    (None, _) => {}
                }
            }
            assert_eq!(ranges.iter().collect::<Vec<_>>(), runs);
            let way = ranges.in_the_way((start, end), LockKind::Shared);
            let is_exclusive = bytes[first..=last].contains(&Some(LockKind::Exclusive));
            assert_eq!(way.is_some(), is_exclusive);
        }
    }

    #[test]
    fn the_last_byte_of_all_is_one() {
        let mut ranges = LockRanges::default();
        ranges.set((10, u64::MAX), Some(LockKind::Exclusive));
        ranges.set((u64::MAX, u64::MAX), Some(LockKind::Shared));
        ranges.set((0, 9), Some(LockKind::Exclusive));
        assert_eq!(ranges.len(), 2);
        ranges.set((0, u64::MAX), None);
        assert!(ranges.is_empty());
    }
}
