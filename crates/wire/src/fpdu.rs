//! FPDUs: how MPA frames one DDP segment (a ULPDU) in the TCP stream.
//!
//! `length (2) | ULPDU | 0..3 bytes of padding | CRC (4)`, RFC 5044 §4.1; sizes by §4.5. The CRC
//! field is always there; without CRCs it is sent as 0 and not read.
//! [`emit`] and [`parse`] handle one FPDU without markers in one contiguous buffer; engines that
//! scatter and gather use the arithmetic and [`crate::crc`] alone. Markers: [`crate::marker`].

use crate::{crc::crc32c, ddp::TAGGED_LEN, terminate::TerminateCode};

/// Bytes of the ULPDU_Length field.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC field.
pub const CRC_LEN: usize = 4;
/// Longest ULPDU a sender may form, in bytes (RFC 5044 §3.2).
pub const MAX_ULPDU: usize = 64_768;
/// Shortest ULPDU that can be a DDP segment, in bytes: a tagged header without payload.
pub const MIN_ULPDU: usize = TAGGED_LEN;
/// The MULPDU never goes below this many bytes, however small the segments (RFC 5044 §4.5).
pub const MIN_MULPDU: usize = 128;

/// Bytes of padding after a ULPDU of `ulpdu_len` bytes.
#[inline]
#[must_use]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Bytes of a whole FPDU around `ulpdu_len` bytes: length, ULPDU, padding, CRC, no markers.
#[inline]
#[must_use]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

/// The MULPDU: longest ULPDU, in bytes, whose FPDU fits a TCP segment of `emss` bytes
/// (RFC 5044 §4.5), within [`MIN_MULPDU`]`..=`[`MAX_ULPDU`].
#[must_use]
pub fn max_ulpdu(emss: usize, markers: bool) -> usize {
    let markers_len = if markers { 4 * emss.div_ceil(512) } else { 0 };
    let overhead = LENGTH_LEN + CRC_LEN + markers_len + emss % 4;
    emss.saturating_sub(overhead).clamp(MIN_MULPDU, MAX_ULPDU)
}

/// The ULPDU length a received length field announces, in bytes.
///
/// Lengths above [`MAX_ULPDU`] pass: the RFC binds the sender only, and Linux's siw goes beyond
/// over a loopback interface, whose segments are larger.
///
/// # Errors
/// [`FramingError::Length`] when no DDP header fits.
#[inline]
pub fn ulpdu_len(field: [u8; LENGTH_LEN]) -> Result<usize, FramingError> {
    let found = u16::from_be_bytes(field);
    match usize::from(found) {
        len if len < MIN_ULPDU => Err(FramingError::Length { found }),
        len => Ok(len),
    }
}

/// Appends the FPDU around `ulpdu` to `out`; with `crc` off, the CRC field is 0.
///
/// # Panics
/// When `ulpdu` is longer than the length field can say (65,535 bytes): a bug of the caller.
pub fn emit(ulpdu: &[u8], crc: bool, out: &mut Vec<u8>) {
    let start = out.len();
    emit_body(ulpdu, out);
    let crc = if crc { crc32c(&out[start..]) } else { 0 };
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Appends length, `ulpdu` and padding to `out`, but no CRC: what
/// [`MarkerInserter`](crate::marker::MarkerInserter) takes.
///
/// # Panics
/// As [`emit`].
pub fn emit_body(ulpdu: &[u8], out: &mut Vec<u8>) {
    let Ok(length) = u16::try_from(ulpdu.len()) else {
        panic!("caller's ULPDU of {} bytes does not fit an FPDU", ulpdu.len());
    };
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(ulpdu);
    out.extend_from_slice(&[0; 3][..pad_len(ulpdu.len())]);
}

/// Reads the FPDU at the start of `raw`: its ULPDU and its whole length in bytes, or `None` when
/// more bytes are needed.
///
/// # Errors
/// [`FramingError::Length`] as soon as the length field is there, [`FramingError::Crc`] when `crc`
/// is on and the FPDU complete.
pub fn parse(raw: &[u8], crc: bool) -> Result<Option<(&[u8], usize)>, FramingError> {
    let Some(field) = raw.first_chunk() else {
        return Ok(None);
    };
    let ulpdu_len = ulpdu_len(*field)?;
    let Some(fpdu) = raw.get(..fpdu_len(ulpdu_len)) else {
        return Ok(None);
    };
    if crc {
        check_crc(fpdu)?;
    }
    Ok(Some((&fpdu[LENGTH_LEN..LENGTH_LEN + ulpdu_len], fpdu.len())))
}

/// Checks the CRC field, the last four bytes of `fpdu`, against all bytes before it.
pub(crate) fn check_crc(fpdu: &[u8]) -> Result<(), FramingError> {
    let Some((covered, field)) = fpdu.split_last_chunk() else {
        return Ok(());
    };
    match (crc32c(covered), u32::from_le_bytes(*field)) {
        (expected, found) if expected != found => Err(FramingError::Crc { expected, found }),
        _ => Ok(()),
    }
}

/// Why a received FPDU is invalid; always the peer's or the network's fault, and always fatal to
/// the stream: nothing after it may be delivered (RFC 5044 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// The CRC field does not match the bytes.
    #[error(
        "peer's FPDU is damaged: its CRC field says {found:#010x}, its bytes give \
         {expected:#010x}; send a Terminate and close the connection"
    )]
    Crc {
        /// The CRC32c of the bytes received.
        expected: u32,
        /// The CRC32c the peer sent.
        found: u32,
    },
    /// A marker does not point at the start of its FPDU.
    #[error(
        "peer's marker points {found} bytes back, its FPDU starts {expected} bytes back; send a \
         Terminate and close the connection"
    )]
    Marker {
        /// The right FPDUPTR, in bytes.
        expected: u16,
        /// The FPDUPTR received, its reserved low bits cleared.
        found: u16,
    },
    /// A ULPDU length that no DDP segment can have, or (with markers only) above [`MAX_ULPDU`].
    #[error(
        "peer's FPDU announces a ULPDU of {found} bytes, expected {MIN_ULPDU} to {MAX_ULPDU}; \
         send a Terminate and close the connection"
    )]
    Length {
        /// The length field, in bytes.
        found: u16,
    },
}

impl FramingError {
    /// The code of the Terminate to send (RFC 5044 §8). A senseless length means that the start of
    /// the FPDU is lost, which is the marker error.
    #[must_use]
    pub const fn terminate_code(&self) -> TerminateCode {
        match self {
            Self::Crc { .. } => TerminateCode::MPA_CRC,
            Self::Marker { .. } | Self::Length { .. } => TerminateCode::MPA_MARKER,
        }
    }
}

#[cfg(test)]
mod tests;
