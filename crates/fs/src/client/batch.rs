//! Many changes of names and attributes by few requests.

use super::calls::{NewInode, NewTimes};
use super::error::FsError;
use super::{FsCaller, FsClient};
use crate::protocol::{
    BATCH_GOES_ON, BatchChange, FsAnswer, FsInode, FsLayout, FsLinkArgs, FsMakeArgs, FsShareArgs,
    FsXattrArgs, batch_of, errno_of_failure, parse_batch_done,
};

/// Changes of one request: what they answer fits.
const AT_ONCE: usize = 128;
/// Bytes of their arguments, unless a single one has more.
const BYTES: usize = 40 << 10;

/// A change that is made together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManyChange {
    entry: &'static str,
    args: Vec<u8>,
}

impl ManyChange {
    /// As [`FsClient::make`].
    #[must_use]
    pub fn make(caller: &FsCaller, (dir, name): (FsInode, &[u8]), new: &NewInode<'_>) -> Self {
        let NewInode { mode, rdev, target } = *new;
        let target_len = u32::try_from(target.len()).unwrap_or(u32::MAX);
        let args = FsMakeArgs { who: caller.who, dir, mode, target_len, rdev };
        Self { entry: "make", args: [&args.bytes(), name, target].concat() }
    }

    /// As [`FsClient::link`].
    #[must_use]
    pub fn link(caller: &FsCaller, inode: FsInode, (dir, name): (FsInode, &[u8])) -> Self {
        let args = FsLinkArgs { who: caller.who, dir, inode };
        Self { entry: "link", args: [&args.bytes(), name].concat() }
    }

    /// As [`FsClient::set`].
    #[must_use]
    pub fn set(caller: &FsCaller, inode: FsInode, new: &NewTimes) -> Self {
        Self { entry: "set", args: new.args(caller, inode).bytes() }
    }

    /// As [`FsClient::share`].
    #[must_use]
    pub fn share(caller: &FsCaller, share: &FsShareArgs) -> Self {
        Self { entry: "share", args: FsShareArgs { who: caller.who, ..*share }.bytes() }
    }

    /// As [`FsClient::set_xattr`], whatever was there.
    #[must_use]
    pub fn xattr(caller: &FsCaller, inode: FsInode, (name, value): (&[u8], &[u8])) -> Self {
        let word = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let (name_len, value_len) = (word(name.len()), word(value.len()));
        let args = FsXattrArgs { who: caller.who, inode, flags: 0, name_len, value_len, zero: 0 };
        Self { entry: "set_xattr", args: [&args.bytes(), name, value].concat() }
    }
}

/// What came of a change: an error number, or the inode where it answers one.
pub type ManyResult = Result<Option<FsAnswer>, i32>;

impl FsClient {
    /// Makes many changes, one after the other; others may come between them. What came of each.
    ///
    /// # Errors
    /// [`FsError`]: which of them are made is not known.
    pub fn change_many(
        &self,
        caller: &FsCaller,
        changes: &[ManyChange],
    ) -> Result<Vec<ManyResult>, FsError> {
        let mut results = Vec::with_capacity(changes.len());
        while let Some(rest) = changes.get(results.len()..).filter(|rest| !rest.is_empty()) {
            let mut bytes = 0;
            let fits = |change: &&ManyChange| {
                bytes += change.args.len() + 32;
                bytes <= BYTES
            };
            let count = rest.iter().take(AT_ONCE).take_while(fits).count().max(1);
            let some: Vec<_> = rest[..count]
                .iter()
                .map(|change| BatchChange { entry: change.entry, args: &change.args })
                .collect();
            let answer = self.ask(caller, "batch", &batch_of(BATCH_GOES_ON, &some))?;
            let done = parse_batch_done(&answer, count).filter(|done| !done.is_empty());
            let done = done.ok_or(FsError::Answer { entry: "batch" })?;
            results.extend(done.iter().map(|(failure, answer)| match failure {
                0 => Ok(FsAnswer::split(answer).map(|(answer, _)| answer)),
                failure => Err(errno_of_failure(*failure)),
            }));
        }
        Ok(results)
    }
}
