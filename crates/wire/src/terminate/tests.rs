//! Every code's words, both layouts, every truncation.

use super::*;
use crate::ddp::{Header, Stag, Tagged, Untagged, queue};
use crate::rdmap::Opcode;
use proptest::prelude::*;

/// RFC 5040 figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8.
const CODES: &str = "\
RDMA, Local Catastrophic Error: Local catastrophic error (0x0/0x0/0x00)
RDMA, Remote Protection Error: Invalid STag (0x0/0x1/0x00)
RDMA, Remote Protection Error: Base or bounds violation (0x0/0x1/0x01)
RDMA, Remote Protection Error: Access rights violation (0x0/0x1/0x02)
RDMA, Remote Protection Error: STag not associated with RDMAP Stream (0x0/0x1/0x03)
RDMA, Remote Protection Error: TO wrap (0x0/0x1/0x04)
RDMA, Remote Protection Error: STag cannot be Invalidated (0x0/0x1/0x09)
RDMA, Remote Protection Error: Unspecified Error (0x0/0x1/0xff)
RDMA, Remote Operation Error: Invalid RDMAP version (0x0/0x2/0x05)
RDMA, Remote Operation Error: Unexpected OpCode (0x0/0x2/0x06)
RDMA, Remote Operation Error: Catastrophic error, localized to RDMAP Stream (0x0/0x2/0x07)
RDMA, Remote Operation Error: Catastrophic error, global (0x0/0x2/0x08)
RDMA, Remote Operation Error: STag cannot be Invalidated (0x0/0x2/0x09)
RDMA, Remote Operation Error: Unspecified Error (0x0/0x2/0xff)
DDP, Local Catastrophic: Local Catastrophic (0x1/0x0/0x00)
DDP, Tagged Buffer Error: Invalid STag (0x1/0x1/0x00)
DDP, Tagged Buffer Error: Base or bounds violation (0x1/0x1/0x01)
DDP, Tagged Buffer Error: STag not associated with DDP Stream (0x1/0x1/0x02)
DDP, Tagged Buffer Error: TO wrap (0x1/0x1/0x03)
DDP, Tagged Buffer Error: Invalid DDP version (0x1/0x1/0x04)
DDP, Untagged Buffer Error: Invalid QN (0x1/0x2/0x01)
DDP, Untagged Buffer Error: Invalid MSN - no buffer available (0x1/0x2/0x02)
DDP, Untagged Buffer Error: Invalid MSN - MSN range is not valid (0x1/0x2/0x03)
DDP, Untagged Buffer Error: Invalid MO (0x1/0x2/0x04)
DDP, Untagged Buffer Error: DDP Message too long for available buffer (0x1/0x2/0x05)
DDP, Untagged Buffer Error: Invalid DDP version (0x1/0x2/0x06)
LLP, MPA Error: TCP connection closed, terminated, or lost (0x2/0x0/0x01)
LLP, MPA Error: Received MPA CRC does not match the calculated value for the FPDU (0x2/0x0/0x02)
LLP, MPA Error: Received MPA Marker and ULPDU Length fields do not agree on the start of an FPDU \
(0x2/0x0/0x03)
LLP, MPA Error: Invalid MPA Request Frame or MPA Response Frame received (0x2/0x0/0x04)
LLP, MPA Error: Local catastrophic (0x2/0x0/0x05)
LLP, MPA Error: Insufficient IRD resources (0x2/0x0/0x06)
LLP, MPA Error: No matching RTR option (0x2/0x0/0x07)
";

const WRITE: Header = Header::Tagged(Tagged {
    opcode: Opcode::Write,
    last: true,
    stag: Stag(0x0102_0304),
    offset: 0x0506_0708_090a_0b0c,
});

const READ: Header = Header::Untagged(Untagged {
    opcode: Opcode::ReadRequest,
    last: true,
    invalidate: Stag(0),
    queue: queue::READ_REQUEST,
    msn: 7,
    offset: 0,
});

const REQUEST: ReadRequest = ReadRequest {
    sink_stag: Stag(1),
    sink_offset: 2,
    size: 3,
    source_stag: Stag(4),
    source_offset: 5,
};

fn emitted(terminate: &Terminate) -> Vec<u8> {
    let mut out = Vec::new();
    terminate.emit(&mut out);
    out
}

/// As siw would send it: nibbles exchanged, M D R in the low bits.
fn as_siw(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[0] = bytes[0].rotate_left(4);
    bytes[2] = bytes[2].reverse_bits();
    bytes
}

#[test]
fn every_code_has_the_rfcs_words() {
    let printed: String = TerminateCode::ALL.iter().map(|(code, _)| format!("{code}\n")).collect();
    assert_eq!(printed, CODES);
}

#[test]
fn codes_differ_and_are_defined() {
    for (n, (code, _)) in TerminateCode::ALL.iter().enumerate() {
        assert!(code.is_defined());
        assert_eq!(TerminateCode::ALL.iter().position(|(other, _)| other == code), Some(n));
    }
}

#[test]
fn unknown_codes_still_print() {
    let text = |layer, etype, code| TerminateCode { layer, etype, code }.to_string();
    let unknown = "LLP, MPA Error: unknown error code (0x2/0x0/0x63)";
    assert_eq!(text(2, 0, 0x63), unknown);
    let stranger = "unknown layer, unknown error type: unknown error code (0x9/0x8/0x07)";
    assert_eq!(text(9, 8, 7), stranger);
    let any = "RDMA, Local Catastrophic Error: Local catastrophic error (0x0/0x0/0x2a)";
    assert_eq!(text(0, 0, 0x2a), any);
}

#[test]
fn the_rfcs_layout_is_emitted() {
    let code = TerminateCode::UNTAGGED_NO_BUFFER;
    let ddp =
        Terminate { segment_len: Some(0x1234), ddp: Some(WRITE.into()), ..Terminate::new(code) };
    let mut expected = vec![0x12, 0x02, 0xc0, 0x00, 0x12, 0x34, 0xc1, 0x40];
    expected.extend(1..=12);
    assert_eq!(emitted(&ddp), expected);
    assert_eq!(emitted(&Terminate::new(TerminateCode::MPA_CRC)), [0x20, 0x02, 0, 0]);
    let all = Terminate { read_request: Some(REQUEST), ..ddp };
    assert_eq!(emitted(&all)[2], 0xe0);
    assert_eq!(emitted(&all).len(), 4 + 2 + 14 + 28);
}

/// What siw sends when a Send finds no receive: `21 02 03 00` and the headers.
#[test]
fn siws_layout_is_read() {
    let code = TerminateCode::UNTAGGED_NO_BUFFER;
    let expected =
        Terminate { segment_len: Some(40), ddp: Some(READ.into()), ..Terminate::new(code) };
    let mut bytes = vec![0x21, 0x02, 0x03, 0x00, 0, 40];
    READ.emit(&mut bytes);
    assert_eq!(Terminate::parse(&bytes), Ok((expected, Layout::Siw)));
    let code = TerminateCode::PROTECTION_BOUNDS;
    let expected = Terminate { code, read_request: Some(REQUEST), ..expected };
    bytes[..4].copy_from_slice(&[0x10, 0x01, 0x07, 0x00]);
    REQUEST.emit(&mut bytes);
    assert_eq!(Terminate::parse(&bytes), Ok((expected, Layout::Siw)));
}

/// Without headers only the code tells: which codes are read right from siw.
#[test]
fn bare_codes_are_read_in_the_layout_that_defines_them() {
    for &(code, _) in TerminateCode::ALL {
        let bytes = emitted(&Terminate::new(code));
        assert_eq!(Terminate::parse(&bytes), Ok((Terminate::new(code), Layout::Rfc)));
        let (read, _) = Terminate::parse(&as_siw(&bytes)).unwrap();
        let swapped = TerminateCode { layer: code.etype, etype: code.layer, ..code };
        let expected = if swapped.is_defined() { swapped } else { code };
        assert_eq!(read.code, expected, "{code}");
    }
    let read = |bytes| Terminate::parse(bytes).unwrap();
    let crc = (Terminate::new(TerminateCode::MPA_CRC), Layout::Siw);
    assert_eq!(read(&[0x02, 0x02, 0, 0]), crc);
    let ambiguous = (Terminate::new(TerminateCode::MPA_CATASTROPHIC), Layout::Rfc);
    assert_eq!(read(&[0x20, 0x05, 0, 0]), ambiguous);
}

#[test]
fn an_unreadable_ddp_header_is_kept_as_it_came() {
    let code = TerminateCode::UNTAGGED_VERSION;
    let terminate = Terminate {
        segment_len: Some(46),
        ddp: Some(READ.into()),
        read_request: Some(REQUEST),
        ..Terminate::new(code)
    };
    let mut bytes = emitted(&terminate);
    bytes[6] = 0x42;
    let (read, _) = Terminate::parse(&bytes).unwrap();
    let quoted = read.ddp.unwrap();
    assert_eq!(quoted.as_bytes(), &bytes[6..24]);
    assert_eq!(quoted.header(), None);
    assert_eq!(read.read_request, Some(REQUEST));
    assert_eq!(emitted(&read), bytes);
}

#[test]
fn every_cut_is_too_short() {
    for ddp in [WRITE, READ] {
        let code = TerminateCode::PROTECTION_ACCESS;
        let (segment_len, read_request) = (Some(46), Some(REQUEST));
        let bytes = emitted(&Terminate { code, segment_len, ddp: Some(ddp.into()), read_request });
        for bytes in [bytes.clone(), as_siw(&bytes)] {
            assert!(Terminate::parse(&bytes).is_ok());
            for found in 0..bytes.len() {
                match Terminate::parse(&bytes[..found]) {
                    Err(HeaderError::TooShort { expected, found: said }) => {
                        assert!(said == found && expected > found && expected <= bytes.len());
                    }
                    other => panic!("cut at {found}: {other:?}"),
                }
            }
        }
    }
}

prop_compose! {
    fn any_terminate()(
        code in prop::sample::select(TerminateCode::ALL),
        segment_len: Option<u16>,
        ddp in prop::option::of(prop::sample::select(&[WRITE, READ][..])),
        read_request in prop::option::of(Just(REQUEST)),
    ) -> Terminate {
        Terminate { code: code.0, segment_len, ddp: ddp.map(Into::into), read_request }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_emitted_is_parsed(terminate in any_terminate(), more: Vec<u8>) {
        let bytes = emitted(&terminate);
        let followed = [&bytes[..], &more].concat();
        prop_assert_eq!(Terminate::parse(&followed), Ok((terminate, Layout::Rfc)));
        if bytes[2] != 0 {
            prop_assert_eq!(Terminate::parse(&as_siw(&bytes)), Ok((terminate, Layout::Siw)));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = Terminate::parse(&bytes);
    }
}
