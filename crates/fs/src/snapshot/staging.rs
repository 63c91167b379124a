//! A directory that is to be a store: beside its target, under another name, and with a file in it
//! that no server takes for one of a store's.

use super::SnapshotError;
use crate::store::complete;
use crate::store::superblock::Superblock;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process;

/// The file that says that the rest is not whole.
const UNFINISHED: &str = "unfinished";
/// The metadata's file: a store's first checkpoint.
const METADATA: &str = "checkpoint.0";
const DATA: &str = "data";
const SUPERBLOCK: &str = "superblock";
const LOCK: &str = "lock";

/// See this file's first lines. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct UnfinishedStore {
    directory: PathBuf,
    parent: PathBuf,
    target: PathBuf,
}

impl Drop for UnfinishedStore {
    fn drop(&mut self) {
        // It has its own name by now, or it is of no use.
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

impl UnfinishedStore {
    /// A directory for a target that is not there yet.
    pub(super) fn make(target: &Path) -> Result<Self, SnapshotError> {
        let target = std::path::absolute(target).map_err(SnapshotError::disk(target))?;
        if target.symlink_metadata().is_ok() {
            return Err(SnapshotError::Exists(target));
        }
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(SnapshotError::Exists(target));
        };
        let name = format!(".{}.unfinished-{}", name.to_string_lossy(), process::id());
        let (directory, parent) = (parent.join(name), parent.to_owned());
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(SnapshotError::disk(&directory))?;
        let staging = Self { directory, parent, target };
        // It is there before anything that a server would take for a store's.
        staging.create(UNFINISHED)?.sync_all().map_err(SnapshotError::disk(&staging.directory))?;
        staging.sync_names()?;
        Ok(staging)
    }

    fn create(&self, name: &str) -> Result<File, SnapshotError> {
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        file.map_err(SnapshotError::disk(&path))
    }

    /// The file for the metadata.
    pub(super) fn metadata(&self) -> Result<File, SnapshotError> {
        self.create(METADATA)
    }

    /// The file for the blocks.
    pub(super) fn data(&self) -> Result<File, SnapshotError> {
        self.create(DATA)
    }

    /// The metadata as they were written.
    pub(super) fn written_metadata(&self) -> Result<File, SnapshotError> {
        let path = self.directory.join(METADATA);
        File::open(&path).map_err(SnapshotError::disk(&path))
    }

    pub(super) fn data_path(&self) -> PathBuf {
        self.directory.join(DATA)
    }

    fn sync_names(&self) -> Result<(), SnapshotError> {
        sync_directory(&self.directory).map_err(SnapshotError::disk(&self.directory))
    }

    /// Returns when blocks and metadata outlive a power cut.
    pub(super) fn sync(&self) -> Result<(), SnapshotError> {
        for name in [METADATA, DATA] {
            let path = self.directory.join(name);
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(SnapshotError::disk(&path))?;
        }
        self.sync_names()
    }

    /// It is whole: it becomes a store, of the user who has the one that was copied, and gets its
    /// name.
    pub(super) fn finish(
        self,
        superblock: &Superblock,
        copied: &Path,
    ) -> Result<(), SnapshotError> {
        complete(&self.directory, superblock)?;
        // Whoever opens it first would make it, and have it.
        self.create(LOCK)?;
        let finish = || -> io::Result<()> {
            self.give_to_owner_of(copied)?;
            fs::remove_file(self.directory.join(UNFINISHED))?;
            sync_directory(&self.directory)?;
            // What others have put there meanwhile stays: a directory that is not empty is no place
            // for another one.
            fs::rename(&self.directory, &self.target)?;
            sync_directory(&self.parent)
        };
        finish().map_err(SnapshotError::disk(&self.target))
    }
}

impl UnfinishedStore {
    /// Services of user 0's nodes have users of their own: theirs it must be to be served.
    fn give_to_owner_of(&self, copied: &Path) -> io::Result<()> {
        let (of, own) = (fs::metadata(copied)?, fs::metadata(&self.directory)?);
        if (of.uid(), of.gid()) == (own.uid(), own.gid()) {
            return Ok(());
        }
        let give = |path: &Path| match chown(path, Some(of.uid()), Some(of.gid())) {
            // Nobody but user 0 gives anything away.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        };
        for name in [METADATA, DATA, SUPERBLOCK, LOCK] {
            let path = self.directory.join(name);
            give(&path)?;
            File::open(&path)?.sync_all()?;
        }
        give(&self.directory)
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
