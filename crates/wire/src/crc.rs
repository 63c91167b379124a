//! CRC32c as MPA uses it: the iSCSI polynomial, initial value and final complement of ones.
//!
//! The value goes on the wire least significant byte first: `crc.to_le_bytes()`. RFC 5044 §4.4
//! refers to iSCSI (RFC 3720) for the computation; its figures 5 and 6 are tests here.
//! Carry-less multiplication from the `crc-fast` crate does the work. It finds the processor's
//! features once; after that a call costs one atomic load for them. With AVX-512, for a scale: 30
//! bytes 6 ns, 64 bytes 5 ns, 1 KiB 36 ns, 16 KiB 300 ns (55 GB/s); the running form adds 3 ns,
//! and 4 ns more for every further piece.
//! This module never decides whether a CRC is in use; that is negotiated by [`crate::startup`].

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32c of `bytes` in one go.
///
/// ```
/// assert_eq!(outboard_wire::crc::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A CRC32c that grows piece by piece, for bytes that are copied or gathered on the way.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The CRC of no bytes yet.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes in the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC of all bytes so far; more may still follow.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "crc-fast widens every CRC to 64 bits")]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit: reflected polynomial 0x1EDC6F41.
    fn by_definition(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
        })
    }

    #[test]
    fn agrees_with_the_iscsi_test_vectors() {
        // RFC 3720 §B.4, bytes as transmitted.
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
    }

    #[test]
    fn agrees_with_the_definition_at_every_small_length() {
        let bytes: Vec<u8> = (0..1200u32).map(|i| (i * 31 % 251).to_le_bytes()[0]).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..len]), by_definition(&bytes[..len]), "length {len}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_give_the_same_value(pieces: Vec<Vec<u8>>) {
            let mut running = Crc32c::new();
            for piece in &pieces {
                running.update(piece);
                prop_assert_eq!(running.finish(), running.clone().finish());
            }
            prop_assert_eq!(running.finish(), by_definition(&pieces.concat()));
        }
    }
}
