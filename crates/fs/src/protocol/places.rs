//! Where the modules' structures are in a region: what `modules/table/table.h`, `inode/inode.h` and
//! `names/names.h` say of their layout, in numbers. Whoever looks at a region from outside of the
//! modules uses these: the check of a store, and clients that read one-sided.
//!
//! Reads nothing: what a word says is given to it.

/// What a table has at its root.
pub const TABLE_MAGIC: u64 = 0x3165_6c62_6174_626f;
/// Where a table's hash begins.
pub const TABLE_SEED: u64 = 0x0074_6162_6c65;
/// Bytes of a table's header.
pub const TABLE_HEADER_LEN: u64 = 384;
/// Bytes of a bucket.
pub const TABLE_BUCKET_LEN: u64 = 128;
/// Items of a bucket.
pub const TABLE_SLOTS: usize = 3;
/// Bytes of a cell.
pub const TABLE_CELL_LEN: usize = 32;
/// Arrays of buckets.
pub const TABLE_SEGMENTS: u64 = 40;
/// Where in the header their offsets are.
pub const TABLE_SEGMENTS_AT: u64 = 64;
/// Where in the header the geometry is.
pub const TABLE_GEOMETRY_AT: u64 = 24;
/// Buckets of a chain, at most.
pub const TABLE_CHAIN_MAX: usize = 64;

/// What inodes have at their root.
pub const INODE_MAGIC: u64 = 0x0031_646f_6e69_626f;
/// Bytes of the header of inodes.
pub const INODE_HEADER_LEN: u64 = 320;
/// Arrays of records.
pub const INODE_SEGMENTS: usize = 32;
/// Where in the header their offsets are.
pub const INODE_SEGMENTS_AT: u64 = 64;
/// Log2 of the records of the first array.
const INODE_FIRST_POWER: u64 = 6;

/// Bytes of a directory's header.
pub const NAMES_DIR_LEN: u64 = 320;
/// Pieces of memory of a directory.
pub const NAMES_SEGMENTS: usize = 22;
/// Where in the header their offsets are.
pub const NAMES_SEGMENTS_AT: u64 = 144;
/// Bytes of the first piece.
pub const NAMES_FIRST_LEN: u64 = 512;
/// Records are multiples of it, and begin with so many bytes.
pub const NAMES_STEP: u64 = 16;
/// Bytes of a record, at most.
pub const NAMES_RECORD_MAX: u64 = 272;
/// Bytes of what an item says of a name.
pub const NAMES_VALUE_LEN: usize = 12;

/// A table's geometry: how many buckets it has, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableGeometry {
    /// Log2 of the buckets, before some of them were split.
    pub level: u64,
    /// The level that it had at first.
    pub first: u64,
    /// How many were split since.
    pub split: u64,
}

impl TableGeometry {
    /// That of a table with one bucket.
    pub const NONE: Self = Self { level: 0, first: 0, split: 0 };

    /// What the header's word says; `None` if it cannot be one.
    #[must_use]
    pub fn parse(word: u64) -> Option<Self> {
        let (level, first, split) = (word & 0xff, word >> 8 & 0xff, word >> 16);
        let is_one = first <= level && level < TABLE_SEGMENTS && split < 1 << level;
        is_one.then_some(Self { level, first, split })
    }

    /// The index of the bucket of a hash.
    #[must_use]
    pub fn index(self, hashed: u64) -> u64 {
        let low = |bits: u64| hashed & ((1 << bits) - 1);
        match low(self.level) < self.split {
            true => low(self.level + 1),
            false => low(self.level),
        }
    }

    /// Which array has a bucket, and at which byte of it.
    #[must_use]
    pub fn bucket(self, index: u64) -> (u64, u64) {
        let (segment, place) = match index >> self.first {
            0 => (0, index),
            _ => (u64::from(index.ilog2()) - self.first + 1, index - (1 << index.ilog2())),
        };
        (segment, place * TABLE_BUCKET_LEN)
    }
}

/// Where the bucket behind is, from a bucket's first word; 0 for none.
#[must_use]
pub fn bucket_link(meta: u64) -> u64 {
    (meta >> 8 & 0x0fff_ffff) * 16
}

/// A slot's item: where, and its bytes, rounded up.
#[must_use]
pub fn slot_item(slot: u64) -> (u64, u64) {
    ((slot >> 36) * 16, (slot >> 23 & 0x1fff) * 16)
}

/// Which array has the record of a number, and at which record of it.
#[must_use]
pub fn inode_place(number: u64) -> (u64, u64) {
    match number >> INODE_FIRST_POWER {
        0 => (0, number),
        _ => {
            let power = u64::from(number.ilog2());
            (power - INODE_FIRST_POWER + 1, number - (1 << power))
        }
    }
}

/// Records of an array.
#[must_use]
pub fn inode_segment_len(segment: u64) -> u64 {
    1 << (INODE_FIRST_POWER + segment.saturating_sub(1))
}

/// A piece of a directory's memory: its first place and its bytes.
#[must_use]
pub fn names_segment(segment: usize) -> (u64, u64) {
    match segment {
        0 => (0, NAMES_FIRST_LEN),
        _ => (NAMES_FIRST_LEN << (segment - 1), NAMES_FIRST_LEN << (segment - 1)),
    }
}

/// Which piece has a place.
#[must_use]
pub fn names_segment_of(place: u64) -> usize {
    (place / NAMES_FIRST_LEN).checked_ilog2().map_or(0, |power| power as usize + 1)
}

/// Up to 8 bytes as a little-endian number.
#[must_use]
pub fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// `ob_hash` of outboard.h.
#[must_use]
pub fn module_hash(seed: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(word_of);
    mix(words.fold(seed, mix), bytes.len() as u64)
}
