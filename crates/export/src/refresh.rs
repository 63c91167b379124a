//! From what the kernel noticed to what is published: every name in question is looked at again.
//!
//! What is not watched is looked at on every submission instead. Never publishes what is as it was.

use crate::arena::FileId;
use crate::export::Export;
use crate::fsys::{self, Seen};
use crate::known::{Version, id_of};
use crate::path::{Name, Path, join, split};
use crate::record::{Entry, Node, Position, Record, What};
use crate::roots::{LOOK_DIRECTORY, READ_DIRECTORY};
use crate::watch::{Hint, Notices};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fstat};
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

const MOVED: Hint = Hint { touched: true, moved: true, polled: false };
const POLLED: Hint = Hint { touched: false, moved: false, polled: true };

impl Export {
    /// Publishes every change up to now. A job that is submitted with the position that this
    /// returns sees nothing older, if its server has read the log that far.
    pub fn submit(&mut self) -> Position {
        self.look_at_gaps();
        let mut notices = self.drained();
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

    /// Publishes what the kernel noticed; cheaper than [`submit`](Self::submit) where much cannot
    /// be watched.
    pub fn refresh(&mut self) {
        let notices = self.drained();
        if !notices.is_empty() {
            self.apply(notices);
            self.settle();
        }
    }

    /// We put a whole file there ourselves, by rename: publishes it at once.
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
        notices.places |= self.roots.is_any_removed();
        notices
    }

    /// Every name of what cannot be watched.
    fn add_polled(&mut self, notices: &mut Notices) {
        for path in self.polled.clone() {
            let Some(dir) = self.known.dirs.get(&path) else { continue };
            let names: Vec<Name> = dir.names.keys().cloned().collect();
            let now = self.open_known(&path, READ_DIRECTORY).and_then(|fd| fsys::names(fd.as_fd()));
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

    /// Looks at everything in question, and at what turns out to be.
    pub(crate) fn apply(&mut self, mut notices: Notices) {
        if notices.overflow {
            self.roots.drop_lost();
            self.forget_everything();
            return;
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

    /// Puts names to files that were noticed by themselves.
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

    /// What happened to one name of a file concerns all of them, and who is given its inode number.
    fn add_suspects(&self, notices: &mut Notices) {
        let touched = notices.names.iter().flat_map(|(dir, names)| {
            let names = names.iter().filter(|(_, hint)| hint.touched);
            names.filter_map(|(name, _)| self.known.node(dir, name))
        });
        let files = touched.filter_map(|node| match node {
            Node::File(attr) => Some(id_of(attr)),
            _ => None,
        });
        notices.suspects = files.collect();
    }

    /// A directory is not where it was: its parent says what is there now.
    fn forget_moved(&mut self, path: &[u8], notices: &mut Notices) {
        self.forget(path);
        // It may be a root, and only the way to it can tell.
        notices.places = true;
        if let Some((dir, name)) = split(path) {
            notices.add(&dir.into(), name, MOVED);
        }
    }

    /// Nothing is known any more of what a directory holds.
    pub(crate) fn forget(&mut self, path: &[u8]) {
        if self.known.forget(path) {
            self.publish(&Record::Forget { path });
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

    /// Opens a listed directory, if it is still the one that was listed.
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

    /// Publishes what a name stands for, if it is something else now.
    fn compare(&mut self, path: &Path, name: &[u8], node: Option<Node>, hint: Hint) {
        let old = self.known.node(path, name);
        if let Some(old @ Node::Directory(_)) = old
            && (hint.moved || !old.is_same_directory(node.as_ref()))
        {
            self.forget(&join(path, name));
        }
        if self.known.node(path, name) == node.as_ref() {
            return;
        }
        self.publish(&Record::Entry {
            dir: path,
            entry: Entry { name, what: What::of(node.as_ref()) },
        });
        self.known.set(path, name, node);
    }

    /// Looks at a name of an open directory. A file's other names go into `notices` if it changed.
    pub(crate) fn look(
        &mut self,
        dir: BorrowedFd,
        name: &[u8],
        hint: Hint,
        notices: &mut Notices,
    ) -> Option<Node> {
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
            Seen::File { mut attr, identity, links } => {
                let id = id_of(&attr);
                let touched = hint.touched || notices.suspects.contains(&id);
                // Two names of a file may both tell of one change.
                let touched = touched && !notices.renewed.contains(&id);
                attr.version = match self.known.version(id, identity, touched) {
                    Version::Kept(version) => version,
                    Version::New(version) => {
                        self.add_names(id, links, notices);
                        version
                    }
                };
                Some(Node::File(attr))
            }
        }
    }

    fn add_names(&self, id: FileId, links: u64, notices: &mut Notices) {
        // Once is enough: whoever goes on writing is noticed again.
        let first = notices.renewed.insert(id);
        let Some(inode) = self.known.inodes.get(&id).filter(|_| first) else { return };
        let several = links > 1 || inode.names.len() > 1;
        for (dir, name) in inode.names.iter().filter(|_| several) {
            notices.add(dir, name, Hint::default());
        }
    }

    /// Watches a file that can be written under another name than those we know. True if it must
    /// be looked at again, because the watch is new.
    fn watch_by_name(&mut self, dir: BorrowedFd, name: &[u8], id: FileId) -> bool {
        let known = self.known.inodes.get(&id);
        if known.is_some_and(|inode| inode.wd.is_some()) {
            return false;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let Ok(file) = fsys::open_beneath(dir, name, flags) else { return true };
        let Ok(stat) = fstat(&file) else { return true };
        let (id, identity) = ((stat.st_dev, stat.st_ino), fsys::Identity::of(&stat));
        if fsys::is_regular(&stat) {
            if !self.known.inodes.contains_key(&id) {
                self.known.version(id, identity, false);
            }
            self.watch_file(file.as_fd(), id);
        }
        true
    }

    /// Watches a file of which there is an inode.
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
