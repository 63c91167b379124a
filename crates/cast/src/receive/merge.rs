//! `--merge`: the files of a directory go among those that are there, each by one rename.
//!
//! A directory that the destination lacks moves whole. One that it has keeps its attributes. Looks
//! for conflicts first, so that what cannot be merged is refused before anything has moved. Follows
//! no symbolic link: one at the destination is replaced like a file.

use super::error::ReceiveError;
use super::files::{StagedTree, TopPlace};
use super::options::CastIdentity;
use super::publish::rename_into;
use super::seeds::unmark;
use crate::tree::{open_beneath, shown};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// What is done with each name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeStep {
    Check,
    Move,
}

/// Merges every top-level entry that is not published.
pub(super) fn merge_tree(tree: &StagedTree, identity: &CastIdentity) -> Result<(), ReceiveError> {
    let manifest = tree.manifest();
    let pending = |top: &usize| tree.place(*top) != TopPlace::Published;
    let tops: Vec<usize> = (0..manifest.tops().len()).filter(pending).collect();
    for step in [MergeStep::Check, MergeStep::Move] {
        for &top in &tops {
            let mut path = Vec::new();
            let name = manifest.entry(manifest.tops()[top]).name;
            if step == MergeStep::Move {
                unmark(tree.destination().fd(), name, identity)
                    .map_err(|errno| ReceiveError::write(name, errno))?;
                tree.move_top(top, TopPlace::Merging, || Ok(()))?;
            }
            let mut merge = Merge { step, path: &mut path, tree };
            merge.merge(tree.fd(), tree.destination().fd(), name)?;
        }
    }
    tops.iter().try_for_each(|&top| tree.move_top(top, TopPlace::Published, || Ok(())))
}

struct Merge<'a> {
    step: MergeStep,
    path: &'a mut Vec<u8>,
    tree: &'a StagedTree,
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
                Err(ReceiveError::Conflict { path: shown(self.path) })
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
        let failed = |errno| ReceiveError::write(name, errno);
        // Its own mode does not matter: the destination's directory stays.
        fs::chmodat(from, name, Mode::RWXU, AtFlags::empty()).map_err(failed)?;
        let from = self.open(from, name)?;
        let to = self.open(to, name)?;
        let mut names = Vec::new();
        for_each_name(&from, |name| names.push(name.to_owned())).map_err(failed)?;
        names.iter().try_for_each(|name| self.merge(from.as_fd(), to.as_fd(), name.to_bytes()))
    }

    fn open(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, ReceiveError> {
        let opened = open_beneath(parent, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        opened.map_err(|errno| ReceiveError::write(self.path, errno))
    }

    fn kind(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, ReceiveError> {
        match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(errno) => Err(ReceiveError::write(self.path, errno)),
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
        rename_into(from, to, name, flags).map_err(|errno| ReceiveError::write(self.path, errno))
    }
}
