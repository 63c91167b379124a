//! The arithmetic against the RFC's formulas, real and damaged FPDUs.

use super::*;
use crate::ddp::{Header, Stag, Untagged, queue};
use crate::rdmap::Opcode;
use proptest::prelude::*;

/// A Send of rping's server, as Linux's siw sent it: no CRC, so the field is 0.
const SIW_SEND: [u8; 40] = [
    0x00, 0x22, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn an_fpdu_is_a_multiple_of_four() {
    for len in 0..2000 {
        assert!(pad_len(len) < 4);
        assert_eq!(fpdu_len(len) % 4, 0);
        assert_eq!(fpdu_len(len), 2 + len + pad_len(len) + 4);
    }
}

#[test]
fn the_longest_ulpdu_follows_the_formula() {
    assert_eq!(max_ulpdu(1460, false), 1454);
    assert_eq!(max_ulpdu(1448, false), 1442);
    assert_eq!(max_ulpdu(1449, false), 1442);
    assert_eq!(max_ulpdu(1460, true), 1460 - (6 + 4 * 3));
    assert_eq!(max_ulpdu(1539, true), 1539 - (6 + 4 * 4 + 3));
    assert_eq!(max_ulpdu(65_483, false), MAX_ULPDU);
    assert_eq!(max_ulpdu(0, true), 128);
    assert_eq!(max_ulpdu(130, false), 128);
    assert_eq!(max_ulpdu(usize::MAX, false), MAX_ULPDU);
}

#[test]
fn the_longest_ulpdu_fits_and_one_more_does_not() {
    for emss in 140..3000 {
        let len = max_ulpdu(emss, false);
        assert!(fpdu_len(len) <= emss, "segment of {emss}");
        assert!(fpdu_len(len + 1) > emss, "segment of {emss}");
    }
}

#[test]
fn a_siw_send_is_read() {
    let (ulpdu, consumed) = parse(&SIW_SEND, false).unwrap().unwrap();
    assert_eq!((ulpdu.len(), consumed), (34, 40));
    let expected = Untagged {
        opcode: Opcode::Send,
        last: true,
        invalidate: Stag(0),
        queue: queue::SEND,
        msn: 1,
        offset: 0,
    };
    assert_eq!(Header::parse(ulpdu), Ok((Header::Untagged(expected), 18)));
    let mut emitted = Vec::new();
    emit(ulpdu, false, &mut emitted);
    assert_eq!(emitted, SIW_SEND);
}

#[test]
fn with_crc_on_a_zero_crc_is_refused() {
    let expected = crc32c(&SIW_SEND[..36]);
    assert_eq!(parse(&SIW_SEND, true), Err(FramingError::Crc { expected, found: 0 }));
}

#[test]
fn every_cut_needs_more() {
    let mut whole = Vec::new();
    emit(&[7; 61], true, &mut whole);
    for cut in 0..whole.len() {
        assert_eq!(parse(&whole[..cut], true), Ok(None), "cut at {cut}");
    }
}

#[test]
fn a_length_without_room_for_a_header_is_refused_at_once() {
    for found in 0..14u16 {
        let field = found.to_be_bytes();
        assert_eq!(parse(&field[..1], false), Ok(None));
        assert_eq!(parse(&field, false), Err(FramingError::Length { found }));
    }
    assert_eq!(parse(&14u16.to_be_bytes(), false), Ok(None));
    assert_eq!(ulpdu_len([0xff, 0xff]), Ok(65_535));
}

#[test]
fn errors_have_the_mpa_codes() {
    let crc = FramingError::Crc { expected: 1, found: 2 };
    let marker = FramingError::Marker { expected: 4, found: 8 };
    assert_eq!(crc.terminate_code(), TerminateCode::MPA_CRC);
    assert_eq!(marker.terminate_code(), TerminateCode::MPA_MARKER);
    assert_eq!(FramingError::Length { found: 1 }.terminate_code(), TerminateCode::MPA_MARKER);
    assert_eq!(
        crc.to_string(),
        "peer's FPDU is damaged: its CRC field says 0x00000002, its bytes give 0x00000001; send a \
         Terminate and close the connection"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_emitted_is_parsed(
        ulpdu in prop::collection::vec(any::<u8>(), 14..600),
        behind: Vec<u8>,
        crc: bool,
    ) {
        let mut stream = Vec::new();
        emit(&ulpdu, crc, &mut stream);
        let len = stream.len();
        prop_assert_eq!(len, fpdu_len(ulpdu.len()));
        stream.extend_from_slice(&behind);
        prop_assert_eq!(parse(&stream, crc), Ok(Some((&ulpdu[..], len))));
    }

    #[test]
    fn every_flipped_bit_is_noticed(
        ulpdu in prop::collection::vec(any::<u8>(), 14..200),
        at: prop::sample::Index,
        bit in 0..8u32,
    ) {
        let mut stream = Vec::new();
        emit(&ulpdu, true, &mut stream);
        let at = at.index(stream.len());
        stream[at] ^= 1u8 << bit;
        match parse(&stream, true) {
            // The length grew, so the receiver waits for bytes that make the CRC wrong.
            Ok(None) => prop_assert!(at < LENGTH_LEN),
            other => prop_assert!(other.is_err()),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(raw: Vec<u8>, crc: bool) {
        let _ = parse(&raw, crc);
    }
}
