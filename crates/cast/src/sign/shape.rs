//! How long a cast's stream is, and how it is cut into chunks and runs.

use super::error::SignError;
use std::ops::Range;

/// Chunk hashes in a run, at most.
pub const RUN_CHUNKS: u32 = 1024;
/// Runs that are shorter than that: the first has one hash, each that follows twice as many as the
/// one before it, so that the first chunks can be checked long before the last ones are hashed.
const SHORT_RUNS: u32 = RUN_CHUNKS.ilog2();
/// Chunks in a cast, at most: 64 TiB at 1 MiB each. Their hashes take 2 GiB, their bitmap 8 MiB.
pub const CHUNKS_MAX: u32 = 1 << 26;

/// Bytes in every chunk but the last: a power of two from 4 KiB to 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLen(u32);

impl ChunkLen {
    /// The shortest, bytes.
    pub const MIN: u32 = 4 << 10;
    /// The longest, bytes.
    pub const MAX: u32 = 64 << 20;

    /// A chunk length in bytes.
    ///
    /// # Errors
    /// [`SignError::ChunkLen`].
    pub fn new(len: u32) -> Result<Self, SignError> {
        let is_legal = len.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&len);
        if is_legal { Ok(Self(len)) } else { Err(SignError::ChunkLen { len: u64::from(len) }) }
    }

    /// What suits a cast: about 512 chunks, so that the last relay of a chain begins early, of
    /// 128 KiB to 1 MiB, because shorter ones cost more processor time a byte and longer ones fill
    /// a window with few. It does not depend on the nodes: a cast to others resumes this one's.
    #[must_use]
    pub fn for_cast(stream_len: u64) -> Self {
        let len = (stream_len / 512).clamp(128 << 10, 1 << 20).ilog2();
        Self(1 << len)
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// How many chunks a stream has; no more than a `u32` can tell.
    #[must_use]
    pub fn chunks_in(self, stream_len: u64) -> u32 {
        u32::try_from(stream_len.div_ceil(u64::from(self.0))).unwrap_or(u32::MAX)
    }

    /// The chunks that a part of an endless stream lies in.
    pub(crate) fn chunks_over(self, range: Range<u64>) -> Range<u32> {
        let len = u64::from(self.bytes());
        let number = |chunk: u64| u32::try_from(chunk).unwrap_or(u32::MAX);
        number(range.start / len)..number(range.end.div_ceil(len))
    }

    /// Where a chunk lies in an endless stream.
    #[must_use]
    pub fn range_of(self, chunk: u32) -> Range<u64> {
        let at = u64::from(chunk) * u64::from(self.0);
        at..at + u64::from(self.0)
    }
}

impl Default for ChunkLen {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// The lengths of a cast, which fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamShape {
    chunk_len: ChunkLen,
    manifest_len: u64,
    stream_len: u64,
}

impl StreamShape {
    /// Lengths in bytes; the stream begins with the manifest.
    ///
    /// # Errors
    /// [`SignError::Shape`].
    pub fn new(chunk_len: ChunkLen, manifest_len: u64, stream_len: u64) -> Result<Self, SignError> {
        let is_legal = manifest_len > 0
            && manifest_len <= stream_len
            && stream_len.div_ceil(u64::from(chunk_len.0)) <= u64::from(CHUNKS_MAX);
        if !is_legal {
            return Err(SignError::Shape { stream_len, manifest_len, chunk_len: chunk_len.0 });
        }
        Ok(Self { chunk_len, manifest_len, stream_len })
    }

    /// Bytes in a chunk.
    #[must_use]
    pub fn chunk_len(&self) -> ChunkLen {
        self.chunk_len
    }

    /// Bytes in the manifest.
    #[must_use]
    pub fn manifest_len(&self) -> u64 {
        self.manifest_len
    }

    /// Bytes in the stream, the manifest included.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.stream_len
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunk_len.chunks_in(self.stream_len)
    }

    /// How many of them have bytes of the manifest: the first ones.
    #[must_use]
    pub fn manifest_chunks(&self) -> u32 {
        self.chunk_len.chunks_in(self.manifest_len)
    }

    /// Where a chunk lies in the stream; empty for one that there is not.
    #[must_use]
    pub fn range_of(&self, chunk: u32) -> Range<u64> {
        let range = self.chunk_len.range_of(chunk);
        range.start.min(self.stream_len)..range.end.min(self.stream_len)
    }

    /// Bytes in a chunk.
    #[must_use]
    pub fn len_of(&self, chunk: u32) -> usize {
        let range = self.range_of(chunk);
        usize::try_from(range.end - range.start).unwrap_or(0)
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.chunks().checked_sub(1).map_or(0, |last| Self::run_of(last) + 1)
    }

    /// The run with the hash of a chunk.
    #[must_use]
    pub fn run_of(chunk: u32) -> u32 {
        match chunk.checked_sub(RUN_CHUNKS - 1) {
            Some(beyond) => SHORT_RUNS + beyond / RUN_CHUNKS,
            None => (chunk + 1).ilog2(),
        }
    }

    /// The chunks of a run; none for one that there is not.
    #[must_use]
    pub fn chunks_of(&self, run: u32) -> Range<u32> {
        let chunks = self.chunks();
        run_start(run).min(chunks)..run_start(run.saturating_add(1)).min(chunks)
    }
}

/// The first chunk of a run.
fn run_start(run: u32) -> u32 {
    match run.checked_sub(SHORT_RUNS) {
        Some(full) => full.saturating_mul(RUN_CHUNKS).saturating_add(RUN_CHUNKS - 1),
        None => (1 << run) - 1,
    }
}
