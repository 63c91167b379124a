//! Reading a region's memory: words and bytes that may not be there.

pub(super) use crate::protocol::places::{module_hash as hash, word_of};
use outboard_mem::SharedRegion;

/// See this file's first lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionBytes<'a>(pub(super) &'a SharedRegion);

impl RegionBytes<'_> {
    pub(super) fn len(self) -> u64 {
        self.0.len() as u64
    }

    /// A word; `None` outside, and where no word begins.
    pub(super) fn word(self, at: u64) -> Option<u64> {
        self.0.load_u64(usize::try_from(at).ok()?).ok().map(u64::from_le)
    }

    pub(super) fn bytes(self, at: u64, len: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(at).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.0.snapshot(start..end).ok()
    }

    /// Words that follow each other.
    pub(super) fn words(self, at: u64, count: u64) -> Option<Vec<u64>> {
        let bytes = self.bytes(at, count.checked_mul(8)?)?;
        Some(bytes.chunks_exact(8).map(word_of).collect())
    }
}
