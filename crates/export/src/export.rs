//! The client's half: it reads the files that servers request, publishes them and watches them for
//! changes.
//!
//! One thread; no call waits for anything but the file system. Reads only beneath the allowed
//! roots, follows no symbolic link there and opens no name that is withheld.

use crate::counters::ExportCounters;
use crate::error::ExportError;
use crate::fsys::{self, DirPermissions, FileSystemKind};
use crate::header::{ExportHeader, HEADER_LEN, LOG_LEN_MAX};
use crate::known::ExportedTree;
use crate::log::{MetadataLog, NoRoom};
use crate::mounts::Mounts;
use crate::pack::Packer;
use crate::path::{self, HiddenNames, Path, components, shared, split, upwards};
use crate::record::{Answer, Ask, DirEntry, FileNode, LogRecord, NodeRecord, Position};
use crate::roots::{self, LOOK_DIRECTORY, NameOutside, READ_DIRECTORY, Roots};
use crate::snapshot_ring::{FileId, SnapshotRing};
use crate::watch::{Hint, Notices, Watch};
use outboard_mem::SharedRegion;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Offset of the log: behind the header, on a page of its own.
const LOG_AT: usize = HEADER_LEN.next_multiple_of(4096);
/// The least size of either part.
const SIZE_MIN: usize = 1 << 20;

/// The memory of an export. Pages that are not used cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes for snapshots of contents. No file may be larger than a quarter of it, or than 1 GiB.
    pub ring: usize,
    /// Bytes for the metadata log.
    pub log: usize,
}

impl Default for Sizes {
    /// 256 MiB for snapshots and 32 MiB for the metadata log.
    fn default() -> Self {
        Self { ring: 256 << 20, log: 32 << 20 }
    }
}

/// Files as memory that servers read; see the [crate].
#[derive(Debug)]
pub struct Export {
    pub(crate) memory: SharedRegion,
    pub(crate) log: MetadataLog,
    pub(crate) ring: SnapshotRing,
    pub(crate) arena_at: usize,
    pub(crate) hidden_names: HiddenNames,
    pub(crate) roots: Roots,
    pub(crate) watch: Watch,
    pub(crate) mounts: Mounts,
    pub(crate) known: ExportedTree,
    /// Directories that cannot be watched.
    pub(crate) polled: BTreeSet<Path>,
    /// Files with several names that cannot be watched.
    pub(crate) unwatched: BTreeSet<FileId>,
    /// Files that changed within the clock's resolution of their snapshot.
    pub(crate) racy: Vec<FileId>,
    /// Symbolic links to roots that cannot be watched.
    pub(crate) places_polled: bool,
    /// A record did not fit into the log.
    pub(crate) full: bool,
    pub(crate) scratch: Vec<u8>,
    pub(crate) packer: Packer,
    pub(crate) counters: ExportCounters,
}

/// The number of the first epoch; it grows from one run of a client to the next.
fn first_epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).max(1)
}

fn header(sizes: Sizes, hidden_names: HiddenNames) -> Option<ExportHeader> {
    let log_len = sizes.log.checked_next_multiple_of(LOG_AT)?;
    let arena_at = log_len.checked_add(LOG_AT)?;
    let fits = sizes.ring >= SIZE_MIN && sizes.log >= SIZE_MIN;
    (fits && log_len as u64 <= LOG_LEN_MAX).then_some(ExportHeader {
        position: Position { epoch: first_epoch(), length: 0 },
        log_at: LOG_AT as u64,
        log_len: log_len as u64,
        arena_at: arena_at as u64,
        arena_len: sizes.ring as u64,
        hidden_names,
    })
}

impl Export {
    /// An export without roots.
    ///
    /// # Errors
    /// [`ExportError::Sizes`], [`ExportError::Memory`], [`ExportError::Watch`].
    pub fn new(sizes: Sizes, hidden_names: HiddenNames) -> Result<Self, ExportError> {
        let refused = ExportError::Sizes { ring: sizes.ring, log: sizes.log };
        let Some(header) = header(sizes, hidden_names) else { return Err(refused) };
        let arena_at = usize::try_from(header.arena_at).unwrap_or(usize::MAX);
        let Some(len) = arena_at.checked_add(sizes.ring) else { return Err(refused) };
        let memory = SharedRegion::zeroed(len)?;
        Ok(Self {
            log: MetadataLog::new(memory.clone(), header),
            memory,
            ring: SnapshotRing::new(sizes.ring),
            arena_at,
            hidden_names,
            roots: Roots::new(),
            watch: Watch::new(hidden_names).map_err(ExportError::Watch)?,
            mounts: Mounts::new(),
            known: ExportedTree::default(),
            polled: BTreeSet::new(),
            unwatched: BTreeSet::new(),
            racy: Vec::new(),
            places_polled: false,
            full: false,
            scratch: Vec::new(),
            packer: Packer::new(),
            counters: ExportCounters::default(),
        })
    }

    /// The memory for servers to read: one region with the header, the log and the snapshots.
    #[must_use]
    pub fn memory(&self) -> &SharedRegion {
        &self.memory
    }

    /// Readable when files may have changed: then call [`refresh`](Self::refresh) (or
    /// [`submit`](Self::submit)) before the kernel's queue of notices overflows.
    #[must_use]
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.watch.fd()
    }

    /// What it holds, and has done so far.
    #[must_use]
    pub fn counters(&self) -> ExportCounters {
        ExportCounters {
            roots_now: self.roots.held.len() as u64,
            directories_now: self.known.dirs.len() as u64,
            files_now: self.known.inodes.len() as u64,
            log_now_bytes: self.log.used(),
            ..self.counters
        }
    }

    /// Allows servers to request a directory and everything beneath it (but names that are
    /// withheld). Symbolic links on the path are published, so that the path as given leads there
    /// on a server too. If nothing is there, its absence is published. True if this is new;
    /// allowing a root again costs next to nothing, and makes it the most recently used.
    ///
    /// # Errors
    /// [`ExportError`] if it is no directory, cannot be opened, or would export too much.
    pub fn allow(&mut self, root: &std::path::Path) -> Result<bool, ExportError> {
        self.allow_as(root, self.hidden_names)
    }

    /// As [`allow`](Self::allow), for a directory that the user has named, which may lie below a
    /// name that begins with a dot. A root above it is unchanged, and so is what is done with
    /// hidden names.
    ///
    /// # Errors
    /// As [`allow`](Self::allow).
    pub fn allow_hidden(&mut self, root: &std::path::Path) -> Result<bool, ExportError> {
        self.allow_as(root, HiddenNames::Exported)
    }

    fn allow_as(
        &mut self,
        root: &std::path::Path,
        hidden_names: HiddenNames,
    ) -> Result<bool, ExportError> {
        let given = root.as_os_str().as_bytes();
        if self.roots.was_given(given) {
            return Ok(false);
        }
        let resolved = roots::resolve(given, hidden_names)?;
        let mut news = false;
        if !self.roots.note_use(&resolved.path) {
            news = true;
            if resolved.is_absent {
                news = self.add_negative_entry(&resolved.path);
            } else {
                let root = self.roots.open(&resolved.path)?;
                self.make_room();
                self.add_root(&resolved.path, root);
            }
        }
        // A link within a root may change its target later, and the target's path is not watched.
        let is_within = |(path, _): &(Path, FileNode)| self.roots.above(path).is_some();
        if !resolved.is_absent && !resolved.root_symlinks.iter().any(is_within) {
            self.roots.note_given(given, &resolved.path);
        }
        for (path, node) in resolved.root_symlinks {
            news |= self.add_root_symlink(path, node);
        }
        self.settle();
        Ok(news)
    }

    fn add_negative_entry(&mut self, path: &Path) -> bool {
        self.check_negative_entries_above(path);
        let (is_news, dropped) = self.roots.negative_entries.add(path);
        if let Some(dropped) = dropped {
            // Listings beneath it are no longer known.
            self.publish(&LogRecord::NegativeEntry { path: &dropped, is_filled: true });
        }
        if is_news {
            self.publish(&LogRecord::NegativeEntry { path, is_filled: false });
        }
        is_news
    }

    /// Drops roots if there are too many. Only a new epoch can withdraw what was published.
    fn make_room(&mut self) {
        let dropped = self.roots.make_room();
        self.full |= !dropped.is_empty();
        for root in dropped {
            self.known.forget(&root);
        }
        if self.full {
            self.drop_idle();
            self.settle();
        }
    }

    /// Publishes the negative entries at which there is something now.
    pub(crate) fn check_negative_entries(&mut self) {
        for path in self.roots.take_filled() {
            self.publish(&LogRecord::NegativeEntry { path: &path, is_filled: true });
        }
    }

    /// The same for those at a path and above it, which are no longer true if there is something at
    /// the path.
    fn check_negative_entries_above(&mut self, path: &[u8]) {
        for path in self.roots.take_filled_above(path) {
            self.publish(&LogRecord::NegativeEntry { path: &path, is_filled: true });
        }
    }

    fn add_root(&mut self, path: &Path, root: roots::Root) {
        let attr = root.attr;
        self.check_negative_entries_above(path);
        for covered in self.roots.add(path, root) {
            // Its parents must be listed from now on, or their moves would go unnoticed.
            self.forget(&covered);
        }
        self.drop_idle();
        self.watch_places(path);
        self.publish(&LogRecord::Root { path, attr });
    }

    /// Watches the directories from a root upwards, to notice when they are moved.
    pub(crate) fn watch_places(&mut self, root: &[u8]) {
        for path in upwards(root).filter(|path| *path != b"/") {
            let watched = fsys::open_path(path).and_then(|fd| self.watch.place(fd.as_fd()));
            self.places_polled |= watched.is_err();
        }
    }

    fn add_root_symlink(&mut self, path: Path, node: FileNode) -> bool {
        if self.roots.above(&path).is_some() || self.roots.root_symlinks.get(&path) == Some(&node) {
            return false;
        }
        self.places_polled |= self.watch.link(&path).is_err();
        self.publish_root_symlink(&path, &node);
        self.roots.root_symlinks.insert(path, node);
        true
    }

    pub(crate) fn publish_root_symlink(&mut self, path: &[u8], node: &FileNode) {
        if let FileNode::Symlink { target, attr } = node {
            self.publish(&LogRecord::RootSymlink { path, target, attr: *attr });
        }
    }

    /// Answers a server's request.
    pub fn answer(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::List { dir } => self.list(dir),
            Ask::Offer { path, version } => self.offer(path, *version),
            Ask::Name { path } => self.name(path),
        }
    }

    /// Says whether there is anything at a path outside the roots: programs look in many places of
    /// their own. Only directories and links are reported, and nothing about withheld names or the
    /// contents of home directories.
    fn name(&mut self, path: &[u8]) -> Answer {
        if !path::is_path(path) || self.withholds(path) || self.roots.is_private(path) {
            return Answer::Withheld;
        }
        match self.roots.look_at_name(path) {
            NameOutside::Nothing => {
                self.add_negative_entry(&shared(path));
                Answer::Published(self.settle())
            }
            NameOutside::Symlink(node) => {
                self.add_root_symlink(shared(path), node);
                Answer::Published(self.settle())
            }
            NameOutside::Directory => Answer::Directory,
            NameOutside::Untold => Answer::Withheld,
        }
    }

    /// Publishes the listing of a directory, given by its path without symbolic links, and watches
    /// it.
    pub fn list(&mut self, dir: &[u8]) -> Answer {
        if !self.may_show(dir) {
            return Answer::Withheld;
        }
        self.refresh();
        let dir = shared(dir);
        if self.known.dirs.contains_key(&dir) {
            self.counters.hits += 1;
            return Answer::Published(self.settle());
        }
        // If the log was full, the new epoch may have dropped the listing.
        for _ in 0..2 {
            let listed = self.list_down_to(&dir);
            let position = self.settle();
            match listed {
                Err(answer) => return with_position(answer, position),
                Ok(()) if self.known.dirs.contains_key(&dir) => {
                    return Answer::Published(position);
                }
                Ok(()) => {}
            }
        }
        Answer::TooLarge { len: self.log.room(), len_max: self.log.room() / 2 }
    }

    /// Whether one of these names is withheld.
    fn withholds(&self, path: &[u8]) -> bool {
        components(path).any(|name| self.hidden_names.withhold(name))
    }

    /// Whether a path is beneath a root and not withheld.
    pub(crate) fn may_show(&self, path: &[u8]) -> bool {
        let above = if path::is_path(path) { self.roots.above(path) } else { None };
        above.is_some_and(|(_, _, rel)| !self.withholds(rel))
    }

    /// Lists a directory after those above it, so that a move of any of them is noticed.
    pub(crate) fn list_down_to(&mut self, dir: &Path) -> Result<(), Answer> {
        let Some((root, _, _)) = self.roots.above(dir) else { return Err(Answer::Withheld) };
        let root = Path::clone(root);
        let inside = |path: &&[u8]| path::behind(&root, path).is_some();
        let mut down: Vec<Path> = upwards(dir).take_while(inside).map(shared).collect();
        while let Some(path) = down.pop() {
            if self.known.dirs.contains_key(&path) {
                continue;
            }
            if path != root {
                self.expect_directory(&path)?;
            }
            self.list_one(&path)?;
        }
        Ok(())
    }

    /// Whether a path is a directory, according to its parent's listing.
    fn expect_directory(&self, path: &[u8]) -> Result<(), Answer> {
        let node = split(path).and_then(|(dir, name)| self.known.node(dir, name));
        match node {
            Some(FileNode::Directory(_)) => Ok(()),
            Some(FileNode::Withheld) => Err(Answer::Withheld),
            _ => Err(Answer::Changed(Position::default())),
        }
    }

    fn list_one(&mut self, path: &Path) -> Result<(), Answer> {
        self.counters.misses += 1;
        let failed = |errno: Errno| Answer::Failed(errno.raw_os_error());
        let fd = match self.roots.open_beneath(path, READ_DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(self.look_above(path)),
            // Names that are known can be opened there, although they cannot be listed.
            Err(Errno::ACCESS) if self.may_search(path) => return Err(Answer::Withheld),
            opened => opened.map_err(failed)?,
        };
        let stat = fstat(&fd).map_err(failed)?;
        let wd = self.watch_directory(&fd, path);
        let permissions = DirPermissions::of(fd.as_fd()).map_err(failed)?;
        let names = fsys::names(fd.as_fd(), self.hidden_names).map_err(|errno| {
            wd.into_iter().for_each(|wd| self.watch.remove_directory(wd, path));
            failed(errno)
        })?;
        self.known.add(path, (stat.st_dev, stat.st_ino), permissions, wd);
        if wd.is_none() {
            self.polled.insert(Path::clone(path));
        }
        let mut again = Notices::default();
        for name in names {
            let node = self.look(fd.as_fd(), &name, Hint::default(), &mut again);
            self.known.set(path, &name, node);
        }
        self.publish_directory(path)?;
        self.apply(again);
        Ok(())
    }

    fn may_search(&self, path: &[u8]) -> bool {
        let opened = self.roots.open_beneath(path, LOOK_DIRECTORY);
        let permissions = opened.and_then(|fd| DirPermissions::of(fd.as_fd()));
        permissions.is_ok_and(|permissions| permissions.may_search)
    }

    /// The directory is gone: updates its parent's listing.
    fn look_above(&mut self, path: &[u8]) -> Answer {
        match split(path) {
            Some((dir, name)) if self.known.dirs.contains_key(dir) => self.look_once(
                &shared(dir),
                name,
                Hint { touched: true, moved: true, polled: false },
            ),
            _ => Answer::Failed(Errno::NOENT.raw_os_error()),
        }
    }

    /// Watched before it is read, so that no change between the two is missed.
    fn watch_directory(&mut self, fd: &OwnedFd, path: &Path) -> Option<i32> {
        let is_watched = match fsys::kind(fd) {
            FileSystemKind::Local => true,
            FileSystemKind::Layered => !self.mounts.has_layers_in_sight(path),
            FileSystemKind::Elsewhere | FileSystemKind::Pseudo => false,
        };
        is_watched.then(|| self.watch.directory(fd.as_fd(), path).ok())?
    }

    fn publish_directory(&mut self, path: &[u8]) -> Result<(), Answer> {
        let Some(dir) = self.known.dirs.get(path) else { return Ok(()) };
        let entry = |(name, node)| DirEntry { name, what: NodeRecord::of(Some(node)) };
        let entries = dir.names.iter().map(|(name, node)| entry((&**name, node))).collect();
        let len = dir.names.len() as u64;
        match self.log.append(&LogRecord::Directory { path, entries }) {
            Err(NoRoom::TooLong) => {
                self.known.forget(path);
                self.drop_idle();
                Err(Answer::TooLarge { len, len_max: self.log.room() / 256 })
            }
            appended => {
                self.full |= appended.is_err();
                Ok(())
            }
        }
    }

    pub(crate) fn publish(&mut self, record: &LogRecord) {
        self.full |= self.log.append(record).is_err();
    }

    /// Makes all appended records visible to readers; begins a new epoch if the log was full.
    pub(crate) fn settle(&mut self) -> Position {
        if self.full {
            self.begin_epoch();
        }
        self.log.commit()
    }

    /// Begins a new epoch that contains everything still valid, without the past.
    fn begin_epoch(&mut self) {
        self.full = false;
        self.counters.epochs += 1;
        self.log.begin_epoch();
        self.publish_roots();
        let dirs: Vec<Path> = self.known.dirs.keys().cloned().collect();
        for dir in dirs {
            // A directory whose listing has become too long is dropped.
            let _ = self.publish_directory(&dir);
        }
        let snapshots = self.known.inodes.values().filter_map(|inode| inode.snapshot);
        let snapshots: Vec<_> = snapshots.collect();
        snapshots.into_iter().for_each(|contents| self.publish(&LogRecord::Contents(contents)));
        if self.full || self.log.used() > self.log.room() / 2 {
            self.forget_everything();
        }
    }

    /// Begins a new epoch that contains the roots only.
    pub(crate) fn forget_everything(&mut self) {
        self.known.clear();
        self.polled.clear();
        self.unwatched.clear();
        self.racy.clear();
        self.watch.clear();
        self.full = false;
        self.places_polled = false;
        self.log.begin_epoch();
        self.publish_roots();
        let roots: Vec<Path> = self.roots.held.keys().cloned().collect();
        roots.iter().for_each(|root| self.watch_places(root));
        let root_symlinks: Vec<Path> = self.roots.root_symlinks.keys().cloned().collect();
        for way in root_symlinks {
            self.places_polled |= self.watch.link(&way).is_err();
        }
    }

    fn publish_roots(&mut self) {
        let roots = self.roots.held.iter().map(|(path, root)| (Path::clone(path), root.attr));
        for (path, attr) in roots.collect::<Vec<_>>() {
            self.publish(&LogRecord::Root { path: &path, attr });
        }
        for (path, node) in self.roots.root_symlinks.clone() {
            self.publish_root_symlink(&path, &node);
        }
        for path in self.roots.negative_entries.iter().cloned().collect::<Vec<_>>() {
            self.publish(&LogRecord::NegativeEntry { path: &path, is_filled: false });
        }
    }
}

/// Sets the position of an answer, which is known only after the log is committed.
pub(crate) fn with_position(answer: Answer, position: Position) -> Answer {
    match answer {
        Answer::Changed(_) => Answer::Changed(position),
        Answer::Published(_) => Answer::Published(position),
        other => other,
    }
}
