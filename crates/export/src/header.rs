//! The first bytes of the exported region: the length of the log and the layout of the region.
//!
//! ```text
//!  0 magic   8 epoch   16 length of the log   24 log's place   32 its room
//! 40 ring's place   48 its room   56 hidden names: 0 withheld, 1 exported
//! ```
//!
//! Words of 64 bits, little-endian. The client stores `epoch` and `length` one by one, so a reader
//! may see an old value of one of them: the checks in the log's frames reveal that (see `record`).

use crate::error::MetadataLogError;
use crate::path::HiddenNames;
use crate::record::Position;

/// Bytes of a header, to be read from the beginning of the region.
pub const HEADER_LEN: usize = 64;
/// "outbexp" and the version of the format.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"outbexp\x01");
/// Bytes of a log, at most: the most that a server follows.
pub const LOG_LEN_MAX: u64 = 1 << 30;

pub(crate) const EPOCH_AT: usize = 8;
pub(crate) const LENGTH_AT: usize = 16;

/// A consistent header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    /// The end of the log.
    pub position: Position,
    /// Offset of the log in the region.
    pub log_at: u64,
    /// Capacity of the log in bytes.
    pub log_len: u64,
    /// Offset of the snapshots in the region.
    pub arena_at: u64,
    /// Capacity for snapshots in bytes.
    pub arena_len: u64,
    /// What the export does with hidden names.
    pub hidden_names: HiddenNames,
}

impl ExportHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// [`MetadataLogError::Header`] if it is no header of this version, or inconsistent.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataLogError> {
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(MetadataLogError::Header)
        };
        let position = Position { epoch: word(1)?, length: word(2)? };
        let header = Self {
            position,
            log_at: word(3)?,
            log_len: word(4)?,
            arena_at: word(5)?,
            arena_len: word(6)?,
            hidden_names: match word(7)? {
                0 => HiddenNames::Withheld,
                1 => HiddenNames::Exported,
                _ => return Err(MetadataLogError::Header),
            },
        };
        let sound = word(0)? == MAGIC && header.is_sound();
        if sound { Ok(header) } else { Err(MetadataLogError::Header) }
    }

    fn is_sound(&self) -> bool {
        let log_end = self.log_at.checked_add(self.log_len);
        let log_fits = log_end.is_some_and(|end| end <= self.arena_at);
        let arena_fits = self.arena_at.checked_add(self.arena_len).is_some();
        let length_fits = self.position.length <= self.log_len && self.log_len <= LOG_LEN_MAX;
        self.position.epoch > 0 && log_fits && arena_fits && length_fits
    }

    /// The words in their order in the region.
    pub(crate) fn words(&self) -> [u64; 8] {
        let Position { epoch, length } = self.position;
        let hidden_names = u64::from(self.hidden_names == HiddenNames::Exported);
        let (log, arena) = ([self.log_at, self.log_len], [self.arena_at, self.arena_len]);
        [MAGIC, epoch, length, log[0], log[1], arena[0], arena[1], hidden_names]
    }
}
