//! RFC 5044's figures 5 and 6, and inserter and stripper against each other.

use super::*;
use proptest::prelude::*;

/// The FPDU of RFC 5044's examples, 42 bytes of ULPDU, with the given MSN, without CRC.
fn example_body(msn: u8) -> Vec<u8> {
    let mut ulpdu = [0; 42];
    ulpdu[..2].copy_from_slice(&[0x41, 0x43]);
    ulpdu[13] = msn;
    let mut body = Vec::new();
    fpdu::emit_body(&ulpdu, &mut body);
    body
}

/// RFC 5044 figure 5: the first FPDU of a stream.
const FIGURE_5: [u8; 0x34] = [
    0x00, 0x00, 0x00, 0x00, // marker
    0x00, 0x2a, // length
    0x41, 0x43, // control
    0x00, 0x00, 0x00, 0x00, // reserved
    0x00, 0x00, 0x00, 0x00, // queue
    0x00, 0x00, 0x00, 0x01, // MSN
    0x00, 0x00, 0x00, 0x00, // MO
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // data
    0x52, 0x23, 0x99, 0x83, // CRC
];

/// RFC 5044 figure 6: the second FPDU, at 0x1ec of the stream, with a marker at 0x200.
const FIGURE_6: [u8; 0x34] = [
    0x00, 0x2a, // length
    0x41, 0x43, // control
    0x00, 0x00, 0x00, 0x00, // reserved
    0x00, 0x00, 0x00, 0x00, // queue
    0x00, 0x00, 0x00, 0x02, // MSN
    0x00, 0x00, 0x00, 0x00, // MO
    0x00, 0x00, 0x00, 0x14, // marker
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // data
    0x84, 0x92, 0x58, 0x98, // CRC
];

fn body_of(ulpdu_len: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let ulpdu: Vec<u8> = (0..ulpdu_len).map(|i| (i % 251).to_le_bytes()[0]).collect();
    fpdu::emit_body(&ulpdu, &mut body);
    body
}

fn framed(ulpdu_lens: &[usize], crc: bool) -> Vec<u8> {
    let (mut inserter, mut stream) = (MarkerInserter::new(), Vec::new());
    for &len in ulpdu_lens {
        inserter.insert(&body_of(len), crc, &mut stream);
    }
    stream
}

/// What the stripper makes of a whole stream: the FPDUs, and the error it stopped at.
fn strip_all(stream: &[u8], crc: bool) -> (Vec<Vec<u8>>, Option<FramingError>) {
    let (mut stripper, mut rest) = (MarkerStripper::new(), stream);
    let (mut fpdus, mut fpdu) = (Vec::new(), Vec::new());
    loop {
        match stripper.strip(rest, crc, &mut fpdu) {
            Ok(Some(consumed)) => rest = &rest[consumed..],
            Ok(None) => return (fpdus, None),
            Err(error) => return (fpdus, Some(error)),
        }
        fpdus.push(fpdu.clone());
    }
}

#[test]
fn figure_5_is_emitted() {
    let (mut inserter, mut out) = (MarkerInserter::new(), Vec::new());
    inserter.insert(&example_body(1), true, &mut out);
    assert_eq!(out, FIGURE_5);
}

#[test]
fn figure_6_is_emitted() {
    let (mut inserter, mut out) = (MarkerInserter::new(), Vec::new());
    // "the first FPDU ... had a length of 492 octets", its marker included.
    inserter.insert(&body_of(482), true, &mut out);
    assert_eq!(out.len(), 492);
    inserter.insert(&example_body(2), true, &mut out);
    assert_eq!(out[492..], FIGURE_6);
}

#[test]
fn both_figures_are_read() {
    let mut stripper = MarkerStripper::new();
    let mut fpdu = Vec::new();
    assert_eq!(stripper.strip(&FIGURE_5, true, &mut fpdu), Ok(Some(0x34)));
    assert_eq!(fpdu, FIGURE_5[4..]);
    let mut stripper = MarkerStripper { position: 0x1ec };
    assert_eq!(stripper.strip(&FIGURE_6, true, &mut fpdu), Ok(Some(0x34)));
    assert_eq!(fpdu, [&FIGURE_6[..0x14], &FIGURE_6[0x18..]].concat());
}

#[test]
fn markers_stand_every_512_bytes_and_point_to_their_fpdu() {
    let stream = framed(&[1442, 14, 600, 482, 64_768, 20], true);
    let (mut stripper, mut begin, mut fpdu) = (MarkerStripper::new(), 0, Vec::new());
    while let Some(len) = stripper.strip(&stream[begin..], true, &mut fpdu).unwrap() {
        let start = if begin % INTERVAL == 0 { begin + LEN } else { begin };
        for at in (begin..begin + len).filter(|at| at % INTERVAL == 0) {
            let pointer = u16::from_be_bytes([stream[at + 2], stream[at + 3]]);
            assert_eq!(stream[at..at + 2], [0, 0]);
            assert_eq!(usize::from(pointer), at.saturating_sub(start), "marker at {at}");
        }
        begin += len;
    }
    assert_eq!(begin, stream.len());
}

/// Ends of the padding on, and of the FPDU on, a marker's place.
#[test]
fn a_marker_between_padding_and_crc_belongs_to_the_fpdu_before() {
    // 4 of marker, 2 of length, 506 of ULPDU: the second marker precedes the CRC.
    let stream = framed(&[506, 14], true);
    assert_eq!(stream[512..516], [0, 0, 0x01, 0xfc]);
    assert_eq!(stream[516..520], crc32c(&stream[..516]).to_le_bytes());
    assert_eq!(stream[520..522], [0, 14]);
    assert_eq!(strip_all(&stream, true).0.len(), 2);
}

#[test]
fn a_marker_between_fpdus_belongs_to_the_fpdu_behind() {
    let stream = framed(&[502, 14], true);
    assert_eq!(stream[508..512], crc32c(&stream[..508]).to_le_bytes());
    assert_eq!(stream[512..518], [0, 0, 0, 0, 0, 14]);
    assert_eq!(stream[532..], crc32c(&stream[512..532]).to_le_bytes());
    assert_eq!(strip_all(&stream, true).0.len(), 2);
}

#[test]
fn every_cut_needs_more_and_loses_nothing() {
    let stream = framed(&[1030], true);
    let mut fpdu = Vec::new();
    let mut stripper = MarkerStripper::new();
    for cut in 0..stream.len() {
        assert_eq!(stripper.strip(&stream[..cut], true, &mut fpdu), Ok(None), "cut at {cut}");
    }
    assert_eq!(stripper.strip(&stream, true, &mut fpdu), Ok(Some(stream.len())));
}

#[test]
fn senseless_lengths_are_refused_at_once() {
    let mut fpdu = Vec::new();
    for found in [0, 13, 64_769, 65_535] {
        let raw = [&[0; 4][..], &u16::to_be_bytes(found)].concat();
        let error = Err(FramingError::Length { found });
        assert_eq!(MarkerStripper::new().strip(&raw, true, &mut fpdu), error);
    }
}

#[test]
fn the_crc_is_reported_before_the_marker() {
    let mut stream = framed(&[1030], true);
    stream[515] ^= 0x10;
    assert!(matches!(strip_all(&stream, true).1, Some(FramingError::Crc { .. })));
    let expected = Some(FramingError::Marker { expected: 508, found: 492 });
    assert_eq!(strip_all(&stream, false).1, expected);
}

/// A sender with working CRCs but wrong markers.
#[test]
fn a_wrong_marker_under_a_right_crc_is_reported() {
    for at in [2, 515] {
        let mut stream = framed(&[1030], true);
        stream[at] ^= 0x10;
        let end = stream.len() - CRC_LEN;
        let crc = crc32c(&stream[..end]).to_le_bytes();
        stream[end..].copy_from_slice(&crc);
        assert!(matches!(strip_all(&stream, true).1, Some(FramingError::Marker { .. })));
    }
}

#[test]
fn reserved_bits_of_markers_are_ignored() {
    let mut stream = framed(&[1030], false);
    stream[..3].copy_from_slice(&[0xff, 0xff, 0]);
    stream[515] |= 3;
    let (fpdus, error) = strip_all(&stream, false);
    assert_eq!((fpdus.len(), error), (1, None));
}

/// Every byte of every marker and every CRC, every bit: with CRCs, nothing passes.
#[test]
fn every_damaged_marker_or_crc_byte_is_detected() {
    let lens = [482, 42, 502, 506, 2000];
    let stream = framed(&lens, true);
    let ends: Vec<usize> = (1..=lens.len()).map(|n| framed(&lens[..n], true).len()).collect();
    let is_crc = |at: usize| ends.iter().any(|end| (end - CRC_LEN..*end).contains(&at));
    for at in (0..stream.len()).filter(|&at| at % INTERVAL < LEN || is_crc(at)) {
        for bit in 0..8 {
            let mut damaged = stream.clone();
            damaged[at] ^= 1 << bit;
            let (fpdus, error) = strip_all(&damaged, true);
            assert!(matches!(error, Some(FramingError::Crc { .. })), "byte {at} bit {bit}");
            assert_eq!(fpdus.len(), ends.iter().filter(|&&end| end <= at).count());
        }
    }
}

/// Without CRCs, the pointers still protect themselves.
#[test]
fn every_damaged_pointer_is_detected_without_crc() {
    let stream = framed(&[482, 42, 502, 506, 2000], false);
    for at in (0..stream.len()).filter(|at| (2..4).contains(&(at % INTERVAL))) {
        for bit in (0..8).filter(|bit| at % INTERVAL == 2 || *bit > 1) {
            let mut damaged = stream.clone();
            damaged[at] ^= 1 << bit;
            let error = strip_all(&damaged, false).1;
            assert!(matches!(error, Some(FramingError::Marker { .. })), "byte {at} bit {bit}");
        }
    }
}

#[test]
#[should_panic(expected = "not an FPDU body")]
fn half_a_word_cannot_be_framed() {
    MarkerInserter::new().insert(&[0, 0, 0], true, &mut Vec::new());
}

/// Mostly small ULPDUs, some that end near a marker, some of several intervals.
fn ulpdu_len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 14..80usize, 2 => 470..540usize, 1 => 14..4000usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn strip_undoes_insert(
        lens in prop::collection::vec(ulpdu_len(), 1..40),
        reads in prop::collection::vec(1..700usize, 1..20),
        crc: bool,
    ) {
        let stream = framed(&lens, crc);
        let (mut stripper, mut fpdu) = (MarkerStripper::new(), Vec::new());
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        let (mut unread, mut reads) = (&stream[..], reads.iter().cycle());
        while !unread.is_empty() {
            let (read, rest) = unread.split_at(unread.len().min(*reads.next().unwrap()));
            buffer.extend_from_slice(read);
            unread = rest;
            while let Some(consumed) = stripper.strip(&buffer, crc, &mut fpdu).unwrap() {
                buffer.drain(..consumed);
                found.push(fpdu[..fpdu.len() - CRC_LEN].to_vec());
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(found, lens.iter().map(|&len| body_of(len)).collect::<Vec<_>>());
    }

    #[test]
    fn no_single_damaged_byte_is_delivered(
        lens in prop::collection::vec(ulpdu_len(), 1..10),
        at: prop::sample::Index,
        flip in 1..=255u8,
    ) {
        let stream = framed(&lens, true);
        let mut damaged = stream.clone();
        damaged[at.index(stream.len())] ^= flip;
        let (fpdus, error) = strip_all(&damaged, true);
        // A damaged length may leave the stripper waiting; what it did deliver must be right.
        prop_assert!(error.is_some() || fpdus.len() < lens.len());
        prop_assert!(strip_all(&stream, true).0.starts_with(&fpdus));
    }

    #[test]
    fn no_bytes_make_it_panic(raw: Vec<u8>, crc: bool, words in 0..128usize) {
        let mut stripper = MarkerStripper { position: 4 * words };
        let _ = stripper.strip(&raw, crc, &mut Vec::new());
    }
}
