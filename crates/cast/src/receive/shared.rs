//! What a receiver and its readers share: the stages between the first chunk and the last name.
//!
//! Chunks are written under a shared lock on the stage; a stage changes under an exclusive one, so
//! that it finds every chunk that was noted as held where that stage keeps it.

use super::bitmap::{ChunkBitmap, SavedBitmap};
use super::error::ReceiveError;
use super::files::StagedTree;
use super::make::{check_destination, make_tree};
use super::options::{AttributePolicy, Destination, FlushMode, PublishMode, ReceiveOptions};
use super::publish::{PublishReport, inodes, publish_tops};
use super::receiver::PutOutcome;
use super::resume::{Restored, restore};
use super::seal::seal;
use super::seeds::SeedFiles;
use super::staging::{StagingDirectory, StagingOrigin, StagingPhase};
use crate::schedule::ChunkSet;
use crate::sign::{CastHeader, ChunkBytes, ChunkHashes, StreamShape, write_all_at};
use crate::tree::{ManifestError, ManifestFault, TreeManifest, open_beneath, read_exactly_at};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The beginning of the stream, in the staging directory.
pub(super) const HEAD: &str = "head";
/// The bitmap of chunks held.
pub(super) const HELD: &str = "held";
/// What will be published.
pub(super) const TREE: &str = "tree";

/// Files of a chunk that is written at once, about: opening more takes longer than a turn may.
const PIECES_AT_ONCE_MAX: usize = 16;

/// How far a receiver is.
#[derive(Debug)]
pub(super) enum ReceiverStage {
    Gathering,
    Filling(Arc<StagedTree>),
    Ended,
}

/// What has come of writing a chunk without waiting for a disk or another thread.
#[derive(Debug)]
pub(crate) enum AtOnce<T> {
    Done(T),
    /// What is waited for ends soon.
    Later,
    /// Only with waiting: on file systems that are not in memory, for many small files, and before
    /// the manifest is complete.
    Never,
}

impl<T> AtOnce<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> AtOnce<U> {
        match self {
            Self::Done(outcome) => AtOnce::Done(change(outcome)),
            Self::Later => AtOnce::Later,
            Self::Never => AtOnce::Never,
        }
    }
}

/// What the receiver and its readers share.
#[derive(Debug)]
pub(super) struct ReceiverShared {
    pub(super) hashes: Arc<ChunkHashes>,
    pub(super) options: ReceiveOptions,
    pub(super) staging: StagingDirectory,
    head: OwnedFd,
    held: OwnedFd,
    pub(super) bitmap: ChunkBitmap,
    pub(super) saved: SavedBitmap,
    /// Entries of the tree that were made.
    made: AtomicU64,
    /// Chunks are written while this is held for reading.
    stage: RwLock<ReceiverStage>,
    /// Whether attributes were given; held while publishing.
    is_sealed: Mutex<bool>,
    /// Files at the destination to take chunks from, once the tree is known.
    pub(super) seeds: OnceLock<SeedFiles>,
    /// Chunks that may be here, until the caller takes note.
    pub(super) claims: Mutex<Option<ChunkSet>>,
    /// The destination's file system is memory: no disk is waited for.
    is_in_memory: bool,
}

impl ReceiverShared {
    /// Claims the staging directory, and takes up what is in it.
    pub(super) fn begin(
        destination: Destination,
        hashes: Arc<ChunkHashes>,
        options: ReceiveOptions,
    ) -> Result<Self, ReceiveError> {
        let header = *hashes.header();
        check_lengths(&header.shape, &options)?;
        let destination = Arc::new(destination);
        let claimed = StagingDirectory::claim(destination, &options.identity, &header)?;
        let (mut staging, origin) = claimed;
        let opened = open_staging(&mut staging, origin, &header, &options);
        let OpenStaging { restored: Restored { saved, tree }, head, held } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                if error.is_final() {
                    let _ = staging.remove(&|| ());
                }
                return Err(error);
            }
        };
        let stage =
            tree.map_or(ReceiverStage::Gathering, |tree| ReceiverStage::Filling(tree.into()));
        let bitmap = ChunkBitmap::new(header.shape.chunks())
            .map_err(|_| ReceiveError::write(HELD.as_bytes(), Errno::NOMEM))?;
        let shared = Self {
            is_in_memory: is_in_memory(staging.fd()),
            head,
            held,
            bitmap,
            made: AtomicU64::new(0),
            stage: RwLock::new(stage),
            is_sealed: Mutex::new(false),
            hashes,
            options,
            staging,
            saved,
            seeds: OnceLock::new(),
            claims: Mutex::default(),
        };
        shared.claim();
        Ok(shared)
    }

    pub(super) fn bitmap(&self) -> &ChunkBitmap {
        &self.bitmap
    }

    /// Whether a broken receiver may have left this chunk, and it does not count yet.
    pub(super) fn is_left(&self, chunk: u32) -> bool {
        self.saved.has(chunk) && !self.bitmap.is_held(chunk)
    }

    pub(super) fn attributes(&self) -> AttributePolicy {
        self.options.attributes
    }

    pub(super) fn shape(&self) -> &StreamShape {
        &self.hashes.header().shape
    }

    pub(super) fn tree(&self) -> Option<Arc<StagedTree>> {
        match &*self.stage() {
            ReceiverStage::Filling(tree) => Some(Arc::clone(tree)),
            ReceiverStage::Gathering | ReceiverStage::Ended => None,
        }
    }

    /// Reads a chunk, whether it is held or not.
    pub(super) fn read(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), ReceiveError> {
        self.read_in(&self.stage(), chunk, into)
    }

    pub(super) fn read_in(
        &self,
        stage: &ReceiverStage,
        chunk: u32,
        into: &mut Vec<u8>,
    ) -> Result<(), ReceiveError> {
        match stage {
            ReceiverStage::Ended => Err(ReceiveError::Ended),
            ReceiverStage::Gathering => self.read_head(chunk, into),
            ReceiverStage::Filling(tree) => tree.read(self.shape().range_of(chunk), into),
        }
    }

    fn read_head(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), ReceiveError> {
        into.resize(self.shape().len_of(chunk), 0);
        read_exactly_at(&self.head, into, self.shape().range_of(chunk).start)
            .map_err(|errno| ReceiveError::write(HEAD.as_bytes(), errno))
    }

    pub(super) fn put(
        &self,
        chunk: u32,
        bytes: ChunkBytes<'_>,
    ) -> Result<PutOutcome, ReceiveError> {
        let at = self.shape().range_of(chunk).start;
        let stage = self.stage();
        if self.bitmap.is_held(chunk) {
            return Ok(PutOutcome::Duplicate);
        }
        match &*stage {
            ReceiverStage::Ended => return Err(ReceiveError::Ended),
            ReceiverStage::Filling(tree) => tree.write(at, bytes)?,
            ReceiverStage::Gathering => bytes
                .write_to(0..bytes.len(), &self.head, at)
                .map_err(|errno| ReceiveError::write(HEAD.as_bytes(), errno))?,
        }
        self.note_held(stage, chunk)?;
        Ok(PutOutcome::Written)
    }

    /// As [`Self::put`], if nothing is waited for.
    pub(super) fn put_at_once(
        &self,
        chunk: u32,
        bytes: ChunkBytes<'_>,
    ) -> AtOnce<Result<PutOutcome, ReceiveError>> {
        if !self.is_in_memory {
            return AtOnce::Never;
        }
        // A thread makes the tree while it is locked.
        let Ok(stage) = self.stage.try_read() else { return AtOnce::Later };
        let ReceiverStage::Filling(tree) = &*stage else { return AtOnce::Never };
        let range = self.shape().range_of(chunk);
        if tree.manifest().pieces(range.clone()).nth(PIECES_AT_ONCE_MAX).is_some() {
            return AtOnce::Never;
        }
        if self.bitmap.is_held(chunk) {
            return AtOnce::Done(Ok(PutOutcome::Duplicate));
        }
        let written = tree.write(range.start, bytes);
        let noted = written.and_then(|()| self.note_held(stage, chunk));
        AtOnce::Done(noted.map(|()| PutOutcome::Written))
    }

    /// Notes that a chunk's bytes are in place, and makes the tree when the manifest is complete.
    pub(super) fn note_held(
        &self,
        stage: RwLockReadGuard<'_, ReceiverStage>,
        chunk: u32,
    ) -> Result<(), ReceiveError> {
        if self.bitmap.set(chunk) {
            let (word, at) = self.bitmap.saved_word(chunk, &self.saved);
            write_all_at(&self.held, &word, at)
                .map_err(|errno| ReceiveError::write(HELD.as_bytes(), errno))?;
        }
        let is_gathering = matches!(*stage, ReceiverStage::Gathering);
        drop(stage);
        let mut manifest = 0..self.shape().manifest_chunks();
        if is_gathering && manifest.all(|chunk| self.bitmap.is_held(chunk)) {
            self.fill()?;
        }
        Ok(())
    }

    /// Makes the tree, unless another thread has done so.
    fn fill(&self) -> Result<(), ReceiveError> {
        let mut stage = self.stage_mut();
        if matches!(*stage, ReceiverStage::Gathering) {
            let tree = self.make()?;
            self.move_early_chunks(&tree)?;
            self.staging.set_phase(&StagingPhase::Filling)?;
            // What is cut off lies in the files now.
            fs::ftruncate(&self.head, self.shape().manifest_len())
                .map_err(|errno| ReceiveError::write(HEAD.as_bytes(), errno))?;
            *stage = ReceiverStage::Filling(Arc::new(tree));
            drop(stage);
            self.claim();
        }
        Ok(())
    }

    fn make(&self) -> Result<StagedTree, ReceiveError> {
        let manifest = self.read_manifest()?;
        let destination = Arc::clone(self.staging.destination());
        check_destination(&destination, &manifest, self.options.publish)?;
        let failed = |errno| ReceiveError::write(TREE.as_bytes(), errno);
        // A receiver that was killed may have made half of it.
        super::remove::remove_tree(self.staging.fd(), TREE.as_bytes()).map_err(failed)?;
        fs::mkdirat(self.staging.fd(), TREE, Mode::RWXU).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = open_beneath(self.staging.fd(), TREE.as_bytes(), flags, Mode::empty());
        let tree = StagedTree::new(
            manifest,
            opened.map_err(failed)?,
            destination,
            self.options.descriptors_max,
        );
        let made_one = || {
            self.made.fetch_add(1, Ordering::Relaxed);
        };
        let security = self.options.attributes.security_xattrs;
        make_tree(tree.fd(), tree.manifest(), security, made_one)?;
        Ok(tree)
    }

    fn read_manifest(&self) -> Result<TreeManifest, ReceiveError> {
        let len = usize::try_from(self.shape().manifest_len()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        read_exactly_at(&self.head, &mut bytes, 0)
            .map_err(|errno| ReceiveError::write(HEAD.as_bytes(), errno))?;
        if blake3::hash(&bytes) != self.hashes.header().manifest_hash {
            return Err(ReceiveError::ManifestHash);
        }
        let manifest = TreeManifest::parse(bytes, &self.options.limits)?;
        let (found, expected) = (manifest.stream_len(), self.shape().stream_len());
        if found != expected {
            return Err(ReceiveError::ManifestLength { found, expected });
        }
        Ok(manifest)
    }

    /// Chunks that a broken receiver has left move as well, though nothing is known of them yet.
    fn move_early_chunks(&self, tree: &StagedTree) -> Result<(), ReceiveError> {
        let mut bytes = Vec::new();
        for chunk in 0..self.shape().chunks() {
            let is_held = self.bitmap.is_held(chunk);
            if !is_held && !self.saved.has(chunk) {
                continue;
            }
            match self.read_head(chunk, &mut bytes) {
                Ok(()) => {
                    tree.write(self.shape().range_of(chunk).start, bytes.as_slice().into())?
                }
                Err(error) if is_held => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Steps that are done of making the tree, of looking at what is published already, and of
    /// publishing it: they grow as long as that goes on.
    pub(super) fn steps(&self) -> u64 {
        // What changes the stage may be held up by a disk.
        let stage = self.stage.try_read();
        let of_publishing = stage.map_or(0, |stage| match &*stage {
            ReceiverStage::Filling(tree) => tree.steps(),
            ReceiverStage::Gathering | ReceiverStage::Ended => 0,
        });
        self.made.load(Ordering::Relaxed) + of_publishing
    }

    pub(super) fn publish(&self) -> Result<PublishReport, ReceiveError> {
        let mut is_sealed = self.is_sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = self.bitmap.chunks() - self.bitmap.held();
        let tree = match &*self.stage_mut() {
            ReceiverStage::Ended => return Err(ReceiveError::Ended),
            ReceiverStage::Filling(tree) if missing == 0 => Arc::clone(tree),
            _ => return Err(ReceiveError::Incomplete { missing }),
        };
        if !*is_sealed {
            tree.close_written();
            seal(&tree, &self.options)?;
            *is_sealed = true;
        }
        self.save_publishing(&tree)?;
        self.flush(tree.fd())?;
        tree.step();
        let names = publish_tops(&tree, &self.options, self.staging.fd())?;
        self.flush(tree.destination().fd())?;
        tree.step();
        // It keeps its space as long as it is open; the manifest stays in memory.
        let _ = fs::ftruncate(&self.head, 0);
        let left_behind = self.staging.remove(&|| tree.step()).err().map(|error| {
            let path = self.staging.set_aside().unwrap_or_else(|_| self.staging.path());
            tracing::warn!(path = %path.display(), %error, "what was replaced cannot be removed");
            path
        });
        Ok(PublishReport { names, left_behind })
    }

    fn save_publishing(&self, tree: &StagedTree) -> Result<(), ReceiveError> {
        write_all_at(&self.held, &self.bitmap.saved(), 0)
            .map_err(|errno| ReceiveError::write(HELD.as_bytes(), errno))?;
        let is_merge = self.options.publish == PublishMode::Merge;
        let tops = if is_merge { vec![0; tree.manifest().tops().len()] } else { inodes(tree)? };
        self.staging.set_phase(&StagingPhase::Publishing { is_merge, tops })
    }

    fn flush(&self, directory: impl rustix::fd::AsFd) -> Result<(), ReceiveError> {
        match self.options.flush {
            FlushMode::Later => Ok(()),
            FlushMode::BeforePublishing => {
                let path = || self.staging.destination().path().as_os_str().as_bytes();
                fs::syncfs(directory).map_err(|errno| ReceiveError::write(path(), errno))
            }
        }
    }

    pub(super) fn end_if_final<T>(&self, done: Result<T, ReceiveError>) -> Result<T, ReceiveError> {
        if done.as_ref().is_err_and(ReceiveError::is_final) {
            self.end();
        }
        done
    }

    /// Removes all that was staged.
    pub(super) fn end(&self) {
        *self.stage_mut() = ReceiverStage::Ended;
        // A file without a name keeps its space as long as it is open.
        let _ = fs::ftruncate(&self.head, 0);
        // What cannot be removed stays hidden, and the next cast tries again.
        let _ = self.staging.remove(&|| ());
    }

    pub(super) fn stage(&self) -> RwLockReadGuard<'_, ReceiverStage> {
        self.stage.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage_mut(&self) -> RwLockWriteGuard<'_, ReceiverStage> {
        self.stage.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_lengths(shape: &StreamShape, options: &ReceiveOptions) -> Result<(), ReceiveError> {
    let limits = &options.limits;
    let refused = |fault| Err(ManifestError { entry: 0, path: PathBuf::new(), fault }.into());
    let (len, max) = (shape.manifest_len(), limits.manifest_len_max);
    if len > max {
        return refused(ManifestFault::TooLong { len, max });
    }
    if shape.stream_len() > limits.stream_len_max {
        return refused(ManifestFault::TooMuch(limits.stream_len_max));
    }
    Ok(())
}

/// A staging directory's contents, restored or new.
struct OpenStaging {
    restored: Restored,
    head: OwnedFd,
    held: OwnedFd,
}

fn open_staging(
    staging: &mut StagingDirectory,
    origin: StagingOrigin,
    header: &CastHeader,
    options: &ReceiveOptions,
) -> Result<OpenStaging, ReceiveError> {
    let restored = match origin {
        StagingOrigin::New => None,
        StagingOrigin::Left => restore(staging, header, options),
    };
    let restored = restored.map_or_else(|| start_anew(staging), Ok)?;
    Ok(OpenStaging { restored, head: staging.open_file(HEAD)?, held: staging.open_file(HELD)? })
}

/// Whether writing to it is copying, which takes microseconds.
pub(super) fn is_in_memory(directory: impl rustix::fd::AsFd) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of statfs(2).
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    fs::fstatfs(directory)
        .is_ok_and(|found| u32::try_from(found.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
}

fn start_anew(staging: &mut StagingDirectory) -> Result<Restored, ReceiveError> {
    staging.wipe()?;
    staging.set_phase(&StagingPhase::Gathering)?;
    Ok(Restored { saved: SavedBitmap::default(), tree: None })
}
