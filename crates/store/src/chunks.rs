//! The chunks of a content: subtrees of its BLAKE3 tree, by which any part of it can be verified
//! without the rest.
//!
//! Values: no file is touched here. If a content has one chunk, the chunk's hash is the content's
//! own.

use crate::store::ContentHash;
use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes of a chunk; the last chunk of a content may have fewer. A power of two, as subtrees of
/// BLAKE3 require.
pub const CHUNK_LEN: usize = 1 << 20;

/// Hashes a content and its chunks as the bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct Chunker {
    done: Vec<ContentHash>,
    chunk: Hasher,
    /// Bytes in the unfinished chunk.
    held: usize,
}

/// The hash of a content, and the hashes of its chunks.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) hash: ContentHash,
    pub(crate) chunks: Vec<ContentHash>,
}

impl Chunker {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.held == CHUNK_LEN {
                self.done.push(self.chunk.finalize_non_root());
                self.chunk = Hasher::new();
                self.chunk.set_input_offset(self.done.len() as u64 * CHUNK_LEN as u64);
                self.held = 0;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_LEN - self.held));
            self.chunk.update(now);
            self.held += now.len();
            bytes = rest;
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.done.len() as u64 * CHUNK_LEN as u64 + self.held as u64
    }

    pub(crate) fn finish(mut self) -> Hashed {
        if self.done.is_empty() {
            let hash = *self.chunk.finalize().as_bytes();
            return Hashed { hash, chunks: vec![hash] };
        }
        self.done.push(self.chunk.finalize_non_root());
        Hashed { hash: root(&self.done), chunks: self.done }
    }
}

/// The hash of the content that has these chunks, at least one.
pub(crate) fn root(chunks: &[ContentHash]) -> ContentHash {
    match chunks {
        [] => ContentHash::default(),
        [only] => *only,
        _ => {
            let (left, right) = chunks.split_at(left_len(chunks.len()));
            *merge_subtrees_root(&node(left), &node(right), Mode::Hash).as_bytes()
        }
    }
}

fn node(chunks: &[ContentHash]) -> ContentHash {
    match chunks {
        [] => ContentHash::default(),
        [only] => *only,
        _ => {
            let (left, right) = chunks.split_at(left_len(chunks.len()));
            merge_subtrees_non_root(&node(left), &node(right), Mode::Hash)
        }
    }
}

/// The left subtree is complete: the largest power of two that leaves at least one chunk.
fn left_len(len: usize) -> usize {
    len.next_power_of_two() / 2
}

/// Whether `bytes` are the chunk at `index`.
pub(crate) fn is_chunk(chunks: &[ContentHash], index: usize, bytes: &[u8]) -> bool {
    if let [only] = chunks {
        return index == 0 && blake3::hash(bytes).as_bytes() == only;
    }
    if bytes.is_empty() || bytes.len() > CHUNK_LEN {
        return false;
    }
    let mut hasher = Hasher::new();
    hasher.set_input_offset(index as u64 * CHUNK_LEN as u64).update(bytes);
    chunks.get(index).is_some_and(|chunk| *chunk == hasher.finalize_non_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_make_the_contents_own_hash() {
        let whole: Vec<u8> =
            (0..5 * CHUNK_LEN + 77).map(|at| ((at >> 9) + (at >> 20)).to_le_bytes()[0]).collect();
        let lens = [0, 1, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 2 * CHUNK_LEN, whole.len()];
        for (len, step) in lens.into_iter().zip([1, 7, 4096, 100_000, 1 << 20, 3 << 20, 999_983]) {
            let bytes = &whole[..len];
            let mut chunker = Chunker::default();
            bytes.chunks(step).for_each(|part| chunker.update(part));
            assert_eq!(chunker.len(), len as u64);
            let Hashed { hash, chunks } = chunker.finish();
            assert_eq!(hash, *blake3::hash(bytes).as_bytes(), "{len}");
            assert_eq!((root(&chunks), chunks.len()), (hash, len.div_ceil(CHUNK_LEN).max(1)));
            for (index, chunk) in bytes.chunks(CHUNK_LEN).enumerate() {
                assert!(is_chunk(&chunks, index, chunk));
                assert!(!is_chunk(&chunks, index + 1, chunk));
                assert!(!is_chunk(&chunks, index, &chunk[1..]));
            }
        }
    }
}
