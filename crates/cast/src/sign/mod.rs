//! Which chunks are genuine: a key made for one cast signs a header and runs of chunk hashes.
//!
//! A chunk's name is its BLAKE3 hash. Runs of hashes are signed (Ed25519) as soon as they are
//! known, so that sending starts before hashing ends: the first run has one hash, each that follows
//! twice as many as the one before it, and from the eleventh on each has 1,024. Each signature
//! covers the header, hence the cast, the lengths and the manifest, and the run's place: a run of
//! another cast, of another place, or shortened is refused. Receivers are given the public key by
//! what started the cast, never by a relay.
//!
//! Modules in reading order: `shape` (lengths, chunks and runs), `key`, `header`, `run` (the
//! signing side), `hashes` (the verifying side).

mod bytes;
mod error;
mod hashes;
mod header;
mod key;
mod run;
mod shape;

#[cfg(test)]
mod tests;

pub use bytes::ChunkBytes;
pub(crate) use bytes::write_all_at;
pub use error::SignError;
pub use hashes::{ChunkHashes, VerifiedChunk, VerifiedMemory};
pub use header::{CastHeader, CastHeaderId, CastId, HEADER_BYTES_MAX};
pub(crate) use key::random;
pub use key::{CastKey, CastPublicKey};
pub use run::{ChunkHash, RUN_BYTES_MAX, RunSigner};
pub use shape::{CHUNKS_MAX, ChunkLen, RUN_CHUNKS, StreamShape};
