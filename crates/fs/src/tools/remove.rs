//! rm -r: names are removed in batches, each behind what is in it.

use super::expression::{FindAction, FindExpression};
use super::find::{FindTeller, find};
use super::program::{Characters, FindTest, Joined, program_of};
use super::resolve::ResolvedPath;
use super::{ToldError, ToldFailure, ToolError};
use crate::client::{FsCaller, FsClient, FsError, RemovedName};
use crate::protocol::FsInode;
use std::collections::{BTreeSet, HashMap};

/// Collects names and removes them.
pub(super) struct TreeRemover<'a> {
    client: &'a FsClient,
    caller: FsCaller,
    names: Vec<RemovedName>,
    paths: Vec<Vec<u8>>,
}

impl<'a> TreeRemover<'a> {
    pub(super) fn new(client: &'a FsClient, caller: FsCaller) -> Self {
        Self { client, caller, names: Vec::new(), paths: Vec::new() }
    }

    /// A name is to be removed, behind those that were named before.
    pub(super) fn remove(
        &mut self,
        (dir, name): (FsInode, &[u8]),
        is_directory: bool,
        path: &[u8],
    ) {
        self.names.push(RemovedName { dir, name: name.to_vec(), is_directory });
        self.paths.push(path.to_vec());
    }

    /// Removes what was named so far.
    pub(super) fn flush(&mut self, failed: &mut dyn FnMut(ToldError<'_>)) -> Result<(), FsError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let errors = self.client.remove_all(&self.caller, &self.names)?;
        for (path, errno) in self.paths.iter().zip(errors).filter(|(_, errno)| *errno != 0) {
            failed(ToldError { path, errno, what: ToldFailure::NotRemoved });
        }
        self.names.clear();
        self.paths.clear();
        Ok(())
    }
}

/// Removes what a path stands for, with all that is below it. What fails is told once for each
/// name: that a directory is not empty, only if nothing in it has failed.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn remove_tree(
    client: &FsClient,
    caller: &FsCaller,
    (root, shown): (&ResolvedPath, &[u8]),
    failed: &mut dyn FnMut(ToldError<'_>),
) -> Result<(), ToolError> {
    let everything = Joined::One(FindTest::Action(0));
    let expression = FindExpression {
        paths: Vec::new(),
        program: program_of(&everything, Characters::Bytes).unwrap_or_default(),
        actions: vec![FindAction::Delete],
        min_depth: 0,
        max_depth: u32::MAX,
        is_depth_first: true,
    };
    let mut errors = TreeErrors::default();
    let mut take = |error: ToldError<'_>| errors.take(error, failed);
    let teller = FindTeller { told: &mut |_| Ok(()), failed: &mut take };
    find(client, caller, (root, shown), &expression, teller)
}

/// Which errors of a removed tree are told.
#[derive(Debug, Default)]
struct TreeErrors {
    /// Directories that could not be looked into: if they are empty, they are removed all the same.
    denied: HashMap<Vec<u8>, i32>,
    failed: BTreeSet<Vec<u8>>,
}

impl TreeErrors {
    fn take(&mut self, error: ToldError<'_>, tell: &mut dyn FnMut(ToldError<'_>)) {
        let ToldError { path, errno, what } = error;
        if what == ToldFailure::NotEntered {
            self.denied.insert(path.to_vec(), errno);
            return;
        }
        let denied = self.denied.remove(path).filter(|_| errno == libc::ENOTEMPTY);
        if denied.is_none() && errno == libc::ENOTEMPTY && self.has_failed_in(path) {
            return;
        }
        self.failed.insert(path.to_vec());
        tell(ToldError { errno: denied.unwrap_or(errno), ..error });
    }

    fn has_failed_in(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let next = self.failed.range(below.clone()..).next();
        next.is_some_and(|failed| failed.starts_with(&below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_not_of_what_it_is_in() {
        let mut errors = TreeErrors::default();
        let mut told = Vec::new();
        let not_removed = ToldFailure::NotRemoved;
        for (path, errno, what) in [
            ("a/shut", libc::EACCES, ToldFailure::NotEntered),
            ("a/empty", libc::EACCES, ToldFailure::NotEntered),
            ("a/shut", libc::ENOTEMPTY, not_removed),
            ("a", libc::ENOTEMPTY, not_removed),
            ("a-b/x", libc::EPERM, not_removed),
            ("a-b", libc::ENOTEMPTY, not_removed),
            ("b", libc::ENOTEMPTY, not_removed),
        ] {
            let mut tell = |error: ToldError<'_>| {
                told.push((String::from_utf8_lossy(error.path).into_owned(), error.errno));
            };
            errors.take(ToldError { path: path.as_bytes(), errno, what }, &mut tell);
        }
        let expected = [("a/shut", libc::EACCES), ("a-b/x", libc::EPERM), ("b", libc::ENOTEMPTY)];
        assert_eq!(told, expected.map(|(path, errno)| (path.to_owned(), errno)));
    }
}
