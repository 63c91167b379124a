//! The server's half: what a client's log says, replayed.
//!
//! A value: it is given the octets that somebody read from the client's memory, and answers from
//! what it knows. A log may say anything: nothing here panics, and what is remembered is bounded.
//! Never says "absent" of a name whose directory it has no complete listing of.

use crate::arena::FileId;
use crate::error::CatalogueError;
use crate::header::Header;
use crate::path::{
    Name, Path, behind, is_hidden, is_name, is_path, join, range_beneath, shared, split, upwards,
};
use crate::record::{
    self, Ask, Attr, Contents, Entry, FrameError, Node, Position, RECORD_LEN_MAX, Record, What,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Names that a replica remembers, at most.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Contents that it knows the place of, at most.
pub const CONTENTS_MAX: usize = 1 << 18;
/// Octets of one file's contents, at most.
pub const CONTENTS_LEN_MAX: u64 = 1 << 30;
/// Roots, symbolic links on the way to roots and gaps, at most.
pub const PLACES_MAX: usize = 4096;
/// Octets of the log to read at once, at most; always enough for a record.
pub const READ_LEN_MAX: u64 = RECORD_LEN_MAX as u64 + (1 << 20);

/// Which part of the log to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Of which epoch.
    pub epoch: u64,
    /// Where it begins in the log; add the header's `log_at` for its place in the region.
    pub offset: u64,
    /// Octets.
    pub len: u64,
    /// Where contents may lie in the region.
    arena: (u64, u64),
}

/// What the log changed of what was known before: caches of it must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A name stands for something else, or for nothing.
    Name {
        /// Its directory.
        dir: Arc<[u8]>,
        /// The name.
        name: Box<[u8]>,
    },
    /// Nothing is known any more of what a directory holds, and of all beneath it.
    Beneath {
        /// The directory.
        path: Arc<[u8]>,
    },
    /// Nothing is known any more.
    Everything,
}

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Ask the client, read the log, and look again.
    Unknown(Ask),
    /// There is no such name.
    Absent,
    /// A regular file.
    File(Attr),
    /// A directory.
    Directory(Attr),
    /// A symbolic link.
    Symlink {
        /// Where it points to, as it is written.
        target: Arc<[u8]>,
        /// Its own attributes.
        attr: Attr,
    },
    /// There is something, or may be, and it is not shown.
    Withheld,
    /// The client exports nothing there.
    Outside,
}

/// What a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Ask the client, read the log, and look again.
    Unknown(Ask),
    /// These names; in a directory above the roots, those that lead to one.
    Names(Vec<(Box<[u8]>, Node)>),
    /// The client exports nothing there.
    Outside,
}

/// What a client has published, as far as it was read.
#[derive(Debug, Default)]
pub struct Replica {
    position: Position,
    roots: BTreeMap<Path, Attr>,
    ways: BTreeMap<Path, Node>,
    gaps: BTreeSet<Path>,
    dirs: BTreeMap<Path, HashMap<Name, Node>>,
    contents: HashMap<FileId, Contents>,
    /// Names in all directories.
    entries: usize,
}

impl Replica {
    /// One that knows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How far the log was read.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether everything is known that was published up to a position. What a later epoch says
    /// is newer than all that an earlier one said.
    #[must_use]
    pub fn has_reached(&self, position: Position) -> bool {
        self.position >= position
    }

    /// What to read next, by a header that was just read; nothing if all of it is known.
    #[must_use]
    pub fn want(&self, header: &Header) -> Option<Want> {
        let Position { epoch, length } = header.position;
        let known = epoch == self.position.epoch;
        let offset = if known { self.position.length } else { 0 };
        // A length that runs backwards is one of an older epoch: the next header will tell.
        let left = length.checked_sub(offset)?;
        let arena = (header.arena_at, header.arena_at.saturating_add(header.arena_len));
        let want = Want { epoch, offset, len: left.min(READ_LEN_MAX), arena };
        (left > 0 || !known).then_some(want)
    }

    /// Takes in what was read. Call [`want`](Self::want) again after it: a record that is cut off
    /// at the end is wanted once more. After an error everything before it counts, and nothing
    /// behind it.
    ///
    /// # Errors
    /// [`CatalogueError::Torn`] if the client overwrote what was being read: read the header again.
    /// Any other says that the client is not to be believed.
    pub fn handle(&mut self, want: &Want, octets: &[u8]) -> Result<Vec<Change>, CatalogueError> {
        let mut changes = Vec::new();
        self.start(want, &mut changes)?;
        let mut rest = octets;
        while !rest.is_empty() {
            match record::parse(rest, self.position) {
                Ok((record, len)) => {
                    self.replay(record, want.arena, &mut changes)?;
                    self.position.length += len as u64;
                    rest = &rest[len..];
                }
                // The end of the log falls between records; that of a read need not.
                Err(FrameError::Partial)
                    if want.len == READ_LEN_MAX && rest.len() < octets.len() =>
                {
                    break;
                }
                Err(error) => return Err(self.frame_error(error)),
            }
        }
        Ok(changes)
    }

    fn start(&mut self, want: &Want, changes: &mut Vec<Change>) -> Result<(), CatalogueError> {
        if want.epoch != self.position.epoch && want.offset == 0 {
            *self = Self { position: Position { epoch: want.epoch, length: 0 }, ..Self::default() };
            changes.push(Change::Everything);
        }
        if (Position { epoch: want.epoch, length: want.offset }) == self.position {
            return Ok(());
        }
        Err(CatalogueError::NotWanted { epoch: want.epoch, place: want.offset })
    }

    fn frame_error(&self, error: FrameError) -> CatalogueError {
        let Position { epoch, length: place } = self.position;
        match error {
            FrameError::Partial => CatalogueError::Partial { place },
            FrameError::TooLong { len } => CatalogueError::TooLong { len, place },
            FrameError::Torn => CatalogueError::Torn { epoch, place },
            FrameError::Codec => CatalogueError::Codec { place },
        }
    }

    fn replay(
        &mut self,
        record: Record,
        arena: (u64, u64),
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
        match record {
            Record::Root { path, attr } => self.add_root(path, attr, changes),
            Record::Way { path, target, attr } => self.add_way(path, target, attr, changes),
            Record::Gap { path, is_filled } => self.set_gap(path, is_filled, changes),
            Record::Directory { path, entries } => self.add_directory(path, entries, changes),
            Record::Entry { dir, entry } => self.set_entry(dir, entry, changes),
            Record::Contents(contents) => self.add_contents(contents, arena),
            Record::Forget { path } => {
                self.check_inside(path)?;
                self.forget(path, changes);
                Ok(())
            }
        }
    }

    fn check_path(&self, path: &[u8]) -> Result<(), CatalogueError> {
        let place = self.position.length;
        if is_path(path) { Ok(()) } else { Err(CatalogueError::Path { place }) }
    }

    fn check_inside(&self, path: &[u8]) -> Result<(), CatalogueError> {
        self.check_path(path)?;
        let place = self.position.length;
        if self.is_beneath_roots(path) { Ok(()) } else { Err(CatalogueError::Outside { place }) }
    }

    fn check_node(&self, entry: &Entry) -> Result<(), CatalogueError> {
        let sound = is_name(entry.name) && !is_hidden(entry.name);
        let sound =
            sound && !matches!(entry.what, What::Symlink { target, .. } if !is_target(target));
        let place = self.position.length;
        if sound { Ok(()) } else { Err(CatalogueError::Path { place }) }
    }

    fn check_places(&self) -> Result<(), CatalogueError> {
        let many = self.roots.len() + self.ways.len() + self.gaps.len() > PLACES_MAX;
        if many { Err(CatalogueError::TooMuch) } else { Ok(()) }
    }

    fn add_root(
        &mut self,
        path: &[u8],
        attr: Attr,
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
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

    fn add_way(
        &mut self,
        path: &[u8],
        target: &[u8],
        attr: Attr,
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
        self.check_path(path)?;
        if !is_target(target) {
            return Err(CatalogueError::Path { place: self.position.length });
        }
        self.ways.insert(shared(path), Node::Symlink { target: target.into(), attr });
        add_places(path, changes);
        self.check_places()
    }

    fn set_gap(
        &mut self,
        path: &[u8],
        is_filled: bool,
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
        self.check_path(path)?;
        if is_filled {
            self.gaps.remove(path);
        } else {
            self.gaps.insert(shared(path));
        }
        add_places(path, changes);
        self.check_places()
    }

    fn add_directory(
        &mut self,
        path: &[u8],
        entries: Vec<Entry>,
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
        self.check_inside(path)?;
        entries.iter().try_for_each(|entry| self.check_node(entry))?;
        self.forget(path, changes);
        let nodes = entries.into_iter().filter_map(|entry| {
            let node = entry.what.to_node()?;
            Some((Name::from(entry.name), node))
        });
        let names: HashMap<Name, Node> = nodes.collect();
        self.entries += names.len() + 1;
        self.dirs.insert(shared(path), names);
        self.check_entries()
    }

    fn check_entries(&self) -> Result<(), CatalogueError> {
        if self.entries > ENTRIES_MAX { Err(CatalogueError::TooMuch) } else { Ok(()) }
    }

    fn set_entry(
        &mut self,
        dir: &[u8],
        entry: Entry,
        changes: &mut Vec<Change>,
    ) -> Result<(), CatalogueError> {
        self.check_inside(dir)?;
        self.check_node(&entry)?;
        // Of a directory that is not listed nothing is known, and so it stays.
        let Some((path, names)) = self.dirs.get_key_value(dir) else { return Ok(()) };
        let (path, node) = (Path::clone(path), entry.what.to_node());
        let old = names.get(entry.name);
        let moved = old.is_some_and(|old| {
            matches!(old, Node::Directory(_)) && !old.is_same_directory(node.as_ref())
        });
        if moved {
            self.forget(&join(&path, entry.name), changes);
        }
        self.put(&path, entry.name, node);
        changes.push(Change::Name { dir: path, name: entry.name.into() });
        self.check_entries()
    }

    fn put(&mut self, dir: &Path, name: &[u8], node: Option<Node>) {
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
    ) -> Result<(), CatalogueError> {
        let fits = contents.at.checked_add(contents.packed).is_some_and(|last| last <= end);
        if contents.at < start || !fits || contents.packed > contents.len {
            return Err(CatalogueError::Contents { place: self.position.length });
        }
        if contents.len > CONTENTS_LEN_MAX {
            let (len, place) = (contents.len, self.position.length);
            return Err(CatalogueError::TooLarge { len, place });
        }
        self.contents.insert((contents.dev, contents.ino), contents);
        if self.contents.len() > CONTENTS_MAX { Err(CatalogueError::TooMuch) } else { Ok(()) }
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

    /// What is known of a name in a directory, which is given by its path without symbolic links.
    #[must_use]
    pub fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp {
        if !self.is_beneath_roots(dir) {
            return match self.look_up_place(dir, name) {
                Some(node) => LookUp::of(node),
                None if self.gaps.contains(&*join(dir, name)) => LookUp::Absent,
                None => LookUp::Outside,
            };
        }
        if is_hidden(name) {
            return LookUp::Withheld;
        }
        match self.dirs.get(dir) {
            None => self.look_up_unlisted(dir),
            Some(names) => names.get(name).cloned().map_or(LookUp::Absent, LookUp::of),
        }
    }

    /// A name in a directory that is not listed. If a listing above says that there is no such
    /// directory any more, then there is no such name.
    fn look_up_unlisted(&self, dir: &[u8]) -> LookUp {
        let above = upwards(dir).filter_map(split);
        for (parent, name) in above.take_while(|(parent, _)| self.is_beneath_roots(parent)) {
            if is_hidden(name) {
                return LookUp::Withheld;
            }
            match self.dirs.get(parent).map(|names| names.get(name)) {
                None => {}
                Some(Some(Node::Directory(_))) => break,
                Some(Some(Node::Withheld)) => return LookUp::Withheld,
                Some(_) => return LookUp::Absent,
            }
        }
        LookUp::Unknown(Ask::List { dir: dir.to_vec() })
    }

    /// A name that leads to a root, seen from above.
    fn look_up_place(&self, dir: &[u8], name: &[u8]) -> Option<Node> {
        let path = join(dir, name);
        if !is_path(&path) {
            return None;
        }
        let root = self.roots.get(&path).map(|attr| Node::Directory(*attr));
        root.or_else(|| self.ways.get(&path).cloned()).or_else(|| self.above(&path))
    }

    /// A directory above roots or gaps. The client says nothing of it but its name.
    fn above(&self, path: &[u8]) -> Option<Node> {
        let (start, end) = range_beneath(path);
        let leads = self.roots.range(start.clone()..end.clone()).next().is_some()
            || self.ways.range(start.clone()..end.clone()).next().is_some()
            || self.gaps.range(start..end).next().is_some();
        let ino =
            blake3::hash(path).as_bytes().first_chunk().map_or(1, |ino| u64::from_le_bytes(*ino));
        let attr = Attr { ino, mode: 0o040_755, ..Attr::default() };
        leads.then_some(Node::Directory(attr))
    }

    /// What a directory holds, which is given by its path without symbolic links.
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
        let mut names: Vec<(Name, Node)> = Vec::new();
        for path in self.roots.keys().chain(self.ways.keys()).chain(&self.gaps) {
            let rest = behind(dir, path).unwrap_or_default();
            let name = rest.split(|&octet| octet == b'/').next().unwrap_or_default();
            let node = self.look_up_place(dir, name);
            names.extend(node.filter(|_| !name.is_empty()).map(|node| (name.into(), node)));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names.dedup_by(|a, b| a.0 == b.0);
        if names.is_empty() { Listing::Outside } else { Listing::Names(names) }
    }

    /// Where the contents of a file lie, if that version's do.
    #[must_use]
    pub fn contents(&self, dev: u64, ino: u64, version: u64) -> Option<Contents> {
        let contents = self.contents.get(&(dev, ino))?;
        (contents.version == version).then_some(*contents)
    }

    /// The attributes of what a path stands for, if they are known; `/` is a directory.
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

    /// The directories that may be asked for.
    pub fn roots(&self) -> impl Iterator<Item = (&[u8], &Attr)> {
        self.roots.iter().map(|(path, attr)| (&**path, attr))
    }
}

impl LookUp {
    fn of(node: Node) -> Self {
        match node {
            Node::File(attr) => Self::File(attr),
            Node::Directory(attr) => Self::Directory(attr),
            Node::Symlink { target, attr } => Self::Symlink { target, attr },
            Node::Withheld => Self::Withheld,
        }
    }
}

/// A symbolic link's target may be any text that the kernel takes.
fn is_target(target: &[u8]) -> bool {
    (1..=4095).contains(&target.len()) && !target.contains(&0)
}

/// A path and everything above it can be seen from now on.
fn add_places(path: &[u8], changes: &mut Vec<Change>) {
    let places = upwards(path).filter_map(split);
    changes.extend(places.map(|(dir, name)| Change::Name { dir: shared(dir), name: name.into() }));
}

fn sorted(names: &HashMap<Name, Node>) -> Vec<(Name, Node)> {
    let mut names: Vec<_> = names.iter().map(|(name, node)| (name.clone(), node.clone())).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}
