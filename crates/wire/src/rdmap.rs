//! RDMAP: what a message means, and the headers that follow the DDP header in some of them.
//!
//! RFC 5040 §4.1 (opcodes) and §4.4 (Read Request); RFC 7306 §4.1 (more opcodes) and §5
//! (atomics). `parse` reads the header from the start of a message and leaves anything behind it
//! alone: a receiver that cares compares the message's length with `LEN`.
//! This module never touches memory: [`AtomicRequest::apply`] maps one value to another.

use crate::bytes::{put, u32_at, u64_at};
use crate::ddp::{HeaderError, Stag, queue};

/// Bytes of the payload of an Immediate Data message (RFC 7306 §6.2).
pub const IMMEDIATE_LEN: usize = 8;

/// The RDMAP opcodes (RFC 5040 §4.1, RFC 7306 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write: place the payload in the receiver's memory.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response: place the payload in the requester's memory.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate: an error report, the last message of a stream.
    Terminate = 7,
    /// Immediate Data.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
}

impl Opcode {
    /// All opcodes, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The opcode with this code, if there is one.
    #[inline]
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Its code on the wire, 4 bits.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether its segments are tagged.
    #[inline]
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        self.queue().is_none()
    }

    /// The queue its untagged segments go to; none when they are tagged.
    #[inline]
    #[must_use]
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(queue::READ_REQUEST),
            Self::Terminate => Some(queue::TERMINATE),
            Self::AtomicResponse => Some(queue::ATOMIC_RESPONSE),
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::Immediate
            | Self::ImmediateSolicited => Some(queue::SEND),
        }
    }

    /// Whether its header carries an STag to invalidate.
    #[inline]
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Whether it asks the receiver for a solicited event.
    #[inline]
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited
        )
    }
}

/// The first `N` bytes of `message`.
fn header<const N: usize>(message: &[u8]) -> Result<&[u8; N], HeaderError> {
    let too_short = HeaderError::TooShort { expected: N, found: message.len() };
    message.first_chunk().ok_or(too_short)
}

/// RDMA Read Request header (RFC 5040 §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's STag, where the response goes.
    pub sink_stag: Stag,
    /// Where in it, in bytes.
    pub sink_offset: u64,
    /// Bytes to read.
    pub size: u32,
    /// The responder's STag, to read from.
    pub source_stag: Stag,
    /// Where in it, in bytes.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    /// Reads the header at the start of `message`.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`].
    pub fn parse(message: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; Self::LEN] = header(message)?;
        Ok(Self {
            sink_stag: Stag(u32_at(header, 0)),
            sink_offset: u64_at(header, 4),
            size: u32_at(header, 12),
            source_stag: Stag(u32_at(header, 16)),
            source_offset: u64_at(header, 20),
        })
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut header = [0; Self::LEN];
        put(&mut header, 0, self.sink_stag.0.to_be_bytes());
        put(&mut header, 4, self.sink_offset.to_be_bytes());
        put(&mut header, 12, self.size.to_be_bytes());
        put(&mut header, 16, self.source_stag.0.to_be_bytes());
        put(&mut header, 20, self.source_offset.to_be_bytes());
        out.extend_from_slice(&header);
    }
}

/// Atomic operations (RFC 7306 §5.2.1, figure 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Code 0: add, in one or more fields.
    FetchAdd,
    /// Code 2: compare some bits, replace some bits.
    CompareSwap,
}

impl AtomicOp {
    /// The operation with this 4-bit code.
    fn from_code(code: u8) -> Result<Self, HeaderError> {
        match code {
            0 => Ok(Self::FetchAdd),
            2 => Ok(Self::CompareSwap),
            found => Err(HeaderError::AtomicOp { found }),
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::FetchAdd => 0,
            Self::CompareSwap => 2,
        }
    }
}

/// Atomic Request header (RFC 7306 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// What to do.
    pub op: AtomicOp,
    /// Chosen by the requester, returned in the response.
    pub request_id: u32,
    /// The responder's STag.
    pub stag: Stag,
    /// Where in it, in bytes; must come to a multiple of 8 in the responder's memory.
    pub offset: u64,
    /// What to add, or to put in place.
    pub add_swap: u64,
    /// FetchAdd: the top bit of every field, 0 for one field of 64 bits. CompareSwap: the bits to
    /// replace.
    pub add_swap_mask: u64,
    /// CompareSwap: the expected value. FetchAdd: 0 on the wire, whatever is here.
    pub compare: u64,
    /// CompareSwap: the bits to compare. FetchAdd: all ones on the wire, whatever is here.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// Bytes of the header.
    pub const LEN: usize = 52;

    /// Reads the header at the start of `message`. A FetchAdd's compare fields are ignored and
    /// read as 0 and all ones.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`]; [`HeaderError::AtomicOp`] for an unknown operation.
    pub fn parse(message: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; Self::LEN] = header(message)?;
        let raw = Self {
            op: AtomicOp::from_code(header[3] & 0x0f)?,
            request_id: u32_at(header, 4),
            stag: Stag(u32_at(header, 8)),
            offset: u64_at(header, 12),
            add_swap: u64_at(header, 20),
            add_swap_mask: u64_at(header, 28),
            compare: u64_at(header, 36),
            compare_mask: u64_at(header, 44),
        };
        let (compare, compare_mask) = raw.compare_on_wire();
        Ok(Self { compare, compare_mask, ..raw })
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (compare, compare_mask) = self.compare_on_wire();
        let mut header = [0; Self::LEN];
        put(&mut header, 0, self.op.code().to_be_bytes());
        put(&mut header, 4, self.request_id.to_be_bytes());
        put(&mut header, 8, self.stag.0.to_be_bytes());
        put(&mut header, 12, self.offset.to_be_bytes());
        put(&mut header, 20, self.add_swap.to_be_bytes());
        put(&mut header, 28, self.add_swap_mask.to_be_bytes());
        put(&mut header, 36, compare.to_be_bytes());
        put(&mut header, 44, compare_mask.to_be_bytes());
        out.extend_from_slice(&header);
    }

    /// The two compare fields, which a FetchAdd does not have.
    const fn compare_on_wire(&self) -> (u64, u64) {
        match self.op {
            AtomicOp::FetchAdd => (0, !0),
            AtomicOp::CompareSwap => (self.compare, self.compare_mask),
        }
    }

    /// The value to store where `original` was found, both in the host's byte order.
    #[must_use]
    pub const fn apply(&self, original: u64) -> u64 {
        let mask = self.add_swap_mask;
        match self.op {
            AtomicOp::FetchAdd => add_in_fields(original, self.add_swap, mask),
            AtomicOp::CompareSwap if (self.compare ^ original) & self.compare_mask == 0 => {
                (original & !mask) | (self.add_swap & mask)
            }
            AtomicOp::CompareSwap => original,
        }
    }
}

/// Adds every field of `b` to the same field of `a`; `tops` has the top bit of each field set.
///
/// RFC 7306 §5.1.1 says it bit by bit; here the top bits are left out of one ordinary addition, so
/// that no carry leaves a field, and added without carry afterwards.
const fn add_in_fields(a: u64, b: u64, tops: u64) -> u64 {
    (a & !tops).wrapping_add(b & !tops) ^ ((a ^ b) & tops)
}

/// Atomic Response header (RFC 7306 §5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request's identifier.
    pub request_id: u32,
    /// The value found before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Bytes of the header.
    pub const LEN: usize = 12;

    /// Reads the header at the start of `message`.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`].
    pub fn parse(message: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; Self::LEN] = header(message)?;
        Ok(Self { request_id: u32_at(header, 0), original: u64_at(header, 4) })
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut header = [0; Self::LEN];
        put(&mut header, 0, self.request_id.to_be_bytes());
        put(&mut header, 4, self.original.to_be_bytes());
        out.extend_from_slice(&header);
    }
}

#[cfg(test)]
mod tests;
