//! DDP segment headers: where the bytes of a segment belong.
//!
//! RFC 5041 §4: a control field, then either STag and tagged offset (14 bytes) or queue, message
//! sequence number and message offset (18 bytes). The control field's second byte and the first
//! word after it are RDMAP's (RFC 5040 §4.1), so the opcode is read here as well.
//! This module never checks sequence numbers, queues or STags: that needs a connection.
//!
//! ```text
//! T 0x8000 | L 0x4000 | reserved 0x3c00 | DV 0x0300 | RV 0x00c0 | reserved 0x0030 | opcode 0x000f
//! ```

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::rdmap::Opcode;
use crate::terminate::TerminateCode;
use std::fmt;

/// Bytes of a tagged header.
pub const TAGGED_LEN: usize = 14;
/// Bytes of an untagged header.
pub const UNTAGGED_LEN: usize = 18;

/// Bytes of the control field both headers start with.
const CONTROL_LEN: usize = 2;
const DDP_VERSION: u8 = 1;
const RDMAP_VERSION: u8 = 1;

/// Queue numbers RDMAP uses (RFC 5040 §4.1, RFC 7306 §4.1).
pub mod queue {
    /// Sends of all kinds and immediate data.
    pub const SEND: u32 = 0;
    /// RDMA Read Requests and Atomic Requests.
    pub const READ_REQUEST: u32 = 1;
    /// The Terminate message.
    pub const TERMINATE: u32 = 2;
    /// Atomic Responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
}

mod control {
    pub(super) const TAGGED: u16 = 0x8000;
    pub(super) const LAST: u16 = 0x4000;
    pub(super) const VERSIONS: u16 = 0x0140;
    pub(super) const OPCODE: u16 = 0x000f;
}

mod tagged {
    pub(super) const STAG: usize = 2;
    pub(super) const OFFSET: usize = 6;
}

mod untagged {
    pub(super) const INVALIDATE: usize = 2;
    pub(super) const QUEUE: usize = 6;
    pub(super) const MSN: usize = 10;
    pub(super) const OFFSET: usize = 14;
}

/// A steering tag: the name of registered memory on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stag(pub u32);

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Header of a segment that names its place in the receiver's memory (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Write or Read Response.
    pub opcode: Opcode,
    /// L: last segment of its message.
    pub last: bool,
    /// The receiver's STag.
    pub stag: Stag,
    /// TO: where in the STag's memory this segment's payload goes, in bytes.
    pub offset: u64,
}

/// Header of a segment for the next buffer of a queue (RFC 5041 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Any opcode but Write and Read Response.
    pub opcode: Opcode,
    /// L: last segment of its message.
    pub last: bool,
    /// The STag to invalidate; senders put 0 for opcodes without Invalidate, receivers ignore it.
    pub invalidate: Stag,
    /// QN, see [`queue`]. Whether it fits the opcode is the receiver's to check.
    pub queue: u32,
    /// MSN: number of the message on its queue, the first is 1.
    pub msn: u32,
    /// MO: where in the message this segment's payload goes, in bytes.
    pub offset: u32,
}

impl Tagged {
    fn parse(header: &[u8; TAGGED_LEN], opcode: Opcode, last: bool) -> Self {
        Self {
            opcode,
            last,
            stag: Stag(u32_at(header, tagged::STAG)),
            offset: u64_at(header, tagged::OFFSET),
        }
    }

    /// The header's bytes; their length is [`TAGGED_LEN`].
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; TAGGED_LEN] {
        let mut header = [0; TAGGED_LEN];
        put(&mut header, 0, control_field(self.opcode, self.last).to_be_bytes());
        put(&mut header, tagged::STAG, self.stag.0.to_be_bytes());
        put(&mut header, tagged::OFFSET, self.offset.to_be_bytes());
        header
    }
}

impl Untagged {
    fn parse(header: &[u8; UNTAGGED_LEN], opcode: Opcode, last: bool) -> Self {
        Self {
            opcode,
            last,
            invalidate: Stag(u32_at(header, untagged::INVALIDATE)),
            queue: u32_at(header, untagged::QUEUE),
            msn: u32_at(header, untagged::MSN),
            offset: u32_at(header, untagged::OFFSET),
        }
    }

    /// The header's bytes; their length is [`UNTAGGED_LEN`].
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; UNTAGGED_LEN] {
        let mut header = [0; UNTAGGED_LEN];
        put(&mut header, 0, control_field(self.opcode, self.last).to_be_bytes());
        put(&mut header, untagged::INVALIDATE, self.invalidate.0.to_be_bytes());
        put(&mut header, untagged::QUEUE, self.queue.to_be_bytes());
        put(&mut header, untagged::MSN, self.msn.to_be_bytes());
        put(&mut header, untagged::OFFSET, self.offset.to_be_bytes());
        header
    }
}

/// Either DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Tagged buffer model.
    Tagged(Tagged),
    /// Untagged buffer model.
    Untagged(Untagged),
}

impl Header {
    /// Reads the header at the start of a ULPDU: the header and its length in bytes. Reserved bits
    /// are ignored.
    ///
    /// # Errors
    /// In this order: no control field, unknown DDP version, header cut short, unknown RDMAP
    /// version, unknown opcode or one that does not go with this kind of header.
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, usize), HeaderError> {
        let found = ulpdu.len();
        let Some(field) = ulpdu.first_chunk::<CONTROL_LEN>() else {
            return Err(HeaderError::TooShort { expected: CONTROL_LEN, found });
        };
        let control = Control::parse(u16_at(field, 0))?;
        if control.tagged {
            let Some(header) = ulpdu.first_chunk() else {
                return Err(HeaderError::TooShort { expected: TAGGED_LEN, found });
            };
            let tagged = Tagged::parse(header, control.opcode()?, control.last);
            return Ok((Self::Tagged(tagged), TAGGED_LEN));
        }
        let Some(header) = ulpdu.first_chunk() else {
            return Err(HeaderError::TooShort { expected: UNTAGGED_LEN, found });
        };
        let untagged = Untagged::parse(header, control.opcode()?, control.last);
        Ok((Self::Untagged(untagged), UNTAGGED_LEN))
    }

    /// Appends the header, [`len`](Self::len) bytes, to `out`. Reserved bits are 0.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Tagged(header) => out.extend_from_slice(&header.to_bytes()),
            Self::Untagged(header) => out.extend_from_slice(&header.to_bytes()),
        }
    }

    /// What the segment is part of.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Tagged(header) => header.opcode,
            Self::Untagged(header) => header.opcode,
        }
    }

    /// Whether this is the last segment of its message.
    #[inline]
    #[must_use]
    pub const fn last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }

    /// Bytes of the header on the wire.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }
}

/// Bytes of the DDP header whose control field starts with `first`, whatever its versions say.
pub(crate) const fn header_len(first: u8) -> usize {
    if first & 0x80 != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
}

/// A control field of a known DDP version.
struct Control {
    tagged: bool,
    last: bool,
    /// RV, two reserved bits, opcode.
    rdmap: u8,
}

impl Control {
    fn parse(field: u16) -> Result<Self, HeaderError> {
        let tagged = field & control::TAGGED != 0;
        let [ddp, rdmap] = field.to_be_bytes();
        match ddp & 3 {
            DDP_VERSION => Ok(Self { tagged, last: field & control::LAST != 0, rdmap }),
            found => Err(HeaderError::DdpVersion { tagged, found }),
        }
    }

    fn opcode(&self) -> Result<Opcode, HeaderError> {
        let version = self.rdmap >> 6;
        if version != RDMAP_VERSION {
            return Err(HeaderError::RdmapVersion { found: version });
        }
        let found = self.rdmap & 0x0f;
        match Opcode::from_code(found) {
            Some(opcode) if opcode.is_tagged() == self.tagged => Ok(opcode),
            _ => Err(HeaderError::Opcode { tagged: self.tagged, found }),
        }
    }
}

/// The control field to send. T follows from the opcode, so the two never contradict.
#[inline]
fn control_field(opcode: Opcode, last: bool) -> u16 {
    let tagged = if opcode.is_tagged() { control::TAGGED } else { 0 };
    let last = if last { control::LAST } else { 0 };
    tagged | last | control::VERSIONS | (u16::from(opcode.code()) & control::OPCODE)
}

/// Why a DDP or RDMAP header cannot be read; always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The segment ends inside a header.
    #[error("peer's segment has {found} bytes, its header needs {expected}; terminate the stream")]
    TooShort {
        /// Bytes the header needs.
        expected: usize,
        /// Bytes there were.
        found: usize,
    },
    /// DV is not 1.
    #[error("peer speaks DDP version {found}, expected {DDP_VERSION}; terminate the stream")]
    DdpVersion {
        /// Whether the segment is tagged.
        tagged: bool,
        /// The version found.
        found: u8,
    },
    /// RV is not 1.
    #[error("peer speaks RDMAP version {found}, expected {RDMAP_VERSION}; terminate the stream")]
    RdmapVersion {
        /// The version found.
        found: u8,
    },
    /// An unknown opcode, or a known one in a header of the other kind.
    #[error(
        "peer's {} segment has opcode {found:#x}, which does not belong there; \
         terminate the stream",
        if *tagged { "tagged" } else { "untagged" }
    )]
    Opcode {
        /// Whether the segment is tagged.
        tagged: bool,
        /// The opcode found.
        found: u8,
    },
    /// An Atomic Request's operation is neither FetchAdd nor CmpSwap (RFC 7306 §5.2.1).
    #[error("peer asks for atomic operation {found}, expected 0 or 2; terminate the stream")]
    AtomicOp {
        /// The atomic operation code found.
        found: u8,
    },
}

impl HeaderError {
    /// The code of the Terminate to send (RFC 5040 §4.8, RFC 5041 §7.2). Nothing names a segment
    /// that is too short for its header: it becomes the unspecified remote operation error.
    #[must_use]
    pub const fn terminate_code(&self) -> TerminateCode {
        match self {
            Self::TooShort { .. } => TerminateCode::OPERATION_UNSPECIFIED,
            Self::DdpVersion { tagged: true, .. } => TerminateCode::TAGGED_VERSION,
            Self::DdpVersion { tagged: false, .. } => TerminateCode::UNTAGGED_VERSION,
            Self::RdmapVersion { .. } => TerminateCode::OPERATION_VERSION,
            Self::Opcode { .. } | Self::AtomicOp { .. } => TerminateCode::OPERATION_OPCODE,
        }
    }
}

#[cfg(test)]
mod tests;
