//! The inodes of `modules/inode`: that each record is whole, and what belongs to it: its tree of
//! extents, attributes, target.

use super::blocks::BlockUse;
use super::bytes::{RegionBytes, hash, word_of};
use super::found::Findings;
use super::heap::Heap;
use crate::protocol::places::{
    INODE_HEADER_LEN as HEADER, INODE_MAGIC as MAGIC, INODE_SEGMENTS as SEGMENTS,
    INODE_SEGMENTS_AT, inode_place, inode_segment_len,
};
use crate::protocol::{BLOCK_LEN, FsExtent, FsLayout, FsRecord, SIZE_MAX, TARGET_MAX};

const RECORD: u64 = 256;
const ROOT_ENTRIES: u32 = 8;
const NODE_ENTRIES: u64 = 31;
const NODE: u64 = 512;
const LEVELS_MAX: u16 = 12;
const EXTENT_MAX: u64 = 4096;

pub(super) const DIRECTORY: u32 = 4;
const FILE: u32 = 8;
const LINK: u32 = 10;

/// Takes an extent, or where a node of the tree is.
type EachExtent<'a> = &'a mut dyn FnMut(&FsExtent, Option<u64>) -> Result<(), String>;

/// What an inode is, by its mode.
pub(super) fn kind_of(record: &FsRecord) -> u32 {
    record.mode >> 12 & 15
}

/// See this file's first lines.
pub(super) struct FoundInodes<'a> {
    region: RegionBytes<'a>,
    root: u64,
    /// The first number that was never used.
    pub(super) next: u64,
}

impl<'a> FoundInodes<'a> {
    /// Reads the header, and who has the memory of records.
    pub(super) fn read(
        region: RegionBytes<'a>,
        root: u64,
        heap: &mut Heap,
        found: &mut Findings,
    ) -> Self {
        let head = region.words(root, HEADER / 8).filter(|head| head[0] == MAGIC);
        let Some(head) = head.filter(|head| head[3] <= region.len()) else {
            found.of_region("there are no inodes");
            return Self { region, root, next: 0 };
        };
        let segments = head[8..].iter().take(SEGMENTS).enumerate();
        for (index, at) in segments.filter(|(_, at)| **at != 0) {
            let len = inode_segment_len(index as u64);
            if let Err(why) = heap.claim(*at, RECORD * len) {
                found.of_region(format!("inodes from {len} on: {why}"));
            }
        }
        let inodes = Self { region, root, next: head[3] };
        inodes.check_free(head[4], head[5], found);
        inodes
    }

    /// Unused numbers follow each other in a list.
    fn check_free(&self, mut free: u64, count: u64, found: &mut Findings) {
        let used =
            (1..self.next).filter(|number| self.get(*number).is_some_and(|one| one.mode != 0));
        let used = used.count() as u64;
        if used != count {
            found.of_region(format!("{count} inodes are counted, and {used} are used"));
        }
        let mut unused = self.next.saturating_sub(1 + used);
        while free != 0 {
            match self.get(free).filter(|record| record.mode == 0 && unused > 0) {
                Some(record) => free = record.parent,
                None => return found.of_region("the list of unused inodes is none"),
            }
            unused -= 1;
        }
        if unused != 0 {
            found.of_region(format!("{unused} unused inodes are in no list"));
        }
    }

    /// An inode's record, used or not.
    pub(super) fn get(&self, number: u64) -> Option<FsRecord> {
        FsLayout::split(&self.bytes(number)?).map(|(record, _)| record)
    }

    fn bytes(&self, number: u64) -> Option<Vec<u8>> {
        let inside = number != 0 && number < self.next;
        let (segment, index) = inode_place(number);
        let start = self.region.word(self.root + INODE_SEGMENTS_AT + 8 * segment)?;
        let at = start.checked_add(index * RECORD)?;
        inside.then(|| self.region.bytes(at, RECORD)).flatten()
    }

    /// Checks what an inode has.
    pub(super) fn check(
        &self,
        number: u64,
        heap: &mut Heap,
        blocks: &mut BlockUse,
        found: &mut Findings,
    ) {
        let Some(bytes) = self.bytes(number) else {
            return found.of_inode(number, "it is outside of the region");
        };
        let Some((record, _)) = FsRecord::split(&bytes) else { return };
        if hash(MAGIC, &bytes[8..]) != record.check {
            found.of_inode(number, "its check word is another one");
        }
        if record.mode == 0 {
            return;
        }
        let parts = [
            self.check_extents(&record, heap, blocks),
            self.check_xattrs(record.xattrs, heap),
            check_body(&record, heap),
        ];
        parts.into_iter().filter_map(Result::err).for_each(|why| found.of_inode(number, why));
    }

    fn check_extents(
        &self,
        record: &FsRecord,
        heap: &mut Heap,
        blocks: &mut BlockUse,
    ) -> Result<(), String> {
        let (mut end, mut mapped, mut wrong) = (0, 0, None);
        self.extents(record, &mut |extent, node| {
            match (node, extent) {
                (Some(node), _) => heap.claim(node, NODE)?,
                (None, extent) => {
                    let FsExtent { file, len, .. } = *extent;
                    if len == 0 || len > EXTENT_MAX || file < end {
                        return Err(format!("blocks of the file at {file} are out of order"));
                    }
                    if file.checked_add(len).is_none_or(|end| end > SIZE_MAX / BLOCK_LEN) {
                        return Err(format!("blocks of the file at {file} are behind any end"));
                    }
                    (end, mapped) = (file + len, mapped + len);
                    if let Err(why) = blocks.add(extent) {
                        wrong.get_or_insert(why);
                    }
                }
            }
            Ok(())
        })?;
        match wrong {
            Some(wrong) => Err(wrong),
            None if mapped != record.blocks => {
                Err(format!("{} blocks are counted, and it has {mapped}", record.blocks))
            }
            None if mapped != 0 && kind_of(record) != FILE => {
                Err("it is no file, with blocks".into())
            }
            None => Ok(()),
        }
    }

    /// All extents of an inode in order, and the nodes of its tree before what is in them.
    pub(super) fn extents(&self, record: &FsRecord, each: EachExtent<'_>) -> Result<(), String> {
        if record.entries > ROOT_ENTRIES || record.level >= LEVELS_MAX {
            return Err("its extents are none".into());
        }
        let entries = record.entry.iter().take(record.entries as usize);
        let entries: Vec<(u64, u64)> = entries.map(|entry| (entry.key, entry.value)).collect();
        self.level(&entries, (record.level, true), each)
    }

    fn level(
        &self,
        entries: &[(u64, u64)],
        (level, is_first): (u16, bool),
        each: EachExtent<'_>,
    ) -> Result<(), String> {
        for (index, (key, value)) in entries.iter().enumerate() {
            if level == 0 {
                let extent = FsExtent { file: *key, block: value >> 28, len: value & 0x0fff_ffff };
                each(&extent, None)?;
                continue;
            }
            each(&FsExtent::default(), Some(*value))?;
            let below = self.node(*value, level - 1).ok_or("a node of its extents is none")?;
            let is_first = is_first && index == 0;
            if !is_first && below[0].0 != *key {
                return Err("a node of its extents is not where it is looked for".into());
            }
            self.level(&below, (level - 1, is_first), each)?;
        }
        Ok(())
    }

    fn node(&self, at: u64, level: u16) -> Option<Vec<(u64, u64)>> {
        let head = self.region.word(at)?;
        let count = head >> 32;
        let is_one = head & 0xffff_ffff == u64::from(level) && (1..=NODE_ENTRIES).contains(&count);
        let words = is_one.then(|| self.region.words(at + 16, 2 * count)).flatten()?;
        Some(words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    fn check_xattrs(&self, at: u64, heap: &mut Heap) -> Result<(), String> {
        if at == 0 {
            return Ok(());
        }
        let len = self.region.word(at).filter(|len| *len <= self.region.len());
        let len = len.ok_or("its extended attributes are outside of the region")?;
        heap.claim(at, 8 + len).map_err(|why| format!("its extended attributes: {why}"))?;
        let bytes = self.region.bytes(at + 8, len).unwrap_or_default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (name, value) = match rest.get(..8) {
                Some(head) => (word_of(&head[..4]), word_of(&head[4..])),
                None => (0, 0),
            };
            let one = usize::try_from(8 + (name + value).next_multiple_of(8)).unwrap_or(0);
            let is_name = (1..=255).contains(&name);
            rest = rest.get(one..).filter(|_| is_name).ok_or("its extended attributes are none")?;
        }
        Ok(())
    }
}

/// What an inode that is no directory has beside its extents: directories' names are read with all
/// others.
fn check_body(record: &FsRecord, heap: &mut Heap) -> Result<(), String> {
    match kind_of(record) {
        DIRECTORY => Ok(()),
        // It is given back.
        _ if record.nlink == 0 && record.holds == 0 => Ok(()),
        LINK if (1..=TARGET_MAX as u64).contains(&record.size) => {
            heap.claim(record.body, record.size).map_err(|why| format!("its target: {why}"))
        }
        LINK => Err(format!("its target has {} bytes", record.size)),
        _ if record.body != 0 => Err("it has what only directories and links have".into()),
        _ => Ok(()),
    }
}
