//! Small writes that follow each other become large ones.
//!
//! A value: it is given bytes and says what is to be sent. One run is held at a time; what does not
//! touch it sends it away.

use std::ops::Range;

/// Bytes to be written at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatheredWrite {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl GatheredWrite {
    /// Where it goes.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes.len() as u64)
    }
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct WriteGather {
    run: GatheredWrite,
    /// Runs end at multiples of this, so that no block is in two of them.
    limit: usize,
}

impl WriteGather {
    pub(super) fn new(limit: usize) -> Self {
        Self { run: GatheredWrite { offset: 0, bytes: Vec::new() }, limit: limit.max(1) }
    }

    /// Adds bytes; what must be sent now, in this order.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) -> Vec<GatheredWrite> {
        let mut due = Vec::new();
        if !self.touches(offset) {
            due.extend(self.take());
        }
        if self.is_empty() {
            self.run.offset = offset;
        }
        // It is inside: `touches` has said so.
        let at = usize::try_from(offset - self.run.offset).unwrap_or(usize::MAX);
        let inside = bytes.len().min(self.run.bytes.len() - at);
        self.run.bytes[at..at + inside].copy_from_slice(&bytes[..inside]);
        self.run.bytes.extend_from_slice(&bytes[inside..]);
        while let Some(whole) = self.take_whole() {
            due.push(whole);
        }
        due
    }

    fn touches(&self, offset: u64) -> bool {
        let Range { start, end } = self.run.range();
        self.is_empty() || (start..=end).contains(&offset)
    }

    /// What is held.
    pub(super) fn take(&mut self) -> Option<GatheredWrite> {
        let empty = GatheredWrite { offset: 0, bytes: Vec::new() };
        (!self.is_empty()).then(|| std::mem::replace(&mut self.run, empty))
    }

    /// Holds what was taken, and could not be sent, again.
    pub(super) fn put_back(&mut self, run: GatheredWrite) {
        debug_assert!(self.is_empty(), "nothing was added since");
        self.run = run;
    }

    /// What is held up to the next multiple of the limit, if it reaches that.
    fn take_whole(&mut self) -> Option<GatheredWrite> {
        let limit = self.limit as u64;
        let len = usize::try_from(limit - self.run.offset % limit).unwrap_or(self.limit);
        if self.run.bytes.len() < len {
            return None;
        }
        let rest = self.run.bytes.split_off(len);
        let next = self.run.offset.saturating_add(len as u64);
        Some(std::mem::replace(&mut self.run, GatheredWrite { offset: next, bytes: rest }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.run.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> GatheredWrite {
        GatheredWrite { offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn writes_that_follow_each_other_are_one() {
        let mut gather = WriteGather::new(8);
        assert_eq!(gather.add(0, b"ab"), []);
        assert_eq!(gather.add(2, b"cd"), []);
        assert_eq!(gather.add(1, b"XY"), [], "what is held is changed");
        assert_eq!(gather.add(4, b"efghij"), [write(0, b"aXYdefgh")]);
        assert_eq!(gather.take(), Some(write(8, b"ij")));
        assert_eq!(gather.take(), None);
    }

    #[test]
    fn one_elsewhere_sends_what_is_held() {
        let mut gather = WriteGather::new(8);
        gather.add(0, b"ab");
        assert_eq!(gather.add(3, b"c"), [write(0, b"ab")]);
        assert_eq!(gather.add(0, b"z"), [write(3, b"c")]);
        assert_eq!(gather.take(), Some(write(0, b"z")));
    }

    #[test]
    fn runs_end_at_multiples_of_the_limit() {
        let mut gather = WriteGather::new(4);
        let due = gather.add(3, b"abcdefghij");
        assert_eq!(due, [write(3, b"a"), write(4, b"bcde"), write(8, b"fghi")]);
        assert_eq!(gather.take(), Some(write(12, b"j")));
        assert!(gather.is_empty());
    }

    #[test]
    fn what_is_sent_in_order_is_what_was_written() {
        let (mut gather, mut file, mut expected) = (WriteGather::new(16), vec![0; 64], vec![0; 64]);
        let mut apply = |writes: Vec<GatheredWrite>| {
            for write in writes {
                let at = usize::try_from(write.offset).expect("small");
                file[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
        };
        let mut random = 7_u32;
        for round in 0..2000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (at, len) = ((random >> 8) as usize % 50, (random >> 20) as usize % 14);
            let bytes = vec![round.to_le_bytes()[0]; len];
            expected[at..at + len].copy_from_slice(&bytes);
            apply(gather.add(at as u64, &bytes));
        }
        apply(gather.take().into_iter().collect());
        assert_eq!(file, expected);
    }
}
