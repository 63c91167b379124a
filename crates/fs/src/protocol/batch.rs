//! Many changes of names by one request.
//!
//! `batch`: arguments [`BatchHead`], then for each change a [`BatchItem`], the entry's name and
//! its arguments, without gaps: `make`, `link`, `set`, `set_xattr`, `remove_xattr`, `share`,
//! `unlink`, `rmdir`, `rename`. The service executes them one after the other, each as if it had
//! been asked for by itself: all or nothing, once at most. Others may come between them. The
//! result is, for each one that was executed, a [`BatchDone`], then, unless [`BATCH_QUIET`], what
//! it answers.

use super::layout::{FsLayout, layouts};

/// Changes behind one that fails are made nevertheless.
pub const BATCH_GOES_ON: u32 = 1;
/// Nothing is answered but whether they failed.
pub const BATCH_QUIET: u32 = 2;
/// Changes of one request, at most.
pub const BATCH_MAX: usize = 512;

layouts! {
    /// The head of a batch.
    BatchHead {
        /// [`BATCH_GOES_ON`], [`BATCH_QUIET`].
        flags: u32,
        /// Changes that follow.
        count: u32,
    }

    /// The head of a change.
    BatchItem {
        /// Bytes of the entry's name.
        entry_len: u32,
        /// Bytes of its arguments.
        args_len: u32,
    }

    /// What came of a change.
    BatchDone {
        /// 0, or the failure, as executions say it.
        failure: u32,
        /// Bytes of what it answers, which follow.
        len: u32,
    }
}

/// A change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchChange<'a> {
    /// The entry.
    pub entry: &'a str,
    /// Its arguments.
    pub args: &'a [u8],
}

/// The bytes of a batch.
#[must_use]
pub fn batch_of(flags: u32, changes: &[BatchChange<'_>]) -> Vec<u8> {
    let word = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let mut bytes = BatchHead { flags, count: word(changes.len()) }.bytes();
    for BatchChange { entry, args } in changes {
        BatchItem { entry_len: word(entry.len()), args_len: word(args.len()) }.put(&mut bytes);
        bytes.extend_from_slice(entry.as_bytes());
        bytes.extend_from_slice(args);
    }
    bytes
}

/// Takes a batch apart; `None` if it is none.
#[must_use]
pub fn parse_batch(mut bytes: &[u8]) -> Option<(BatchHead, Vec<BatchChange<'_>>)> {
    let head = BatchHead::take(&mut bytes)?;
    let known = BATCH_GOES_ON | BATCH_QUIET;
    let count = usize::try_from(head.count).ok().filter(|count| *count <= BATCH_MAX)?;
    let changes: Option<Vec<_>> = (0..count)
        .map(|_| {
            let item = BatchItem::take(&mut bytes)?;
            let (entry, rest) = bytes.split_at_checked(usize::try_from(item.entry_len).ok()?)?;
            let (args, rest) = rest.split_at_checked(usize::try_from(item.args_len).ok()?)?;
            bytes = rest;
            Some(BatchChange { entry: std::str::from_utf8(entry).ok()?, args })
        })
        .collect();
    changes.filter(|_| bytes.is_empty() && head.flags & !known == 0).map(|all| (head, all))
}

/// What came of each change of a batch, as far as they were executed: a failure and an answer;
/// `None` if it is no answer to so many.
#[must_use]
pub fn parse_batch_done(mut bytes: &[u8], count: usize) -> Option<Vec<(i32, &[u8])>> {
    let mut all = Vec::with_capacity(count);
    while !bytes.is_empty() {
        let BatchDone { failure, len } = BatchDone::take(&mut bytes)?;
        let (answer, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        bytes = rest;
        all.push((i32::try_from(failure).ok()?, answer));
    }
    (all.len() <= count).then_some(all)
}
