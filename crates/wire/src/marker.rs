//! MPA markers: a pointer every 512 bytes of the TCP stream back to the start of the FPDU it
//! stands in (RFC 5044 §4.2 and §4.3), and the CRC over both (§4.4).
//!
//! The slow path, copying every byte: only peers that ask for markers get them, and this side
//! asks for none unless told to. The first byte of full operation is position 0 and a marker.
//! FPDUs, markers and the interval are multiples of four, so no field is ever split by a marker.
//! A marker right before an FPDU belongs to it (pointer 0), also for the CRC; one between padding
//! and CRC belongs to the FPDU that ends there.

use crate::crc::crc32c;
use crate::fpdu::{self, CRC_LEN, LENGTH_LEN, MAX_ULPDU};

pub use crate::fpdu::FramingError;

/// Bytes of TCP stream from the start of one marker to the start of the next.
pub const INTERVAL: usize = 512;
/// Bytes of a marker: two reserved, two of pointer.
pub const LEN: usize = 4;

/// Longest FPDU without its CRC that [`MarkerInserter::insert`] takes, in bytes.
const MAX_BODY: usize = fpdu::fpdu_len(MAX_ULPDU) - CRC_LEN;
/// "The least significant two bits ... receivers MUST always treat these as zero", §4.2.
const POINTER_MASK: u16 = !3;

/// Frames the outgoing direction of one stream.
#[derive(Clone, Debug, Default)]
pub struct MarkerInserter {
    /// Stream position of the next byte, modulo [`INTERVAL`].
    position: usize,
}

impl MarkerInserter {
    /// At the first byte of full operation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one FPDU with its markers and CRC field to `out`; with `crc` off that field is 0.
    ///
    /// `body` is what [`fpdu::emit_body`] makes: length, ULPDU, padding.
    ///
    /// # Panics
    /// When `body` is not a multiple of four bytes or holds more than [`MAX_ULPDU`]: a bug of the
    /// caller that would break every later marker.
    pub fn insert(&mut self, body: &[u8], crc: bool, out: &mut Vec<u8>) {
        assert!(body.len().is_multiple_of(4) && body.len() <= MAX_BODY, "not an FPDU body");
        let begin = out.len();
        out.reserve(body.len() + CRC_LEN + LEN * (2 + body.len() / (INTERVAL - LEN)));
        if self.position == 0 {
            self.append(&[0; LEN], out);
        }
        let start = out.len();
        let mut rest = body;
        while !rest.is_empty() {
            self.mark(start, out);
            let (piece, tail) = rest.split_at(rest.len().min(INTERVAL - self.position));
            self.append(piece, out);
            rest = tail;
        }
        self.mark(start, out);
        let crc = if crc { crc32c(&out[begin..]) } else { 0 };
        self.append(&crc.to_le_bytes(), out);
    }

    /// Appends a marker that points back to `start`, when one is due here.
    fn mark(&mut self, start: usize, out: &mut Vec<u8>) {
        if self.position == 0 {
            let pointer = pointer(out.len() - start).to_be_bytes();
            self.append(&[0, 0, pointer[0], pointer[1]], out);
        }
    }

    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        self.position = (self.position + bytes.len()) % INTERVAL;
    }
}

/// Unframes the incoming direction of one stream.
#[derive(Clone, Debug, Default)]
pub struct MarkerStripper {
    /// Stream position of the next unconsumed byte, modulo [`INTERVAL`].
    position: usize,
}

impl MarkerStripper {
    /// At the first byte of full operation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one FPDU from the start of `raw`, the unconsumed bytes of the stream, and returns how
    /// many of them it was, or `None` when more are needed (call again with more, from the same
    /// start).
    ///
    /// `fpdu` is replaced by the FPDU without its markers: length, ULPDU, padding, CRC. It means
    /// nothing unless a length is returned.
    ///
    /// # Errors
    /// A senseless length as soon as it is there. Else, when the FPDU is complete, first a wrong
    /// CRC (when `crc` is on), then a wrong marker, the order of RFC 5044 §8. Stop reading the
    /// stream then.
    pub fn strip(
        &mut self,
        raw: &[u8],
        crc: bool,
        fpdu: &mut Vec<u8>,
    ) -> Result<Option<usize>, FramingError> {
        fpdu.clear();
        let lead = if self.position == 0 { LEN } else { 0 };
        let Some(field) = raw.get(lead..).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let len = checked_len(*field)?;
        let total = lead + len + LEN * markers_within(self.position + lead, len);
        let Some(raw) = raw.get(..total) else {
            return Ok(None);
        };
        if crc {
            fpdu::check_crc(raw)?;
        }
        self.unmark(raw, lead, fpdu)?;
        self.position = (self.position + total) % INTERVAL;
        Ok(Some(total))
    }

    /// Copies the complete FPDU `raw` without its markers; `lead` bytes of marker precede it.
    fn unmark(&self, raw: &[u8], lead: usize, fpdu: &mut Vec<u8>) -> Result<(), FramingError> {
        let (leading, raw) = raw.split_at(lead);
        check_marker(leading, 0)?;
        let mut at = 0;
        while at < raw.len() {
            let position = (self.position + lead + at) % INTERVAL;
            if position == 0 {
                check_marker(&raw[at..at + LEN], at)?;
                at += LEN;
            }
            // Right behind a marker the position is its length.
            let end = raw.len().min(at + INTERVAL - position.max(LEN));
            fpdu.extend_from_slice(&raw[at..end]);
            at = end;
        }
        Ok(())
    }
}

/// Bytes of the FPDU, without markers, whose length field is `field`.
fn checked_len(field: [u8; LENGTH_LEN]) -> Result<usize, FramingError> {
    match fpdu::ulpdu_len(field)? {
        // Beyond it, the pointer of the last marker would not fit its field.
        len if len > MAX_ULPDU => Err(FramingError::Length { found: u16::from_be_bytes(field) }),
        len => Ok(fpdu::fpdu_len(len)),
    }
}

/// Markers inside `len` bytes of FPDU that start at `position` (not 0) of the interval.
const fn markers_within(position: usize, len: usize) -> usize {
    let before_first = INTERVAL - position;
    len.saturating_sub(before_first).div_ceil(INTERVAL - LEN)
}

/// `marker` (or nothing) must point `distance` bytes back.
fn check_marker(marker: &[u8], distance: usize) -> Result<(), FramingError> {
    let &[_, _, high, low] = marker else {
        return Ok(());
    };
    let found = u16::from_be_bytes([high, low]) & POINTER_MASK;
    match pointer(distance) {
        expected if expected != found => Err(FramingError::Marker { expected, found }),
        _ => Ok(()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "MAX_ULPDU keeps all distances in 16 bits")]
const fn pointer(distance: usize) -> u16 {
    distance as u16
}

#[cfg(test)]
mod tests;
