//! What a client remembers of its changes until they are durable, and how it learns which were
//! lost.

use super::error::FsError;
use super::unsynced::RunCommit;
use super::writeback::ErrorCursor;
use super::{FsCaller, FsClient};
use crate::protocol::{FsEndedRun, FsInode, FsInodeArgs, FsLayout};
use outboard_active::{Outcome, RegionRun};
use std::sync::atomic::Ordering;

impl FsClient {
    /// Has everything that this client was told of made durable, and reports what of an inode has
    /// failed or was lost since its opening was told last: changes that a service has acknowledged
    /// and that the one after it does not have.
    ///
    /// # Errors
    /// [`FsError`]; EIO: something was lost; another number: of a write that failed.
    pub fn sync(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        cursor: &ErrorCursor,
    ) -> Result<(), FsError> {
        self.sync_all(caller, inode)?;
        self.check_written(inode, cursor)
    }

    /// An inode is opened: which of its errors are reported to that opening.
    #[must_use]
    pub fn error_cursor(&self, inode: FsInode) -> ErrorCursor {
        self.errors.cursor(inode)
    }

    /// Reports once what of an inode has failed since its opening was told last.
    ///
    /// # Errors
    /// The error.
    pub fn check_written(&self, inode: FsInode, cursor: &ErrorCursor) -> Result<(), FsError> {
        self.errors.check(inode, cursor)
    }

    /// As [`Self::check_written`], for a close: others who have the opening are still told.
    ///
    /// # Errors
    /// The error.
    pub fn check_at_close(&self, inode: FsInode, cursor: &ErrorCursor) -> Result<(), FsError> {
        self.errors.check_at_close(inode, cursor)
    }

    /// A change that a program believes made has failed.
    pub(crate) fn write_failed(&self, inode: FsInode, error: &FsError) {
        let errno = match error {
            // A program that was killed: the bytes are lost to others.
            FsError::Interrupted => libc::EIO,
            error => error.errno(),
        };
        self.errors.add(inode, errno);
    }

    /// The number of a change that was made one-sided, or of a sync.
    pub(super) fn own_commit(&self) -> RunCommit {
        let seq = self.own_commits.fetch_add(1, Ordering::Relaxed);
        RunCommit { run: self.driver.run(), seq }
    }

    /// A commit has changed inodes.
    pub(super) fn changed(
        &self,
        caller: &FsCaller,
        commit: RunCommit,
        inodes: impl IntoIterator<Item = FsInode>,
    ) {
        let mut inodes = inodes.into_iter().peekable();
        if inodes.peek().is_some()
            && self.unsynced.changed(commit, inodes)
            && let Err(error) = self.sync_all(caller, self.root)
        {
            // The next change tries again.
            tracing::debug!(%error, "a sync that nobody has asked for");
        }
    }

    fn sync_all(&self, caller: &FsCaller, inode: FsInode) -> Result<(), FsError> {
        let (_, commit) = self.ask_done(caller, "sync", &FsInodeArgs { inode }.bytes())?;
        self.unsynced.synced(commit);
        let mut now = commit.run;
        while self.unsynced.has_other_than(now) {
            let ended;
            (now, ended) = self.ended_runs(caller)?;
            // Nothing is known yet of what a run after it lacks.
            if now == self.driver.run() {
                let lost = self.unsynced.take_lost(now, &ended);
                lost.into_iter().for_each(|inode| self.errors.add(inode, libc::EIO));
            }
        }
        Ok(())
    }

    /// The service's present run, and what it has of those before.
    fn ended_runs(&self, caller: &FsCaller) -> Result<(RegionRun, Vec<FsEndedRun>), FsError> {
        match self.ask_done(caller, "runs", b"") {
            Ok((result, commit)) => {
                let mut rest = &result[..];
                let ended = std::iter::from_fn(|| FsEndedRun::take(&mut rest)).collect();
                Ok((commit.run, ended))
            }
            // Where only active code works on the region, or clients change it one-sided, nothing
            // outlives a run.
            Err(
                FsError::Failed { .. }
                | FsError::Service { outcome: Outcome::NoEntry(_) | Outcome::Refused(_) },
            ) => Ok((self.driver.run(), Vec::new())),
            Err(error) => Err(error),
        }
    }
}
