//! The published state of a client's files, with which the next look is compared.
//!
//! A value: it reads no file. Versions are assigned here; each belongs to one state of one inode.

use crate::fsys::{DirPermissions, FileStamp};
use crate::path::{Name, Path, range_beneath};
use crate::record::{Attr, Contents, FileNode};
use crate::snapshot_ring::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A directory that was listed.
#[derive(Debug)]
pub(crate) struct ListedDir {
    pub(crate) id: FileId,
    /// With which it was listed.
    pub(crate) permissions: DirPermissions,
    /// Absent if the directory cannot be watched and must be looked at every time.
    pub(crate) wd: Option<i32>,
    pub(crate) names: BTreeMap<Name, FileNode>,
}

/// A regular file in a listed directory.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) stamp: FileStamp,
    pub(crate) version: u64,
    pub(crate) names: BTreeSet<(Path, Name)>,
    pub(crate) snapshot: Option<Contents>,
    pub(crate) wd: Option<i32>,
}

/// A file's version, and whether it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssignedVersion {
    New(u64),
    Kept(u64),
}

/// Watches that are no longer needed.
#[derive(Debug, Default)]
pub(crate) struct UnusedWatches {
    pub(crate) dirs: Vec<(i32, Path)>,
    pub(crate) files: Vec<(i32, FileId)>,
}

#[derive(Debug, Default)]
pub(crate) struct ExportedTree {
    pub(crate) dirs: BTreeMap<Path, ListedDir>,
    pub(crate) inodes: HashMap<FileId, Inode>,
    last_version: u64,
    idle: UnusedWatches,
}

/// The file that attributes belong to.
pub(crate) fn id_of(attr: &Attr) -> FileId {
    (attr.dev, attr.ino)
}

impl ExportedTree {
    /// The version of a file with this stamp. `touched` says that its contents may have changed
    /// although its stamp has not.
    pub(crate) fn version(
        &mut self,
        id: FileId,
        stamp: FileStamp,
        touched: bool,
    ) -> AssignedVersion {
        let next = self.last_version + 1;
        let inode = self.inodes.entry(id).or_insert_with(|| Inode {
            stamp,
            version: 0,
            names: BTreeSet::new(),
            snapshot: None,
            wd: None,
        });
        if inode.version != 0 && inode.stamp == stamp && !touched {
            return AssignedVersion::Kept(inode.version);
        }
        inode.stamp = stamp;
        inode.version = next;
        inode.snapshot = None;
        self.last_version = next;
        AssignedVersion::New(next)
    }

    /// Records what a name in a listed directory stands for from now on.
    pub(crate) fn set(&mut self, dir: &Path, name: &[u8], node: Option<FileNode>) {
        let file = node.as_ref().and_then(file_id);
        let Some(known) = self.dirs.get_mut(dir) else { return };
        let old = match node {
            Some(node) => known.names.insert(name.into(), node),
            None => known.names.remove(name),
        };
        let old = old.as_ref().and_then(file_id);
        if old != file {
            old.into_iter().for_each(|id| self.unlink(id, dir, name));
        }
        if let Some(inode) = file.and_then(|id| self.inodes.get_mut(&id)) {
            inode.names.insert((Path::clone(dir), name.into()));
        }
    }

    /// Adds a listed directory without entries.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        id: FileId,
        permissions: DirPermissions,
        wd: Option<i32>,
    ) {
        self.dirs
            .insert(Path::clone(path), ListedDir { id, permissions, wd, names: BTreeMap::new() });
    }

    fn unlink(&mut self, id: FileId, dir: &Path, name: &[u8]) {
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        inode.names.remove(&(Path::clone(dir), Name::from(name)));
        if inode.names.is_empty() {
            self.idle.files.extend(inode.wd.map(|wd| (wd, id)));
            self.inodes.remove(&id);
        }
    }

    /// Forgets the listings of a directory and of everything beneath it. False if there were none.
    pub(crate) fn forget(&mut self, path: &[u8]) -> bool {
        let (start, end) = range_beneath(path);
        let mut paths: Vec<Path> =
            self.dirs.range(start..end).map(|(dir, _)| dir.clone()).collect();
        paths.extend(self.dirs.get_key_value(path).map(|(dir, _)| dir.clone()));
        for path in &paths {
            self.forget_one(path);
        }
        !paths.is_empty()
    }

    fn forget_one(&mut self, path: &Path) {
        let Some(dir) = self.dirs.remove(path) else { return };
        self.idle.dirs.extend(dir.wd.map(|wd| (wd, Path::clone(path))));
        for (name, node) in &dir.names {
            if let Some(id) = file_id(node) {
                self.unlink(id, path, name);
            }
        }
    }

    /// Forgets everything except the assigned versions.
    pub(crate) fn clear(&mut self) {
        self.dirs.clear();
        self.inodes.clear();
        self.idle = UnusedWatches::default();
    }

    /// The watches that have become unused since the last call and are unused still.
    pub(crate) fn take_idle(&mut self) -> UnusedWatches {
        let mut idle = std::mem::take(&mut self.idle);
        idle.dirs.retain(|(wd, path)| self.dirs.get(path).is_none_or(|dir| dir.wd != Some(*wd)));
        idle.files.retain(|(wd, id)| self.inodes.get(id).is_none_or(|file| file.wd != Some(*wd)));
        idle
    }

    /// What a name stands for, if its directory is listed.
    pub(crate) fn node(&self, dir: &[u8], name: &[u8]) -> Option<&FileNode> {
        self.dirs.get(dir)?.names.get(name)
    }
}

fn file_id(node: &FileNode) -> Option<FileId> {
    match node {
        FileNode::File(attr) => Some(id_of(attr)),
        _ => None,
    }
}
