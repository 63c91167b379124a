//! The signing side: hashes go in one after the other, signed runs come out.

use super::error::SignError;
use super::header::{CastHeader, CastHeaderId};
use super::key::{CastKey, CastPublicKey, SIGNATURE_LEN};
use super::shape::{RUN_CHUNKS, StreamShape};

/// What every signature of a run begins with, so that it can be none of anything else.
const RUN_CONTEXT: &[u8] = b"outboard cast run 1\0";
/// Bytes in a chunk's hash.
pub(super) const HASH_LEN: usize = 32;
/// Bytes of the run's index, little-endian, before its hashes.
const INDEX_LEN: usize = 4;
/// Bytes in a signed run, at most.
pub const RUN_BYTES_MAX: usize = INDEX_LEN + RUN_CHUNKS as usize * HASH_LEN + SIGNATURE_LEN;

/// BLAKE3 of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHash(pub(super) [u8; HASH_LEN]);

impl ChunkHash {
    /// Of these bytes.
    #[must_use]
    pub fn of(chunk: &[u8]) -> Self {
        Self(blake3::hash(chunk).into())
    }
}

/// Signs runs of one cast in order.
#[derive(Debug)]
pub struct RunSigner<'k> {
    key: &'k CastKey,
    header: CastHeaderId,
    shape: StreamShape,
    signed: u32,
    body: Vec<u8>,
}

impl<'k> RunSigner<'k> {
    /// For a cast's chunks from the first.
    #[must_use]
    pub fn new(key: &'k CastKey, header: &CastHeader) -> Self {
        let body = 0_u32.to_le_bytes().to_vec();
        Self { key, header: header.id(), shape: header.shape, signed: 0, body }
    }

    /// Takes the next chunk's hash; returns a signed run when it has its last.
    ///
    /// # Errors
    /// [`SignError::TooManyChunks`]: the caller's fault.
    pub fn push(&mut self, hash: ChunkHash) -> Result<Option<Vec<u8>>, SignError> {
        let (chunks, expected) = (self.shape.chunks(), self.shape.chunks_of(self.signed).len());
        if expected == 0 {
            return Err(SignError::TooManyChunks { chunks });
        }
        self.body.extend_from_slice(&hash.0);
        if self.body.len() < INDEX_LEN + expected * HASH_LEN {
            return Ok(None);
        }
        self.signed += 1;
        let next = self.signed.to_le_bytes().to_vec();
        let body = std::mem::replace(&mut self.body, next);
        Ok(Some(self.key.sign(&context(self.header), body)))
    }
}

/// The index and the hashes of a signed run, if it belongs to this cast and `key` has signed it.
pub(super) fn verify<'b>(
    bytes: &'b [u8],
    key: &CastPublicKey,
    header: CastHeaderId,
    shape: &StreamShape,
) -> Result<(u32, &'b [u8]), SignError> {
    let malformed = || SignError::MalformedRun { len: bytes.len() };
    let (body, signature) = bytes.split_last_chunk::<SIGNATURE_LEN>().ok_or_else(malformed)?;
    let (index, hashes) = body.split_first_chunk::<INDEX_LEN>().ok_or_else(malformed)?;
    if bytes.len() > RUN_BYTES_MAX || !hashes.len().is_multiple_of(HASH_LEN) {
        return Err(malformed());
    }
    let (run, runs) = (u32::from_le_bytes(*index), shape.runs());
    if run >= runs {
        return Err(SignError::NoSuchRun { run, runs });
    }
    let chunks = shape.chunks_of(run);
    let (found, expected) = (hashes.len() / HASH_LEN, chunks.end - chunks.start);
    if u32::try_from(found) != Ok(expected) {
        return Err(SignError::RunLength { run, found, expected });
    }
    match key.has_signed(&context(header), body, signature) {
        true => Ok((run, hashes)),
        false => Err(SignError::ForgedRun { run }),
    }
}

fn context(header: CastHeaderId) -> Vec<u8> {
    [RUN_CONTEXT, &header.0].concat()
}
