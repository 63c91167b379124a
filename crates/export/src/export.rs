//! The client's half: what it is asked for, it looks at, publishes and watches from then on.
//!
//! One thread; no call waits for anything but the file system. Reads only beneath the roots that
//! were allowed, through no symbolic link and no name that begins with a dot.

use crate::arena::{Arena, FileId};
use crate::error::ExportError;
use crate::fsys::{self, Kind};
use crate::header::{HEADER_LEN, Header, LOG_LEN_MAX};
use crate::known::Known;
use crate::log::{Log, NoRoom};
use crate::pack::Packer;
use crate::path::{self, Path, components, is_hidden, shared, split, upwards};
use crate::record::{Answer, Ask, Entry, Node, Position, Record, What};
use crate::roots::{self, GAPS_MAX, READ_DIRECTORY, Roots};
use crate::watch::{Hint, Notices, Watch};
use outboard_mem::SharedRegion;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the log begins: behind the header, in a page of its own.
const LOG_AT: usize = HEADER_LEN.next_multiple_of(4096);
/// The least that either part may have.
const SIZE_MIN: usize = 1 << 20;

/// How much memory an export has. Pages that are not used cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes for contents. No file may be larger than a quarter of it, or than 1 GiB.
    pub arena: usize,
    /// Bytes for the catalogue.
    pub log: usize,
}

impl Default for Sizes {
    /// 256 MiB for contents and 32 MiB for the catalogue.
    fn default() -> Self {
        Self { arena: 256 << 20, log: 32 << 20 }
    }
}

/// What is exported at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Directories that may be asked for.
    pub roots: usize,
    /// Directories that were listed.
    pub directories: usize,
    /// Files in them.
    pub files: usize,
    /// Files whose contents lie ready.
    pub snapshots: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes of the catalogue.
    pub log: u64,
    /// Questions whose answer was published already, ever.
    pub hits: u64,
    /// Questions that the file system was asked for, ever.
    pub misses: u64,
}

/// Files as memory that servers read. See the crate's text.
#[derive(Debug)]
pub struct Export {
    pub(crate) memory: SharedRegion,
    pub(crate) log: Log,
    pub(crate) arena: Arena,
    pub(crate) arena_at: usize,
    pub(crate) roots: Roots,
    pub(crate) watch: Watch,
    pub(crate) known: Known,
    /// Directories that cannot be watched.
    pub(crate) polled: BTreeSet<Path>,
    /// Files with several names that cannot be watched.
    pub(crate) unwatched: BTreeSet<FileId>,
    /// Files that changed within the clock's grain of their snapshot.
    pub(crate) racy: Vec<FileId>,
    /// Ways to roots that cannot be watched.
    pub(crate) places_polled: bool,
    /// A record found no room.
    pub(crate) full: bool,
    pub(crate) scratch: Vec<u8>,
    pub(crate) packer: Packer,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// A number for the first epoch that grows from one run of a client to the next.
fn first_epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX >> 1).max(1)
}

fn header(sizes: Sizes) -> Option<Header> {
    let log_len = sizes.log.checked_next_multiple_of(LOG_AT)?;
    let arena_at = log_len.checked_add(LOG_AT)?;
    let fits = sizes.arena >= SIZE_MIN && sizes.log >= SIZE_MIN;
    (fits && log_len as u64 <= LOG_LEN_MAX).then_some(Header {
        position: Position { epoch: first_epoch(), length: 0 },
        log_at: LOG_AT as u64,
        log_len: log_len as u64,
        arena_at: arena_at as u64,
        arena_len: sizes.arena as u64,
    })
}

impl Export {
    /// An export of nothing, for the time being.
    ///
    /// # Errors
    /// [`ExportError::Sizes`], [`ExportError::Memory`], [`ExportError::Watch`].
    pub fn new(sizes: Sizes) -> Result<Self, ExportError> {
        let refused = ExportError::Sizes { arena: sizes.arena, log: sizes.log };
        let Some(header) = header(sizes) else { return Err(refused) };
        let arena_at = usize::try_from(header.arena_at).unwrap_or(usize::MAX);
        let Some(len) = arena_at.checked_add(sizes.arena) else { return Err(refused) };
        let memory = SharedRegion::zeroed(len)?;
        Ok(Self {
            log: Log::new(memory.clone(), header),
            memory,
            arena: Arena::new(sizes.arena),
            arena_at,
            roots: Roots::new(),
            watch: Watch::new().map_err(ExportError::Watch)?,
            known: Known::default(),
            polled: BTreeSet::new(),
            unwatched: BTreeSet::new(),
            racy: Vec::new(),
            places_polled: false,
            full: false,
            scratch: Vec::new(),
            packer: Packer::new(),
            hits: 0,
            misses: 0,
        })
    }

    /// What servers may read: one region with the header, the log and the contents.
    #[must_use]
    pub fn memory(&self) -> &SharedRegion {
        &self.memory
    }

    /// Readable when files may have changed: then call [`refresh`](Self::refresh) (or
    /// [`submit`](Self::submit)), so that the kernel never has more to say than it keeps.
    #[must_use]
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.watch.fd()
    }

    /// What is exported at the moment.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let snapshots = || self.known.inodes.values().filter_map(|inode| inode.snapshot);
        Usage {
            roots: self.roots.held.len(),
            directories: self.known.dirs.len(),
            files: self.known.inodes.len(),
            snapshots: snapshots().count(),
            bytes: snapshots().map(|contents| contents.len).sum(),
            log: self.log.used(),
            hits: self.hits,
            misses: self.misses,
        }
    }

    /// Lets servers ask for a directory and everything beneath it (but names that begin with a
    /// dot). Symbolic links on the way there are shown, so that the path as given leads there too.
    /// If nothing is there, that is shown. True if it is news; asking again costs next to nothing.
    ///
    /// # Errors
    /// [`ExportError`] if it is no directory, cannot be opened, or shows too much.
    pub fn allow(&mut self, root: &std::path::Path) -> Result<bool, ExportError> {
        let given = root.as_os_str().as_bytes();
        if self.roots.was_given(given) {
            return Ok(false);
        }
        let resolved = roots::resolve(given)?;
        let mut news = false;
        if self.roots.above(&resolved.path).is_none() {
            news = true;
            if resolved.is_gap {
                news = self.add_gap(&resolved.path)?;
            } else {
                let root = self.roots.open(&resolved.path)?;
                self.add_root(&resolved.path, root);
            }
        }
        // A link within a root may lead elsewhere tomorrow, and nobody watches for us.
        let is_within = |(path, _): &(Path, Node)| self.roots.above(path).is_some();
        if !resolved.is_gap && !resolved.ways.iter().any(is_within) {
            self.roots.note_given(given);
        }
        for (path, node) in resolved.ways {
            news |= self.add_way(path, node);
        }
        self.settle();
        Ok(news)
    }

    fn add_gap(&mut self, path: &Path) -> Result<bool, ExportError> {
        if self.roots.gaps.contains(path) {
            return Ok(false);
        }
        if self.roots.gaps.len() >= GAPS_MAX {
            return Err(ExportError::TooManyRoots { count: GAPS_MAX });
        }
        // What was a gap above this one is none any more.
        self.look_at_gaps();
        self.roots.gaps.insert(Path::clone(path));
        self.publish(&Record::Gap { path, is_filled: false });
        Ok(true)
    }

    /// Publishes where there is something now.
    pub(crate) fn look_at_gaps(&mut self) {
        for path in self.roots.take_filled() {
            self.publish(&Record::Gap { path: &path, is_filled: true });
        }
    }

    fn add_root(&mut self, path: &Path, root: roots::Root) {
        let attr = root.attr;
        self.look_at_gaps();
        for covered in self.roots.add(path, root) {
            // Its parents must be listed from now on, or else nobody notices that they move.
            self.forget(&covered);
        }
        self.drop_idle();
        self.watch_places(path);
        self.publish(&Record::Root { path, attr });
    }

    /// Watches a root and the directories above it for being moved.
    pub(crate) fn watch_places(&mut self, root: &[u8]) {
        for path in upwards(root).filter(|path| *path != b"/") {
            let watched = fsys::open_path(path).and_then(|fd| self.watch.place(fd.as_fd()));
            self.places_polled |= watched.is_err();
        }
    }

    fn add_way(&mut self, path: Path, node: Node) -> bool {
        if self.roots.above(&path).is_some() || self.roots.ways.get(&path) == Some(&node) {
            return false;
        }
        self.places_polled |= self.watch.link(&path).is_err();
        self.publish_way(&path, &node);
        self.roots.ways.insert(path, node);
        true
    }

    pub(crate) fn publish_way(&mut self, path: &[u8], node: &Node) {
        if let Node::Symlink { target, attr } = node {
            self.publish(&Record::Way { path, target, attr: *attr });
        }
    }

    /// Answers what a server asks.
    pub fn answer(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::List { dir } => self.list(dir),
            Ask::Offer { path, version } => self.offer(path, *version),
        }
    }

    /// Publishes what a directory holds, by its path without symbolic links, and watches it.
    pub fn list(&mut self, dir: &[u8]) -> Answer {
        if !self.may_show(dir) {
            return Answer::Withheld;
        }
        self.refresh();
        let dir = shared(dir);
        if self.known.dirs.contains_key(&dir) {
            self.hits += 1;
            return Answer::Published(self.settle());
        }
        // A new epoch, for want of room, may have forgotten what was just listed.
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

    /// Whether a path is beneath a root, and not hidden.
    pub(crate) fn may_show(&self, path: &[u8]) -> bool {
        let above = if path::is_path(path) { self.roots.above(path) } else { None };
        above.is_some_and(|(_, _, rel)| !components(rel).any(is_hidden))
    }

    /// Lists a directory after those above it, so that none of them can move without our notice.
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

    /// Whether a path is a directory, by what its parent's listing says.
    fn expect_directory(&self, path: &[u8]) -> Result<(), Answer> {
        let node = split(path).and_then(|(dir, name)| self.known.node(dir, name));
        match node {
            Some(Node::Directory(_)) => Ok(()),
            Some(Node::Withheld) => Err(Answer::Withheld),
            _ => Err(Answer::Changed(Position::default())),
        }
    }

    fn list_one(&mut self, path: &Path) -> Result<(), Answer> {
        self.misses += 1;
        let failed = |errno: Errno| Answer::Failed(errno.raw_os_error());
        let fd = match self.roots.open_beneath(path, READ_DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(self.look_above(path)),
            opened => opened.map_err(failed)?,
        };
        let stat = fstat(&fd).map_err(failed)?;
        let wd = self.watch_directory(&fd, path);
        let names = fsys::names(fd.as_fd()).map_err(|errno| {
            wd.into_iter().for_each(|wd| self.watch.remove_directory(wd, path));
            failed(errno)
        })?;
        self.known.add(path, (stat.st_dev, stat.st_ino), wd);
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

    /// There is no such directory any more: its parent's listing must say so.
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

    /// Watched before it is read, so that no change falls between.
    fn watch_directory(&mut self, fd: &OwnedFd, path: &Path) -> Option<i32> {
        match fsys::kind(fd) {
            Kind::Local => self.watch.directory(fd.as_fd(), path).ok(),
            _ => None,
        }
    }

    fn publish_directory(&mut self, path: &[u8]) -> Result<(), Answer> {
        let Some(dir) = self.known.dirs.get(path) else { return Ok(()) };
        let entry = |(name, node)| Entry { name, what: What::of(Some(node)) };
        let entries = dir.names.iter().map(|(name, node)| entry((&**name, node))).collect();
        let len = dir.names.len() as u64;
        match self.log.append(&Record::Directory { path, entries }) {
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

    pub(crate) fn publish(&mut self, record: &Record) {
        self.full |= self.log.append(record).is_err();
    }

    /// Shows readers everything that was appended; begins a new epoch if there was no room.
    pub(crate) fn settle(&mut self) -> Position {
        if self.full {
            self.begin_epoch();
        }
        self.log.commit()
    }

    /// A new epoch that says everything again, without what is past.
    fn begin_epoch(&mut self) {
        self.full = false;
        self.log.begin_epoch();
        self.publish_roots();
        let dirs: Vec<Path> = self.known.dirs.keys().cloned().collect();
        for dir in dirs {
            // One that has grown too large is not known any more.
            let _ = self.publish_directory(&dir);
        }
        let snapshots = self.known.inodes.values().filter_map(|inode| inode.snapshot);
        let snapshots: Vec<_> = snapshots.collect();
        snapshots.into_iter().for_each(|contents| self.publish(&Record::Contents(contents)));
        if self.full || self.log.used() > self.log.room() / 2 {
            self.forget_everything();
        }
    }

    /// A new epoch that knows the roots only.
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
        let ways: Vec<Path> = self.roots.ways.keys().cloned().collect();
        for way in ways {
            self.places_polled |= self.watch.link(&way).is_err();
        }
    }

    fn publish_roots(&mut self) {
        let roots = self.roots.held.iter().map(|(path, root)| (Path::clone(path), root.attr));
        for (path, attr) in roots.collect::<Vec<_>>() {
            self.publish(&Record::Root { path: &path, attr });
        }
        for (path, node) in self.roots.ways.clone() {
            self.publish_way(&path, &node);
        }
        for path in self.roots.gaps.clone() {
            self.publish(&Record::Gap { path: &path, is_filled: false });
        }
    }
}

/// An answer that was found before it was known how far the log goes.
pub(crate) fn with_position(answer: Answer, position: Position) -> Answer {
    match answer {
        Answer::Changed(_) => Answer::Changed(position),
        Answer::Published(_) => Answer::Published(position),
        other => other,
    }
}
