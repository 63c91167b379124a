//! The verifying side: the hashes that have come, and the check of every chunk against them.

use super::bytes::ChunkBytes;
use super::error::SignError;
use super::header::{CastHeader, CastHeaderId};
use super::key::CastPublicKey;
use super::run::{self, ChunkHash, HASH_LEN};
use super::shape::StreamShape;
use outboard_verbs::SharedSlice;
use std::sync::OnceLock;

/// A signed run as it came, to be passed on.
#[derive(Debug)]
struct KnownRun {
    bytes: Box<[u8]>,
    hashes_at: usize,
}

/// A chunk that is what the source has signed.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedChunk<'b> {
    header: CastHeaderId,
    chunk: u32,
    bytes: ChunkBytes<'b>,
}

impl<'b> VerifiedChunk<'b> {
    /// The header of its cast.
    #[must_use]
    pub fn header(&self) -> CastHeaderId {
        self.header
    }

    /// Which chunk.
    #[must_use]
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> ChunkBytes<'b> {
        self.bytes
    }
}

/// A chunk in registered memory that is what the source has signed, and that no peer can write any
/// more.
#[derive(Clone, Debug)]
pub struct VerifiedMemory {
    header: CastHeaderId,
    chunk: u32,
    memory: SharedSlice,
}

impl VerifiedMemory {
    /// The chunk.
    #[must_use]
    pub fn as_chunk(&self) -> VerifiedChunk<'_> {
        let bytes = ChunkBytes::Shared(&self.memory);
        VerifiedChunk { header: self.header, chunk: self.chunk, bytes }
    }
}

/// The header of a cast and the runs of hashes that have come so far, all verified. Shared by
/// threads. Takes 32 bytes a chunk.
#[derive(Debug)]
pub struct ChunkHashes {
    key: CastPublicKey,
    header: CastHeader,
    header_bytes: Box<[u8]>,
    id: CastHeaderId,
    runs: Box<[OnceLock<KnownRun>]>,
}

impl ChunkHashes {
    /// Begins with a signed header.
    ///
    /// # Errors
    /// [`SignError`]: the peer's fault, or the source's.
    pub fn new(header: &[u8], key: CastPublicKey) -> Result<Self, SignError> {
        let header_bytes = header.into();
        let header = CastHeader::verify(header, &key)?;
        let runs = (0..header.shape.runs()).map(|_| OnceLock::new()).collect();
        Ok(Self { key, header, header_bytes, id: header.id(), runs })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &CastHeader {
        &self.header
    }

    /// What names the header.
    #[must_use]
    pub fn id(&self) -> CastHeaderId {
        self.id
    }

    /// The header as it came, to be passed on.
    #[must_use]
    pub fn signed_header(&self) -> &[u8] {
        &self.header_bytes
    }

    /// Takes a signed run, in any order; returns its index. One that is known already changes
    /// nothing.
    ///
    /// # Errors
    /// [`SignError`]: the peer's fault.
    pub fn add_run(&self, bytes: &[u8]) -> Result<u32, SignError> {
        let (run, hashes) = run::verify(bytes, &self.key, self.id, &self.header.shape)?;
        let hashes_at = bytes.len() - super::key::SIGNATURE_LEN - hashes.len();
        if let Some(slot) = self.runs.get(run as usize) {
            slot.get_or_init(|| KnownRun { bytes: bytes.into(), hashes_at });
        }
        Ok(run)
    }

    /// A signed run as it came, to be passed on.
    #[must_use]
    pub fn signed_run(&self, run: u32) -> Option<&[u8]> {
        self.runs.get(run as usize)?.get().map(|known| &*known.bytes)
    }

    /// The hash of a chunk, if its run has come.
    #[must_use]
    pub fn hash(&self, chunk: u32) -> Option<ChunkHash> {
        if chunk >= self.header.shape.chunks() {
            return None;
        }
        let run = StreamShape::run_of(chunk);
        let known = self.runs.get(run as usize)?.get()?;
        let before = chunk - self.header.shape.chunks_of(run).start;
        let at = known.hashes_at + before as usize * HASH_LEN;
        known.bytes.get(at..)?.first_chunk::<HASH_LEN>().map(|hash| ChunkHash(*hash))
    }

    /// The chunk of these bytes, if it is what the source has signed.
    ///
    /// # Errors
    /// [`SignError`]: the peer's fault, but [`SignError::NoRunYet`].
    pub fn verify<'b>(&self, chunk: u32, bytes: &'b [u8]) -> Result<VerifiedChunk<'b>, SignError> {
        self.check(chunk, bytes.into())?;
        Ok(VerifiedChunk { header: self.id, chunk, bytes: bytes.into() })
    }

    /// As [`Self::verify`], of memory that peers could write: their access must have ended.
    ///
    /// # Errors
    /// As there.
    pub fn verify_memory(
        &self,
        chunk: u32,
        memory: SharedSlice,
    ) -> Result<VerifiedMemory, SignError> {
        self.check(chunk, ChunkBytes::Shared(&memory))?;
        Ok(VerifiedMemory { header: self.id, chunk, memory })
    }

    fn check(&self, chunk: u32, bytes: ChunkBytes<'_>) -> Result<(), SignError> {
        let shape = &self.header.shape;
        if chunk >= shape.chunks() {
            return Err(SignError::NoSuchChunk { chunk, chunks: shape.chunks() });
        }
        let (found, expected) = (bytes.len(), shape.len_of(chunk));
        if found != expected {
            return Err(SignError::ChunkLength { chunk, found, expected });
        }
        match self.hash(chunk) {
            None => Err(SignError::NoRunYet { chunk, run: StreamShape::run_of(chunk) }),
            Some(hash) if bytes.hash() == Some(hash) => Ok(()),
            Some(_) => Err(SignError::WrongHash { chunk }),
        }
    }
}
