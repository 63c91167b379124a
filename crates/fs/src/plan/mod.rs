//! What a change of a file's bytes comes to: which blocks are written anew and with what, which are
//! unmapped, and what the module is told.
//!
//! Reads and writes nothing. Bytes behind a file's end, in its last block, are always zero: a
//! change that would leave others there writes that block anew. The service plans so, and a client
//! that writes by one-sided verbs.
//!
//! Modules in reading order: `blocks` (which blocks get what), `told` (what the module is told, and
//! says, of a file's blocks).

mod blocks;
mod told;

pub(crate) use blocks::{lay_out, parts};
pub(crate) use told::{Found, module_args, room_for};

use crate::protocol::{
    APPEND, BLOCK_LEN, FsChangeArgs, FsExtent, FsRecord, GROW, PUNCH, RESIZE, SIZE_MAX,
};
use std::ops::Range;

/// Blocks of a file, one behind the other, that are written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first one.
    pub(crate) file: u64,
    pub(crate) blocks: u64,
    /// Where the first and the last one were, if some of what they held stays.
    pub(crate) head: Option<u64>,
    pub(crate) tail: Option<u64>,
    /// Where in these blocks the change begins.
    pub(crate) at: usize,
    pub(crate) fill: Fill,
}

/// What goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Bytes of the change.
    Bytes(Range<usize>),
    /// So many zeroes.
    Zeroes(usize),
}

/// See this file's first lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangePlan {
    /// The record's version that it was made for; 0: it is right for any.
    pub(crate) version: u64,
    pub(crate) pieces: Vec<Piece>,
    /// Blocks that are unmapped.
    pub(crate) cut: Range<u64>,
    /// The size that the module is told.
    pub(crate) size: u64,
}

/// What must be known of a file before a change of it can be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeNeeds {
    /// Nothing.
    Nothing,
    /// Its record.
    Record,
    /// Its record, and where these blocks are.
    Blocks(u64, u64),
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) record: &'a FsRecord,
    pub(crate) extents: &'a [FsExtent],
}

/// The change would make the file larger than files can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

const B: u64 = BLOCK_LEN;

/// What must be known, given the size if that is known.
pub(crate) fn needs(change: &FsChangeArgs, size: Option<u64>) -> ChangeNeeds {
    if change.which & APPEND != 0 {
        return match size {
            None => ChangeNeeds::Record,
            Some(size) => of_range(size, size.saturating_add(change.size)),
        };
    }
    if change.which & RESIZE != 0 {
        return of_range(change.size, change.size.next_multiple_of(B));
    }
    of_range(change.offset, change.offset.saturating_add(change.size))
}

fn of_range(from: u64, to: u64) -> ChangeNeeds {
    match from.is_multiple_of(B) && to.is_multiple_of(B) {
        true => ChangeNeeds::Nothing,
        false => ChangeNeeds::Blocks(from / B, to.div_ceil(B)),
    }
}

/// Plans a change. `known` is there if something was needed.
pub(crate) fn plan(
    change: &FsChangeArgs,
    known: Option<Known<'_>>,
) -> Result<ChangePlan, TooLarge> {
    let version = known.map_or(0, |known| known.record.version);
    let size = known.map_or(0, |known| known.record.size);
    let begin = if change.which & APPEND != 0 { size } else { change.offset };
    let end = begin.checked_add(change.size).filter(|end| *end <= SIZE_MAX).ok_or(TooLarge)?;
    let whole = ChangePlan { version, ..ChangePlan::default() };
    Ok(if change.which & RESIZE != 0 {
        if change.size > SIZE_MAX {
            return Err(TooLarge);
        }
        let pieces = zeroed(known, change.size..change.size.next_multiple_of(B));
        ChangePlan { pieces, size: change.size, ..whole }
    } else if change.which & PUNCH != 0 {
        let cut = begin.div_ceil(B)..end / B;
        let pieces = match cut.start <= cut.end {
            true => [begin..(cut.start * B), (cut.end * B)..end]
                .into_iter()
                .flat_map(|edge| zeroed(known, edge))
                .collect(),
            false => zeroed(known, begin..end),
        };
        let cut = if cut.start < cut.end { cut } else { 0..0 };
        ChangePlan { pieces, cut, ..whole }
    } else {
        let pieces = written(known, begin..end, size);
        let size = if change.which & (GROW | APPEND) != 0 { end } else { 0 };
        ChangePlan { pieces, size, ..whole }
    })
}

/// Where a block of the file is.
fn find(known: Option<Known<'_>>, block: u64) -> Option<u64> {
    let extents = known?.extents.iter();
    let mut its = extents.filter(|one| block >= one.file && block - one.file < one.len);
    its.next().map(|one| one.block + (block - one.file))
}

/// A range within one block becomes zero, if there is anything.
fn zeroed(known: Option<Known<'_>>, range: Range<u64>) -> Vec<Piece> {
    if range.is_empty() {
        return Vec::new();
    }
    let file = range.start / B;
    let Some(block) = find(known, file) else { return Vec::new() };
    let (at, fill) = (within(range.start), Fill::Zeroes(len_of(&range)));
    vec![Piece { file, blocks: 1, head: Some(block), tail: None, at, fill }]
}

fn written(known: Option<Known<'_>>, range: Range<u64>, size: u64) -> Vec<Piece> {
    if range.is_empty() {
        return Vec::new();
    }
    let (file, end) = (range.start / B, range.end.div_ceil(B));
    let keeps_head = !range.start.is_multiple_of(B);
    let keeps_tail = !range.end.is_multiple_of(B) && range.end < size;
    let head = if keeps_head { find(known, file) } else { None };
    let tail = if keeps_tail { find(known, end - 1) } else { None };
    let (at, fill) = (within(range.start), Fill::Bytes(0..len_of(&range)));
    vec![Piece { file, blocks: end - file, head, tail, at, fill }]
}

fn within(offset: u64) -> usize {
    usize::try_from(offset % B).unwrap_or_default()
}

fn len_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

impl Piece {
    /// Bytes of its blocks.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.blocks * B).unwrap_or(usize::MAX)
    }
}

impl ChangePlan {
    /// Blocks that are written.
    pub(crate) fn blocks(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.blocks).sum()
    }
}

#[cfg(test)]
mod tests;
