//! The ring of snapshots: a place for each, and which older ones it costs.
//!
//! Knows places only; the bytes lie in the exported region. Readers that come too late find bytes
//! that do not hash to what they expected, so nothing is leased and nothing waits.

use crate::replica::CONTENTS_LEN_MAX;
use std::collections::BTreeMap;

/// What keeps two snapshots in different cache lines.
const ALIGN: usize = 64;

/// A file: device and inode number.
pub(crate) type FileId = (u64, u64);

#[derive(Debug)]
pub(crate) struct Arena {
    len: usize,
    /// Where the next snapshot goes.
    next: usize,
    /// Where each one begins: its end and whose it is.
    held: BTreeMap<usize, (usize, FileId)>,
}

impl Arena {
    pub(crate) fn new(len: usize) -> Self {
        Self { len, next: 0, held: BTreeMap::new() }
    }

    /// The largest snapshot that there is a place for, and that servers take.
    pub(crate) fn len_max(&self) -> usize {
        let servers = usize::try_from(CONTENTS_LEN_MAX).unwrap_or(usize::MAX);
        servers.min(self.len / 4)
    }

    /// A place for `len` bytes (at most `len_max`), and whose snapshots are lost by that.
    pub(crate) fn place(&mut self, len: usize, id: FileId) -> (usize, Vec<FileId>) {
        let room = len.max(1).next_multiple_of(ALIGN);
        if self.next + room > self.len {
            self.next = 0;
        }
        let at = self.next;
        let lost = self.take_overlapping(at, at + room);
        self.held.insert(at, (at + room, id));
        self.next = at + room;
        (at, lost)
    }

    fn take_overlapping(&mut self, start: usize, end: usize) -> Vec<FileId> {
        let before = self.held.range(..start).next_back().filter(|(_, held)| held.0 > start);
        let mut places: Vec<usize> = before.map(|(&at, _)| at).into_iter().collect();
        places.extend(self.held.range(start..end).map(|(&at, _)| at));
        let owners = places.iter().filter_map(|at| self.held.remove(at));
        owners.map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_takes_the_oldest_places_first() {
        let mut arena = Arena::new(640);
        for ino in 0..10 {
            assert_eq!(arena.place(64, (0, ino)), (64 * usize::try_from(ino).unwrap(), vec![]));
        }
        assert_eq!(arena.place(65, (0, 10)), (0, vec![(0, 0), (0, 1)]));
        assert_eq!(arena.place(0, (0, 11)), (128, vec![(0, 2)]));
    }

    #[test]
    fn a_snapshot_never_wraps() {
        let mut arena = Arena::new(640);
        arena.place(128, (0, 0));
        arena.place(128, (0, 1));
        arena.place(128, (0, 2));
        arena.place(128, (0, 3));
        assert_eq!(arena.place(160, (0, 4)), (0, vec![(0, 0), (0, 1)]));
    }
}
