//! Big-endian integers at fixed places of a fixed-size header.
//!
//! The headers are arrays whose length the caller has already checked, and the places are
//! constants, so the index checks below vanish and can never fail on a peer's input.

/// The 16-bit integer at `at`.
#[inline]
pub(crate) fn u16_at<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// The 32-bit integer at `at`.
#[inline]
pub(crate) fn u32_at<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    (u32::from(u16_at(header, at)) << 16) | u32::from(u16_at(header, at + 2))
}

/// The 64-bit integer at `at`.
#[inline]
pub(crate) fn u64_at<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    (u64::from(u32_at(header, at)) << 32) | u64::from(u32_at(header, at + 4))
}

/// Overwrites the bytes from `at` on with `field`.
#[inline]
pub(crate) fn put<const N: usize, const M: usize>(header: &mut [u8; N], at: usize, field: [u8; M]) {
    header[at..at + M].copy_from_slice(&field);
}
