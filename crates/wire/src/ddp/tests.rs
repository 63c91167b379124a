//! Control fields as the RFCs and siw have them, every truncation, every control field.

use super::*;
use proptest::prelude::*;

/// Headers of a Write and a Send that Linux's siw sent for rping.
const SIW_WRITE: [u8; 14] =
    [0x81, 0x40, 0x8c, 0x1d, 0x8b, 0x00, 0x00, 0x00, 0x56, 0x31, 0x65, 0x7b, 0x4d, 0x40];
const SIW_SEND: [u8; 18] = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

fn emitted(header: Header) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out
}

fn with_opcode(opcode: Opcode) -> Header {
    match opcode.queue() {
        None => Header::Tagged(Tagged { opcode, last: false, stag: Stag(1), offset: 2 }),
        Some(queue) => Header::Untagged(Untagged {
            opcode,
            last: false,
            invalidate: Stag(1),
            queue,
            msn: 2,
            offset: 3,
        }),
    }
}

#[test]
fn a_siw_write_is_read_and_written() {
    let tagged = Tagged {
        opcode: Opcode::Write,
        last: false,
        stag: Stag(0x8c1d_8b00),
        offset: 0x5631_657b_4d40,
    };
    assert_eq!(Header::parse(&SIW_WRITE), Ok((Header::Tagged(tagged), TAGGED_LEN)));
    assert_eq!(emitted(Header::Tagged(tagged)), SIW_WRITE);
}

#[test]
fn a_siw_send_is_read_and_written() {
    let untagged = Untagged {
        opcode: Opcode::Send,
        last: true,
        invalidate: Stag(0),
        queue: queue::SEND,
        msn: 1,
        offset: 0,
    };
    assert_eq!(Header::parse(&SIW_SEND), Ok((Header::Untagged(untagged), UNTAGGED_LEN)));
    assert_eq!(emitted(Header::Untagged(untagged)), SIW_SEND);
}

#[test]
fn every_field_has_its_place() {
    let untagged = Header::Untagged(Untagged {
        opcode: Opcode::SendSolicitedInvalidate,
        last: true,
        invalidate: Stag(0x0102_0304),
        queue: 0x0506_0708,
        msn: 0x090a_0b0c,
        offset: 0x0d0e_0f10,
    });
    let expected = [0x41, 0x46, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    assert_eq!(emitted(untagged), expected);
    let tagged = Header::Tagged(Tagged {
        opcode: Opcode::ReadResponse,
        last: true,
        stag: Stag(0x0102_0304),
        offset: 0x0506_0708_090a_0b0c,
    });
    assert_eq!(emitted(tagged), [0xc1, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn every_opcode_goes_through() {
    for opcode in Opcode::ALL {
        let header = with_opcode(opcode);
        let bytes = emitted(header);
        assert_eq!(Header::parse(&bytes), Ok((header, bytes.len())));
        assert_eq!((header.opcode(), header.last(), header.len()), (opcode, false, bytes.len()));
    }
}

#[test]
fn every_cut_is_too_short() {
    for bytes in [&SIW_WRITE[..], &SIW_SEND] {
        for cut in 0..bytes.len() {
            let expected = if cut < 2 { 2 } else { bytes.len() };
            let error = HeaderError::TooShort { expected, found: cut };
            assert_eq!(Header::parse(&bytes[..cut]), Err(error));
        }
    }
}

/// All 65,536 control fields against the rules, written down a second time.
#[test]
fn every_control_field_is_judged_rightly() {
    for field in 0..=u16::MAX {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[..2].copy_from_slice(&field.to_be_bytes());
        let tagged = field >> 15 == 1;
        let opcode = field.to_le_bytes()[0] & 15;
        let belongs = if tagged { opcode == 0 || opcode == 2 } else { ![0, 2].contains(&opcode) };
        let result = Header::parse(&bytes);
        match ((field >> 8) & 3, (field >> 6) & 3, belongs && opcode < 12) {
            (1, 1, true) => {
                let (header, len) = result.unwrap();
                assert_eq!(len, if tagged { TAGGED_LEN } else { UNTAGGED_LEN });
                assert_eq!(header.opcode().code(), opcode);
                assert_eq!(header.last(), field & 0x4000 != 0);
                let unreserved = field & !0x3c30;
                assert_eq!(emitted(header)[..2], unreserved.to_be_bytes());
            }
            (1, 1, false) => {
                assert_eq!(result, Err(HeaderError::Opcode { tagged, found: opcode }));
            }
            (1, ..) => assert!(matches!(result, Err(HeaderError::RdmapVersion { .. }))),
            _ => assert!(matches!(result, Err(HeaderError::DdpVersion { .. }))),
        }
    }
}

#[test]
fn errors_have_their_terminate_codes() {
    let code = |control: [u8; 2]| {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[..2].copy_from_slice(&control);
        Header::parse(&bytes).unwrap_err().terminate_code()
    };
    assert_eq!(code([0x82, 0x40]), TerminateCode::TAGGED_VERSION);
    assert_eq!(code([0x00, 0x43]), TerminateCode::UNTAGGED_VERSION);
    assert_eq!(code([0x41, 0x83]), TerminateCode::OPERATION_VERSION);
    assert_eq!(code([0x41, 0x4c]), TerminateCode::OPERATION_OPCODE);
    assert_eq!(code([0x41, 0x40]), TerminateCode::OPERATION_OPCODE);
    let short = Header::parse(&[0x41]).unwrap_err().terminate_code();
    assert_eq!(short, TerminateCode::OPERATION_UNSPECIFIED);
}

#[test]
fn texts_name_what_was_found() {
    assert_eq!(Stag(0xab00).to_string(), "0x0000ab00");
    let error = HeaderError::Opcode { tagged: true, found: 3 }.to_string();
    assert!(error.starts_with("peer's tagged segment has opcode 0x3"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tagged_headers_go_through(write: bool, last: bool, stag: u32, offset: u64, more: Vec<u8>) {
        let opcode = if write { Opcode::Write } else { Opcode::ReadResponse };
        let header = Header::Tagged(Tagged { opcode, last, stag: Stag(stag), offset });
        let bytes = [emitted(header), more].concat();
        prop_assert_eq!(Header::parse(&bytes), Ok((header, TAGGED_LEN)));
    }

    #[test]
    fn untagged_headers_go_through(
        opcode in prop::sample::select(&Opcode::ALL[3..]),
        last: bool,
        (invalidate, queue, msn, offset) in any::<(u32, u32, u32, u32)>(),
        more: Vec<u8>,
    ) {
        let invalidate = Stag(invalidate);
        let header = Header::Untagged(Untagged { opcode, last, invalidate, queue, msn, offset });
        let bytes = [emitted(header), more].concat();
        prop_assert_eq!(Header::parse(&bytes), Ok((header, UNTAGGED_LEN)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = Header::parse(&bytes);
    }
}
