//! What a name of a directory stands for: from the hash of both to a bucket of the table of names,
//! along its chain, to the item, to the inode's record.

use super::records::{directory, named};
use super::view::{RegionView, WalkStop, Walked, word_at};
use crate::protocol::places::{
    NAMES_STEP, NAMES_VALUE_LEN, TABLE_BUCKET_LEN, TABLE_CELL_LEN, TABLE_CHAIN_MAX, TABLE_SEED,
    TABLE_SLOTS, bucket_link, module_hash, slot_item, word_of,
};
use crate::protocol::{FsAnswer, FsInode, FsLayout, FsRecord};

/// Bytes in front of an item's key.
const ITEM_HEAD: usize = 16;
/// Bytes of an item of a name, at most: its head, the key of a number and 255 bytes, its value.
const ITEM_MAX: u64 = 320;
/// Kinds of slots.
const EMPTY: u64 = 0;
const ITEM: u64 = 1;

/// What a name says: the inode's number, and the name's place in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameItem {
    pub(super) number: u64,
    pub(super) place: u64,
}

/// What a name of a directory stands for; `None`: there is no such name.
pub(crate) fn look_up(
    view: &RegionView<'_>,
    dir: FsInode,
    name: &[u8],
) -> Walked<Option<FsAnswer>> {
    let (bucket, _) = view.headers.bucket(module_hash(TABLE_SEED, &key_of(dir, name)))?;
    let record = view.headers.record(dir.number)?;
    // Both are read together.
    view.need(&[(record, FsRecord::LEN), (bucket, len(TABLE_BUCKET_LEN))])?;
    directory(view, dir)?;
    let found = find(view, dir, name)?;
    found.map(|found| named(view, found.number)).transpose()
}

fn key_of(dir: FsInode, name: &[u8]) -> Vec<u8> {
    [&dir.number.to_le_bytes()[..], name].concat()
}

/// What the table says of a name.
pub(super) fn find(view: &RegionView<'_>, dir: FsInode, name: &[u8]) -> Walked<Option<NameItem>> {
    let key = key_of(dir, name);
    let hashed = module_hash(TABLE_SEED, &key);
    let (mut at, index) = view.headers.bucket(hashed)?;
    for _ in 0..TABLE_CHAIN_MAX {
        let bucket = view.read(at, TABLE_BUCKET_LEN)?;
        let meta = word_at(bucket, 0);
        let depth = meta & 0xff;
        if depth >= 63 || hashed & ((1 << depth) - 1) != index {
            return Err(WalkStop::Moved);
        }
        for slot in 0..TABLE_SLOTS {
            let word = word_at(bucket, 8 + 8 * slot);
            if word & 3 == EMPTY || word >> 2 & 0xff != hashed >> 56 {
                continue;
            }
            let cell = &bucket[TABLE_CELL_LEN * (slot + 1)..][..TABLE_CELL_LEN];
            let (known, says) = slot_of(view, word, cell)?;
            if known == key {
                return parse_value(says).map(Some).ok_or(WalkStop::Unclear);
            }
        }
        at = bucket_link(meta);
        if at == 0 {
            return Ok(None);
        }
    }
    Err(WalkStop::Unclear)
}

/// The key and the value in a slot.
fn slot_of<'a>(view: &RegionView<'a>, slot: u64, cell: &'a [u8]) -> Walked<(&'a [u8], &'a [u8])> {
    if slot & 3 != ITEM {
        return parse_cell(slot, cell).ok_or(WalkStop::Unclear);
    }
    let (at, item_len) = slot_item(slot);
    if item_len > ITEM_MAX {
        return Err(WalkStop::Unclear);
    }
    parse_item(slot, view.read(at, item_len)?).ok_or(WalkStop::Unclear)
}

fn parse_cell(slot: u64, cell: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = (usize::from(*cell.first()?), usize::from(*cell.get(1)?));
    let whole = cell.get(..2 + key + value)?;
    let is_whole = module_hash(TABLE_SEED, whole) >> 10 == slot >> 10;
    is_whole.then(|| whole[2..].split_at(key))
}

fn parse_item(slot: u64, item: &[u8]) -> Option<(&[u8], &[u8])> {
    let second = word_at(item, 8);
    let key = usize::try_from(second >> 16 & 0xffff).ok()?;
    let value = usize::try_from(second >> 32).ok()?;
    let both = item.get(ITEM_HEAD..ITEM_HEAD.checked_add(key)?.checked_add(value)?)?;
    let (key, value) = both.split_at(key);
    let check = module_hash(module_hash(second, key), value);
    (check == word_at(item, 0) && second & 0xffff == slot >> 10 & 0x1fff).then_some((key, value))
}

fn parse_value(value: &[u8]) -> Option<NameItem> {
    let value: &[u8; NAMES_VALUE_LEN] = value.try_into().ok()?;
    let number = word_of(&value[..8]) & ((1 << 56) - 1);
    Some(NameItem { number, place: word_of(&value[8..]) * NAMES_STEP })
}

/// A length that is known to be small.
fn len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
