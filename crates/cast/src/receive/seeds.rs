//! Files at the destination that the same identity has published there: chunks of a new cast whose
//! bytes they have are taken from them and not sent again.
//!
//! What an identity publishes is marked as its own by an extended attribute of each top-level
//! directory or file; the mark goes when another identity merges something into it, or publishes
//! something anywhere below it. Nothing else is ever read here. The mark is looked at again after
//! the bytes were read, and the bytes that are hashed are those that are written.

use super::files::StagedTree;
use super::options::CastIdentity;
use crate::schedule::ChunkSet;
use crate::sign::StreamShape;
use crate::tree::{
    MARK_XATTR, OpenFiles, ParentCursor, StreamPiece, TreeEntry, TreeNode, nanoseconds,
    open_beneath, read_exactly_at,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Top-level directories that are kept open.
const DIRECTORIES_MAX: usize = 64;
/// Files kept open.
const FILES_MAX: usize = 16;
/// This many chunks of files that changed may be read in vain before that is given up, unless one
/// in four had what was looked for.
const MISSES_MAX: u32 = 16;
/// Reading what is there: neither waits for a FIFO nor takes a terminal.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Marks what is about to be published. Where that is not possible, it is sent again another time.
pub(super) fn mark(file: impl AsFd, identity: &CastIdentity) {
    let _ = fs::fsetxattr(file, MARK_XATTR, identity.as_bytes(), XattrFlags::empty());
}

fn is_marked(file: impl AsFd, identity: &CastIdentity) -> bool {
    let mut value = [0; 33];
    let read = fs::fgetxattr(file, MARK_XATTR, &mut value);
    read.is_ok_and(|len| value.get(..len) == Some(&identity.as_bytes()[..]))
}

/// Takes the mark of another identity away: something of this one's comes into the directory.
pub(super) fn unmark(parent: BorrowedFd<'_>, name: &[u8], own: &CastIdentity) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = match open_beneath(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        opened => opened?,
    };
    unmark_directory(&directory, own)
}

/// Takes the marks of other identities away from the destination and the directories above it:
/// something of this one's comes into them.
pub(super) fn unmark_above(destination: BorrowedFd<'_>, own: &CastIdentity) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = fs::openat(destination, ".", flags, Mode::empty())?;
    loop {
        unmark_directory(&at, own)?;
        // What this process may not look into it has not marked.
        let Ok(above) = fs::openat(&at, "..", flags, Mode::empty()) else { return Ok(()) };
        let is_same =
            |(one, other): (Stat, Stat)| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
        if is_same((fs::fstat(&at)?, fs::fstat(&above)?)) {
            return Ok(());
        }
        at = above;
    }
}

fn unmark_directory(directory: &OwnedFd, own: &CastIdentity) -> Result<(), Errno> {
    if is_marked(directory, own) {
        return Ok(());
    }
    match fs::fgetxattr(directory, MARK_XATTR, &mut [0; 0]) {
        Ok(_) | Err(Errno::RANGE) => fs::fremovexattr(directory, MARK_XATTR),
        Err(_) => Ok(()),
    }
}

/// How alike a file is to the one that is cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// Of equal length and time.
    Same,
    /// It changed.
    Changed,
}

/// A file that is there.
#[derive(Clone, Copy, Debug)]
struct SeedFile {
    entry: u32,
    likeness: Likeness,
}

/// What can be used of the destination; see the [module](self).
#[derive(Debug)]
pub(super) struct SeedFiles {
    identity: CastIdentity,
    /// By top-level entry; `None` for files.
    tops: Vec<Option<OwnedFd>>,
    /// Ascending by entry.
    files: Vec<SeedFile>,
    open: OpenFiles,
    hits: AtomicU32,
    misses: AtomicU32,
}

impl SeedFiles {
    /// Looks at the names of the tree at its destination; reads no file.
    pub(super) fn find(tree: &StagedTree, identity: &CastIdentity) -> Self {
        let mut found = Self {
            identity: identity.clone(),
            tops: Vec::new(),
            files: Vec::new(),
            open: OpenFiles::new(FILES_MAX),
            hits: AtomicU32::new(0),
            misses: AtomicU32::new(0),
        };
        let manifest = tree.manifest();
        let destination = tree.destination().fd();
        let ends = manifest.tops().iter().copied().skip(1).chain([manifest.len()]);
        let mut directories = 0;
        for (&top, end) in manifest.tops().iter().zip(ends) {
            let opened =
                open_beneath(destination, manifest.entry(top).name, READING, Mode::empty());
            let marked = opened.ok().filter(|file| is_marked(file, identity));
            let is_directory = manifest.entry(top).is_directory();
            if marked.is_some() && (!is_directory || directories < DIRECTORIES_MAX) {
                found.look_at(tree, top..end);
                directories += usize::from(is_directory);
            }
            found.tops.push(marked.filter(|_| is_directory));
        }
        found
    }

    fn look_at(&mut self, tree: &StagedTree, entries: Range<u32>) {
        let mut parents = ParentCursor::new(tree.destination().fd(), tree.manifest());
        for index in entries {
            // Of a million files this takes seconds, in which no chunk is kept.
            tree.step();
            let entry = tree.manifest().entry(index);
            if matches!(entry.node, TreeNode::File { size, .. } if size > 0)
                && let Ok(parent) = parents.of(index)
                && let Some(likeness) = likeness(parent, &entry)
            {
                self.files.push(SeedFile { entry: index, likeness });
            }
        }
    }

    /// The chunks whose bytes may all be there.
    pub(super) fn chunks(&self, tree: &StagedTree, shape: &StreamShape) -> ChunkSet {
        if self.files.is_empty() {
            return ChunkSet::empty();
        }
        let is_there = |piece: StreamPiece| match piece {
            StreamPiece::Manifest { .. } => true,
            StreamPiece::File { entry, .. } => self.file(entry).is_some(),
        };
        let chunks = shape.manifest_chunks()..shape.chunks();
        let all_there = |&chunk: &u32| tree.manifest().pieces(shape.range_of(chunk)).all(is_there);
        chunks.filter(all_there).collect()
    }

    /// Reads a part of the stream, right or wrong; false if it is not there, or no longer this
    /// identity's.
    pub(super) fn read(&self, tree: &StagedTree, range: Range<u64>, into: &mut Vec<u8>) -> bool {
        into.resize(usize::try_from(range.end - range.start).unwrap_or(0), 0);
        let mut rest = &mut into[..];
        let mut looked_at = None;
        for piece in tree.manifest().pieces(range) {
            let (here, after) = rest.split_at_mut(piece.len());
            match piece {
                StreamPiece::Manifest { at, len } => {
                    here.copy_from_slice(&tree.manifest().bytes()[at..at + len]);
                }
                StreamPiece::File { entry, offset, .. } => {
                    let top = tree.manifest().top_of(entry);
                    if !self.read_piece(tree, (top, entry), offset, here) {
                        return false;
                    }
                    looked_at = Some(looked_at.map_or((top, top), |(first, _)| (first, top)));
                }
            }
            rest = after;
        }
        let (first, last) = looked_at.unwrap_or((1, 0));
        // One that merges takes the mark away before its own comes.
        self.tops
            .iter()
            .take(last + 1)
            .skip(first)
            .all(|top| top.as_ref().is_none_or(|directory| is_marked(directory, &self.identity)))
    }

    /// Whether it is still of use to look for what is in this part of the stream.
    pub(super) fn is_worth(&self, tree: &StagedTree, range: Range<u64>) -> bool {
        let misses = self.misses.load(Ordering::Relaxed);
        let is_wasted = misses > MISSES_MAX.max(4 * self.hits.load(Ordering::Relaxed));
        !is_wasted || !self.has_changed(tree, range)
    }

    /// Notes whether what was looked for was there.
    pub(super) fn note(&self, tree: &StagedTree, range: Range<u64>, is_hit: bool) {
        if self.has_changed(tree, range) {
            let count = if is_hit { &self.hits } else { &self.misses };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_changed(&self, tree: &StagedTree, range: Range<u64>) -> bool {
        let changed = |entry| self.file(entry).is_none_or(|f| f.likeness == Likeness::Changed);
        tree.manifest()
            .pieces(range)
            .any(|piece| matches!(piece, StreamPiece::File { entry, .. } if changed(entry)))
    }

    fn file(&self, entry: u32) -> Option<&SeedFile> {
        let at = self.files.binary_search_by_key(&entry, |file| file.entry).ok()?;
        self.files.get(at)
    }

    fn read_piece(
        &self,
        tree: &StagedTree,
        (top, entry): (usize, u32),
        at: u64,
        into: &mut [u8],
    ) -> bool {
        let open = || self.open_file(tree, (top, entry));
        let Ok(file) = self.open.open(entry, open) else { return false };
        let is_read = read_exactly_at(&*file, into, at).is_ok();
        is_read && (self.top(top).is_some() || is_marked(&*file, &self.identity))
    }

    fn open_file(&self, tree: &StagedTree, (top, entry): (usize, u32)) -> Result<OwnedFd, Errno> {
        let path = tree.manifest().path(entry);
        let below = path.iter().position(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let file = match self.top(top) {
            Some(directory) => open_beneath(directory, &path[below..], READING, Mode::empty())?,
            None => open_beneath(tree.destination().fd(), &path, READING, Mode::empty())?,
        };
        let kind = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
        if kind == FileType::RegularFile { Ok(file) } else { Err(Errno::INVAL) }
    }

    fn top(&self, top: usize) -> Option<BorrowedFd<'_>> {
        self.tops.get(top)?.as_ref().map(AsFd::as_fd)
    }
}

/// How alike the file of this name is; `None` if there is none.
fn likeness(parent: BorrowedFd<'_>, entry: &TreeEntry<'_>) -> Option<Likeness> {
    let stat = fs::statat(parent, entry.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let TreeNode::File { size, .. } = entry.node else { return None };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size <= 0 {
        return None;
    }
    let is_same = u64::try_from(stat.st_size) == Ok(size)
        && nanoseconds(stat.st_mtime, stat.st_mtime_nsec) == entry.modified_ns;
    Some(if is_same { Likeness::Same } else { Likeness::Changed })
}

#[cfg(test)]
impl SeedFiles {
    pub(super) fn tries(&self) -> u32 {
        self.hits.load(Ordering::Relaxed) + self.misses.load(Ordering::Relaxed)
    }
}
