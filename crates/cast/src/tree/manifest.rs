//! A manifest: all entries of a tree as validated bytes, with an index to reach each at once.
//!
//! A value is always legal: [`TreeManifest::parse`] refuses anything else. Beside the bytes it
//! takes 8 bytes an entry and 24 for each run of data in a file.

use super::check::{EntryCheck, TOP};
use super::entry::{DataExtent, EntryHead, TreeEntry};
use super::error::{ManifestError, ManifestFault};
use super::name::shown;
use super::owner::{EntryOwner, OWNERS_MAX};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The format's version.
pub(super) const VERSION: u8 = 1;
/// Bytes of the shortest entry: what a promised number of entries is measured by.
const ENTRY_LEN_MIN: usize = 7;

/// How large a tree may be. Each limit holds for what is scanned and for what a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// Entries of a manifest.
    pub entries_max: u32,
    /// Runs of data in all files together.
    pub extents_max: u64,
    /// Bytes of a manifest; at most 4 GiB less one.
    pub manifest_len_max: u64,
    /// Bytes of manifest and data together.
    pub stream_len_max: u64,
}

impl Default for TreeLimits {
    fn default() -> Self {
        let (entries_max, extents_max) = (16 << 20, 32 << 20);
        Self { entries_max, extents_max, manifest_len_max: 2 << 30, stream_len_max: 1 << 46 }
    }
}

/// What a manifest begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ManifestHead {
    pub(super) version: u8,
    pub(super) entries: u32,
    pub(super) owners: Vec<EntryOwner>,
}

/// Where an entry's bytes begin, and the entry of its directory.
#[derive(Clone, Copy, Debug)]
struct EntrySlot {
    at: u32,
    parent: u32,
}

/// Where in the stream a run of a file's data begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataStart {
    pub(super) stream_at: u64,
    pub(super) file_offset: u64,
    pub(super) entry: u32,
}

/// A validated manifest.
#[derive(Debug)]
pub struct TreeManifest {
    bytes: Box<[u8]>,
    owners: Vec<EntryOwner>,
    slots: Vec<EntrySlot>,
    tops: Vec<u32>,
    pub(super) data: Vec<DataStart>,
    stream_len: u64,
}

impl TreeManifest {
    /// Validates a manifest whole: its encoding, names, order, depth, attributes, extents and all
    /// sums.
    ///
    /// # Errors
    /// [`ManifestError`]: the source is at fault.
    pub fn parse(bytes: Vec<u8>, limits: &TreeLimits) -> Result<Self, ManifestError> {
        let whole = |fault| ManifestError { entry: 0, path: PathBuf::new(), fault };
        let max = limits.manifest_len_max.min(u64::from(u32::MAX));
        let len = bytes.len() as u64;
        if len > max {
            return Err(whole(ManifestFault::TooLong { len, max }));
        }
        let (owners, count, body_at) = parse_head(&bytes, limits).map_err(whole)?;
        let mut index = Index { stream_len: len, ..Index::default() };
        index
            .slots
            .reserve_exact(usize::try_from(count).unwrap_or(0).min(bytes.len() / ENTRY_LEN_MIN));
        index.fill(&bytes, body_at, count, EntryCheck::new(*limits, len, owners.len()))?;
        let Index { slots, tops, data, stream_len } = index;
        Ok(Self { bytes: bytes.into(), owners, slots, tops, data, stream_len })
    }

    /// The bytes that are cast.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is nothing in the tree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of manifest and data together.
    #[must_use]
    pub fn stream_len(&self) -> u64 {
        self.stream_len
    }

    /// The entries at the top, in ascending order.
    #[must_use]
    pub fn tops(&self) -> &[u32] {
        &self.tops
    }

    /// The owner of an entry.
    #[must_use]
    pub fn owner(&self, entry: &TreeEntry<'_>) -> Option<&EntryOwner> {
        usize::try_from(entry.owner).ok().and_then(|owner| self.owners.get(owner))
    }

    /// An entry.
    ///
    /// # Panics
    /// When there is no such entry: the caller counts from 0 to [`Self::len`].
    #[must_use]
    pub fn entry(&self, entry: u32) -> TreeEntry<'_> {
        let rest = &self.bytes[self.slot(entry).at as usize..];
        postcard::take_from_bytes(rest).expect("it was decoded when the manifest was parsed").0
    }

    /// The beginning of an entry: the same effort for a file of a million extents.
    pub(crate) fn head(&self, entry: u32) -> EntryHead<'_> {
        let rest = &self.bytes[self.slot(entry).at as usize..];
        postcard::take_from_bytes(rest).expect("it was decoded when the manifest was parsed").0
    }

    /// The directory that an entry lies in; `None` at the top.
    #[must_use]
    pub fn parent(&self, entry: u32) -> Option<u32> {
        Some(self.slot(entry).parent).filter(|&parent| parent != TOP)
    }

    /// Which of [`Self::tops`] an entry lies in or is.
    #[must_use]
    pub fn top_of(&self, entry: u32) -> usize {
        self.tops.partition_point(|&top| top <= entry).saturating_sub(1)
    }

    /// An entry's path relative to the destination.
    #[must_use]
    pub fn path(&self, entry: u32) -> Vec<u8> {
        let mut names = vec![self.head(entry).name];
        let mut at = entry;
        while let Some(parent) = self.parent(at) {
            names.push(self.head(parent).name);
            at = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn slot(&self, entry: u32) -> EntrySlot {
        self.slots[entry as usize]
    }
}

fn parse_head(
    bytes: &[u8],
    limits: &TreeLimits,
) -> Result<(Vec<EntryOwner>, u32, usize), ManifestFault> {
    match bytes.first() {
        Some(&VERSION) => {}
        Some(&other) => return Err(ManifestFault::Version(other)),
        None => return Err(ManifestFault::Malformed),
    }
    let (head, rest): (ManifestHead, _) =
        postcard::take_from_bytes(bytes).map_err(|_| ManifestFault::Malformed)?;
    if head.entries > limits.entries_max {
        return Err(ManifestFault::TooMany(limits.entries_max));
    }
    if head.owners.len() > OWNERS_MAX || !head.owners.iter().all(EntryOwner::is_legal) {
        return Err(ManifestFault::Owners);
    }
    Ok((head.owners, head.entries, bytes.len() - rest.len()))
}

/// What is found out in the one pass over a manifest's bytes.
#[derive(Debug, Default)]
struct Index {
    slots: Vec<EntrySlot>,
    tops: Vec<u32>,
    data: Vec<DataStart>,
    stream_len: u64,
}

impl Index {
    fn fill<'a>(
        &mut self,
        bytes: &'a [u8],
        body_at: usize,
        count: u32,
        mut check: EntryCheck<'a>,
    ) -> Result<(), ManifestError> {
        let mut rest = &bytes[body_at..];
        for index in 0..count {
            let at = bytes.len() - rest.len();
            let decoded = postcard::take_from_bytes::<TreeEntry<'a>>(rest);
            let refused =
                |name: &[u8], fault| ManifestError { entry: index, path: shown(name), fault };
            let (entry, after) = decoded.map_err(|_| refused(b"", ManifestFault::Malformed))?;
            let parent = check.admit(&entry).map_err(|fault| refused(entry.name, fault))?;
            self.note(index, at, parent, &entry.extents());
            rest = after;
        }
        match rest.len() {
            0 => Ok(()),
            more => Err(ManifestError {
                entry: count,
                path: PathBuf::new(),
                fault: ManifestFault::Trailing(more),
            }),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // a manifest has less than 4 GiB
    fn note(&mut self, index: u32, at: usize, parent: u32, extents: &[DataExtent]) {
        self.slots.push(EntrySlot { at: at as u32, parent });
        if parent == TOP {
            self.tops.push(index);
        }
        for extent in extents {
            let (stream_at, file_offset) = (self.stream_len, extent.offset);
            self.data.push(DataStart { stream_at, file_offset, entry: index });
            self.stream_len += extent.len;
        }
    }
}
