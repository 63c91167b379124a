//! du and count: sums of a tree, and of the directories in it.

use super::expression::FindExpression;
use super::program::{Characters, FindTest, Joined, program_of};
use super::resolve::ResolvedPath;
use super::trail::PathTrail;
use super::{ToldError, ToldFailure, ToolError};
use crate::client::{FsCaller, FsClient, FsError, TreeWalk};
use crate::protocol::{
    FIND_APART, FIND_IS_APART, FIND_IS_ENTERED, FIND_IS_ERROR, FIND_IS_LEFT, FIND_SUMS, FindArgs,
    FindAttributes, FindSums, FsInode, WalkRecord,
};
use std::collections::HashSet;

/// A directory's sums, or those of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageLine<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Of it and of all that is below.
    pub sums: FindSums,
}

/// Files with several names that were counted already, so that each is counted once.
#[derive(Clone, Debug, Default)]
pub struct UsageSeen(HashSet<(u64, u64)>);

/// What is told is given to.
pub struct UsageTeller<'a> {
    /// Takes sums.
    pub told: &'a mut dyn FnMut(&UsageLine<'_>) -> Result<(), ToolError>,
    /// Takes what could not be done.
    pub failed: &'a mut dyn FnMut(ToldError<'_>),
}

impl std::fmt::Debug for UsageTeller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsageTeller").finish_non_exhaustive()
    }
}

/// Adds up what a path stands for, as du does, and tells of directories down to a depth, each
/// behind those in it. `seen`: files with several names count once; `None`: with each name.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn usage(
    client: &FsClient,
    caller: &FsCaller,
    (root, shown): (&ResolvedPath, &[u8]),
    (depth, seen): (u32, Option<&mut UsageSeen>),
    teller: UsageTeller<'_>,
) -> Result<FindSums, ToolError> {
    let everything = Joined::One(FindTest::Action(0));
    let apart = if seen.is_some() { FIND_APART } else { 0 };
    let args = FindArgs {
        flags: FIND_SUMS | apart,
        max_depth: u32::MAX,
        sum_depth: depth,
        ..FindArgs::default()
    };
    let program = program_of(&everything, Characters::Bytes).unwrap_or_default();
    let walk = TreeWalk::new(root.found.inode, shown, program, &args);
    Adding::new(shown, seen, teller).run(client, caller, walk)
}

/// Adds up what an expression says yes to.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn count(
    client: &FsClient,
    caller: &FsCaller,
    (root, shown): (&ResolvedPath, &[u8]),
    expression: &FindExpression,
    failed: &mut dyn FnMut(ToldError<'_>),
) -> Result<FindSums, ToolError> {
    let args = FindArgs {
        flags: FIND_SUMS,
        min_depth: expression.min_depth,
        max_depth: expression.max_depth,
        ..FindArgs::default()
    };
    let walk = TreeWalk::new(root.found.inode, shown, expression.program.clone(), &args);
    let teller = UsageTeller { told: &mut |_| Ok(()), failed };
    Adding::new(shown, None, teller).run(client, caller, walk)
}

struct Adding<'a, 't> {
    trail: PathTrail,
    shown: &'a [u8],
    /// Of what was asked for, and of each directory that is told of and not over yet.
    sums: Vec<FindSums>,
    paths: Vec<Vec<u8>>,
    seen: Option<&'a mut UsageSeen>,
    teller: UsageTeller<'t>,
}

impl<'a, 't> Adding<'a, 't> {
    fn new(shown: &'a [u8], seen: Option<&'a mut UsageSeen>, teller: UsageTeller<'t>) -> Self {
        let (trail, sums) = (PathTrail::new(shown), vec![FindSums::default()]);
        Self { trail, shown, sums, paths: Vec::new(), seen, teller }
    }

    fn run(
        mut self,
        client: &FsClient,
        caller: &FsCaller,
        mut walk: TreeWalk,
    ) -> Result<FindSums, ToolError> {
        let mut has_lines = false;
        while !walk.is_over() {
            let mut over = Ok(());
            let tell = |record: &WalkRecord<'_>| {
                has_lines |= record.what & FIND_IS_ENTERED != 0;
                if over.is_ok() {
                    over = self.take(record);
                }
            };
            let rest = client.walk_on(caller, &mut walk, tell);
            let fault = |error| ToolError::Fs { path: self.shown.to_vec(), error };
            let rest = rest.map_err(fault)?;
            over?;
            self.add(&rest);
        }
        let sums = self.sums.first().copied().unwrap_or_default();
        if !has_lines {
            (self.teller.told)(&UsageLine { path: self.shown, sums })?;
        }
        Ok(sums)
    }

    fn add(&mut self, sums: &FindSums) {
        if let Some(last) = self.sums.last_mut() {
            last.add(sums);
        }
    }

    fn take(&mut self, record: &WalkRecord<'_>) -> Result<(), ToolError> {
        self.add(&record.sums);
        match record.what {
            FIND_IS_ENTERED => self.enter(record),
            FIND_IS_LEFT => self.leave(),
            FIND_IS_ERROR => {
                let (path, errno) = (record.name, record.error.into());
                (self.teller.failed)(ToldError { path, errno, what: ToldFailure::NotEntered });
                Ok(())
            }
            FIND_IS_APART => {
                self.count_apart(&record.attributes);
                Ok(())
            }
            _ => Err(no_walk()),
        }
    }

    fn enter(&mut self, record: &WalkRecord<'_>) -> Result<(), ToolError> {
        let path = self.trail.to(record.depth, record.name).ok_or_else(no_walk)?.to_vec();
        self.trail.enter(FsInode::default());
        self.paths.push(path);
        self.sums.push(FindSums::default());
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ToolError> {
        let path = self.paths.pop().ok_or_else(no_walk)?;
        let sums = self.sums.pop().ok_or_else(no_walk)?;
        (self.teller.told)(&UsageLine { path: &path, sums })?;
        self.add(&sums);
        Ok(())
    }

    /// A file with several names counts where it is seen first.
    fn count_apart(&mut self, file: &FindAttributes) {
        let FsInode { number, generation } = file.inode;
        let is_new = self.seen.as_mut().is_none_or(|seen| seen.0.insert((number, generation)));
        if !is_new {
            return;
        }
        let is = |kind| u64::from(file.mode & libc::S_IFMT == kind);
        let (files, links) = (is(libc::S_IFREG), is(libc::S_IFLNK));
        let (size, blocks, others) = (file.size, file.blocks, 1 - files - links);
        self.add(&FindSums { files, links, others, size, blocks, ..FindSums::default() });
    }
}

fn no_walk() -> ToolError {
    ToolError::Fs { path: Vec::new(), error: FsError::Answer { entry: "walk" } }
}
