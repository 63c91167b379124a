//! Building a manifest, one entry after the other in the order of a walk.
//!
//! Checks nothing before [`ManifestBuilder::finish`], which parses what was built.

use super::entry::TreeEntry;
use super::error::{ManifestError, ManifestFault};
use super::manifest::{ManifestHead, TreeLimits, TreeManifest, VERSION};
use super::owner::EntryOwner;
use std::collections::HashMap;

/// A manifest that grows.
#[derive(Debug)]
pub struct ManifestBuilder {
    limits: TreeLimits,
    records: Vec<u8>,
    entries: u32,
    owners: Vec<EntryOwner>,
    owner_indices: HashMap<(u32, u32), u32>,
}

impl ManifestBuilder {
    /// An empty manifest.
    #[must_use]
    pub fn new(limits: TreeLimits) -> Self {
        let (records, owners) = (Vec::new(), Vec::new());
        Self { limits, records, entries: 0, owners, owner_indices: HashMap::new() }
    }

    /// The index of an owner, whose names are asked for once.
    pub fn owner(&mut self, uid: u32, gid: u32, name: impl FnOnce() -> EntryOwner) -> u32 {
        let (owners, next) = (&mut self.owners, self.owner_indices.len());
        *self.owner_indices.entry((uid, gid)).or_insert_with(|| {
            owners.push(name());
            u32::try_from(next).unwrap_or(u32::MAX)
        })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`ManifestFault`] when there are more entries or bytes than the limits allow.
    ///
    /// # Panics
    /// Never: an entry is plain data.
    pub fn push(&mut self, entry: &TreeEntry<'_>) -> Result<(), ManifestFault> {
        if self.entries >= self.limits.entries_max {
            return Err(ManifestFault::TooMany(self.limits.entries_max));
        }
        let records = std::mem::take(&mut self.records);
        self.records = postcard::to_extend(entry, records).expect("an entry is plain data");
        self.entries += 1;
        let (len, max) = (self.records.len() as u64, self.limits.manifest_len_max);
        if len > max { Err(ManifestFault::TooLong { len, max }) } else { Ok(()) }
    }

    /// The manifest, checked.
    ///
    /// # Errors
    /// [`ManifestError`] for the first entry that breaks a rule.
    pub fn finish(self) -> Result<TreeManifest, ManifestError> {
        let limits = self.limits;
        TreeManifest::parse(self.into_bytes(), &limits)
    }

    /// The manifest's bytes, unchecked.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let head = ManifestHead { version: VERSION, entries: self.entries, owners: self.owners };
        let mut bytes = postcard::to_stdvec(&head).expect("a table is plain data");
        bytes.extend_from_slice(&self.records);
        bytes
    }
}
