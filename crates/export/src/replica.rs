//! The server's half: a replay of a client's log.
//!
//! A value: it is given bytes read from the client's memory, and answers from what they said. The
//! log may contain anything: nothing here panics, and the stored state is bounded. Never says
//! "absent" of a name unless it has a complete listing of the directory.

use crate::error::MetadataLogError;
use crate::header::ExportHeader;
use crate::path::{
    HiddenNames, Name, Path, behind, is_name, is_path, join, range_beneath, shared, split, upwards,
};
use crate::record::{
    self, Ask, Attr, Contents, DirEntry, FileNode, FrameError, LogRecord, NodeRecord, Position,
    RECORD_LEN_MAX,
};
use crate::snapshot_ring::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Names in a replica, at most.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Locations of contents in a replica, at most.
pub const CONTENTS_MAX: usize = 1 << 18;
/// Bytes of one file's contents, at most.
pub const CONTENTS_LEN_MAX: u64 = 1 << 30;
/// Roots, symbolic links to roots and negative entries, at most.
pub const PLACES_MAX: usize = 4096;
/// Bytes of the log to read at once, at most; always enough for one record.
pub const READ_LEN_MAX: u64 = RECORD_LEN_MAX as u64 + (1 << 20);

/// The next part of the log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its epoch.
    pub epoch: u64,
    /// Its offset in the log; add the header's `log_at` for its offset in the region.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The range of the snapshots in the region.
    ring: (u64, u64),
    /// What the export does with hidden names.
    hidden_names: HiddenNames,
}

/// A change of the replayed state: caches of it must be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A name stands for something else, or is absent.
    Name {
        /// Its directory.
        dir: Arc<[u8]>,
        /// The name.
        name: Box<[u8]>,
    },
    /// The listings of a directory and of all beneath it are unknown now.
    Beneath {
        /// The directory.
        path: Arc<[u8]>,
    },
    /// Everything is unknown now.
    Everything,
}

/// The result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Unknown: ask the client, read the log, and look again.
    Unknown(Ask),
    /// There is no such name.
    Absent,
    /// A regular file.
    File(Attr),
    /// A directory.
    Directory(Attr),
    /// A symbolic link.
    Symlink {
        /// Its target, as written.
        target: Arc<[u8]>,
        /// Its own attributes.
        attr: Attr,
    },
    /// Something exists, or may exist, and is not exported.
    Withheld,
    /// The client exports nothing there.
    Outside,
}

/// The result of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Unknown: ask the client, read the log, and look again.
    Unknown(Ask),
    /// These names; in a directory above the roots, the names that lead to a root.
    Names(Vec<(Box<[u8]>, FileNode)>),
    /// The client exports nothing there.
    Outside,
}

/// A client's published state, as far as its log was read.
#[derive(Debug, Default)]
pub struct Replica {
    position: Position,
    hidden_names: HiddenNames,
    roots: BTreeMap<Path, Attr>,
    root_symlinks: BTreeMap<Path, FileNode>,
    negative_entries: BTreeSet<Path>,
    dirs: BTreeMap<Path, HashMap<Name, FileNode>>,
    contents: HashMap<FileId, Contents>,
    /// Number of names in all directories.
    entries: usize,
}

impl Replica {
    /// An empty replica.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The position up to which the log was read.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether everything published up to a position is known. A later epoch is newer than all of
    /// an earlier one.
    #[must_use]
    pub fn has_reached(&self, position: Position) -> bool {
        self.position >= position
    }

    /// The next part of the log to read, given a header that was just read; `None` if all of it is
    /// known.
    #[must_use]
    pub fn want(&self, header: &ExportHeader) -> Option<Want> {
        let Position { epoch, length } = header.position;
        let known = epoch == self.position.epoch;
        let offset = if known { self.position.length } else { 0 };
        // A length that decreases belongs to an older epoch: the next header will show it.
        let left = length.checked_sub(offset)?;
        let ring = (header.arena_at, header.arena_at.saturating_add(header.arena_len));
        let (len, hidden_names) = (left.min(READ_LEN_MAX), header.hidden_names);
        let want = Want { epoch, offset, len, ring, hidden_names };
        (left > 0 || !known).then_some(want)
    }

    /// Replays bytes of the log. Call [`want`](Self::want) again afterwards: a record that is cut
    /// off at the end is wanted once more. After an error everything before the faulty record has
    /// been replayed.
    ///
    /// # Errors
    /// [`MetadataLogError::Torn`] if the client overwrote the log during the read: read the header
    /// again. Any other error is a fault of the client, which should not be served further.
    pub fn handle(&mut self, want: &Want, bytes: &[u8]) -> Result<Vec<Change>, MetadataLogError> {
        let mut changes = Vec::new();
        self.start(want, &mut changes)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match record::parse(rest, self.position) {
                Ok((record, len)) => {
                    self.replay(record, want.ring, &mut changes)?;
                    self.position.length += len as u64;
                    rest = &rest[len..];
                }
                // The log ends between records; a single read need not.
                Err(FrameError::Partial)
                    if want.len == READ_LEN_MAX && rest.len() < bytes.len() =>
                {
                    break;
                }
                Err(error) => return Err(self.frame_error(error)),
            }
        }
        Ok(changes)
    }

    fn start(&mut self, want: &Want, changes: &mut Vec<Change>) -> Result<(), MetadataLogError> {
        if want.epoch != self.position.epoch && want.offset == 0 {
            let (position, hidden_names) =
                (Position { epoch: want.epoch, length: 0 }, want.hidden_names);
            *self = Self { position, hidden_names, ..Self::default() };
            changes.push(Change::Everything);
        }
        if (Position { epoch: want.epoch, length: want.offset }) == self.position {
            return Ok(());
        }
        Err(MetadataLogError::NotWanted { epoch: want.epoch, place: want.offset })
    }

    fn frame_error(&self, error: FrameError) -> MetadataLogError {
        let Position { epoch, length: place } = self.position;
        match error {
            FrameError::Partial => MetadataLogError::Partial { place },
            FrameError::TooLong { len } => MetadataLogError::TooLong { len, place },
            FrameError::Torn => MetadataLogError::Torn { epoch, place },
            FrameError::Codec => MetadataLogError::Codec { place },
        }
    }

    fn replay(
        &mut self,
        record: LogRecord,
        ring: (u64, u64),
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        match record {
            LogRecord::Root { path, attr } => self.add_root(path, attr, changes),
            LogRecord::RootSymlink { path, target, attr } => {
                self.add_root_symlink(path, target, attr, changes)
            }
            LogRecord::NegativeEntry { path, is_filled } => {
                self.set_negative_entry(path, is_filled, changes)
            }
            LogRecord::Directory { path, entries } => self.add_directory(path, entries, changes),
            LogRecord::DirEntry { dir, entry } => self.set_entry(dir, entry, changes),
            LogRecord::Contents(contents) => self.add_contents(contents, ring),
            LogRecord::Forget { path } => {
                self.check_inside(path)?;
                self.forget(path, changes);
                Ok(())
            }
        }
    }

    fn check_path(&self, path: &[u8]) -> Result<(), MetadataLogError> {
        let place = self.position.length;
        if is_path(path) { Ok(()) } else { Err(MetadataLogError::Path { place }) }
    }

    fn check_inside(&self, path: &[u8]) -> Result<(), MetadataLogError> {
        self.check_path(path)?;
        let place = self.position.length;
        if self.is_beneath_roots(path) { Ok(()) } else { Err(MetadataLogError::Outside { place }) }
    }

    fn check_node(&self, entry: &DirEntry) -> Result<(), MetadataLogError> {
        let sound = is_name(entry.name) && !self.hidden_names.withhold(entry.name);
        let sound = sound
            && !matches!(entry.what, NodeRecord::Symlink { target, .. } if !is_target(target));
        let place = self.position.length;
        if sound { Ok(()) } else { Err(MetadataLogError::Path { place }) }
    }

    fn check_places(&self) -> Result<(), MetadataLogError> {
        let many =
            self.roots.len() + self.root_symlinks.len() + self.negative_entries.len() > PLACES_MAX;
        if many { Err(MetadataLogError::TooMuch) } else { Ok(()) }
    }

    fn add_root(
        &mut self,
        path: &[u8],
        attr: Attr,
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        self.check_path(path)?;
        let (start, end) = range_beneath(path);
        let covered: Vec<Path> =
            self.roots.range(start..end).map(|(path, _)| path.clone()).collect();
        for path in covered {
            self.roots.remove(&path);
        }
        self.roots.insert(shared(path), attr);
        add_places(path, changes);
        self.check_places()
    }

    fn add_root_symlink(
        &mut self,
        path: &[u8],
        target: &[u8],
        attr: Attr,
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        self.check_path(path)?;
        if !is_target(target) {
            return Err(MetadataLogError::Path { place: self.position.length });
        }
        self.root_symlinks.insert(shared(path), FileNode::Symlink { target: target.into(), attr });
        add_places(path, changes);
        self.check_places()
    }

    fn set_negative_entry(
        &mut self,
        path: &[u8],
        is_filled: bool,
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        self.check_path(path)?;
        if is_filled {
            self.negative_entries.remove(path);
        } else {
            self.negative_entries.insert(shared(path));
        }
        add_places(path, changes);
        self.check_places()
    }

    fn add_directory(
        &mut self,
        path: &[u8],
        entries: Vec<DirEntry>,
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        self.check_inside(path)?;
        entries.iter().try_for_each(|entry| self.check_node(entry))?;
        self.forget(path, changes);
        let nodes = entries.into_iter().filter_map(|entry| {
            let node = entry.what.to_node()?;
            Some((Name::from(entry.name), node))
        });
        let names: HashMap<Name, FileNode> = nodes.collect();
        self.entries += names.len() + 1;
        self.dirs.insert(shared(path), names);
        self.check_entries()
    }

    fn check_entries(&self) -> Result<(), MetadataLogError> {
        if self.entries > ENTRIES_MAX { Err(MetadataLogError::TooMuch) } else { Ok(()) }
    }

    fn set_entry(
        &mut self,
        dir: &[u8],
        entry: DirEntry,
        changes: &mut Vec<Change>,
    ) -> Result<(), MetadataLogError> {
        self.check_inside(dir)?;
        self.check_node(&entry)?;
        // A directory that is not listed stays unknown.
        let Some((path, names)) = self.dirs.get_key_value(dir) else { return Ok(()) };
        let (path, node) = (Path::clone(path), entry.what.to_node());
        let old = names.get(entry.name);
        let moved = old.is_some_and(|old| {
            matches!(old, FileNode::Directory(_)) && !old.is_same_directory(node.as_ref())
        });
        if moved {
            self.forget(&join(&path, entry.name), changes);
        }
        self.put(&path, entry.name, node);
        changes.push(Change::Name { dir: path, name: entry.name.into() });
        self.check_entries()
    }

    fn put(&mut self, dir: &Path, name: &[u8], node: Option<FileNode>) {
        let Some(names) = self.dirs.get_mut(dir) else { return };
        let before = names.len();
        match node {
            Some(node) => drop(names.insert(name.into(), node)),
            None => drop(names.remove(name)),
        }
        self.entries = self.entries - before + names.len();
    }

    fn add_contents(
        &mut self,
        contents: Contents,
        (start, end): (u64, u64),
    ) -> Result<(), MetadataLogError> {
        let fits = contents.at.checked_add(contents.packed).is_some_and(|last| last <= end);
        if contents.at < start || !fits || contents.packed > contents.len {
            return Err(MetadataLogError::Contents { place: self.position.length });
        }
        if contents.len > CONTENTS_LEN_MAX {
            let (len, place) = (contents.len, self.position.length);
            return Err(MetadataLogError::TooLarge { len, place });
        }
        self.contents.insert((contents.dev, contents.ino), contents);
        if self.contents.len() > CONTENTS_MAX { Err(MetadataLogError::TooMuch) } else { Ok(()) }
    }

    fn forget(&mut self, path: &[u8], changes: &mut Vec<Change>) {
        let (start, end) = range_beneath(path);
        let mut gone: Vec<Path> = self.dirs.range(start..end).map(|(dir, _)| dir.clone()).collect();
        gone.extend(self.dirs.get_key_value(path).map(|(dir, _)| dir.clone()));
        for dir in &gone {
            self.entries -= self.dirs.remove(dir).map_or(0, |names| names.len() + 1);
        }
        if !gone.is_empty() {
            changes.push(Change::Beneath { path: shared(path) });
        }
    }

    /// Whether a path is a root or lies beneath one.
    #[must_use]
    pub fn is_beneath_roots(&self, path: &[u8]) -> bool {
        upwards(path).any(|up| self.roots.contains_key(up))
    }

    /// Looks up a name in a directory, which is given by its path without symbolic links.
    #[must_use]
    pub fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp {
        if !self.is_beneath_roots(dir) {
            return match self.look_up_place(dir, name) {
                Some(node) => LookUp::of(node),
                None if self.negative_entries.contains(&*join(dir, name)) => LookUp::Absent,
                None => LookUp::Outside,
            };
        }
        if self.hidden_names.withhold(name) {
            return LookUp::Withheld;
        }
        match self.dirs.get(dir) {
            None => self.look_up_unlisted(dir),
            Some(names) => names.get(name).cloned().map_or(LookUp::Absent, LookUp::of),
        }
    }

    /// A name in a directory that is not listed. If a listing above shows that the directory is
    /// gone, the name is absent.
    fn look_up_unlisted(&self, dir: &[u8]) -> LookUp {
        let above = upwards(dir).filter_map(split);
        for (parent, name) in above.take_while(|(parent, _)| self.is_beneath_roots(parent)) {
            if self.hidden_names.withhold(name) {
                return LookUp::Withheld;
            }
            match self.dirs.get(parent).map(|names| names.get(name)) {
                None => {}
                Some(Some(FileNode::Directory(_))) => break,
                Some(Some(FileNode::Withheld)) => return LookUp::Withheld,
                Some(_) => return LookUp::Absent,
            }
        }
        LookUp::Unknown(Ask::List { dir: dir.to_vec() })
    }

    /// A name above the roots, if it leads to one.
    fn look_up_place(&self, dir: &[u8], name: &[u8]) -> Option<FileNode> {
        let path = join(dir, name);
        if !is_path(&path) {
            return None;
        }
        let root = self.roots.get(&*path).map(|attr| FileNode::Directory(*attr));
        root.or_else(|| self.root_symlinks.get(&*path).cloned()).or_else(|| self.above(&path))
    }

    /// A directory above roots or negative entries, of which only the name is known.
    fn above(&self, path: &[u8]) -> Option<FileNode> {
        let (start, end) = range_beneath(path);
        let leads = self.roots.range(start.clone()..end.clone()).next().is_some()
            || self.root_symlinks.range(start.clone()..end.clone()).next().is_some()
            || self.negative_entries.range(start..end).next().is_some();
        let ino =
            blake3::hash(path).as_bytes().first_chunk().map_or(1, |ino| u64::from_le_bytes(*ino));
        let attr = Attr { ino, mode: 0o040_755, ..Attr::default() };
        leads.then_some(FileNode::Directory(attr))
    }

    /// The listing of a directory, which is given by its path without symbolic links.
    #[must_use]
    pub fn list(&self, dir: &[u8]) -> Listing {
        if self.is_beneath_roots(dir) {
            return match self.dirs.get(dir) {
                Some(names) => Listing::Names(sorted(names)),
                None => match self.look_up_unlisted(dir) {
                    LookUp::Unknown(ask) => Listing::Unknown(ask),
                    LookUp::Absent => Listing::Names(Vec::new()),
                    _ => Listing::Outside,
                },
            };
        }
        let mut names: Vec<(Name, FileNode)> = Vec::new();
        for path in self.roots.keys().chain(self.root_symlinks.keys()).chain(&self.negative_entries)
        {
            let rest = behind(dir, path).unwrap_or_default();
            let name = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
            let node = self.look_up_place(dir, name);
            names.extend(node.filter(|_| !name.is_empty()).map(|node| (name.into(), node)));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names.dedup_by(|a, b| a.0 == b.0);
        if names.is_empty() { Listing::Outside } else { Listing::Names(names) }
    }

    /// The location of a file's contents, if it is known for this version.
    #[must_use]
    pub fn contents(&self, dev: u64, ino: u64, version: u64) -> Option<Contents> {
        let contents = self.contents.get(&(dev, ino))?;
        (contents.version == version).then_some(*contents)
    }

    /// What a path stands for; `/` is a directory.
    #[must_use]
    pub fn node(&self, path: &[u8]) -> LookUp {
        match split(path) {
            Some((dir, name)) => match self.roots.get(path) {
                Some(attr) => LookUp::Directory(*attr),
                None => self.look_up(dir, name),
            },
            None => LookUp::Directory(Attr { ino: 1, mode: 0o040_755, ..Attr::default() }),
        }
    }

    /// The roots: directories that servers may request.
    pub fn roots(&self) -> impl Iterator<Item = (&[u8], &Attr)> {
        self.roots.iter().map(|(path, attr)| (&**path, attr))
    }
}

impl LookUp {
    fn of(node: FileNode) -> Self {
        match node {
            FileNode::File(attr) => Self::File(attr),
            FileNode::Directory(attr) => Self::Directory(attr),
            FileNode::Symlink { target, attr } => Self::Symlink { target, attr },
            FileNode::Withheld => Self::Withheld,
        }
    }
}

/// A symbolic link's target may be any text that the kernel accepts.
fn is_target(target: &[u8]) -> bool {
    (1..=4095).contains(&target.len()) && !target.contains(&0)
}

/// A path and all directories above it become visible.
fn add_places(path: &[u8], changes: &mut Vec<Change>) {
    let places = upwards(path).filter_map(split);
    changes.extend(places.map(|(dir, name)| Change::Name { dir: shared(dir), name: name.into() }));
}

fn sorted(names: &HashMap<Name, FileNode>) -> Vec<(Name, FileNode)> {
    let mut names: Vec<_> = names.iter().map(|(name, node)| (name.clone(), node.clone())).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}
