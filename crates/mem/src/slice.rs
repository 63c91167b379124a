//! A checked part of a shared region; offsets are relative to the part.
//!
//! It does what [`SharedRegion`] does and can never reach a byte outside its range.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use crate::error::MemError;
use crate::shared::{SharedRegion, Span};

/// A range of a [`SharedRegion`], which it keeps alive.
#[derive(Clone, Debug)]
pub struct SharedSlice {
    region: SharedRegion,
    /// `start + len <= region.len()`, so sums of checked offsets below never overflow.
    start: usize,
    len: usize,
}

impl From<SharedRegion> for SharedSlice {
    fn from(region: SharedRegion) -> Self {
        let len = region.len();
        Self { region, start: 0, len }
    }
}

impl SharedSlice {
    /// The bytes `start..start + len` of `region`.
    pub(crate) fn new(region: SharedRegion, start: usize, len: usize) -> Result<Self, MemError> {
        check(start, len, region.len())?;
        Ok(Self { region, start, len })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole region.
    #[must_use]
    pub fn region(&self) -> &SharedRegion {
        &self.region
    }

    /// Where in the region this is.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// A part of this part.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn slice(&self, range: Range<usize>) -> Result<Self, MemError> {
        let within = self.within(range)?;
        Self::new(self.region.clone(), within.start, within.len())
    }

    /// See [`SharedRegion::copy_out`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), MemError> {
        check(offset, into.len(), self.len)?;
        self.region.copy_out(self.start + offset, into)
    }

    /// See [`SharedRegion::copy_in`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        check(offset, bytes.len(), self.len)?;
        self.region.copy_in(self.start + offset, bytes)
    }

    /// See [`SharedRegion::snapshot`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn snapshot(&self, range: Range<usize>) -> Result<Vec<u8>, MemError> {
        self.region.snapshot(self.within(range)?)
    }

    /// See [`SharedRegion::append_to`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is appended.
    pub fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<(), MemError> {
        self.region.append_to(self.within(range)?, out)
    }

    /// See [`SharedRegion::write_to`].
    ///
    /// # Errors
    /// As there.
    pub fn write_to(&self, range: Range<usize>, file: impl AsFd, at: u64) -> io::Result<()> {
        let outside = |_: MemError| io::Error::from_raw_os_error(libc::EINVAL);
        self.region.write_to(self.within(range).map_err(outside)?, file, at)
    }

    /// See [`SharedRegion::load_u64`]; the address must be 8-aligned, not the offset.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemError> {
        check(offset, 8, self.len)?;
        self.region.load_u64(self.start + offset)
    }

    /// See [`SharedRegion::store_u64`]; the address must be 8-aligned, not the offset.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemError> {
        check(offset, 8, self.len)?;
        self.region.store_u64(self.start + offset, value)
    }

    /// See [`SharedRegion::fetch_update_u64`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Unaligned`].
    pub fn fetch_update_u64(
        &self,
        offset: usize,
        f: impl FnMut(u64) -> u64,
    ) -> Result<u64, MemError> {
        check(offset, 8, self.len)?;
        self.region.fetch_update_u64(self.start + offset, f)
    }

    /// See [`SharedRegion::span`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn span(&self, range: Range<usize>) -> Result<Span, MemError> {
        self.region.span(self.within(range)?)
    }

    /// Translates a range of this part into one of the region.
    fn within(&self, range: Range<usize>) -> Result<Range<usize>, MemError> {
        let len = range_len(&range, self.len)?;
        check(range.start, len, self.len)?;
        Ok(self.start + range.start..self.start + range.end)
    }
}

/// Whether `len` bytes at `offset` lie inside `size`.
#[inline]
pub(crate) fn check(offset: usize, len: usize, size: usize) -> Result<(), MemError> {
    if offset > size || len > size - offset {
        return Err(MemError::OutOfBounds { offset, len, size });
    }
    Ok(())
}

/// Length of `range`; a range that ends before it starts is out of bounds.
pub(crate) fn range_len(range: &Range<usize>, size: usize) -> Result<usize, MemError> {
    let len = range.end.checked_sub(range.start);
    len.ok_or(MemError::OutOfBounds { offset: range.start, len: 0, size })
}
