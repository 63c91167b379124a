//! The client's end of the log: records are appended, and readers see them after `commit`.
//!
//! Never waits for readers. When the log is full its owner begins a new epoch, which overwrites the
//! old.

use crate::header::{EPOCH_AT, ExportHeader, LENGTH_AT};
use crate::record::{self, LogRecord, Position};
use outboard_mem::SharedRegion;

/// Why a record was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// This epoch has no room for it.
    Full,
    /// No epoch has room for it.
    TooLong,
}

#[derive(Debug)]
pub(crate) struct MetadataLog {
    region: SharedRegion,
    header: ExportHeader,
    /// Offset of the next record.
    end: u64,
    scratch: Vec<u8>,
}

/// Stores a word in little-endian order.
fn store(region: &SharedRegion, at: usize, word: u64) {
    let stored = region.store_u64(at, word.to_le());
    debug_assert!(stored.is_ok(), "the header lies inside the region: {stored:?}");
}

impl MetadataLog {
    /// `header` must describe `region`; the caller has checked that.
    pub(crate) fn new(region: SharedRegion, header: ExportHeader) -> Self {
        for (index, word) in header.words().into_iter().enumerate().rev() {
            store(&region, index * 8, word);
        }
        Self { region, header, end: 0, scratch: Vec::new() }
    }

    /// Bytes used, committed or not.
    pub(crate) fn used(&self) -> u64 {
        self.end
    }

    /// Capacity in bytes.
    pub(crate) fn room(&self) -> u64 {
        self.header.log_len
    }

    pub(crate) fn append(&mut self, record: &LogRecord) -> Result<(), NoRoom> {
        let at = Position { epoch: self.header.position.epoch, length: self.end };
        let frame = record::emit(record, at, std::mem::take(&mut self.scratch));
        let frame = frame.ok_or(NoRoom::TooLong)?;
        let written = self.write(&frame);
        self.scratch = frame;
        written
    }

    fn write(&mut self, frame: &[u8]) -> Result<(), NoRoom> {
        let end = self.end + frame.len() as u64;
        if frame.len() as u64 > self.header.log_len / 4 {
            return Err(NoRoom::TooLong);
        }
        if end > self.header.log_len {
            return Err(NoRoom::Full);
        }
        let at = usize::try_from(self.header.log_at + self.end).map_err(|_| NoRoom::Full)?;
        self.region.copy_in(at, frame).map_err(|_| NoRoom::Full)?;
        self.end = end;
        Ok(())
    }

    /// Makes the appended records visible to readers.
    pub(crate) fn commit(&mut self) -> Position {
        if self.header.position.length != self.end {
            self.header.position.length = self.end;
            store(&self.region, LENGTH_AT, self.end);
        }
        self.header.position
    }

    /// Empties the log. To readers of the old epoch its frames fail their checks.
    pub(crate) fn begin_epoch(&mut self) {
        self.end = 0;
        self.header.position = Position { epoch: self.header.position.epoch + 1, length: 0 };
        store(&self.region, LENGTH_AT, 0);
        store(&self.region, EPOCH_AT, self.header.position.epoch);
    }
}
