//! What `modules/table/table.h` says of a table's layout, and of its words.

use crate::bytes::{hash, word_in, words_then};

/// `TABLE_SEED`.
pub const SEED: u64 = 0x0074_6162_6c65;
/// `TABLE_MAGIC`.
pub const MAGIC: u64 = 0x3165_6c62_6174_626f;
/// `TABLE_HEADER_LEN`.
pub const HEADER_LEN: usize = 384;
/// `TABLE_BUCKET_LEN`.
pub const BUCKET_LEN: usize = 128;
/// `TABLE_SLOTS`.
pub const SLOTS: usize = 3;
/// `TABLE_CELL_LEN`.
pub const CELL_LEN: usize = 32;
/// `TABLE_KEY_MAX`.
pub const KEY_MAX: usize = 1024;
/// `TABLE_VALUE_MAX`.
pub const VALUE_MAX: usize = 65536;
/// `TABLE_ITEM`, of a slot.
pub const ITEM: u64 = 1;
/// `TABLE_INLINE`, of a slot.
pub const INLINE: u64 = 2;
/// `TABLE_EMPTY`, of a slot.
pub const EMPTY: u64 = 0;
/// Offset in the header of the count of items.
pub const COUNT: usize = 16;
/// Of the geometry.
pub const GEOMETRY: usize = 24;
/// Of the segments' offsets.
pub const SEGMENTS: usize = 64;
/// `TABLE_SEGMENTS`.
pub const SEGMENTS_MAX: u64 = 40;
/// Bytes in front of an item's key.
pub const ITEM_HEAD: usize = 16;

/// Kind of a slot.
pub(super) fn kind(slot: u64) -> u64 {
    slot & 3
}

/// Whether a slot that is not empty may hold a key of this hash.
pub(super) fn has_fingerprint(slot: u64, hashed: u64) -> bool {
    kind(slot) != EMPTY && slot >> 2 & 0xff == hashed >> 56
}

/// Offset of a slot's item, and its bytes, rounded up.
pub(super) fn item_place(slot: u64) -> (u64, u64) {
    ((slot >> 36) * 16, (slot >> 23 & 0x1fff) * 16)
}

/// The nonce that follows the one of an item's slot.
pub(super) fn next_nonce(slot: u64) -> u64 {
    ((slot >> 10) + 1) & 0x1fff
}

/// Offset of the bucket behind, from a bucket's first word; 0 for none.
pub(super) fn link(meta: u64) -> u64 {
    (meta >> 8 & 0xfff_ffff) * 16
}

/// Depth, from a bucket's first word.
pub(super) fn depth(meta: u64) -> u64 {
    meta & 0xff
}

/// Offset of a hash's home slot in its first bucket.
pub(super) fn home_slot(hashed: u64) -> u64 {
    8 + (hashed >> 40) % SLOTS as u64 * 8
}

/// An item's bytes and its slot's word.
pub(super) fn item(key: &[u8], value: &[u8], (at, nonce): (u64, u64)) -> (Vec<u8>, u64) {
    let second = nonce | (key.len() as u64) << 16 | (value.len() as u64) << 32;
    let check = hash(hash(second, key), value);
    let bytes = words_then(&[check, second], &[key, value]);
    let (units, fingerprint) = ((bytes.len() as u64).div_ceil(16), hash(SEED, key) >> 56);
    (bytes, (at / 16) << 36 | units << 23 | nonce << 10 | fingerprint << 2 | ITEM)
}

/// The key and value of an item; `None` if it is not what the slot was made for.
pub(super) fn parse_item(slot: u64, item: &[u8]) -> Option<(&[u8], &[u8])> {
    let second = word_in(item, 8);
    let (key_len, value_len) = ((second >> 16 & 0xffff) as usize, (second >> 32) as usize);
    let both = item.get(ITEM_HEAD..ITEM_HEAD.checked_add(key_len)?.checked_add(value_len)?)?;
    let (key, value) = both.split_at(key_len);
    let is_whole = hash(hash(second, key), value) == word_in(item, 0);
    (is_whole && second & 0xffff == slot >> 10 & 0x1fff).then_some((key, value))
}

/// The key and value of a cell; `None` if it is not what the slot was made for.
pub(super) fn parse_cell(slot: u64, cell: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key_len, value_len) = (usize::from(*cell.first()?), usize::from(*cell.get(1)?));
    let whole = cell.get(..2 + key_len + value_len)?;
    let is_whole = hash(SEED, whole) >> 10 == slot >> 10;
    is_whole.then(|| whole[2..].split_at(key_len))
}

/// Offset and index of the bucket of a hash, as a header says; `None` if the header cannot be one.
pub(super) fn bucket_of(header: &[u8], hashed: u64) -> Option<(u64, u64)> {
    let geometry = word_in(header, GEOMETRY);
    let (level, first, split) = (geometry & 0xff, geometry >> 8 & 0xff, geometry >> 16);
    if level > 50 || first > level {
        return None;
    }
    let low = |bits: u64| hashed & ((1 << bits) - 1);
    let index = if low(level) < split { low(level + 1) } else { low(level) };
    let (segment, at) = match index >> first {
        0 => (0, index),
        _ => (u64::from(index.ilog2()) - first + 1, index - (1 << index.ilog2())),
    };
    let place = SEGMENTS + 8 * usize::try_from(segment).ok()?;
    let start = (segment < SEGMENTS_MAX).then(|| word_in(header, place))?;
    Some((start.checked_add(at * BUCKET_LEN as u64)?, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_was_torn_is_none() {
        let (bytes, slot) = item(b"key", b"a value of some length", (4096, 7));
        let both = Some((&b"key"[..], &b"a value of some length"[..]));
        assert_eq!((parse_item(slot, &bytes), item_place(slot)), (both, (4096, 48)));
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(parse_item(slot, &torn), None, "byte {at}");
        }
        assert_eq!(parse_item(slot ^ 1 << 10, &bytes), None, "another nonce");
        assert_eq!(parse_item(slot, &bytes[..20]), None);
        assert_eq!(parse_item(slot, &[0xff; 48]), None);
    }

    #[test]
    fn a_cell_that_was_torn_is_none() {
        let cell = [&[3, 5][..], b"keyvalue", &[0; 22]].concat();
        let slot = hash(SEED, &cell[..10]) >> 10 << 10 | INLINE;
        assert_eq!(parse_cell(slot, &cell), Some((&b"key"[..], &b"value"[..])));
        for at in 0..10 {
            let mut torn = cell.clone();
            torn[at] ^= 1;
            assert_eq!(parse_cell(slot, &torn), None, "byte {at}");
        }
        assert_eq!(parse_cell(slot, &[0xff; 32]), None);
        assert_eq!(parse_cell(slot, &[]), None);
    }
}
