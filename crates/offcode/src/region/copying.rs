//! Copies of a region as of one commit, made while commits go on: whoever copies is told which
//! pages have changed meanwhile, copies these again, and keeps commits out only for the last few.

use super::{ActiveRegion, RegionWriter};
use crate::abi::LINE;
use crate::write_set::WrittenLine;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the pages that are told.
pub const COPY_PAGE: usize = 4096;

/// The pages that commits have changed since a copy was begun; `None` while nobody copies.
#[derive(Debug, Default)]
pub(super) struct ChangedPages {
    numbers: Mutex<Option<BTreeSet<u64>>>,
}

impl ChangedPages {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<u64>>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a commit is about to change. The caller is the region's writer until it has.
    pub(super) fn note(&self, lines: &[WrittenLine]) {
        if let Some(numbers) = &mut *self.lock() {
            numbers.extend(lines.iter().map(|line| line.number * LINE / COPY_PAGE as u64));
        }
    }
}

/// See this file's first lines. One at a time.
#[derive(Debug)]
pub struct RegionCopying<'a> {
    region: &'a ActiveRegion,
}

impl ActiveRegion {
    /// Begins a copy: what is read of its memory from now on is of one commit together with the
    /// pages that are told later, read again. A copy that was begun before is told nothing more.
    #[must_use]
    pub fn begin_copy(&self) -> RegionCopying<'_> {
        let _writer = self.writer();
        *self.changed.lock() = Some(BTreeSet::new());
        RegionCopying { region: self }
    }
}

impl<'a> RegionCopying<'a> {
    /// Offsets of the pages that have changed since this was asked last. What they hold now may
    /// change again.
    #[must_use]
    pub fn changed(&self) -> Vec<u64> {
        self.changed_until(&self.region.writer())
    }

    /// Keeps commits out until the result is dropped; offsets of the last pages that have changed.
    #[must_use]
    pub fn finish(self) -> (RegionWriter<'a>, Vec<u64>) {
        let writer = self.region.writer();
        let changed = self.changed_until(&writer);
        (writer, changed)
    }

    /// While a commit is being applied its pages are not told: the writer is.
    fn changed_until(&self, _writer: &RegionWriter<'_>) -> Vec<u64> {
        let numbers = self.region.changed.lock().as_mut().map(std::mem::take).unwrap_or_default();
        numbers.into_iter().map(|number| number * COPY_PAGE as u64).collect()
    }
}

impl Drop for RegionCopying<'_> {
    fn drop(&mut self) {
        *self.region.changed.lock() = None;
    }
}
