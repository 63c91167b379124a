//! What the module is told of a change, and what it says of where a file's blocks are.

use super::ChangePlan;
use crate::protocol::{
    APPEND, BLOCK_LEN, FsAnswer, FsChangeArgs, FsExtent, FsLayout, FsMapArgs, GROW, KEEP_TIMES,
    RESIZE, SET,
};

/// What the module answers.
pub(crate) struct Found {
    pub(crate) answer: FsAnswer,
    pub(crate) extents: Vec<FsExtent>,
}

impl Found {
    /// `None` if these bytes are no such answer.
    pub(crate) fn parse(result: &[u8]) -> Option<Self> {
        let (answer, mut rest) = FsAnswer::split(result)?;
        let mut extents = Vec::with_capacity(rest.len() / FsExtent::LEN);
        while !rest.is_empty() {
            extents.push(FsExtent::take(&mut rest)?);
        }
        Some(Self { answer, extents })
    }
}

impl Found {
    /// How many of the bytes asked for the file has.
    pub(crate) fn len_of(&self, offset: u64, asked: usize) -> usize {
        let left = self.answer.record.size.saturating_sub(offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(asked)
    }
}

/// Bytes of the module's answer for a read of so many bytes, at most.
pub(crate) fn room_for(len: usize) -> u32 {
    let blocks = len / usize::try_from(BLOCK_LEN).unwrap_or(1) + 2;
    u32::try_from(FsAnswer::LEN + blocks * FsExtent::LEN).unwrap_or(u32::MAX)
}

/// What the module is told.
pub(crate) fn module_args(
    change: &FsChangeArgs,
    plan: &ChangePlan,
    extents: &[FsExtent],
) -> Vec<u8> {
    let size_is_set = if change.which & RESIZE != 0 { RESIZE } else { 0 };
    let grows = if change.which & (GROW | APPEND) != 0 { GROW } else { 0 };
    let sets = if change.set.which != 0 { SET } else { 0 };
    let args = FsMapArgs {
        who: change.who,
        inode: change.inode,
        version: plan.version,
        cut: plan.cut.start,
        cut_len: plan.cut.end - plan.cut.start,
        size: plan.size,
        which: size_is_set | grows | (change.which & KEEP_TIMES) | sets,
        count: u32::try_from(extents.len()).unwrap_or(u32::MAX),
    };
    let mut bytes = args.bytes();
    extents.iter().for_each(|extent| extent.put(&mut bytes));
    if sets != 0 {
        change.set.put(&mut bytes);
    }
    bytes
}
