//! Reads that wait for chunks, and chunks that were demanded for them: a value without threads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A demand that has brought nothing for this long goes to the source.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Reads of type `R`, by the chunk that they wait for. Bounded by the requests that the kernel has
/// under way, and by the chunks of the cast.
#[derive(Debug)]
pub(super) struct ChunkWaits<R> {
    reads: BTreeMap<u32, Vec<R>>,
    /// When a chunk was demanded.
    demanded: BTreeMap<u32, Instant>,
}

impl<R> Default for ChunkWaits<R> {
    fn default() -> Self {
        Self { reads: BTreeMap::new(), demanded: BTreeMap::new() }
    }
}

impl<R> ChunkWaits<R> {
    /// A read waits for a chunk.
    pub(super) fn wait(&mut self, chunk: u32, read: R) {
        self.reads.entry(chunk).or_default().push(read);
    }

    /// Those of the chunks that were not demanded before, which they are now.
    pub(super) fn demand(&mut self, chunks: &[u32], now: Instant) -> Vec<u32> {
        let new = chunks.iter().filter(|chunk| !self.demanded.contains_key(chunk));
        let new: Vec<u32> = new.copied().collect();
        self.demanded.extend(new.iter().map(|chunk| (*chunk, now)));
        new
    }

    /// A chunk has come: the reads that waited for it.
    pub(super) fn came(&mut self, chunk: u32) -> Vec<R> {
        self.demanded.remove(&chunk);
        self.reads.remove(&chunk).unwrap_or_default()
    }

    /// All reads.
    pub(super) fn take_all(&mut self) -> Vec<R> {
        self.demanded.clear();
        std::mem::take(&mut self.reads).into_values().flatten().collect()
    }

    /// Chunks that reads wait for.
    pub(super) fn awaited(&self) -> Vec<u32> {
        self.reads.keys().copied().collect()
    }

    /// Chunks that reads wait for and that were demanded long ago; from now they count anew.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<u32> {
        let mut overdue = self.awaited();
        overdue.retain(|chunk| {
            let since = self.demanded.get(chunk);
            since.is_none_or(|since| now.saturating_duration_since(*since) >= PATIENCE)
        });
        self.demanded.extend(overdue.iter().map(|chunk| (*chunk, now)));
        overdue
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_chunk_are_one_demand() {
        let (mut waits, now) = (ChunkWaits::default(), Instant::now());
        assert_eq!(waits.demand(&[3, 4], now), [3, 4]);
        assert_eq!(waits.demand(&[4, 5], now), [5]);
        waits.wait(4, "one");
        waits.wait(4, "two");
        assert_eq!(waits.came(4), ["one", "two"]);
        assert!(waits.is_empty());
        assert_eq!(waits.demand(&[4], now), [4], "it may be demanded again");
    }

    #[test]
    fn what_is_awaited_for_long_is_overdue_once_a_second() {
        let (mut waits, now) = (ChunkWaits::default(), Instant::now());
        waits.demand(&[1, 2], now);
        waits.wait(2, ());
        assert!(waits.overdue(now).is_empty());
        assert_eq!(waits.overdue(now + PATIENCE), [2], "no reader waits for 1");
        assert!(waits.overdue(now + PATIENCE).is_empty());
        assert_eq!(waits.overdue(now + 2 * PATIENCE), [2]);
    }
}
