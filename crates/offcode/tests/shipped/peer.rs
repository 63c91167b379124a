//! A one-sided client of the hash table, as modules/table/table.h describes it, on a region's
//! bytes: what it finds by Reads, and what it changes by a Write and a CompareSwap.

use crate::sides::word;

pub(crate) const SEED: u64 = 0x74_6162_6c65;
const EMPTY: u64 = 0;
const ITEM: u64 = 1;

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// `ob_hash` of modules/include/outboard.h.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let pieces = bytes.chunks(8).map(|piece| {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        u64::from_le_bytes(word)
    });
    mix(pieces.fold(seed, mix), bytes.len() as u64)
}

/// Where a key is.
#[derive(Debug)]
pub(crate) struct FoundSlot {
    pub(crate) slot: u64,
    pub(crate) word: u64,
    pub(crate) value: Option<Vec<u8>>,
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}

fn bucket_of(region: &[u8], root: u64, hash: u64) -> u64 {
    let geometry = word(region, at(root) + 24);
    let (level, first, split) = (geometry & 0xff, geometry >> 8 & 0xff, geometry >> 16);
    let low = hash & ((1 << level) - 1);
    let index = if low < split { hash & ((2 << level) - 1) } else { low };
    let (segment, start) = match index >> first {
        0 => (0, 0),
        _ => (u64::from(index.ilog2()) - first + 1, 1 << index.ilog2()),
    };
    let bucket = word(region, at(root + 64 + 8 * segment)) + (index - start) * 128;
    let depth = word(region, at(bucket)) & 0xff;
    assert_eq!(hash & ((1 << depth) - 1), index, "the bucket's depth");
    bucket
}

/// The value in a slot, if it is the key's; what it says of itself must be true.
fn value_in(region: &[u8], bucket: u64, slot: u64, found: u64, key: &[u8]) -> Option<Vec<u8>> {
    if found & 3 == ITEM {
        let (item, units) = (at((found >> 36) * 16), at(found >> 23 & 0x1fff));
        let bytes = &region[item..item + units * 16];
        let second = word(bytes, 8);
        assert_eq!(second & 0xffff, found >> 10 & 0x1fff, "the nonce");
        let (key_len, value_len) = (at(second >> 16 & 0xffff), at(second >> 32));
        let (its_key, rest) = bytes[16..].split_at(key_len);
        let value = &rest[..value_len];
        assert_eq!(word(bytes, 0), hash(hash(second, its_key), value), "the item's check");
        return (its_key == key).then(|| value.to_vec());
    }
    let cell = &region[at(bucket + 32 + slot * 32)..][..32];
    let (key_len, value_len) = (usize::from(cell[0]), usize::from(cell[1]));
    assert_eq!(found >> 10, hash(SEED, &cell[..2 + key_len + value_len]) >> 10, "the check");
    let (its_key, rest) = cell[2..].split_at(key_len);
    (its_key == key).then(|| rest[..value_len].to_vec())
}

/// Finds a key, or the home slot in which it could be put.
pub(crate) fn find(region: &[u8], root: u64, key: &[u8]) -> FoundSlot {
    let hash = hash(SEED, key);
    let mut bucket = bucket_of(region, root, hash);
    let home = bucket + 8 + 8 * ((hash >> 40) % 3);
    while bucket != 0 {
        for slot in 0..3 {
            let offset = bucket + 8 + 8 * slot;
            let found = word(region, at(offset));
            if found & 3 == EMPTY || found >> 2 & 0xff != hash >> 56 {
                continue;
            }
            if let Some(value) = value_in(region, bucket, slot, found, key) {
                return FoundSlot { slot: offset, word: found, value: Some(value) };
            }
        }
        bucket = (word(region, at(bucket)) >> 8 & 0x0fff_ffff) * 16;
    }
    FoundSlot { slot: home, word: word(region, at(home)), value: None }
}

impl FoundSlot {
    /// Whether a client may put the key here by itself.
    pub(crate) fn is_usable(&self) -> bool {
        self.value.is_some() || self.word & 3 == EMPTY
    }
}

/// An item's bytes, and the slot's word for it at an offset.
pub(crate) fn item(key: &[u8], value: &[u8], nonce: u64, offset: u64) -> (Vec<u8>, u64) {
    let second = nonce | (key.len() as u64) << 16 | (value.len() as u64) << 32;
    let check = hash(hash(second, key), value);
    let mut bytes = [check.to_le_bytes(), second.to_le_bytes()].concat();
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    let units = (bytes.len() as u64).div_ceil(16);
    let fingerprint = hash(SEED, key) >> 56;
    let word = ((offset / 16) << 36) | (units << 23) | (nonce << 10) | (fingerprint << 2) | ITEM;
    (bytes, word)
}
