//! The table of `modules/table` that has the names of all directories: that each item is whole and
//! where it is looked for.

use super::bytes::{RegionBytes, hash, word_of};
use super::found::Findings;
use super::heap::Heap;
use crate::protocol::places::{
    NAMES_VALUE_LEN as VALUE, TABLE_BUCKET_LEN as BUCKET, TABLE_CHAIN_MAX as CHAIN_MAX,
    TABLE_HEADER_LEN as HEADER, TABLE_MAGIC as MAGIC, TABLE_SEED as SEED, TABLE_SEGMENTS,
    TABLE_SEGMENTS_AT, TableGeometry, bucket_link, slot_item,
};
use std::collections::HashMap;

/// What a name says: number and kind, and the place in its directory.
pub(super) type NameValue = (u64, u64);

/// See this file's first lines.
pub(super) struct Table<'a> {
    region: RegionBytes<'a>,
    root: u64,
    geometry: TableGeometry,
    /// By a directory's number and the name.
    pub(super) names: HashMap<Vec<u8>, NameValue>,
}

impl<'a> Table<'a> {
    /// Reads all of it.
    pub(super) fn read(
        region: RegionBytes<'a>,
        root: u64,
        heap: &mut Heap,
        found: &mut Findings,
    ) -> Self {
        let head = region.words(root, HEADER / 8).filter(|head| head[0] == MAGIC);
        let read = head.and_then(|head| Some((TableGeometry::parse(head[3])?, head)));
        let geometry = read.as_ref().map_or(TableGeometry::NONE, |(geometry, _)| *geometry);
        let mut table = Self { region, root, geometry, names: HashMap::new() };
        let Some((TableGeometry { level, split, .. }, head)) = read else {
            found.of_region("the table of names is none");
            return table;
        };
        table.claim_segments(&head[8..], heap, found);
        let mut count = 0;
        for index in 0..(1 << level) + split {
            if let Err(why) = table.chain(index, heap, &mut count) {
                found.of_region(format!("the table of names, bucket {index}: {why}"));
            }
        }
        if count != head[2] {
            found.of_region(format!("the table of names counts {}, and has {count}", head[2]));
        }
        table
    }

    fn claim_segments(&self, segments: &[u64], heap: &mut Heap, found: &mut Findings) {
        let segments = segments.iter().take(usize::try_from(TABLE_SEGMENTS).unwrap_or(0));
        for (index, at) in segments.enumerate().filter(|(_, at)| **at != 0) {
            let power = self.geometry.first + (index as u64).saturating_sub(1);
            if let Err(why) = heap.claim(*at, BUCKET << power.min(50)) {
                found.of_region(format!("the table of names, segment {index}: {why}"));
            }
        }
    }

    fn bucket_at(&self, index: u64) -> u64 {
        let (segment, at) = self.geometry.bucket(index);
        let place = self.root + TABLE_SEGMENTS_AT + 8 * segment;
        self.region.word(place).unwrap_or(u64::MAX / 2).saturating_add(at)
    }

    /// Reads all buckets of one index.
    fn chain(&mut self, index: u64, heap: &mut Heap, count: &mut u64) -> Result<(), String> {
        let TableGeometry { level, split, .. } = self.geometry;
        let is_split = index < split || index >> level != 0;
        let depth = level + u64::from(is_split);
        let mut at = self.bucket_at(index);
        for _ in 0..CHAIN_MAX {
            let bucket = self.region.bytes(at, BUCKET).ok_or("it is outside of the region")?;
            let meta = word_of(&bucket[..8]);
            if meta & 0xff != depth {
                return Err("it is not the one that it should be".into());
            }
            for slot in 0..3 {
                *count += u64::from(self.slot(&bucket, slot, (index, depth), heap)?);
            }
            at = bucket_link(meta);
            if at == 0 {
                return Ok(());
            }
            heap.claim(at, BUCKET).map_err(|why| format!("its chain: {why}"))?;
        }
        Err("its chain has no end".into())
    }

    /// Takes what a slot has; whether it has something.
    fn slot(
        &mut self,
        bucket: &[u8],
        slot: usize,
        (index, depth): (u64, u64),
        heap: &mut Heap,
    ) -> Result<bool, String> {
        let word = word_of(&bucket[8 + 8 * slot..16 + 8 * slot]);
        let (key, value) = match word & 3 {
            0 => return Ok(false),
            1 => self.item(word, heap)?,
            2 => Self::cell(&bucket[32 + 32 * slot..64 + 32 * slot], word)?,
            _ => return Err("a slot is none".into()),
        };
        let hashed = hash(SEED, &key);
        if hashed >> 56 != word >> 2 & 0xff || hashed & ((1 << depth) - 1) != index {
            return Err("a name is not where it is looked for".into());
        }
        let value: &[u8; VALUE] = value[..].try_into().map_err(|_| "a name says something else")?;
        let value = (word_of(&value[..8]), word_of(&value[8..]) * 16);
        match self.names.insert(key, value) {
            Some(_) => Err("a name is there twice".into()),
            None => Ok(true),
        }
    }

    fn cell(cell: &[u8], word: u64) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (key, value) = (usize::from(cell[0]), usize::from(cell[1]));
        let bytes = cell.get(..2 + key + value).ok_or("a name is too long")?;
        match hash(SEED, bytes) >> 10 == word >> 10 {
            true => Ok((bytes[2..2 + key].to_vec(), bytes[2 + key..].to_vec())),
            false => Err("a name has another check word".into()),
        }
    }

    fn item(&self, word: u64, heap: &mut Heap) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (at, len) = slot_item(word);
        heap.claim(at, len)?;
        let head = self.region.words(at, 2).ok_or("an item is outside of the region")?;
        let (key, value) = (head[1] >> 16 & 0xffff, head[1] >> 32);
        let body = (key + value < 2048).then(|| self.region.bytes(at + 16, key + value)).flatten();
        let mut key_bytes = body.ok_or("an item is too long")?;
        let value_bytes = key_bytes.split_off(usize::try_from(key).unwrap_or(0));
        match hash(hash(head[1], &key_bytes), &value_bytes) == head[0] {
            true => Ok((key_bytes, value_bytes)),
            false => Err("a name has another check word".into()),
        }
    }
}
