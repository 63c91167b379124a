//! Little-endian words, and the hash of `modules/include/outboard.h`: what all structures in
//! regions are made of.

use crate::error::AppError;

/// The bytes of words.
#[must_use]
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The bytes of words with others behind them: an entry's arguments.
#[must_use]
pub fn words_then(first: &[u64], rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = words(first);
    rest.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// The word at an offset of bytes that came from a node.
///
/// # Errors
/// [`AppError::Broken`]: there are not so many bytes.
pub fn word(bytes: &[u8], at: usize) -> Result<u64, AppError> {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    let (what, expected) = ("an answer with too few bytes", at as u64 + 8);
    let broken = AppError::Broken { what, found: bytes.len() as u64, expected };
    found.map_or(Err(broken), |word| Ok(u64::from_le_bytes(*word)))
}

/// The word at an offset, in bytes that are known to have one.
pub(crate) fn word_in(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    found.map_or(0, |word| u64::from_le_bytes(*word))
}

/// As `ob_hash`.
#[must_use]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mixed = bytes.chunks(8).fold(seed, |mixed, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(mixed, u64::from_le_bytes(word))
    });
    mix(mixed, bytes.len() as u64)
}

/// As `ob_mix`.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}
