//! Reading chunks of the stream at the source, while nothing changes.
//!
//! Every read is followed by a look at the file: unless it is the file of the scan, unchanged, its
//! bytes are not given out. A program that writes through a mapping it has written to before may
//! stay unnoticed until the kernel writes the pages back.

use super::beneath::{open_beneath, read_exactly_at};
use super::entry::NodeHead;
use super::error::TreeError;
use super::layout::StreamPiece;
use super::name::shown;
use super::open_files::OpenFiles;
use super::scan::{EntryStamp, ScannedTree};
use crate::sign::ChunkLen;
use outboard_verbs::{MemError, SharedRegion};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Two changes within this time may leave the same time stamp (one tick at 100 Hz).
const TICK: Duration = Duration::from_millis(10);

/// Reads chunks of a scanned tree, from several threads if need be.
#[derive(Debug)]
pub struct SourceReader {
    tree: ScannedTree,
    /// The sources' directories; `None` for a source that is a file.
    tops: Vec<Option<OwnedFd>>,
    chunk_len: ChunkLen,
    files: OpenFiles,
}

impl SourceReader {
    /// Opens the sources again. Waits for 10 ms at most when something changed just before it was
    /// scanned: a change from now on has another time stamp.
    ///
    /// # Errors
    /// [`TreeError`] when a source is gone.
    pub fn new(
        tree: ScannedTree,
        chunk_len: ChunkLen,
        descriptors_max: usize,
    ) -> Result<Self, TreeError> {
        let tops = tree.manifest.tops().iter().zip(&tree.sources);
        let open = |(&top, source): (&u32, &super::scan::CastSource)| {
            if !tree.manifest.entry(top).is_directory() {
                return Ok(None);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = fs::open(&source.path, flags, Mode::empty());
            opened.map(Some).map_err(|_| TreeError::Changed { path: source.path.clone() })
        };
        let tops = tops.map(open).collect::<Result<_, _>>()?;
        wait_for_tick(&tree);
        Ok(Self { tree, tops, chunk_len, files: OpenFiles::new(descriptors_max.max(1)) })
    }

    /// The tree that is read.
    #[must_use]
    pub fn tree(&self) -> &ScannedTree {
        &self.tree
    }

    /// How many chunks the stream has.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunk_len.chunks_in(self.tree.manifest.stream_len())
    }

    /// Reads a chunk; `into` then has exactly its bytes, and nothing of use after an error.
    ///
    /// # Errors
    /// [`TreeError::Changed`] when a file is not what it was; [`TreeError::Unreadable`].
    pub fn read_chunk(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), TreeError> {
        let (manifest, chunks) = (&self.tree.manifest, self.chunks());
        if chunk >= chunks {
            return Err(TreeError::NoSuchChunk { chunk, chunks });
        }
        let range = self.chunk_len.range_of(chunk);
        let len = range.end.min(manifest.stream_len()) - range.start;
        // What a buffer has from the chunk before is overwritten, not cleared first.
        into.resize(usize::try_from(len).unwrap_or(0), 0);
        let mut rest = &mut into[..];
        for piece in manifest.pieces(range) {
            let (here, after) = rest.split_at_mut(piece.len());
            match piece {
                StreamPiece::Manifest { at, len } => {
                    here.copy_from_slice(&manifest.bytes()[at..at + len]);
                }
                StreamPiece::File { entry, offset, .. } => self.read_piece(entry, offset, here)?,
            }
            rest = after;
        }
        Ok(())
    }

    /// Looks at every entry once more: called after the last chunk was read and before its run is
    /// signed, it makes sure that all receivers get the tree as it was at one time, or nothing.
    ///
    /// # Errors
    /// [`TreeError::Changed`] names the first entry that is not what it was.
    pub fn check_unchanged(&self) -> Result<(), TreeError> {
        self.check_each(|| ())
    }

    /// As [`check_unchanged`](Self::check_unchanged); tells of each entry: millions take a while.
    pub(crate) fn check_each(&self, looked: impl Fn()) -> Result<(), TreeError> {
        (0..self.tree.manifest.len()).try_for_each(|entry| {
            let opened = self.open(entry, OFlags::PATH).map_err(|_| self.changed(entry))?;
            self.check_stamp(entry, &opened)?;
            looked();
            Ok(())
        })
    }

    /// The pieces of a chunk.
    pub(crate) fn pieces(&self, chunk: u32) -> Vec<StreamPiece> {
        self.tree.manifest.pieces(self.chunk_len.range_of(chunk)).collect()
    }

    /// Appends a piece of the manifest; nothing for another piece.
    pub(crate) fn append_manifest(&self, piece: StreamPiece, into: &mut Vec<u8>) {
        if let StreamPiece::Manifest { at, len } = piece {
            into.extend_from_slice(&self.tree.manifest.bytes()[at..at + len]);
        }
    }

    /// Where a mapping may begin: a multiple of this many bytes.
    pub(crate) const MAP_GRAIN: u64 = 64 << 10;

    /// Maps a part of an entry's file, or all of it.
    pub(crate) fn map(
        &self,
        entry: u32,
        range: Option<Range<u64>>,
    ) -> Result<SharedRegion, TreeError> {
        let file = self.file(entry)?;
        let size = match self.tree.manifest.head(entry).node {
            NodeHead::File { size } => size,
            NodeHead::Directory | NodeHead::Symlink => 0,
        };
        SharedRegion::view_file(&*file, range.unwrap_or(0..size)).map_err(|error| match error {
            MemError::Map { errno, .. } => self.failed(entry, Errno::from_raw_os_error(errno)),
            // It is shorter than it was, or another file.
            _ => self.changed(entry),
        })
    }

    /// Whether an entry's file is what it was.
    pub(crate) fn check_file(&self, entry: u32) -> Result<(), TreeError> {
        self.check_stamp(entry, &*self.file(entry)?)
    }

    /// That it is not.
    pub(crate) fn changed_file(&self, entry: u32) -> TreeError {
        self.changed(entry)
    }

    fn file(&self, entry: u32) -> Result<Arc<OwnedFd>, TreeError> {
        let open = || self.open(entry, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        self.files.open(entry, || open().map_err(|errno| self.failed(entry, errno)))
    }

    fn read_piece(&self, entry: u32, offset: u64, into: &mut [u8]) -> Result<(), TreeError> {
        let file = self.file(entry)?;
        let read = read_exactly_at(&*file, into, offset);
        // A read that fails on a file that changed fails because of the change.
        self.check_stamp(entry, &*file)?;
        read.map_err(|errno| self.failed(entry, errno))
    }

    fn open(&self, entry: u32, flags: OFlags) -> Result<OwnedFd, Errno> {
        let top = self.tree.manifest.top_of(entry);
        match self.tops.get(top) {
            Some(Some(directory)) => {
                let path = self.tree.manifest.path(entry);
                let below =
                    path.iter().position(|&byte| byte == b'/').map_or(path.len(), |at| at + 1);
                open_beneath(directory.as_fd(), &path[below..], flags, Mode::empty())
            }
            _ => fs::open(&self.tree.sources[top].path, flags | OFlags::CLOEXEC, Mode::empty()),
        }
    }

    fn check_stamp(&self, entry: u32, file: impl AsFd) -> Result<(), TreeError> {
        let stat = fs::fstat(file).map_err(|errno| self.failed(entry, errno))?;
        let is_same = EntryStamp::of(&stat) == self.tree.stamps[entry as usize];
        if is_same && self.is_same_file(entry, &stat) { Ok(()) } else { Err(self.changed(entry)) }
    }

    fn is_same_file(&self, entry: u32, stat: &Stat) -> bool {
        let known = self.tree.manifest.head(entry);
        let modified_ns = super::beneath::nanoseconds(stat.st_mtime, stat.st_mtime_nsec);
        let is_same_size = match known.node {
            NodeHead::File { size } => u64::try_from(stat.st_size) == Ok(size),
            NodeHead::Directory | NodeHead::Symlink => true,
        };
        is_same_size && known.modified_ns == modified_ns
    }

    fn failed(&self, entry: u32, errno: Errno) -> TreeError {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => self.changed(entry),
            errno => TreeError::Unreadable { path: shown(&self.tree.manifest.path(entry)), errno },
        }
    }

    fn changed(&self, entry: u32) -> TreeError {
        TreeError::Changed { path: shown(&self.tree.manifest.path(entry)) }
    }
}

fn wait_for_tick(tree: &ScannedTree) {
    let latest_ns = tree.stamps.iter().map(|stamp| stamp.changed_ns).max().unwrap_or(0);
    let latest = UNIX_EPOCH + Duration::from_nanos(u64::try_from(latest_ns).unwrap_or(0));
    if let Ok(age) = SystemTime::now().duration_since(latest) {
        thread::sleep(TICK.saturating_sub(age));
    }
}
