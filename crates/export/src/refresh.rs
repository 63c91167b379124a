//! Turns the kernel's notices into records: every name that may have changed is looked at again.
//!
//! Files that are not watched are looked at on every submission instead. Never publishes an
//! unchanged state.

use crate::export::Export;
use crate::fsys::{self, DirPermissions, Seen};
use crate::known::{AssignedVersion, id_of};
use crate::path::{Name, Path, join, split};
use crate::record::{DirEntry, FileNode, LogRecord, NodeRecord, Position};
use crate::roots::{LOOK_DIRECTORY, READ_DIRECTORY};
use crate::snapshot_ring::FileId;
use crate::watch::{Hint, Notices};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fstat};
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

const MOVED: Hint = Hint { touched: true, moved: true, polled: false };
const POLLED: Hint = Hint { touched: false, moved: false, polled: true };

impl Export {
    /// Publishes every change up to now. A job that is submitted with the returned position sees no
    /// older state, if its server has read the log up to there.
    pub fn submit(&mut self) -> Position {
        self.check_negative_entries();
        let mut notices = self.drained();
        notices.places |= self.roots.is_any_replaced();
        if self.places_polled {
            notices.places = true;
        }
        self.add_polled(&mut notices);
        self.add_racy(&mut notices);
        if !notices.is_empty() {
            self.apply(notices);
        }
        self.settle()
    }

    /// Publishes the changes that the kernel has reported; cheaper than [`submit`](Self::submit) if
    /// many directories cannot be watched.
    pub fn refresh(&mut self) {
        let notices = self.drained();
        if !notices.is_empty() {
            self.apply(notices);
            self.settle();
        }
    }

    /// Publishes at once a file that this client has put in place itself, whole, by rename.
    pub fn note_written(&mut self, path: &std::path::Path) {
        let path = path.as_os_str().as_bytes();
        let Some((dir, name)) = split(path) else { return };
        if !self.known.dirs.contains_key(dir) || !self.may_show(path) {
            return;
        }
        let mut notices = Notices::default();
        notices.add(&dir.into(), name, Hint::default());
        self.apply(notices);
        self.settle();
    }

    fn drained(&mut self) -> Notices {
        let mut notices = Notices::default();
        if self.watch.drain(&mut notices).is_err() {
            notices.overflow = true;
        }
        // A mount covers or uncovers what was listed there.
        notices.gone.extend(self.mounts.changed());
        notices
    }

    /// Adds every name that cannot be watched.
    fn add_polled(&mut self, notices: &mut Notices) {
        for path in self.polled.clone() {
            let Some(dir) = self.known.dirs.get(&path) else { continue };
            let names: Vec<Name> = dir.names.keys().cloned().collect();
            let now = self
                .open_known(&path, READ_DIRECTORY)
                .and_then(|fd| fsys::names(fd.as_fd(), self.hidden_names));
            match now {
                Ok(now) => {
                    let all = names.into_iter().chain(now);
                    all.for_each(|name| notices.add(&path, &name, POLLED));
                }
                Err(_) => drop(notices.gone.insert(path)),
            }
        }
        for id in &self.unwatched {
            notices.files.entry(*id).or_default();
        }
    }

    /// Looks at every name in the notices, and at those that are added on the way.
    pub(crate) fn apply(&mut self, mut notices: Notices) {
        if notices.overflow {
            self.roots.drop_lost();
            self.forget_everything();
            return;
        }
        for path in std::mem::take(&mut notices.attributes) {
            if !self.has_same_permissions(&path) {
                notices.gone.insert(path);
            }
        }
        for path in std::mem::take(&mut notices.gone) {
            self.forget_moved(&path, &mut notices);
        }
        self.name_files(&mut notices);
        self.add_suspects(&mut notices);
        while let Some((dir, names)) = notices.names.pop_first() {
            self.look_again(&dir, names, &mut notices);
        }
        if notices.places && self.roots.drop_lost() {
            self.forget_everything();
        }
        self.drop_idle();
    }

    /// Adds the names of files that were reported without a name.
    fn name_files(&mut self, notices: &mut Notices) {
        for id in &notices.ended {
            if let Some(inode) = self.known.inodes.get_mut(id) {
                inode.wd = None;
            }
        }
        for (id, touched) in std::mem::take(&mut notices.files) {
            let Some(inode) = self.known.inodes.get(&id) else { continue };
            for (dir, name) in &inode.names {
                notices.add(dir, name, Hint { touched, ..Hint::default() });
            }
        }
    }

    /// A notice for one name of a file concerns all its names, and the files that have its inode
    /// number now.
    fn add_suspects(&self, notices: &mut Notices) {
        let touched = notices.names.iter().flat_map(|(dir, names)| {
            let names = names.iter().filter(|(_, hint)| hint.touched);
            names.filter_map(|(name, _)| self.known.node(dir, name))
        });
        let files = touched.filter_map(|node| match node {
            FileNode::File(attr) => Some(id_of(attr)),
            _ => None,
        });
        notices.suspects = files.collect();
    }

    /// Whether a listed directory has the permissions with which it was listed. Its listing and all
    /// beneath it depend on them.
    fn has_same_permissions(&self, path: &Path) -> bool {
        let now = self
            .open_known(path, LOOK_DIRECTORY)
            .and_then(|fd| DirPermissions::of(fd.as_fd()))
            .ok();
        now.is_some() && now == self.known.dirs.get(path).map(|dir| dir.permissions)
    }

    /// A directory was moved, or has other permissions: its parent has to be looked at.
    fn forget_moved(&mut self, path: &[u8], notices: &mut Notices) {
        self.forget(path);
        // It may be a root, whose parent is not listed.
        notices.places = true;
        if let Some((dir, name)) = split(path) {
            notices.add(&dir.into(), name, MOVED);
        }
    }

    /// Withdraws the listings of a directory and of all beneath it.
    pub(crate) fn forget(&mut self, path: &[u8]) {
        if self.known.forget(path) {
            self.publish(&LogRecord::Forget { path });
        }
    }

    pub(crate) fn drop_idle(&mut self) {
        let idle = self.known.take_idle();
        for (wd, path) in idle.dirs {
            self.watch.remove_directory(wd, &path);
        }
        idle.files.into_iter().for_each(|(wd, _)| self.watch.remove_file(wd));
        self.polled.retain(|path| self.known.dirs.contains_key(path));
        self.unwatched.retain(|id| self.known.inodes.contains_key(id));
    }

    /// Opens a listed directory, if it is still the directory that was listed.
    pub(crate) fn open_known(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let dir = self.known.dirs.get(path).ok_or(Errno::NOENT)?;
        let fd = self.roots.open_beneath(path, flags)?;
        let stat = fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) == dir.id { Ok(fd) } else { Err(Errno::STALE) }
    }

    fn look_again(&mut self, path: &Path, names: BTreeMap<Name, Hint>, notices: &mut Notices) {
        if !self.known.dirs.contains_key(path) {
            return;
        }
        let Ok(fd) = self.open_known(path, LOOK_DIRECTORY) else {
            return self.forget_moved(path, notices);
        };
        for (name, hint) in names {
            let node = self.look(fd.as_fd(), &name, hint, notices);
            self.compare(path, &name, node, hint);
        }
    }

    /// Publishes what a name stands for, if it has changed.
    fn compare(&mut self, path: &Path, name: &[u8], node: Option<FileNode>, hint: Hint) {
        let old = self.known.node(path, name);
        if let Some(old @ FileNode::Directory(_)) = old
            && (hint.moved || !old.is_same_directory(node.as_ref()))
        {
            self.forget(&join(path, name));
        }
        if self.known.node(path, name) == node.as_ref() {
            return;
        }
        self.publish(&LogRecord::DirEntry {
            dir: path,
            entry: DirEntry { name, what: NodeRecord::of(node.as_ref()) },
        });
        self.known.set(path, name, node);
    }

    /// Looks at a name of an open directory. If the file changed, its other names are added to
    /// `notices`.
    pub(crate) fn look(
        &mut self,
        dir: BorrowedFd,
        name: &[u8],
        hint: Hint,
        notices: &mut Notices,
    ) -> Option<FileNode> {
        let mut seen = fsys::look(dir, name);
        if let Seen::File { attr, .. } = &seen
            && hint.polled
            && self.known.inodes.get(&id_of(attr)).is_some_and(|inode| inode.snapshot.is_some())
        {
            seen = fsys::look_anew(dir, name);
        }
        if let Seen::File { attr, links: 2.., .. } = &seen
            && self.watch_by_name(dir, name, id_of(attr))
        {
            seen = fsys::look(dir, name);
        }
        match seen {
            Seen::Absent => None,
            Seen::Other(node) => Some(node),
            Seen::File { mut attr, stamp, links } => {
                let id = id_of(&attr);
                let touched = hint.touched || notices.suspects.contains(&id);
                // One change may be reported under both of a file's names.
                let touched = touched && !notices.renewed.contains(&id);
                attr.version = match self.known.version(id, stamp, touched) {
                    AssignedVersion::Kept(version) => version,
                    AssignedVersion::New(version) => {
                        self.add_names(id, links, notices);
                        version
                    }
                };
                Some(FileNode::File(attr))
            }
        }
    }

    fn add_names(&self, id: FileId, links: u64, notices: &mut Notices) {
        // Once is enough: a process that continues to write causes new notices.
        let first = notices.renewed.insert(id);
        let Some(inode) = self.known.inodes.get(&id).filter(|_| first) else { return };
        let several = links > 1 || inode.names.len() > 1;
        for (dir, name) in inode.names.iter().filter(|_| several) {
            notices.add(dir, name, Hint::default());
        }
    }

    /// Watches a file that has more names than those known here, by which it could be written. True
    /// if it must be looked at again, because the watch is new.
    fn watch_by_name(&mut self, dir: BorrowedFd, name: &[u8], id: FileId) -> bool {
        let known = self.known.inodes.get(&id);
        if known.is_some_and(|inode| inode.wd.is_some()) {
            return false;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let Ok(file) = fsys::open_beneath(dir, name, flags) else { return true };
        let Ok(stat) = fstat(&file) else { return true };
        let (id, stamp) = ((stat.st_dev, stat.st_ino), fsys::FileStamp::of(&stat));
        if fsys::is_regular(&stat) {
            if !self.known.inodes.contains_key(&id) {
                self.known.version(id, stamp, false);
            }
            self.watch_file(file.as_fd(), id);
        }
        true
    }

    /// Watches a file whose inode is recorded.
    pub(crate) fn watch_file(&mut self, file: BorrowedFd, id: FileId) {
        let Some(inode) = self.known.inodes.get_mut(&id) else { return };
        if inode.wd.is_some() {
            return;
        }
        match self.watch.file(file, id) {
            Ok(wd) => inode.wd = Some(wd),
            Err(_) => drop(self.unwatched.insert(id)),
        }
    }
}
