//! What of a region moves seldom: where the table of names has its buckets, and where the inodes'
//! records are. Arrays stay where they are once they are there, and a bucket says whether it is the
//! one that is looked for, so that headers may be older than what is read by them.

use super::view::{ReadPlace, WalkStop, Walked, word_at};
use crate::protocol::places::{
    INODE_HEADER_LEN, INODE_MAGIC, INODE_SEGMENTS, INODE_SEGMENTS_AT, TABLE_GEOMETRY_AT,
    TABLE_HEADER_LEN, TABLE_MAGIC, TABLE_SEGMENTS_AT, TableGeometry, inode_place,
};
use crate::protocol::{FsLayout, FsRecord, MAGIC, ROOT};

/// Bytes of the file system's header.
const HEADER_LEN: usize = 64;
/// Where in it the inodes and the table of names are.
const INODES_AT: usize = 24;
const TABLE_AT: usize = 32;

/// See this file's first lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionHeaders {
    table: Vec<u8>,
    inodes: Vec<u8>,
}

impl RegionHeaders {
    /// Where to begin.
    pub(crate) const BEGIN: ReadPlace = (ROOT, HEADER_LEN);

    /// The places of the headers, which the file system's header says; `None` if it is none.
    pub(crate) fn places(begin: &[u8], len: u64) -> Option<[ReadPlace; 2]> {
        let (table, inodes) = (word_at(begin, TABLE_AT), word_at(begin, INODES_AT));
        let is_inside = |at: u64, size: u64| at != 0 && at < len && size <= len - at;
        let is_one = word_at(begin, 0) == MAGIC
            && is_inside(table, TABLE_HEADER_LEN)
            && is_inside(inodes, INODE_HEADER_LEN);
        let size = |len: u64| usize::try_from(len).ok();
        is_one.then_some(())?;
        Some([(table, size(TABLE_HEADER_LEN)?), (inodes, size(INODE_HEADER_LEN)?)])
    }

    /// The headers, read at [`Self::places`]; `None` if they are none.
    pub(crate) fn parse([table, inodes]: [Vec<u8>; 2]) -> Option<Self> {
        let is_one = word_at(&table, 0) == TABLE_MAGIC && word_at(&inodes, 0) == INODE_MAGIC;
        is_one.then_some(Self { table, inodes })
    }

    /// Whether they were read.
    pub(crate) fn is_known(&self) -> bool {
        !self.table.is_empty()
    }

    /// Where the first bucket of a hash is, and its index.
    pub(super) fn bucket(&self, hashed: u64) -> Walked<(u64, u64)> {
        let geometry = TableGeometry::parse(word_at(&self.table, place(TABLE_GEOMETRY_AT)));
        let geometry = geometry.ok_or(WalkStop::Unclear)?;
        let index = geometry.index(hashed);
        let (segment, at) = geometry.bucket(index);
        let start = word_at(&self.table, place(TABLE_SEGMENTS_AT + 8 * segment));
        Ok((start.checked_add(at).filter(|_| start != 0).ok_or(WalkStop::Moved)?, index))
    }

    /// Where an inode's record is.
    pub(super) fn record(&self, number: u64) -> Walked<u64> {
        let (segment, index) = inode_place(number);
        if number == 0 || segment >= INODE_SEGMENTS as u64 {
            return Err(WalkStop::Unclear);
        }
        let start = word_at(&self.inodes, place(INODE_SEGMENTS_AT + 8 * segment));
        let at = index.checked_mul(FsRecord::LEN as u64).and_then(|at| start.checked_add(at));
        at.filter(|_| start != 0).ok_or(WalkStop::Moved)
    }
}

/// An offset in a header.
fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
