//! The first octets of the exported region: how far the log has come, and where everything lies.
//!
//! ```text
//!  0 magic   8 epoch   16 length of the log   24 log's place   32 its room
//! 40 arena's place   48 its room   56 zero
//! ```
//!
//! Words of 64 bits, little-endian. The client stores `epoch` and `length` one by one, so that a
//! reader may see one of them old: the frames of the log tell (see `record`).

use crate::error::CatalogueError;
use crate::record::Position;

/// Octets of a header, to be read from the beginning of the region.
pub const HEADER_LEN: usize = 64;
/// "outbexp" and the version of the format.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"outbexp\x01");
/// Room for a log, at most: what a server will follow.
pub const LOG_LEN_MAX: u64 = 1 << 30;

pub(crate) const EPOCH_AT: usize = 8;
pub(crate) const LENGTH_AT: usize = 16;

/// A header that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How far the log has come.
    pub position: Position,
    /// Where the log begins: octets from the beginning of the region.
    pub log_at: u64,
    /// Octets that the log has room for.
    pub log_len: u64,
    /// Where snapshots may lie.
    pub arena_at: u64,
    /// Octets that they have room for.
    pub arena_len: u64,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`CatalogueError::Header`] if it is no header of ours, or says what cannot be.
    pub fn parse(octets: &[u8]) -> Result<Self, CatalogueError> {
        let word = |index: usize| {
            let octets = octets.get(index * 8..).and_then(|rest| rest.first_chunk());
            octets.map(|octets| u64::from_le_bytes(*octets)).ok_or(CatalogueError::Header)
        };
        let position = Position { epoch: word(1)?, length: word(2)? };
        let header = Self {
            position,
            log_at: word(3)?,
            log_len: word(4)?,
            arena_at: word(5)?,
            arena_len: word(6)?,
        };
        let sound = word(0)? == MAGIC && header.is_sound();
        if sound { Ok(header) } else { Err(CatalogueError::Header) }
    }

    fn is_sound(&self) -> bool {
        let log_end = self.log_at.checked_add(self.log_len);
        let log_fits = log_end.is_some_and(|end| end <= self.arena_at);
        let arena_fits = self.arena_at.checked_add(self.arena_len).is_some();
        let length_fits = self.position.length <= self.log_len && self.log_len <= LOG_LEN_MAX;
        self.position.epoch > 0 && log_fits && arena_fits && length_fits
    }

    /// The words as they stand in the region.
    pub(crate) fn words(&self) -> [u64; 7] {
        let Position { epoch, length } = self.position;
        [MAGIC, epoch, length, self.log_at, self.log_len, self.arena_at, self.arena_len]
    }
}
