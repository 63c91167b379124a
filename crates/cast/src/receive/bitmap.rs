//! Which chunks are held: one word for 64 chunks, that others may read while it changes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Chunks in a word.
const WORD_CHUNKS: u32 = 64;

/// A bit for each chunk. A bit is set after the chunk's bytes are where they belong, so that a
/// reader that sees the bit finds the bytes.
#[derive(Debug)]
pub struct ChunkBitmap {
    words: Box<[AtomicU64]>,
    chunks: u32,
    held: AtomicU32,
}

impl ChunkBitmap {
    /// For this many chunks, none of them held.
    #[must_use]
    pub fn new(chunks: u32) -> Self {
        let words = (0..chunks.div_ceil(WORD_CHUNKS)).map(|_| AtomicU64::new(0)).collect();
        Self { words, chunks, held: AtomicU32::new(0) }
    }

    /// The words, chunk 0 in the lowest bit of the first.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
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
        let word = self.words.get((chunk / WORD_CHUNKS) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit(chunk) != 0)
    }

    /// Notes that a chunk is held; returns whether it was not before.
    pub(super) fn set(&self, chunk: u32) -> bool {
        let word = &self.words[(chunk / WORD_CHUNKS) as usize];
        let is_new = word.fetch_or(bit(chunk), Ordering::AcqRel) & bit(chunk) == 0;
        if is_new {
            self.held.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    /// The word of a chunk as it is to lie on disk beside what was `left` there, and where.
    pub(super) fn saved_word(&self, chunk: u32, left: &SavedBitmap) -> ([u8; 8], u64) {
        let word = chunk / WORD_CHUNKS;
        let value = self.words[word as usize].load(Ordering::Acquire) | left.word(chunk);
        (value.to_le_bytes(), u64::from(word) * 8)
    }

    /// All words as they lie on disk.
    pub(super) fn saved(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect()
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

fn bit(chunk: u32) -> u64 {
    1 << (chunk % WORD_CHUNKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_once_and_saved() {
        let bitmap = ChunkBitmap::new(130);
        assert!(bitmap.set(0) && bitmap.set(64) && bitmap.set(129));
        assert!(!bitmap.set(64));
        assert_eq!((bitmap.held(), bitmap.words().len()), (3, 3));
        assert!(bitmap.is_held(129) && !bitmap.is_held(128) && !bitmap.is_held(4000));
        let saved = SavedBitmap::parse(&bitmap.saved());
        for chunk in 0..200 {
            assert_eq!(saved.has(chunk), bitmap.is_held(chunk), "{chunk}");
        }
        let left = SavedBitmap { words: vec![0, 2] };
        assert_eq!(bitmap.saved_word(70, &left), (3_u64.to_le_bytes(), 8));
        assert!(SavedBitmap::parse(&bitmap.saved()[..23]).has(64));
    }
}
