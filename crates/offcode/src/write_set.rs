//! What an execution has written and not committed: bytes by lines of the region. Knows no region
//! and no module.

use crate::abi::{LINE, line_bit};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const LINE_LEN: usize = 64;
const _: () = assert!(LINE_LEN as u64 == LINE, "one line length");
/// Up to this many lines are searched one by one.
const FEW: usize = 8;
/// Bytes of a line as [`WriteSet::encode`] writes it.
pub(crate) const ENCODED: usize = 16 + LINE_LEN;

/// 64 bytes of a region, some of them written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenLine {
    /// Its number: the offset divided by 64.
    pub(crate) number: u64,
    /// Which bytes are written.
    pub(crate) mask: u64,
    /// The bytes.
    pub(crate) bytes: [u8; LINE_LEN],
}

/// More is written than an execution may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// Numbers of lines are spread by a multiplication: they come from a guest, which can at worst slow
/// down its own execution.
#[derive(Debug, Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// See this file's first lines.
#[derive(Debug)]
pub(crate) struct WriteSet {
    lines: Vec<WrittenLine>,
    index: HashMap<u64, usize, BuildHasherDefault<LineHasher>>,
    /// One bit for each line, as the call block has it.
    written: u64,
    lines_max: usize,
}

impl WriteSet {
    /// An empty one that may have `bytes_max` bytes, in whole lines.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let lines_max = bytes_max.div_ceil(LINE_LEN);
        Self { lines: Vec::new(), index: HashMap::default(), written: 0, lines_max }
    }

    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.index.clear();
        self.written = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The word of [`CallBlock::WRITTEN`](crate::abi::CallBlock::WRITTEN).
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn lines(&self) -> &[WrittenLine] {
        &self.lines
    }

    /// Puts bytes over whatever is there.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TooMuch> {
        for (offset, piece) in pieces(offset, bytes.len()) {
            let at = within(offset);
            let line = self.line(offset / LINE)?;
            line.bytes[at..at + piece.len()].copy_from_slice(&bytes[piece.clone()]);
            line.mask |= mask(at, piece.len());
        }
        Ok(())
    }

    /// Puts what was written over bytes that were read from the region.
    pub(crate) fn overlay(&self, offset: u64, bytes: &mut [u8]) {
        for (offset, piece) in pieces(offset, bytes.len()) {
            if self.written & line_bit(offset) == 0 {
                continue;
            }
            let Some(line) = self.find(offset / LINE).map(|index| &self.lines[index]) else {
                continue;
            };
            let at = within(offset);
            if line.mask & mask(at, piece.len()) == 0 {
                continue;
            }
            for (byte, place) in bytes[piece].iter_mut().zip(at..) {
                if line.mask >> place & 1 == 1 {
                    *byte = line.bytes[place];
                }
            }
        }
    }

    fn line(&mut self, number: u64) -> Result<&mut WrittenLine, TooMuch> {
        if let Some(index) = self.find(number) {
            return Ok(&mut self.lines[index]);
        }
        if self.lines.len() >= self.lines_max {
            return Err(TooMuch);
        }
        self.written |= line_bit(number * LINE);
        self.lines.push(WrittenLine { number, mask: 0, bytes: [0; LINE_LEN] });
        let index = self.lines.len() - 1;
        if index == FEW {
            self.index.extend(self.lines.iter().enumerate().map(|(at, line)| (line.number, at)));
        } else if index > FEW {
            self.index.insert(number, index);
        }
        Ok(&mut self.lines[index])
    }

    fn find(&self, number: u64) -> Option<usize> {
        if self.lines.len() > FEW {
            return self.index.get(&number).copied();
        }
        self.lines.iter().position(|line| line.number == number)
    }

    /// All lines, [`ENCODED`] bytes each, appended.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        for line in &self.lines {
            into.extend_from_slice(&line.number.to_le_bytes());
            into.extend_from_slice(&line.mask.to_le_bytes());
            into.extend_from_slice(&line.bytes);
        }
    }
}

impl WrittenLine {
    /// The lines of encoded bytes; what is not a whole line at the end is left out.
    pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        bytes.chunks_exact(ENCODED).map(move |encoded| {
            let mut bytes = [0; LINE_LEN];
            bytes.copy_from_slice(&encoded[16..]);
            Self { number: word(encoded), mask: word(&encoded[8..]), bytes }
        })
    }

    /// The runs of written bytes: where each is in the region, and its bytes. Whole words come one
    /// by one, so that they can be stored at once.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        let (start, mut left) = (self.number.wrapping_mul(LINE), self.mask);
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            if at >= LINE_LEN {
                return None;
            }
            let len = ((left >> at).trailing_ones() as usize).min(8 - at % 8);
            left &= !mask(at, len);
            Some((start.wrapping_add(at as u64), &self.bytes[at..at + len]))
        })
    }
}

fn within(offset: u64) -> usize {
    usize::try_from(offset % LINE).unwrap_or_default()
}

/// The bits of `len` bytes of a line, from `at` on.
fn mask(at: usize, len: usize) -> u64 {
    let bits = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    bits << at
}

/// Cuts a range where lines end: each piece's offset, and its place in the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let offset = offset.wrapping_add(at as u64);
        let end = len.min(at + LINE_LEN - within(offset));
        let piece = at..end;
        at = end;
        Some((offset, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random writes, against a copy of the whole region.
    #[test]
    fn what_was_written_is_read_and_applied() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for round in 0..200 {
            let region = vec![0xee_u8; 4096];
            let (mut model, mut set) = (region.clone(), WriteSet::new(4096));
            for _ in 0..=round {
                let (at, len) = (next(4000), next(96));
                let bytes: Vec<u8> = (0..len).map(|_| next(256).to_le_bytes()[0]).collect();
                let start = usize::try_from(at).expect("small");
                model[start..start + bytes.len()].copy_from_slice(&bytes);
                set.write(at, &bytes).expect("room");
            }
            let mut read = region[5..4091].to_vec();
            set.overlay(5, &mut read);
            assert_eq!(read, &model[5..4091]);
            let (mut encoded, mut applied) = (Vec::new(), region);
            set.encode(&mut encoded);
            let lines: Vec<WrittenLine> = WrittenLine::decode(&encoded).collect();
            assert_eq!(lines, set.lines());
            for (at, bytes) in lines.iter().flat_map(WrittenLine::runs) {
                let start = usize::try_from(at).expect("small");
                applied[start..start + bytes.len()].copy_from_slice(bytes);
            }
            assert_eq!(applied, model);
        }
    }

    #[test]
    fn no_more_lines_than_allowed() {
        let mut set = WriteSet::new(128);
        set.write(0, &[1; 128]).expect("two lines");
        set.write(3, &[2; 60]).expect("the same");
        assert_eq!(set.write(128, &[1]), Err(TooMuch));
        assert_eq!(set.written(), 3);
        set.clear();
        assert!(set.is_empty() && set.written() == 0);
        set.write(128, &[1]).expect("room again");
    }

    #[test]
    fn whole_words_come_one_by_one() {
        let mut set = WriteSet::new(64);
        set.write(6, &[1; 13]).expect("room");
        let runs: Vec<(u64, usize)> =
            set.lines()[0].runs().map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(runs, [(6, 2), (8, 8), (16, 3)]);
    }
}
