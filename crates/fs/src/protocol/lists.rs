//! Answers with names: a directory's.

use super::layout::FsLayout;
use super::structures::{FsAnswer, FsListed, FsWalked};
use super::{NAME_MAX, TARGET_MAX};

/// A name of a directory, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsName<'a> {
    /// Its head.
    pub head: FsListed,
    /// The name: 1 to 255 bytes, none of them a slash or 0, and neither `.` nor `..`.
    pub name: &'a [u8],
}

/// Whether a directory can have this name.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
        && !matches!(name, b"." | b"..")
}

/// Whether a symbolic link can have this target.
#[must_use]
pub fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0)
}

/// The names of an answer of `list` to a question for those from the place `at` on; `None` if it is
/// none: names that no directory has, places that do not grow, bytes that are left.
#[must_use]
pub fn parse_list(mut answer: &[u8], at: u64) -> Option<Vec<FsName<'_>>> {
    let (mut names, mut place) = (Vec::new(), at);
    while !answer.is_empty() {
        let head = FsListed::take(&mut answer)?;
        let len = usize::try_from(head.name_len).ok()?;
        let (padded, rest) = answer.split_at_checked(len.checked_next_multiple_of(8)?)?;
        let name = padded.get(..len)?;
        if !is_name(name) || head.next <= place || head.inode.number == 0 {
            return None;
        }
        (place, answer) = (head.next, rest);
        names.push(FsName { head, name });
    }
    Some(names)
}

/// What an answer of `walk` to a question for so many names has found, and why there is not more;
/// `None` if it is no answer.
#[must_use]
pub fn parse_walk(mut answer: &[u8], names: usize) -> Option<(Vec<FsAnswer>, u32)> {
    let FsWalked { count, error } = FsWalked::take(&mut answer)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= names)?;
    let found: Option<Vec<FsAnswer>> = (0..count).map(|_| FsAnswer::take(&mut answer)).collect();
    let is_told = (count < names) == (error != 0);
    found.filter(|_| answer.is_empty() && is_told).map(|found| (found, error))
}
