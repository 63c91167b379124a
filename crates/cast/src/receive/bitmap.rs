//! Which chunks are held: one word for 64 chunks, that others may read while it changes, this
//! process's threads as well as nodes that are allowed to read the memory.

use outboard_verbs::{MemError, SharedRegion};
use std::sync::atomic::{AtomicU32, Ordering};

/// Chunks in a word.
const WORD_CHUNKS: u32 = 64;

/// A bit for each chunk. A bit is set after the chunk's bytes are where they belong, so that a
/// reader that sees the bit finds the bytes.
#[derive(Debug)]
pub struct ChunkBitmap {
    /// Words of eight bytes, the lowest byte first.
    words: SharedRegion,
    chunks: u32,
    held: AtomicU32,
}

impl ChunkBitmap {
    /// For this many chunks, none of them held.
    ///
    /// # Errors
    /// This machine has no memory for it.
    pub fn new(chunks: u32) -> Result<Self, MemError> {
        let words = SharedRegion::zeroed(Self::bytes(chunks))?;
        Ok(Self { words, chunks, held: AtomicU32::new(0) })
    }

    /// The bytes of the bitmap of some chunks.
    #[must_use]
    pub fn bytes(chunks: u32) -> usize {
        chunks.div_ceil(WORD_CHUNKS) as usize * 8
    }

    /// The words' memory: chunk 0 is the lowest bit of the first byte.
    #[must_use]
    pub fn memory(&self) -> &SharedRegion {
        &self.words
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Acquire)
    }

    /// Whether a chunk is held.
    #[must_use]
    pub fn is_held(&self, chunk: u32) -> bool {
        self.word(chunk) & bit(chunk) != 0
    }

    /// Notes that a chunk is held; returns whether it was not before.
    pub(super) fn set(&self, chunk: u32) -> bool {
        let set = |word: u64| (u64::from_le(word) | bit(chunk)).to_le();
        let before = self.words.fetch_update_u64(at(chunk), set);
        let is_new = before.is_ok_and(|word| u64::from_le(word) & bit(chunk) == 0);
        if is_new {
            self.held.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    /// The word that a chunk is in; 0 if there is no such chunk.
    fn word(&self, chunk: u32) -> u64 {
        self.words.load_u64(at(chunk)).map_or(0, u64::from_le)
    }

    /// The word of a chunk as it is to lie on disk beside what was `left` there, and where.
    pub(super) fn saved_word(&self, chunk: u32, left: &SavedBitmap) -> ([u8; 8], u64) {
        let value = self.word(chunk) | left.word(chunk);
        (value.to_le_bytes(), at(chunk) as u64)
    }

    /// All words as they lie on disk.
    pub(super) fn saved(&self) -> Vec<u8> {
        let chunks = (0..self.chunks).step_by(WORD_CHUNKS as usize);
        chunks.flat_map(|chunk| self.word(chunk).to_le_bytes()).collect()
    }
}

/// Chunks that a broken cast had received, by its own account.
#[derive(Debug, Default)]
pub(super) struct SavedBitmap {
    words: Vec<u64>,
}

impl SavedBitmap {
    /// From the bytes on disk, of whatever length.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        Self { words: words.collect() }
    }

    pub(super) fn has(&self, chunk: u32) -> bool {
        self.word(chunk) & bit(chunk) != 0
    }

    fn word(&self, chunk: u32) -> u64 {
        self.words.get((chunk / WORD_CHUNKS) as usize).copied().unwrap_or(0)
    }
}

/// Where a chunk's word is, in bytes.
fn at(chunk: u32) -> usize {
    (chunk / WORD_CHUNKS) as usize * 8
}

fn bit(chunk: u32) -> u64 {
    1 << (chunk % WORD_CHUNKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_once_and_saved() {
        let bitmap = ChunkBitmap::new(130).expect("memory");
        assert!(bitmap.set(0) && bitmap.set(64) && bitmap.set(129));
        assert!(!bitmap.set(64));
        assert_eq!((bitmap.held(), bitmap.memory().len()), (3, 24));
        assert!(bitmap.is_held(129) && !bitmap.is_held(128) && !bitmap.is_held(4000));
        let saved = SavedBitmap::parse(&bitmap.saved());
        for chunk in 0..200 {
            assert_eq!(saved.has(chunk), bitmap.is_held(chunk), "{chunk}");
        }
        let seen = bitmap.memory().snapshot(0..24).expect("there");
        assert_eq!(seen, bitmap.saved(), "as other nodes read it");
        let left = SavedBitmap { words: vec![0, 2] };
        assert_eq!(bitmap.saved_word(70, &left), (3_u64.to_le_bytes(), 8));
        assert!(SavedBitmap::parse(&bitmap.saved()[..23]).has(64));
    }
}
