//! A checkpoint: the bytes of the region as of one commit, in one of two files in turn.
//!
//! The file is written from its beginning to its end, over what an older checkpoint has left there:
//! a head, chunks, and an end that says of which commit they are. Pages that change while the
//! region is copied follow in chunks of their own; the later chunk holds. Whatever is not there is
//! zero. Every part has a BLAKE3 hash under a key of this checkpoint alone.
//!
//! ```text
//! head   "obfsckp1"  number  salt (16)  bytes of the region  hash (32)
//! chunk  offset  bytes  hash (32)  the bytes
//! end    2^64-1  chunks  commit  1: orderly  hash of all hashes (32)
//! ```

use super::directory::random;
use super::disk::{StoreDisk, StoreFile};
use super::error::FsStoreError;
use outboard_mem::{SharedRegion, Space};
use std::io::IoSlice;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"obfsckp1";
/// The number of a store's first checkpoint.
pub(super) const FIRST: u64 = 0;
const HEAD: usize = 40;
const CHUNK_HEAD: usize = 16;
const END_HEAD: usize = 32;
const HASH: usize = 32;
/// What an end has for an offset.
const END: u64 = u64::MAX;
/// Bytes of a chunk, at most.
pub(super) const CHUNK_MAX: usize = 1 << 20;

/// Whether the store was closed when a checkpoint was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointEnding {
    /// No: commits went on.
    UnderWay,
    /// Yes: nothing followed.
    Orderly,
}

/// What a whole checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Its number: each has one more than the one before.
    pub number: u64,
    /// The last commit that is in it.
    pub seq: u64,
    /// Whether the store was closed then.
    pub ending: CheckpointEnding,
    /// Bytes of its file.
    pub len: u64,
}

/// The file of a checkpoint.
pub(super) fn name(number: u64) -> String {
    format!("checkpoint.{}", number % 2)
}

/// Writes one.
#[derive(Debug)]
pub struct CheckpointWriter {
    name: String,
    file: Arc<dyn StoreFile>,
    number: u64,
    key: [u8; 32],
    at: u64,
    chunks: u64,
    hashes: blake3::Hasher,
}

impl CheckpointWriter {
    /// Begins one of a store and a region of so many bytes. What its file held is gone.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn begin(
        disk: &dyn StoreDisk,
        store: (&[u8; 16], u64),
        number: u64,
    ) -> Result<Self, FsStoreError> {
        let name = name(number);
        let file = disk.create(&name).map_err(|source| FsStoreError::of(&name, source))?;
        disk.sync().map_err(|source| FsStoreError::of(&name, source))?;
        Self::on((&name, file), store, number)
    }

    /// As [`begin`](Self::begin), in a file that errors call so.
    pub(super) fn on(
        (name, file): (&str, Arc<dyn StoreFile>),
        store: (&[u8; 16], u64),
        number: u64,
    ) -> Result<Self, FsStoreError> {
        let (name, salt) = (name.to_owned(), random()?);
        let key = key(store.0, &salt);
        let hashes = blake3::Hasher::new_keyed(&key);
        let mut writer = Self { name, file, number, key, at: 0, chunks: 0, hashes };
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&number.to_le_bytes());
        head[16..32].copy_from_slice(&salt);
        head[32..].copy_from_slice(&store.1.to_le_bytes());
        writer.put(&head, &[])?;
        Ok(writer)
    }

    /// Adds bytes of the region, over what was added before.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn chunk(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FsStoreError> {
        for (index, part) in bytes.chunks(CHUNK_MAX).enumerate() {
            let offset = offset + (index * CHUNK_MAX) as u64;
            let mut head = [0; CHUNK_HEAD];
            head[..8].copy_from_slice(&offset.to_le_bytes());
            head[8..].copy_from_slice(&(part.len() as u64).to_le_bytes());
            self.put(&head, part)?;
            self.chunks += 1;
        }
        Ok(())
    }

    /// Ends it, and returns when it outlives a power cut.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn finish(
        mut self,
        seq: u64,
        ending: CheckpointEnding,
    ) -> Result<CheckpointSummary, FsStoreError> {
        let orderly = u64::from(ending == CheckpointEnding::Orderly);
        let mut head = [0; END_HEAD];
        for (word, place) in [END, self.chunks, seq, orderly].iter().zip(head.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // The hash of the end is that of all hashes before it, too.
        let before = *self.hashes.finalize().as_bytes();
        let hash = *keyed(&self.key, &head, &before).as_bytes();
        self.write(&mut [IoSlice::new(&head), IoSlice::new(&hash)])?;
        let failed = |source| FsStoreError::of(&self.name, source);
        // What an older one has left behind the end is not read: its place is for the next one.
        self.file.sync().map_err(failed)?;
        Ok(CheckpointSummary { number: self.number, seq, ending, len: self.at })
    }

    fn put(&mut self, head: &[u8], bytes: &[u8]) -> Result<(), FsStoreError> {
        let hash = *keyed(&self.key, head, bytes).as_bytes();
        self.hashes.update(&hash);
        self.write(&mut [IoSlice::new(head), IoSlice::new(&hash), IoSlice::new(bytes)])
    }

    fn write(&mut self, parts: &mut [IoSlice<'_>]) -> Result<(), FsStoreError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let written = self.file.write_at(parts, self.at);
        self.at += len as u64;
        written.map_err(|source| FsStoreError::of(&self.name, source))
    }
}

/// Sees to it that a checkpoint which is written later finds so much space, if there is so much.
pub(super) fn reserve(disk: &dyn StoreDisk, number: u64, len: u64) -> Result<(), FsStoreError> {
    let name = name(number);
    let reserved = disk.create(&name).and_then(|file| match file.len()? < len {
        true => file.allocate(len),
        false => Ok(()),
    });
    match reserved.map_err(|source| FsStoreError::of(&name, source)) {
        Err(FsStoreError::NoSpace { .. }) => Ok(()),
        other => other,
    }
}

/// Reads a checkpoint's file into new memory. `Ok(None)` if there is no whole one, and why.
///
/// # Errors
/// [`FsStoreError::Memory`].
pub(super) fn load(
    disk: &dyn StoreDisk,
    store: (&[u8; 16], u64),
    name: &str,
) -> Result<Result<(CheckpointSummary, SharedRegion), FsStoreError>, FsStoreError> {
    let len = usize::try_from(store.1).unwrap_or(usize::MAX);
    let memory = SharedRegion::memfd(c"outboard-region", len, Space::OnDemand)?;
    let read = || -> Result<CheckpointSummary, FsStoreError> {
        CheckpointReader::open(disk, name)?.all(store, &memory)
    };
    Ok(read().map(|summary| (summary, memory)))
}

/// Reads a checkpoint that must be whole.
///
/// # Errors
/// [`FsStoreError`].
pub(super) fn load_file(
    (name, file): (&str, Arc<dyn StoreFile>),
    store: (&[u8; 16], u64),
) -> Result<SharedRegion, FsStoreError> {
    let len = usize::try_from(store.1).unwrap_or(usize::MAX);
    let memory = SharedRegion::memfd(c"outboard-region", len, Space::OnDemand)?;
    CheckpointReader::of(name, file)?.all(store, &memory)?;
    Ok(memory)
}

/// The number of a checkpoint, of which no more than the head is read.
pub(super) fn peek(
    disk: &dyn StoreDisk,
    store: (&[u8; 16], u64),
    name: &str,
) -> Result<u64, FsStoreError> {
    Ok(CheckpointReader::open(disk, name)?.begin(store)?.0)
}

struct CheckpointReader<'a> {
    name: &'a str,
    file: Arc<dyn StoreFile>,
    at: u64,
    end: u64,
}

impl<'a> CheckpointReader<'a> {
    fn open(disk: &dyn StoreDisk, name: &'a str) -> Result<Self, FsStoreError> {
        let file = disk.open(name).map_err(|source| FsStoreError::of(name, source))?;
        Self::of(name, file)
    }

    fn of(name: &'a str, file: Arc<dyn StoreFile>) -> Result<Self, FsStoreError> {
        let end = file.len().map_err(|source| FsStoreError::of(name, source))?;
        Ok(Self { name, file, at: 0, end })
    }

    fn all(
        &mut self,
        store: (&[u8; 16], u64),
        memory: &SharedRegion,
    ) -> Result<CheckpointSummary, FsStoreError> {
        let (number, key, mut hashes) = self.begin(store)?;
        let (mut buffer, mut chunks) = (vec![0; CHUNK_MAX], 0);
        loop {
            let mut head = [0; CHUNK_HEAD];
            self.read(&mut head)?;
            if word(&head, 0) == END {
                return self.ending(&key, (number, chunks, word(&head, 1)), &hashes);
            }
            let bytes = self.chunk(&key, &head, &mut buffer, &mut hashes)?;
            let offset = usize::try_from(word(&head, 0)).unwrap_or(usize::MAX);
            memory.copy_in(offset, bytes)?;
            chunks += 1;
        }
    }

    /// Reads the head.
    fn begin(
        &mut self,
        (uuid, region_len): (&[u8; 16], u64),
    ) -> Result<(u64, [u8; 32], blake3::Hasher), FsStoreError> {
        let mut head = [0; HEAD];
        self.read(&mut head)?;
        let salt = head[16..].first_chunk().copied().unwrap_or_default();
        let (key, number) = (key(uuid, &salt), word(&head, 1));
        if head[..8] != MAGIC || word(&head, 4) != region_len {
            return Err(self.damaged("its head is none of this store's"));
        }
        let mut hashes = blake3::Hasher::new_keyed(&key);
        self.check(&key, &head, &[], &mut hashes)?;
        Ok((number, key, hashes))
    }

    fn chunk<'b>(
        &mut self,
        key: &[u8; 32],
        head: &[u8; CHUNK_HEAD],
        buffer: &'b mut [u8],
        hashes: &mut blake3::Hasher,
    ) -> Result<&'b [u8], FsStoreError> {
        let len = usize::try_from(word(head, 1)).ok();
        let Some(bytes) = len.and_then(|len| buffer.get_mut(..len)) else {
            return Err(self.damaged("a chunk is too long"));
        };
        // The hash is before the bytes.
        let at = self.at;
        self.at += HASH as u64;
        self.read(bytes)?;
        let behind = std::mem::replace(&mut self.at, at);
        self.check(key, head, bytes, hashes)?;
        self.at = behind;
        Ok(bytes)
    }

    fn ending(
        &mut self,
        key: &[u8; 32],
        (number, chunks, told): (u64, u64, u64),
        hashes: &blake3::Hasher,
    ) -> Result<CheckpointSummary, FsStoreError> {
        let mut rest = [0; END_HEAD - CHUNK_HEAD];
        self.read(&mut rest)?;
        let (seq, orderly) = (word(&rest, 0), word(&rest, 1));
        let mut head = [0; END_HEAD];
        for (word, place) in [END, told, seq, orderly].iter().zip(head.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let before = *hashes.finalize().as_bytes();
        self.check(key, &head, &before, &mut blake3::Hasher::new())?;
        if chunks != told || orderly > 1 {
            return Err(self.damaged("its end is that of another one"));
        }
        let ending =
            if orderly == 1 { CheckpointEnding::Orderly } else { CheckpointEnding::UnderWay };
        Ok(CheckpointSummary { number, seq, ending, len: self.at })
    }

    /// Reads the hash that is next, and compares it.
    fn check(
        &mut self,
        key: &[u8; 32],
        head: &[u8],
        bytes: &[u8],
        hashes: &mut blake3::Hasher,
    ) -> Result<(), FsStoreError> {
        let mut hash = [0; HASH];
        self.read(&mut hash)?;
        hashes.update(&hash);
        match *keyed(key, head, bytes).as_bytes() == hash {
            true => Ok(()),
            false => Err(self.damaged("a hash is another one")),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), FsStoreError> {
        let end = self.at + into.len() as u64;
        if end > self.end {
            return Err(self.damaged("it ends before its end"));
        }
        let read = self.file.read_at(into, self.at);
        self.at = end;
        read.map_err(|source| FsStoreError::of(self.name, source))
    }

    fn damaged(&self, what: &str) -> FsStoreError {
        FsStoreError::damaged(self.name, format!("{what}, at byte {}", self.at))
    }
}

fn key(store: &[u8; 16], salt: &[u8; 16]) -> [u8; 32] {
    let mut deriving = blake3::Hasher::new_derive_key("outboard fs 2026 checkpoint");
    deriving.update(store).update(salt);
    *deriving.finalize().as_bytes()
}

fn keyed(key: &[u8; 32], head: &[u8], bytes: &[u8]) -> blake3::Hash {
    blake3::Hasher::new_keyed(key).update(head).update(bytes).finalize()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes
        .get(index * 8..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |word| u64::from_le_bytes(*word))
}
