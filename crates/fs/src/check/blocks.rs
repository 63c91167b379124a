//! The blocks of `modules/blocks`: who uses each, by what files say, and what is counted of it.

use super::bytes::RegionBytes;
use super::found::Findings;
use crate::protocol::FsExtent;
use std::ops::Range;

const MAGIC: u64 = 0x0031_6b6c_626f_626f;
const HEADER: u64 = 64;
/// Blocks that are looked at together.
const PIECE: u64 = 1 << 16;

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct BlockUse {
    /// How often files have each block.
    users: Vec<u16>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct BlocksSeen {
    pub(super) used: u64,
    pub(super) reserved: u64,
    /// Blocks that files have otherwise than it is counted.
    pub(super) wrong: Vec<Range<u64>>,
}

impl BlockUse {
    pub(super) fn new(count: u64) -> Self {
        Self { users: vec![0; usize::try_from(count).unwrap_or(0)] }
    }

    /// A file has blocks; why it cannot.
    pub(super) fn add(&mut self, extent: &FsExtent) -> Result<(), String> {
        let FsExtent { block, len, .. } = *extent;
        let range = usize::try_from(block).ok().zip(usize::try_from(block + len).ok());
        match range.and_then(|(start, end)| self.users.get_mut(start..end)) {
            Some(users) => users.iter_mut().for_each(|users| *users = users.saturating_add(1)),
            None => return Err(format!("blocks {block} to {} are not in the store", block + len)),
        }
        Ok(())
    }

    /// Compares it with what is counted.
    pub(super) fn end(
        &self,
        region: RegionBytes<'_>,
        root: u64,
        found: &mut Findings,
    ) -> BlocksSeen {
        let count = self.users.len() as u64;
        let mut seen = BlocksSeen::default();
        let head = region.words(root, HEADER / 8).filter(|head| head[0] == MAGIC);
        let Some(head) = head.filter(|head| head[1] == count) else {
            found.of_region("the state of blocks is none, or of another number of them");
            return seen;
        };
        let levels = levels(root, count);
        let Some((at, bits)) = levels.last() else { return seen };
        let users_at = at + 8 * bits.div_ceil(64);
        for start in (0..count).step_by(usize::try_from(PIECE).unwrap_or(1)) {
            let len = PIECE.min(count - start);
            let taken = region.words(root + HEADER + start / 8, len.div_ceil(64));
            let users = region.bytes(users_at + start, len);
            match taken.zip(users) {
                Some(counted) => self.piece(start, &counted, &mut seen, found),
                None => found.of_region("the state of blocks is outside of the region"),
            }
        }
        let free = count - seen.used - seen.reserved;
        if head[2] != free {
            found.of_region(format!("{} blocks are counted as free, and {free} are", head[2]));
        }
        check_levels(region, &levels, found);
        seen
    }

    fn piece(
        &self,
        start: u64,
        (taken, users): &(Vec<u64>, Vec<u8>),
        seen: &mut BlocksSeen,
        found: &mut Findings,
    ) {
        for (index, counted) in users.iter().enumerate() {
            let block = start + index as u64;
            let is_taken = taken[index / 64] >> (index % 64) & 1 == 1;
            let real = usize::try_from(block).map_or(0, |block| self.users[block]);
            seen.used += u64::from(is_taken && *counted != 0);
            seen.reserved += u64::from(is_taken && *counted == 0);
            if real == u16::from(*counted) && (is_taken || real == 0) {
                continue;
            }
            let state = if is_taken { "taken" } else { "free" };
            match seen.wrong.last_mut().filter(|last| last.end == block) {
                Some(last) => last.end = block + 1,
                None => {
                    let what = format!(
                        "block {block} is {state} with {counted} users counted, \
                        files have it {real} times"
                    );
                    found.of_region(what);
                    seen.wrong.push(block..block + 1);
                }
            }
        }
    }
}

/// Where each level is, and how many bits it has.
fn levels(root: u64, count: u64) -> Vec<(u64, u64)> {
    let (mut at, mut bits, mut levels) = (root + HEADER, count, Vec::new());
    loop {
        levels.push((at, bits));
        at += 8 * bits.div_ceil(64);
        bits = bits.div_ceil(64);
        if bits <= 1 {
            return levels;
        }
    }
}

/// Each level says which words of the one below are full, and what is behind its end is set.
fn check_levels(region: RegionBytes<'_>, levels: &[(u64, u64)], found: &mut Findings) {
    let mut full: Option<Vec<bool>> = None;
    for (level, (at, bits)) in levels.iter().enumerate() {
        let Some(words) = region.words(*at, bits.div_ceil(64)) else { return };
        let bit = |index: usize| words[index / 64] >> (index % 64) & 1 == 1;
        let is_told = |full: &[bool]| (0..full.len()).all(|index| bit(index) == full[index]);
        if !full.as_deref().is_none_or(is_told) {
            found.of_region(format!("level {level} of blocks says something else than is below"));
        }
        let mut behind = usize::try_from(*bits).unwrap_or(0)..words.len() * 64;
        if !behind.all(bit) {
            found.of_region(format!("level {level} of blocks has free ones behind its end"));
        }
        full = Some(words.iter().map(|word| *word == u64::MAX).collect());
    }
}
