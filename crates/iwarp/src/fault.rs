//! Faults, mostly the peer's, and the Terminate that reports them (RFC 5040 §4.8 and §7,
//! RFC 5041 §7.2, RFC 5044 §8, RFC 7306 §8). Building one changes nothing; [`crate::Connection`]
//! acts on it.

use outboard_mem::AccessError;
use outboard_wire::ddp::{Header, HeaderError};
use outboard_wire::marker::FramingError;
use outboard_wire::rdmap::ReadRequest;
use outboard_wire::terminate::{QuotedHeader, Terminate, TerminateCode};

/// A fault as the Terminate will report it to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Layer, type and code.
    pub code: TerminateCode,
    /// The DDP header of the offending segment and the segment's length in bytes.
    pub segment: Option<(QuotedHeader, u16)>,
    /// The Read Request, where one was refused.
    pub read_request: Option<ReadRequest>,
}

impl Fault {
    /// A fault below DDP, or one whose header could not be read.
    pub fn bare(code: TerminateCode) -> Self {
        Self { code, segment: None, read_request: None }
    }

    /// Not the peer's fault: local memory cannot be used as a request wants. The stream cannot go
    /// on either (RFC 5040 §4.8: local catastrophic error).
    pub fn local() -> Self {
        Self::bare(TerminateCode::RDMAP_CATASTROPHIC)
    }

    /// True for [`Fault::local`]: the peer did nothing wrong.
    pub fn is_local(&self) -> bool {
        self.code == TerminateCode::RDMAP_CATASTROPHIC
    }

    /// A fault of a segment that arrived whole enough to quote its header.
    pub fn of(code: TerminateCode, header: Header, segment_len: usize) -> Self {
        let len = u16::try_from(segment_len).unwrap_or(u16::MAX);
        Self { code, segment: Some((header.into(), len)), read_request: None }
    }

    /// A fault of a segment whose header cannot be read: it is quoted as it came.
    pub fn unreadable(error: HeaderError, segment: &[u8], segment_len: usize) -> Self {
        let len = u16::try_from(segment_len).unwrap_or(u16::MAX);
        let quoted = QuotedHeader::of(segment).map(|header| (header, len));
        Self { code: error.terminate_code(), segment: quoted, read_request: None }
    }

    /// The same, quoting the Read Request too.
    pub fn with_read_request(mut self, request: ReadRequest) -> Self {
        self.read_request = Some(request);
        self
    }

    /// The Terminate message that reports this fault.
    pub fn to_terminate(&self) -> Terminate {
        Terminate {
            code: self.code,
            segment_len: self.segment.map(|(_, len)| len),
            ddp: self.segment.map(|(header, _)| header),
            read_request: self.read_request,
        }
    }
}

impl From<FramingError> for Fault {
    fn from(error: FramingError) -> Self {
        Self::bare(error.terminate_code())
    }
}

/// Content that RDMAP cannot read; where there is a header to quote, [`Fault::unreadable`] does.
impl From<HeaderError> for Fault {
    fn from(error: HeaderError) -> Self {
        Self::bare(error.terminate_code())
    }
}

/// The DDP code for a refused tagged placement (RFC 5041 §7.2). The RFC has no code for missing
/// rights: an STag without them is not valid for this stream (§7.1 rule 1).
pub fn tagged_code(error: AccessError) -> TerminateCode {
    match error {
        AccessError::InvalidStag | AccessError::NoRight => TerminateCode::TAGGED_INVALID_STAG,
        AccessError::OtherDomain => TerminateCode::TAGGED_NOT_ASSOCIATED,
        AccessError::OutOfBounds => TerminateCode::TAGGED_BOUNDS,
        AccessError::Wraps => TerminateCode::TAGGED_WRAP,
    }
}

/// The RDMAP code for a refused Read, atomic or invalidation (RFC 5040 figure 9).
pub fn protection_code(error: AccessError) -> TerminateCode {
    match error {
        AccessError::InvalidStag => TerminateCode::PROTECTION_INVALID_STAG,
        AccessError::OtherDomain => TerminateCode::PROTECTION_NOT_ASSOCIATED,
        AccessError::NoRight => TerminateCode::PROTECTION_ACCESS,
        AccessError::OutOfBounds => TerminateCode::PROTECTION_BOUNDS,
        AccessError::Wraps => TerminateCode::PROTECTION_WRAP,
    }
}
