//! `--merge`: the files of a directory go among those that are there, each by one rename.
//!
//! A directory that the destination lacks moves whole. One that it has gets the attributes of the
//! source's at the end, and is made writable until then if it is not. Looks for conflicts first, so
//! that what cannot be merged is refused before anything has moved. Follows no symbolic link: one
//! at the destination is replaced like a file.

use super::error::ReceiveError;
use super::files::{StagedTree, TopPlace};
use super::options::{CastIdentity, ReceiveOptions};
use super::publish::rename_into;
use super::seal::seal_merged;
use super::seeds::unmark;
use super::unlocked::UnlockedDirectories;
use crate::tree::{open_beneath, shown};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// What is done with each name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeStep {
    Check,
    Move,
}

/// Merges every top-level entry that is not published.
pub(super) fn merge_tree(
    tree: &StagedTree,
    options: &ReceiveOptions,
    staging: BorrowedFd<'_>,
) -> Result<(), ReceiveError> {
    let unlocked = UnlockedDirectories { staging, destination: tree.destination().fd() };
    let pending = |top: &usize| tree.place(*top) != TopPlace::Published;
    let tops: Vec<usize> = (0..tree.manifest().tops().len()).filter(pending).collect();
    let merged = merge_tops(tree, (&tops, &options.identity), unlocked)
        .and_then(|()| seal_merged(tree, options));
    match merged {
        Ok(()) => unlocked.forget(),
        Err(_) => unlocked.lock(),
    }
    merged?;
    tops.iter().try_for_each(|&top| tree.move_top(top, TopPlace::Published, || Ok(())))
}

fn merge_tops(
    tree: &StagedTree,
    (tops, identity): (&[usize], &CastIdentity),
    unlocked: UnlockedDirectories<'_>,
) -> Result<(), ReceiveError> {
    let manifest = tree.manifest();
    for step in [MergeStep::Check, MergeStep::Move] {
        for &top in tops {
            let name = manifest.entry(manifest.tops()[top]).name;
            if step == MergeStep::Move {
                tree.move_top(top, TopPlace::Merging, || Ok(()))?;
            }
            let mut merge = Merge { step, path: Vec::new(), tree, identity, unlocked };
            merge.merge(tree.fd(), tree.destination().fd(), name)?;
        }
    }
    Ok(())
}

struct Merge<'a> {
    step: MergeStep,
    path: Vec<u8>,
    tree: &'a StagedTree,
    identity: &'a CastIdentity,
    unlocked: UnlockedDirectories<'a>,
}

impl Merge<'_> {
    /// Merges one name. A name that is not staged any more was moved before a cast broke.
    fn merge(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), ReceiveError> {
        self.tree.step();
        let path_len = self.path.len();
        if path_len > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let merged = match (self.kind(from, name)?, self.kind(to, name)?) {
            (None, _) => Ok(()),
            (Some(_), None) => self.rename(from, to, name, RenameFlags::NOREPLACE),
            (Some(FileType::Directory), Some(FileType::Directory)) => self.descend(from, to, name),
            (Some(FileType::Directory), _) | (_, Some(FileType::Directory)) => {
                Err(ReceiveError::Conflict { path: shown(&self.path) })
            }
            _ => self.rename(from, to, name, RenameFlags::empty()),
        };
        self.path.truncate(path_len);
        merged
    }

    fn descend(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), ReceiveError> {
        let failed = |errno| ReceiveError::write(&self.path, errno);
        let there = self.enter(to, name)?;
        if self.step == MergeStep::Move && self.path == name {
            unmark(to, name, self.identity).map_err(failed)?;
        }
        // Its own mode does not matter: the destination's directory stays.
        fs::chmodat(from, name, Mode::RWXU, AtFlags::empty()).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let from = open_beneath(from, name, flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for_each_name(&from, |name| names.push(name.to_owned())).map_err(failed)?;
        names.iter().try_for_each(|name| self.merge(from.as_fd(), there.as_fd(), name.to_bytes()))
    }

    /// Opens a directory at the destination, writable for its owner.
    fn enter(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, ReceiveError> {
        let failed = |errno| ReceiveError::write(&self.path, errno);
        let stat = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let own = rustix::process::geteuid();
        if stat.st_uid != own.as_raw() && !own.is_root() {
            return open_foreign(parent, name).map_err(|_| {
                let (path, uid) = (shown(&self.path), stat.st_uid);
                ReceiveError::Foreign { path, uid, own: own.as_raw() }
            });
        }
        self.unlocked.unlock((parent, name), &self.path).map_err(failed)
    }

    fn kind(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, ReceiveError> {
        match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(errno) => Err(ReceiveError::write(&self.path, errno)),
        }
    }

    fn rename(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), ReceiveError> {
        if self.step == MergeStep::Check {
            return Ok(());
        }
        rename_into(from, to, name, flags).map_err(|errno| ReceiveError::write(&self.path, errno))
    }
}

/// Opens another user's directory that this one may put names into; it keeps its attributes.
fn open_foreign(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = open_beneath(parent, name, flags, Mode::empty())?;
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    fs::accessat(&directory, ".", wanted, AtFlags::EACCESS)?;
    Ok(directory)
}
