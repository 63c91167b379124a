//! A DDP header as it stood in an offending segment, readable or not.

use crate::ddp::{Header, UNTAGGED_LEN, header_len};

/// The bytes of a DDP header: its version or opcode may be what was wrong with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuotedHeader {
    bytes: [u8; UNTAGGED_LEN],
    len: usize,
}

impl QuotedHeader {
    /// The header at the start of a segment, tagged or untagged as its T bit says; `None` when the
    /// segment is too short for it.
    #[must_use]
    pub fn of(segment: &[u8]) -> Option<Self> {
        let len = header_len(*segment.first()?);
        let header = segment.get(..len)?;
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[..len].copy_from_slice(header);
        Some(Self { bytes, len })
    }

    /// The bytes, 14 or 18 of them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The header, if it can be read.
    #[must_use]
    pub fn header(&self) -> Option<Header> {
        Header::parse(self.as_bytes()).ok().map(|(header, _)| header)
    }
}

impl From<Header> for QuotedHeader {
    fn from(header: Header) -> Self {
        let mut bytes = [0; UNTAGGED_LEN];
        let len = header.len();
        match header {
            Header::Tagged(tagged) => bytes[..len].copy_from_slice(&tagged.to_bytes()),
            Header::Untagged(untagged) => bytes[..len].copy_from_slice(&untagged.to_bytes()),
        }
        Self { bytes, len }
    }
}

impl std::fmt::Debug for QuotedHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.header() {
            Some(header) => header.fmt(f),
            None => write!(f, "unreadable {:02x?}", self.as_bytes()),
        }
    }
}
