//! Chunks to files and back: staged ones, and those that are published already.

use super::error::ReceiveError;
use super::options::Destination;
use crate::sign::ChunkBytes;
use crate::tree::{OpenFiles, StreamPiece, TreeManifest, open_beneath, read_exactly_at, shown};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Where a top-level entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopPlace {
    /// In the staging directory.
    Staged,
    /// At the destination.
    Published,
    /// In both: its files move one by one.
    Merging,
}

/// A tree that was made, and is filled, published, and read back.
#[derive(Debug)]
pub(super) struct StagedTree {
    manifest: TreeManifest,
    tree: OwnedFd,
    destination: Arc<Destination>,
    /// A name moves while this is held for writing: no reader opens what an exchange brought here.
    places: RwLock<Box<[TopPlace]>>,
    writing: OpenFiles,
    reading: OpenFiles,
    /// Files that this process may not open any more, because their sealed modes deny it.
    denied: OpenFiles,
    /// What was done to look at what is published already, and to publish this, for those who
    /// watch whether that goes on.
    steps: AtomicU64,
}

impl StagedTree {
    /// A tree in the open directory `tree`.
    pub(super) fn new(
        manifest: TreeManifest,
        tree: OwnedFd,
        destination: Arc<Destination>,
        descriptors_max: usize,
    ) -> Self {
        let places = vec![TopPlace::Staged; manifest.tops().len()];
        let max = descriptors_max.max(1);
        let [writing, reading, denied] = std::array::from_fn(|_| OpenFiles::new(max));
        let places = RwLock::new(places.into());
        let steps = AtomicU64::new(0);
        Self { manifest, tree, destination, places, writing, reading, denied, steps }
    }

    pub(super) fn manifest(&self) -> &TreeManifest {
        &self.manifest
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// One more step of that is done.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// How many are.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Where a top-level entry lies, by its index among them.
    pub(super) fn place(&self, top: usize) -> TopPlace {
        self.places.read().unwrap_or_else(PoisonError::into_inner)[top]
    }

    /// Moves a top-level entry by `how`; from then on it lies in `place`.
    pub(super) fn move_top(
        &self,
        top: usize,
        place: TopPlace,
        how: impl FnOnce() -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        how()?;
        places[top] = place;
        Ok(())
    }

    /// Writes the part of the stream that begins at `at` into the files that it belongs to.
    pub(super) fn write(&self, at: u64, bytes: ChunkBytes<'_>) -> Result<(), ReceiveError> {
        let mut done = 0;
        for piece in self.manifest.pieces(at..at + bytes.len() as u64) {
            let here = done..done + piece.len();
            done = here.end;
            if let StreamPiece::File { entry, offset, .. } = piece {
                let file = self.writing.open(entry, || self.open_to_write(entry))?;
                let written = bytes.write_to(here, &*file, offset);
                written.map_err(|errno| ReceiveError::write(&self.manifest.path(entry), errno))?;
            }
        }
        Ok(())
    }

    /// Reads a part of the stream, which has it; `into` then has exactly its bytes.
    pub(super) fn read(&self, range: Range<u64>, into: &mut Vec<u8>) -> Result<(), ReceiveError> {
        into.resize(usize::try_from(range.end - range.start).unwrap_or(0), 0);
        let mut rest = &mut into[..];
        for piece in self.manifest.pieces(range) {
            let (here, after) = rest.split_at_mut(piece.len());
            match piece {
                StreamPiece::Manifest { at, len } => {
                    here.copy_from_slice(&self.manifest.bytes()[at..at + len]);
                }
                StreamPiece::File { entry, offset, .. } => {
                    let file = self.reading.open(entry, || self.open_to_read(entry));
                    let read = file.and_then(|file| read_exactly_at(&*file, here, offset));
                    read.map_err(|errno| self.unreadable(entry, errno))?;
                }
            }
            rest = after;
        }
        Ok(())
    }

    /// Closes the files that are open for writing: a program cannot be run before.
    pub(super) fn close_written(&self) {
        self.writing.close_all();
    }

    /// The first file in a part of the stream that lies at the destination already.
    pub(super) fn published_in(&self, range: Range<u64>) -> Option<u32> {
        self.manifest.pieces(range).find_map(|piece| match piece {
            StreamPiece::File { entry, .. } => {
                let place = self.place(self.manifest.top_of(entry));
                (place != TopPlace::Staged).then_some(entry)
            }
            StreamPiece::Manifest { .. } => None,
        })
    }

    fn open_to_write(&self, entry: u32) -> Result<OwnedFd, ReceiveError> {
        let path = self.manifest.path(entry);
        if self.place(self.manifest.top_of(entry)) != TopPlace::Staged {
            return Err(ReceiveError::Disturbed { path: shown(&path) });
        }
        open_beneath(self.fd(), &path, OFlags::WRONLY, Mode::empty())
            .map_err(|errno| ReceiveError::write(&path, errno))
    }

    /// Keeps a staged file open that cannot be opened once it is sealed, so that late nodes can
    /// read it here. Without it they read it from another node, or the source sends it.
    pub(super) fn keep_readable(&self, entry: u32) {
        let _kept = self.denied.open(entry, || self.open_to_read(entry));
    }

    /// Opens a file for reading, wherever it lies now.
    pub(super) fn open_to_read(&self, entry: u32) -> Result<OwnedFd, Errno> {
        if let Some(file) = self.denied.recall(entry) {
            let copy = file.try_clone();
            return copy.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let path = self.manifest.path(entry);
        let open = |directory| {
            open_beneath(directory, &path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        };
        match places[self.manifest.top_of(entry)] {
            TopPlace::Staged => open(self.fd()),
            TopPlace::Published => open(self.destination.fd()),
            TopPlace::Merging => match open(self.fd()) {
                Err(Errno::NOENT) => open(self.destination.fd()),
                opened => opened,
            },
        }
    }

    fn unreadable(&self, entry: u32, errno: Errno) -> ReceiveError {
        let path = shown(&self.manifest.path(entry));
        match errno {
            // A published file belongs to its owner, who may replace it or deny reading it.
            Errno::NODATA
            | Errno::NOENT
            | Errno::LOOP
            | Errno::NOTDIR
            | Errno::SPIPE
            | Errno::ACCESS => ReceiveError::Disturbed { path },
            errno => ReceiveError::Write { path, errno },
        }
    }
}
