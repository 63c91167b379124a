//! What a sequential reader is given before it asks.
//!
//! A value: it is told of reads and says what to fetch besides. Knows no bytes.

use std::ops::Range;

/// Bytes that are fetched at a time.
pub(super) const PIECE: u64 = 1 << 20;
/// Bytes that are fetched ahead of a reader, at most.
const AHEAD_MAX: u64 = 4 * PIECE;

/// See this file's first lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AheadPlan {
    /// Where a sequential reader goes on.
    next: u64,
    /// Up to where everything was asked for.
    asked: u64,
    /// How far ahead the reader is served; 0 for one that is not sequential.
    window: u64,
}

impl AheadPlan {
    /// What is there without having been asked for here: all up to that place.
    pub(super) fn has(&mut self, to: u64) {
        self.asked = self.asked.max(to);
    }

    /// A read, and how large the file is, as far as is known: what to fetch besides it. `None` for
    /// one that does not follow the one before: what was fetched ahead is of no use.
    pub(super) fn read(&mut self, read: &Range<u64>, size: u64) -> Option<Vec<Range<u64>>> {
        // The kernel's own reads ahead come out of order by one or two.
        let is_near = read.start.abs_diff(self.next) <= PIECE / 2 && read.start > 0;
        if read.start != self.next && !(is_near && self.window > 0) {
            *self = Self { next: read.end, asked: read.end, window: 0 };
            return None;
        }
        self.next = self.next.max(read.end);
        self.asked = self.asked.max(read.end);
        self.window = (self.window * 2).clamp(PIECE, AHEAD_MAX);
        let to = self.next.saturating_add(self.window).min(size);
        let mut pieces = Vec::new();
        // Only whole pieces, but for the file's end.
        while self.asked < to && (to - self.asked >= PIECE || to == size) {
            let end = (self.asked / PIECE + 1).saturating_mul(PIECE).min(to);
            pieces.push(self.asked..end);
            self.asked = end;
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_is_served_further_and_further_ahead() {
        let mut plan = AheadPlan::default();
        let size = 64 * PIECE;
        let mut asked = 0;
        for at in (0..size).step_by(128 << 10) {
            let read = at..at + (128 << 10);
            asked = asked.max(read.end);
            for piece in plan.read(&read, size).expect("sequential") {
                assert_eq!(piece.start, asked, "no gap, nothing twice");
                assert!(piece.end - piece.start <= PIECE);
                asked = piece.end;
            }
            assert!(asked - read.end <= AHEAD_MAX);
            if at > 4 * PIECE && read.end + 2 * AHEAD_MAX < size {
                assert!(asked - read.end >= AHEAD_MAX - PIECE, "{at}");
            }
        }
        assert_eq!(asked, size);
    }

    #[test]
    fn others_are_given_what_they_ask_for() {
        let mut plan = AheadPlan::default();
        let size = 64 * PIECE;
        for at in [5, 40, 3, 20, 60] {
            assert_eq!(plan.read(&(at * PIECE..at * PIECE + 4096), size), None);
        }
        let read = 60 * PIECE + 4096..60 * PIECE + 8192;
        assert!(plan.read(&read, size).is_some_and(|pieces| !pieces.is_empty()));
        assert_eq!(plan.read(&(0..4096), size), None);
    }

    #[test]
    fn a_small_file_is_one_piece_and_nothing_behind_the_end_is_asked_for() {
        let mut plan = AheadPlan::default();
        assert_eq!(plan.read(&(0..4096), 4096), Some(vec![]));
        let mut plan = AheadPlan::default();
        assert_eq!(plan.read(&(0..4096), 10_000), Some(vec![4096..10_000]));
        assert_eq!(plan.read(&(4096..8192), 10_000), Some(vec![]));
        assert_eq!(plan.read(&(8192..u64::MAX), 10_000), Some(vec![]));
    }
}
