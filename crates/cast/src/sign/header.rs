//! The header of a cast: its id, its lengths and its manifest's hash, signed.

use super::error::SignError;
use super::key::{CastKey, CastPublicKey, SIGNATURE_LEN, random};
use super::shape::{ChunkLen, StreamShape};
use serde::{Deserialize, Serialize};
use std::fmt;

const VERSION: u8 = 1;
/// What every signature of a header begins with, so that it can be none of anything else.
const HEADER_CONTEXT: &[u8] = b"outboard cast header 1\0";
/// Bytes in a signed header, at most.
pub const HEADER_BYTES_MAX: usize = 192;

/// Names one cast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CastId([u8; 16]);

impl CastId {
    /// A random one.
    ///
    /// # Errors
    /// [`SignError::NoEntropy`].
    pub fn random() -> Result<Self, SignError> {
        random().map(Self)
    }
}

impl fmt::Debug for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What every signature of a run covers: the hash of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastHeaderId(pub(super) [u8; 32]);

/// What is known of a cast before its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastHeader {
    /// Which cast.
    pub cast: CastId,
    /// Its lengths.
    pub shape: StreamShape,
    /// BLAKE3 of its manifest.
    pub manifest_hash: [u8; 32],
}

/// The header as it is encoded.
#[derive(Serialize, Deserialize)]
struct HeaderBody {
    version: u8,
    cast: CastId,
    chunk_len: u32,
    manifest_len: u64,
    stream_len: u64,
    manifest_hash: [u8; 32],
}

impl CastHeader {
    /// For a manifest and a stream of this length, with a new id.
    ///
    /// # Errors
    /// [`SignError::Shape`], [`SignError::NoEntropy`].
    pub fn new(manifest: &[u8], stream_len: u64, chunk_len: ChunkLen) -> Result<Self, SignError> {
        let shape = StreamShape::new(chunk_len, manifest.len() as u64, stream_len)?;
        let manifest_hash = blake3::hash(manifest).into();
        Ok(Self { cast: CastId::random()?, shape, manifest_hash })
    }

    /// What signatures of runs cover.
    #[must_use]
    pub fn id(&self) -> CastHeaderId {
        CastHeaderId(blake3::hash(&self.encode()).into())
    }

    /// The header with its signature, as it is sent.
    #[must_use]
    pub fn sign(&self, key: &CastKey) -> Vec<u8> {
        key.sign(HEADER_CONTEXT, self.encode())
    }

    /// The header of these bytes, if `key` has signed it.
    ///
    /// # Errors
    /// [`SignError`]: the peer's fault, or the source's.
    pub fn verify(bytes: &[u8], key: &CastPublicKey) -> Result<Self, SignError> {
        let malformed = SignError::MalformedHeader { len: bytes.len() };
        if bytes.len() > HEADER_BYTES_MAX {
            return Err(malformed);
        }
        let split = bytes.split_last_chunk::<SIGNATURE_LEN>();
        let (body, signature) = split.ok_or_else(|| malformed.clone())?;
        if !key.has_signed(HEADER_CONTEXT, body, signature) {
            return Err(SignError::ForgedHeader);
        }
        match body.first() {
            Some(&VERSION) => decode(body).ok_or(malformed)?,
            Some(&found) => Err(SignError::Version { found, own: VERSION }),
            None => Err(malformed),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let body = HeaderBody {
            version: VERSION,
            cast: self.cast,
            chunk_len: self.shape.chunk_len().bytes(),
            manifest_len: self.shape.manifest_len(),
            stream_len: self.shape.stream_len(),
            manifest_hash: self.manifest_hash,
        };
        postcard::to_stdvec(&body).expect("a header is plain data")
    }
}

fn decode(body: &[u8]) -> Option<Result<CastHeader, SignError>> {
    let (body, []) = postcard::take_from_bytes::<HeaderBody>(body).ok()? else { return None };
    let shape = ChunkLen::new(body.chunk_len)
        .and_then(|chunk_len| StreamShape::new(chunk_len, body.manifest_len, body.stream_len));
    let header = |shape| CastHeader { cast: body.cast, shape, manifest_hash: body.manifest_hash };
    Some(shape.map(header))
}
