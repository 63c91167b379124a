//! Errors of headers, runs and chunks. Which peer is at fault the caller knows: it is the one that
//! has sent the bytes.

use super::shape::CHUNKS_MAX;

/// Why bytes are not genuine, or cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// This machine: no random numbers, hence no key.
    #[error("this machine gives no random numbers: no key can be made for a cast")]
    NoEntropy,
    /// Caller: a chunk length that is not possible.
    #[error("a chunk of {len} bytes: give a power of two from 4 KiB to 64 MiB")]
    ChunkLen {
        /// What was asked for.
        len: u64,
    },
    /// Source: lengths that do not fit together.
    #[error(
        "a stream of {stream_len} bytes, {manifest_len} of them its manifest, in chunks of \
         {chunk_len}: the manifest is its beginning, and there are at most {CHUNKS_MAX} chunks"
    )]
    Shape {
        /// Bytes in the stream.
        stream_len: u64,
        /// Bytes in the manifest.
        manifest_len: u64,
        /// Bytes in a chunk.
        chunk_len: u32,
    },
    /// Peer: bytes that are no header.
    #[error("the peer sent {len} bytes that are no header of a cast")]
    MalformedHeader {
        /// How many.
        len: usize,
    },
    /// Source: another version.
    #[error("the header has version {found}, this side reads {own}: install the same release")]
    Version {
        /// The header's version.
        found: u8,
        /// What this side reads.
        own: u8,
    },
    /// Peer: a header that the cast's key has not signed.
    #[error(
        "the peer's header is not signed with this cast's key: it is forged, or another cast's"
    )]
    ForgedHeader,
    /// Peer: bytes that are no run.
    #[error("the peer sent {len} bytes that are no run of chunk hashes")]
    MalformedRun {
        /// How many.
        len: usize,
    },
    /// Peer: a run that this cast does not have.
    #[error("the peer sent run {run} of a cast that has {runs}")]
    NoSuchRun {
        /// The run's index.
        run: u32,
        /// How many there are.
        runs: u32,
    },
    /// Peer: a run with fewer or more hashes than it has chunks.
    #[error(
        "the peer's run {run} has {found} hashes, its part of the stream has {expected} chunks"
    )]
    RunLength {
        /// The run's index.
        run: u32,
        /// Hashes that were sent.
        found: usize,
        /// Chunks in this run.
        expected: u32,
    },
    /// Peer: a run that the cast's key has not signed for this place.
    #[error(
        "the peer's run {run} is not signed with this cast's key: forged, moved or another cast's"
    )]
    ForgedRun {
        /// The run's index.
        run: u32,
    },
    /// Peer or caller: no such chunk.
    #[error("chunk {chunk} of a stream that has {chunks}")]
    NoSuchChunk {
        /// The chunk's index.
        chunk: u32,
        /// How many there are.
        chunks: u32,
    },
    /// Not a fault: the chunk came before its run.
    #[error("chunk {chunk} cannot be checked before run {run} has come: fetch that first")]
    NoRunYet {
        /// The chunk's index.
        chunk: u32,
        /// The run with its hash.
        run: u32,
    },
    /// Peer: a chunk of the wrong length.
    #[error("the peer's chunk {chunk} has {found} bytes, not {expected}")]
    ChunkLength {
        /// The chunk's index.
        chunk: u32,
        /// Bytes that were sent.
        found: usize,
        /// Bytes that it has.
        expected: usize,
    },
    /// Peer: changed bytes.
    #[error("the peer's chunk {chunk} is not what the source has signed: fetch it from another")]
    WrongHash {
        /// The chunk's index.
        chunk: u32,
    },
    /// Caller: hashes beyond the last chunk.
    #[error("caller signs more than the {chunks} chunks of the stream")]
    TooManyChunks {
        /// How many there are.
        chunks: u32,
    },
}
