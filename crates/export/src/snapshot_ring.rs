//! Allocation in the ring of snapshots: the place of a new snapshot, and the older ones that it
//! overwrites.
//!
//! Handles places only; the bytes lie in the exported region. Readers that come too late find bytes
//! without the expected hash, so there are no leases and no waits.

use crate::replica::CONTENTS_LEN_MAX;
use std::collections::BTreeMap;

/// Alignment that keeps two snapshots in different cache lines.
const ALIGN: usize = 64;

/// A file: device and inode number.
pub(crate) type FileId = (u64, u64);

#[derive(Debug)]
pub(crate) struct SnapshotRing {
    len: usize,
    /// Offset of the next snapshot.
    next: usize,
    /// The snapshots by their offset: the end of each, and its file.
    held: BTreeMap<usize, (usize, FileId)>,
}

impl SnapshotRing {
    pub(crate) fn new(len: usize) -> Self {
        Self { len, next: 0, held: BTreeMap::new() }
    }

    /// The largest snapshot that the ring and servers accept.
    pub(crate) fn len_max(&self) -> usize {
        let servers = usize::try_from(CONTENTS_LEN_MAX).unwrap_or(usize::MAX);
        servers.min(self.len / 4)
    }

    /// A place for `len` bytes (at most `len_max`), and the files whose snapshots it overwrites.
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
        let mut ring = SnapshotRing::new(640);
        for ino in 0..10 {
            assert_eq!(ring.place(64, (0, ino)), (64 * usize::try_from(ino).unwrap(), vec![]));
        }
        assert_eq!(ring.place(65, (0, 10)), (0, vec![(0, 0), (0, 1)]));
        assert_eq!(ring.place(0, (0, 11)), (128, vec![(0, 2)]));
    }

    #[test]
    fn a_snapshot_never_wraps() {
        let mut ring = SnapshotRing::new(640);
        ring.place(128, (0, 0));
        ring.place(128, (0, 1));
        ring.place(128, (0, 2));
        ring.place(128, (0, 3));
        assert_eq!(ring.place(160, (0, 4)), (0, vec![(0, 0), (0, 1)]));
    }
}
