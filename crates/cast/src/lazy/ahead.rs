//! What is demanded ahead of a reader: nothing for one that jumps, more and more for one that reads
//! on.

use std::ops::Range;

/// What a reader that has begun to read on is given ahead, bytes.
const AHEAD_LEN_MIN: u64 = 1 << 20;
/// At most, bytes: a quarter of a node's window.
const AHEAD_LEN_MAX: u64 = 8 << 20;
/// A read that begins so near to the end of the last one, bytes, goes on from there: the kernel
/// reads ahead by itself, with several requests at a time.
const NEAR_LEN: u64 = 256 << 10;

/// One open file's reader.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Where the last read ended.
    end: u64,
    /// Bytes that the reader is given ahead; 0 for one that jumps.
    len: u64,
    /// Up to where the file was demanded.
    until: u64,
}

impl ReadAhead {
    /// Notes a read; returns what to demand ahead of it, which was not demanded before.
    pub(super) fn note(&mut self, read: &Range<u64>) -> Range<u64> {
        // One that begins at the beginning is taken to read on.
        let reads_on = read.start.abs_diff(self.end) <= NEAR_LEN;
        self.len = match reads_on {
            true => (self.len * 2).clamp(AHEAD_LEN_MIN, AHEAD_LEN_MAX),
            false => 0,
        };
        self.end = read.end;
        let from = if reads_on { self.until.max(read.end) } else { read.end };
        self.until = from.max(read.end + self.len);
        from..self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_jumps_is_given_nothing_ahead() {
        let mut ahead = ReadAhead::default();
        for at in [70 << 20, 50 << 20, 10 << 20, 90 << 20] {
            assert!(ahead.note(&(at..at + 4096)).is_empty(), "{at}");
        }
    }

    #[test]
    fn a_reader_that_reads_on_is_given_each_byte_ahead_once() {
        let mut ahead = ReadAhead::default();
        let mut demanded = 128 << 10;
        for read in 1..400_u64 {
            let at = (read - 1) * (128 << 10);
            let more = ahead.note(&(at..at + (128 << 10)));
            if !more.is_empty() {
                assert_eq!(more.start, demanded);
                demanded = more.end;
            }
            assert!(demanded > at + (256 << 10), "always ahead");
            assert!(demanded <= at + (128 << 10) + AHEAD_LEN_MAX);
        }
        assert!(demanded >= 399 * (128 << 10) + AHEAD_LEN_MAX - (1 << 20));
    }
}
