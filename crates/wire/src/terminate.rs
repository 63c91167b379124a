//! The Terminate message: which layer found which error, and in which segment.
//!
//! RFC 5040 §4.8: a control word, then as its bits say the DDP segment length, the terminated DDP
//! header and the terminated Read Request header. Codes come from RFC 5040 figure 9, RFC 5041
//! §7.2, RFC 5044 §8 and RFC 6581 §8. This module never decides which headers to include (RFC
//! 5040 figure 10 does) and sends the RFC's layout only, but also reads that of Linux's siw.

use crate::bytes::u16_at;
use crate::ddp::{HeaderError, header_len};
use crate::rdmap::ReadRequest;

mod code;
mod quoted;
pub use code::TerminateCode;
pub use quoted::QuotedHeader;

/// Bytes of the control word.
const CONTROL_LEN: usize = 4;
/// Bytes of the DDP segment length.
const LENGTH_LEN: usize = 2;

/// How the control word's bits were laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As RFC 5040 says.
    Rfc,
    /// As little-endian Linux's siw sends it: nibbles of the first byte exchanged, M D R the
    /// lowest bits of the third byte.
    Siw,
}

/// Payload of a Terminate message, behind its DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// What went wrong.
    pub code: TerminateCode,
    /// M: length of the terminated DDP segment in bytes, as MPA handed it up.
    pub segment_len: Option<u16>,
    /// D: its DDP header, as it came.
    pub ddp: Option<QuotedHeader>,
    /// R: its Read Request header, advanced to where the response stopped.
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// A report of `code` alone.
    #[must_use]
    pub const fn new(code: TerminateCode) -> Self {
        Self { code, segment_len: None, ddp: None, read_request: None }
    }

    /// Appends the payload to `out`, which holds the 18-byte DDP header already.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let TerminateCode { layer, etype, code } = self.code;
        let headers = Headers {
            length: self.segment_len.is_some(),
            ddp: self.ddp.is_some(),
            read_request: self.read_request.is_some(),
        };
        out.extend_from_slice(&[layer << 4 | etype & 0x0f, code, headers.to_bits(), 0]);
        if headers.length || headers.ddp {
            out.extend_from_slice(&self.segment_len.unwrap_or(0).to_be_bytes());
        }
        if let Some(header) = &self.ddp {
            out.extend_from_slice(header.as_bytes());
        }
        if let Some(request) = self.read_request {
            request.emit(out);
        }
    }

    /// Reads the payload of a Terminate message, and says which layout it had.
    ///
    /// The terminated DDP header is kept as it came, for its version or opcode may have been the
    /// error; reserved bits of the control word are ignored.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`] when the control word or something it announces is missing.
    pub fn parse(payload: &[u8]) -> Result<(Self, Layout), HeaderError> {
        let mut reader = Reader { rest: payload, taken: 0 };
        let word = reader.take(CONTROL_LEN)?;
        let (code, headers, layout) = control_word(word[0], word[1], word[2]);
        let mut terminate = Self::new(code);
        if headers.length || headers.ddp {
            let field = reader.take(LENGTH_LEN)?;
            let length = field.first_chunk::<LENGTH_LEN>().map(|field| u16_at(field, 0));
            terminate.segment_len = length.filter(|_| headers.length);
        }
        if headers.ddp {
            let len = header_len(reader.rest.first().copied().unwrap_or(0));
            terminate.ddp = QuotedHeader::of(reader.take(len)?);
        }
        if headers.read_request {
            let request = reader.take(ReadRequest::LEN)?;
            terminate.read_request = Some(ReadRequest::parse(request)?);
        }
        Ok((terminate, layout))
    }
}

/// The bits M, D and R.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Headers {
    length: bool,
    ddp: bool,
    read_request: bool,
}

impl Headers {
    fn to_bits(self) -> u8 {
        u8::from(self.length) << 7 | u8::from(self.ddp) << 6 | u8::from(self.read_request) << 5
    }

    const fn rfc(bits: u8) -> Self {
        Self { length: bits & 0x80 != 0, ddp: bits & 0x40 != 0, read_request: bits & 0x20 != 0 }
    }

    const fn siw(bits: u8) -> Self {
        Self { length: bits & 1 != 0, ddp: bits & 2 != 0, read_request: bits & 4 != 0 }
    }
}

/// Decodes the control word in whichever layout it has.
///
/// The bits tell when any is set. When none is, the RFC's layout is assumed unless only siw's
/// gives a code that exists. What remains ambiguous are siw's RDMAP version and opcode errors,
/// which look like RFC 6581's MPA errors 5 and 6: those appear while a connection is being set
/// up, siw's afterwards.
fn control_word(first: u8, code: u8, bits: u8) -> (TerminateCode, Headers, Layout) {
    let (high, low) = (first >> 4, first & 0x0f);
    let rfc = TerminateCode { layer: high, etype: low, code };
    let siw = TerminateCode { layer: low, etype: high, code };
    let is_siw = match (bits & 0xe0, bits & 0x07) {
        (0, 0) => !rfc.is_defined() && siw.is_defined(),
        (0, _) => true,
        _ => false,
    };
    match is_siw {
        true => (siw, Headers::siw(bits), Layout::Siw),
        false => (rfc, Headers::rfc(bits), Layout::Rfc),
    }
}

/// The payload not read yet.
struct Reader<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], HeaderError> {
        let found = self.taken + self.rest.len();
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(HeaderError::TooShort { expected: self.taken + len, found });
        };
        self.taken += len;
        self.rest = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests;
