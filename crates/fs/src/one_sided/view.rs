//! Bytes of a region that were read, by where they are, and what a walk through them needs.

use super::headers::RegionHeaders;
use crate::protocol::FsLayout;
use crate::protocol::places::word_of;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Where bytes are in a region: from there on, so many.
pub(crate) type ReadPlace = (u64, usize);

/// Why a walk did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkStop {
    /// It needs these places as well.
    Missing(Vec<ReadPlace>),
    /// The headers are old: the table of names has grown, or there are more inodes.
    Moved,
    /// What was read says nothing that a client could say to a program: the module is asked.
    Unclear,
}

/// What a walk comes to.
pub(super) type Walked<T> = Result<T, WalkStop>;

/// Bytes of one state of a region.
#[derive(Debug, Default)]
pub(crate) struct SparseBytes(BTreeMap<u64, Vec<u8>>);

impl SparseBytes {
    /// Bytes that were read together.
    pub(crate) fn of(places: &[ReadPlace], read: Vec<Vec<u8>>) -> Self {
        let mut all: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for ((at, _), bytes) in places.iter().zip(read) {
            let known = all.entry(*at).or_default();
            if known.len() < bytes.len() {
                *known = bytes;
            }
        }
        Self(all)
    }

    fn bytes(&self, (at, len): ReadPlace) -> Option<&[u8]> {
        let (start, bytes) = self.0.range(..=at).next_back()?;
        let skip = usize::try_from(at - start).ok()?;
        bytes.get(skip..)?.get(..len)
    }
}

/// What a walk is given.
#[derive(Debug)]
pub(crate) struct RegionView<'a> {
    /// As they were read some time before.
    pub(super) headers: &'a RegionHeaders,
    /// What was read together.
    bytes: &'a SparseBytes,
    /// Bytes of the region.
    len: u64,
    used: RefCell<Vec<ReadPlace>>,
}

impl<'a> RegionView<'a> {
    /// A view of what was read.
    pub(crate) fn new(headers: &'a RegionHeaders, bytes: &'a SparseBytes, len: u64) -> Self {
        Self { headers, bytes, len, used: RefCell::default() }
    }

    /// Places that the walk has looked at.
    pub(crate) fn used(&self) -> Vec<ReadPlace> {
        self.used.borrow().clone()
    }

    /// Says of places that all of them are needed, so that they are read together.
    pub(super) fn need(&self, places: &[ReadPlace]) -> Walked<()> {
        let is_inside = |(at, len): &ReadPlace| {
            *at != 0 && at.checked_add(*len as u64).is_some_and(|end| end <= self.len)
        };
        if !places.iter().all(is_inside) {
            return Err(WalkStop::Unclear);
        }
        let mut used = self.used.borrow_mut();
        places.iter().for_each(|place| {
            if !used.contains(place) {
                used.push(*place);
            }
        });
        let is_missing = |place: &&ReadPlace| self.bytes.bytes(**place).is_none();
        let missing: Vec<_> = places.iter().filter(is_missing).copied().collect();
        if missing.is_empty() { Ok(()) } else { Err(WalkStop::Missing(missing)) }
    }

    /// Bytes of a place.
    pub(super) fn read(&self, at: u64, len: u64) -> Walked<&'a [u8]> {
        let place = (at, usize::try_from(len).map_err(|_| WalkStop::Unclear)?);
        self.need(&[place])?;
        self.bytes.bytes(place).ok_or(WalkStop::Unclear)
    }
}

/// The word at an offset of bytes that are known to have one.
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.get(..8)).map_or(0, word_of)
}

/// A value that bytes begin with.
pub(super) fn value<T: FsLayout>(bytes: &[u8]) -> Walked<T> {
    T::split(bytes).map(|(value, _)| value).ok_or(WalkStop::Unclear)
}
