//! Making a store and opening it. Reads no more of it than its superblock.

use super::checkpoint::{self, CheckpointWriter};
use super::data::{self, BLOCK_LEN, DataFile};
use super::disk::{RealDisk, StoreDisk};
use super::error::FsStoreError;
use super::superblock::{self, SUPERBLOCK_LEN, Superblock};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// The lock's file.
const LOCK: &str = "lock";
/// What a superblock is called before it is whole.
const NEXT: &str = "superblock.next";
/// Bytes of a region, at least and at most.
const REGION_LEN: std::ops::RangeInclusive<u64> = 4096..=1 << 40;
/// Blocks, at most: 256 TiB.
const BLOCKS_MAX: u64 = 1 << 36;

/// How large a store is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreShape {
    /// Blocks of 4,096 bytes for data.
    pub block_count: u64,
    /// Bytes of the region of metadata.
    pub region_len: u64,
}

impl StoreShape {
    /// Whether a store can have it.
    pub(crate) fn check(self) -> Result<(), FsStoreError> {
        if self.block_count == 0 || self.block_count > BLOCKS_MAX {
            let limits = "a store has one to 2^36 blocks of 4,096 bytes";
            return Err(FsStoreError::Shape { what: "blocks", found: self.block_count, limits });
        }
        if !REGION_LEN.contains(&self.region_len) || !self.region_len.is_multiple_of(4096) {
            let (what, found) = ("bytes of metadata", self.region_len);
            let limits = "a multiple of 4,096, up to 1 TiB";
            return Err(FsStoreError::Shape { what, found, limits });
        }
        Ok(())
    }
}

/// A store that is open and locked, and that nobody uses yet.
#[derive(Debug)]
pub struct OpenedStore {
    pub(super) disk: Arc<dyn StoreDisk>,
    pub(super) lock: Option<File>,
    pub(super) superblock: Superblock,
    pub(super) data: Arc<DataFile>,
}

impl OpenedStore {
    /// Makes a store in a directory that is empty or not there, and opens it.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn create(dir: &Path, shape: StoreShape) -> Result<Self, FsStoreError> {
        shape.check()?;
        let refused = |source| FsStoreError::of(&dir.display().to_string(), source);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(refused)?;
        let disk = RealDisk::open(dir).map_err(refused)?;
        let names = disk.names().map_err(refused)?;
        if let Some(found) = names.into_iter().find(|name| !is_unfinished(name)) {
            return Err(FsStoreError::NotEmpty { dir: dir.into(), found });
        }
        let lock = take_lock(dir, &disk, OFlags::CREATE)?;
        let opened = Self::create_on(Arc::new(disk), shape)?;
        Ok(Self { lock: Some(lock), ..opened })
    }

    /// Opens a store.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn open(dir: &Path) -> Result<Self, FsStoreError> {
        let not_a_store = || FsStoreError::NotAStore { dir: dir.into() };
        let disk = match RealDisk::open(dir) {
            Err(error) if is_absent(&error) => return Err(not_a_store()),
            opened => {
                opened.map_err(|error| FsStoreError::of(&dir.display().to_string(), error))?
            }
        };
        match disk.open(superblock::NAME) {
            Err(error) if is_absent(&error) => return Err(not_a_store()),
            opened => opened.map_err(|error| FsStoreError::of(superblock::NAME, error))?,
        };
        let lock = take_lock(dir, &disk, OFlags::CREATE)?;
        let opened = Self::open_on(Arc::new(disk))?;
        Ok(Self { lock: Some(lock), ..opened })
    }

    /// As [`create`](Self::create), without a lock.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn create_on(disk: Arc<dyn StoreDisk>, shape: StoreShape) -> Result<Self, FsStoreError> {
        shape.check()?;
        let failed = |source| FsStoreError::of(data::NAME, source);
        let file = disk.create(data::NAME).map_err(failed)?;
        file.set_len(shape.block_count * BLOCK_LEN).map_err(failed)?;
        file.sync().map_err(failed)?;
        let superblock = Superblock {
            uuid: random()?,
            block_count: shape.block_count,
            region_len: shape.region_len,
            epoch: 1,
            incarnation: 0,
            base: 0,
            ended: Default::default(),
        };
        // A store has a checkpoint always: one that has lost both is not an empty one.
        let store = (&superblock.uuid, superblock.region_len);
        let empty = CheckpointWriter::begin(disk.as_ref(), store, checkpoint::FIRST)?;
        empty.finish(0, checkpoint::CheckpointEnding::UnderWay)?;
        write_superblock(disk.as_ref(), &superblock)?;
        let data = Arc::new(DataFile::new(file, superblock.block_count));
        Ok(Self { disk, lock: None, superblock, data })
    }

    /// As [`open`](Self::open), without a lock.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn open_on(disk: Arc<dyn StoreDisk>) -> Result<Self, FsStoreError> {
        let superblock = read_superblock(disk.as_ref())?;
        let failed = |source: io::Error| match is_absent(&source) {
            true => FsStoreError::damaged(data::NAME, "it is gone"),
            false => FsStoreError::of(data::NAME, source),
        };
        let file = disk.open(data::NAME).map_err(failed)?;
        let (found, wanted) =
            (file.len().map_err(failed)?, superblock.block_count.saturating_mul(BLOCK_LEN));
        if found < wanted {
            let what = format!("it has {found} bytes, and had {wanted}");
            return Err(FsStoreError::damaged(data::NAME, what));
        }
        let data = Arc::new(DataFile::new(file, superblock.block_count));
        Ok(Self { disk, lock: None, superblock, data })
    }

    /// What the store is.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Its sizes.
    #[must_use]
    pub fn shape(&self) -> StoreShape {
        let Superblock { block_count, region_len, .. } = self.superblock;
        StoreShape { block_count, region_len }
    }

    /// Checks that the store has the sizes that the caller wants.
    ///
    /// # Errors
    /// [`FsStoreError::OtherShape`].
    pub fn expect(&self, wanted: StoreShape) -> Result<(), FsStoreError> {
        let found = self.shape();
        let other = |what, found, wanted| Err(FsStoreError::OtherShape { what, found, wanted });
        if found.block_count != wanted.block_count {
            return other("blocks of 4,096 bytes", found.block_count, wanted.block_count);
        }
        match found.region_len == wanted.region_len {
            true => Ok(()),
            false => other("bytes of metadata", found.region_len, wanted.region_len),
        }
    }

    /// Makes the store one of another epoch, which begins behind a commit.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn enter_epoch(&mut self, epoch: u64, last: u64) -> Result<(), FsStoreError> {
        self.replace_superblock(Superblock { epoch, ..self.superblock.after(last) })
    }

    pub(super) fn replace_superblock(&mut self, next: Superblock) -> Result<(), FsStoreError> {
        write_superblock(self.disk.as_ref(), &next)?;
        self.superblock = next;
        Ok(())
    }
}

pub(super) fn write_superblock(
    disk: &dyn StoreDisk,
    superblock: &Superblock,
) -> Result<(), FsStoreError> {
    let write = || -> io::Result<()> {
        let file = disk.create(NEXT)?;
        file.set_len(0)?;
        file.write_at(&mut [IoSlice::new(&superblock.emit())], 0)?;
        file.sync()?;
        disk.rename(NEXT, superblock::NAME)?;
        disk.sync()
    };
    write().map_err(|source| FsStoreError::of(superblock::NAME, source))
}

fn read_superblock(disk: &dyn StoreDisk) -> Result<Superblock, FsStoreError> {
    let failed = |source| FsStoreError::of(superblock::NAME, source);
    let file = disk.open(superblock::NAME).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
    // Bytes too many tell of damage as well as a few more of them do.
    let mut bytes = vec![0; len.min(SUPERBLOCK_LEN + 1)];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    Superblock::parse(&bytes)
}

/// Files that a process leaves that is killed while it makes a store.
fn is_unfinished(name: &str) -> bool {
    [LOCK, NEXT, data::NAME, &checkpoint::name(checkpoint::FIRST)].contains(&name)
}

fn take_lock(dir: &Path, disk: &RealDisk, flags: OFlags) -> Result<File, FsStoreError> {
    let failed = |source| FsStoreError::of(LOCK, source);
    let lock = disk.open_with(LOCK, flags).map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(FsStoreError::Locked { dir: dir.into() }),
        Err(error) => Err(failed(error.into())),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Random bytes, for numbers that no other store and no other checkpoint has.
pub(super) fn random() -> Result<[u8; 16], FsStoreError> {
    let mut bytes = [0; 16];
    let failed = |_| FsStoreError::of("random numbers", io::Error::other("there are none"));
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
