//! A directory of `modules/names`: its records, in order.

use super::bytes::{RegionBytes, word_of};
use super::heap::Heap;
use crate::protocol::places::{
    NAMES_DIR_LEN as HEADER, NAMES_RECORD_MAX as RECORD_MAX, NAMES_SEGMENTS as SEGMENTS,
    NAMES_STEP as STEP, names_segment as segment, names_segment_of,
};
use std::collections::BTreeSet;

/// The shortest record that can be found again when it is free.
const RECORD_MIN: u64 = 32;

/// A name.
#[derive(Debug)]
pub(super) struct FoundName {
    pub(super) name: Vec<u8>,
    pub(super) number: u64,
    pub(super) kind: u32,
    pub(super) place: u64,
}

struct NamesDir<'a> {
    region: RegionBytes<'a>,
    head: Vec<u64>,
    free: BTreeSet<u64>,
}

/// Reads a directory; names that could be read, and what is wrong.
pub(super) fn read(
    region: RegionBytes<'_>,
    at: u64,
    heap: &mut Heap,
) -> (Vec<FoundName>, Result<(), String>) {
    let mut names = Vec::new();
    let claimed = heap.claim(at, HEADER).map_err(|why| format!("its names: {why}"));
    let head = match claimed {
        Ok(()) => region.words(at, HEADER / 8).unwrap_or_default(),
        Err(why) => return (names, Err(why)),
    };
    let mut dir = NamesDir { region, head, free: BTreeSet::new() };
    let result = dir.claim(heap).and_then(|()| dir.records(&mut names));
    let result = result.and_then(|()| dir.check_free());
    let count = names.len() as u64;
    let told = dir.head.first().copied().unwrap_or(0);
    let counted = (told == count).then_some(());
    let counted = counted.ok_or_else(|| format!("{told} names are counted, and it has {count}"));
    (names, result.and(counted))
}

impl NamesDir<'_> {
    fn end(&self) -> u64 {
        self.head[1]
    }

    fn claim(&self, heap: &mut Heap) -> Result<(), String> {
        for (index, at) in self.head[18..18 + SEGMENTS].iter().enumerate() {
            let (start, len) = segment(index);
            match (*at, start < self.end()) {
                (0, false) => {}
                (0, true) | (_, false) => return Err("its names are not as long as it says".into()),
                (at, true) => heap.claim(at, len).map_err(|why| format!("its names: {why}"))?,
            }
        }
        Ok(())
    }

    /// Where a place is, and how much of its segment follows.
    fn at(&self, place: u64) -> (u64, u64) {
        let index = names_segment_of(place);
        let (start, len) = segment(index);
        let at = self.head.get(18 + index).copied().unwrap_or(0);
        (at + (place - start), start + len - place)
    }

    fn records(&mut self, names: &mut Vec<FoundName>) -> Result<(), String> {
        let mut place = 0;
        while place < self.end() {
            let (at, room) = self.at(place);
            let head = self.region.bytes(at, STEP).ok_or("a name is outside of the region")?;
            let (number, kind) = (word_of(&head[..8]), u32::from(head[8]));
            let (name_len, len) = (u64::from(head[9]), word_of(&head[10..12]));
            let is_record = len >= STEP && len.is_multiple_of(STEP) && len <= room.min(RECORD_MAX);
            if !is_record || (number != 0 && (name_len == 0 || STEP + name_len > len)) {
                return Err(format!("the record of a name at {place} is none"));
            }
            if number != 0 {
                let name = self.region.bytes(at + STEP, name_len).unwrap_or_default();
                names.push(FoundName { name, number, kind, place });
            } else if len >= RECORD_MIN {
                self.free.insert(place);
            }
            place += len;
        }
        Ok(())
    }

    /// Free records are in lists, by their length.
    fn check_free(&mut self) -> Result<(), String> {
        for list in 0..16 {
            let mut next = self.head[2 + list];
            while let Some(place) = next.checked_sub(1) {
                let at = self.at(place).0;
                let len = self.region.bytes(at, STEP).map_or(0, |head| word_of(&head[10..12]));
                if !self.free.remove(&place) || len != (list as u64 + 2) * STEP {
                    return Err("a list of free places is none".into());
                }
                next = self.region.word(at + STEP).unwrap_or(0);
            }
        }
        match self.free.is_empty() {
            true => Ok(()),
            false => Err(format!("{} free places are in no list", self.free.len())),
        }
    }
}
