//! Frames that siw sent, every truncation, every wrong byte, every value that does not fit.

use super::*;
use proptest::prelude::*;

/// What rping's client sent through Linux's siw: revision 2, S, no CRC, no markers, IRD = ORD = 1.
const SIW_REQUEST: &[u8; 24] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// What its server answered.
const SIW_REPLY: &[u8; 24] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";

fn siw_frame(kind: FrameKind) -> StartupFrame {
    StartupFrame {
        kind,
        markers: false,
        crc: false,
        reject: false,
        revision: 2,
        enhanced: Some(Enhanced { ird: 1, ord: 1, ..Enhanced::default() }),
        private_data: Vec::new(),
    }
}

fn plain_frame(private_data: Vec<u8>) -> StartupFrame {
    let enhanced = None;
    StartupFrame { revision: 1, enhanced, private_data, ..siw_frame(FrameKind::Request) }
}

fn emitted(frame: &StartupFrame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out).unwrap();
    out
}

#[test]
fn siw_frames_are_read_and_written() {
    for (bytes, kind) in [(SIW_REQUEST, FrameKind::Request), (SIW_REPLY, FrameKind::Reply)] {
        assert_eq!(StartupFrame::parse(bytes), Ok(Some((siw_frame(kind), 24))));
        assert_eq!(emitted(&siw_frame(kind)), bytes);
    }
}

#[test]
fn each_flag_has_its_bit() {
    let byte = |change: fn(&mut StartupFrame)| {
        let mut frame = siw_frame(FrameKind::Reply);
        change(&mut frame);
        emitted(&frame)[16]
    };
    assert_eq!(byte(|frame| frame.markers = true), 0x90);
    assert_eq!(byte(|frame| frame.crc = true), 0x50);
    assert_eq!(byte(|frame| frame.reject = true), 0x30);
    assert_eq!(byte(|frame| frame.enhanced = None), 0x00);
}

#[test]
fn each_enhanced_flag_has_its_bit() {
    let words = |peer_to_peer, send, write, read| {
        let rtr = RtrModes { send, write, read };
        let enhanced = Enhanced { ird: 0x123, ord: MAX_DEPTH, peer_to_peer, rtr };
        let mut out = Vec::new();
        enhanced.emit(&mut out);
        u32::from_be_bytes(out.try_into().unwrap())
    };
    assert_eq!(words(false, false, false, false), 0x0123_3fff);
    assert_eq!(words(true, false, false, false), 0x8123_3fff);
    assert_eq!(words(false, true, false, false), 0x4123_3fff);
    assert_eq!(words(false, false, true, false), 0x0123_bfff);
    assert_eq!(words(false, false, false, true), 0x0123_7fff);
}

#[test]
fn a_request_neither_sends_nor_reads_the_reject_bit() {
    let frame = StartupFrame { reject: true, ..siw_frame(FrameKind::Request) };
    assert_eq!(emitted(&frame), SIW_REQUEST);
    let mut bytes = *SIW_REQUEST;
    bytes[16] |= 0x20;
    assert_eq!(StartupFrame::parse(&bytes), Ok(Some((siw_frame(FrameKind::Request), 24))));
}

#[test]
fn reserved_bits_are_ignored() {
    let mut bytes = *SIW_REPLY;
    bytes[16] |= 0x0f;
    assert_eq!(StartupFrame::parse(&bytes), Ok(Some((siw_frame(FrameKind::Reply), 24))));
}

#[test]
fn the_enhanced_bit_means_nothing_before_revision_2() {
    for revision in [0, 1] {
        let mut bytes = *SIW_REQUEST;
        bytes[17] = revision;
        let frame = StartupFrame { revision, ..plain_frame(vec![0, 1, 0, 1]) };
        assert_eq!(StartupFrame::parse(&bytes), Ok(Some((frame, 24))));
    }
}

#[test]
fn every_cut_needs_more() {
    let frame = StartupFrame { private_data: vec![9; 33], ..siw_frame(FrameKind::Reply) };
    let bytes = emitted(&frame);
    for cut in 0..bytes.len() {
        assert_eq!(StartupFrame::parse(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
}

#[test]
fn a_wrong_key_is_refused_at_its_first_wrong_byte() {
    for at in 0..16 {
        let mut bytes = *SIW_REQUEST;
        bytes[at] ^= 0x80;
        let found = bytes[at];
        assert_eq!(StartupFrame::parse(&bytes[..at]), Ok(None));
        let error = Err(StartupFrameError::Key { at, found });
        assert_eq!(StartupFrame::parse(&bytes[..=at]), error);
        assert_eq!(StartupFrame::parse(&bytes), error);
    }
}

/// Other protocols' first bytes.
#[test]
fn strangers_are_refused() {
    for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", b"\x16\x03\x01", b"MPA ID Xeq"]
    {
        assert!(matches!(StartupFrame::parse(hello), Err(StartupFrameError::Key { .. })));
    }
}

#[test]
fn an_unknown_revision_is_refused_at_its_byte() {
    let mut bytes = *SIW_REQUEST;
    bytes[17] = 3;
    assert_eq!(StartupFrame::parse(&bytes[..17]), Ok(None));
    assert_eq!(StartupFrame::parse(&bytes[..18]), Err(StartupFrameError::Revision { found: 3 }));
}

#[test]
fn too_long_private_data_is_refused_at_the_first_byte_that_shows_it() {
    let too_long = |found| Err(StartupFrameError::PrivateDataTooLong { found });
    let mut bytes = *SIW_REQUEST;
    bytes[18..20].copy_from_slice(&[2, 0]);
    assert_eq!(StartupFrame::parse(&bytes[..20]), Ok(None));
    bytes[19] = 1;
    assert_eq!(StartupFrame::parse(&bytes[..19]), Ok(None));
    assert_eq!(StartupFrame::parse(&bytes[..20]), too_long(513));
    bytes[18] = 3;
    assert_eq!(StartupFrame::parse(&bytes[..19]), too_long(768));
}

#[test]
fn enhanced_data_must_be_there() {
    for len in 0..4 {
        let mut bytes = *SIW_REQUEST;
        bytes[19] = len;
        assert_eq!(StartupFrame::parse(&bytes[..19]), Ok(None));
        let error = Err(StartupFrameError::EnhancedMissing { found: usize::from(len) });
        assert_eq!(StartupFrame::parse(&bytes[..20]), error);
    }
}

#[test]
fn private_data_reaches_the_limit_and_not_beyond() {
    let enhanced =
        |len| StartupFrame { private_data: vec![1; len], ..siw_frame(FrameKind::Request) };
    for (frame, fits) in [
        (plain_frame(vec![1; 512]), true),
        (plain_frame(vec![1; 513]), false),
        (enhanced(508), true),
        (enhanced(509), false),
        (plain_frame(vec![1; 70_000]), false),
    ] {
        let mut out = Vec::new();
        let result = frame.emit(&mut out);
        assert_eq!(result.is_ok(), fits, "{} bytes", frame.private_data.len());
        assert_eq!(out.len(), if fits { 532 } else { 0 });
    }
}

#[test]
fn values_that_do_not_fit_are_not_sent() {
    let emit = |frame: StartupFrame| frame.emit(&mut Vec::new());
    let with = |ird, ord| StartupFrame {
        enhanced: Some(Enhanced { ird, ord, ..Enhanced::default() }),
        ..siw_frame(FrameKind::Request)
    };
    assert_eq!(emit(with(MAX_DEPTH, MAX_DEPTH)), Ok(()));
    assert_eq!(emit(with(0x4000, 0)), Err(StartupFrameError::Depth { found: 0x4000 }));
    assert_eq!(emit(with(0, 0xffff)), Err(StartupFrameError::Depth { found: 0xffff }));
    let old = StartupFrame { revision: 1, ..with(1, 1) };
    assert_eq!(emit(old), Err(StartupFrameError::EnhancedRevision { revision: 1 }));
    let new = StartupFrame { revision: 3, ..with(1, 1) };
    assert_eq!(emit(new), Err(StartupFrameError::Revision { found: 3 }));
}

#[test]
fn an_error_says_what_to_do() {
    let error = StartupFrame::parse(b"HELO").unwrap_err();
    assert_eq!(
        error.to_string(),
        "peer does not speak MPA: byte 0 of its first frame is 0x48, not part of \"MPA ID Req \
         Frame\" or \"MPA ID Rep Frame\"; close the connection"
    );
}

prop_compose! {
    fn any_enhanced()(
        ird in 0..=MAX_DEPTH,
        ord in 0..=MAX_DEPTH,
        peer_to_peer: bool,
        (send, write, read) in any::<(bool, bool, bool)>(),
    ) -> Enhanced {
        Enhanced { ird, ord, peer_to_peer, rtr: RtrModes { send, write, read } }
    }
}

prop_compose! {
    fn any_frame()(
        request: bool,
        (markers, crc, reject) in any::<(bool, bool, bool)>(),
        enhanced in prop::option::of(any_enhanced()),
        old_revision in 0..=2u8,
        private_data in prop::collection::vec(any::<u8>(), 0..=508),
    ) -> StartupFrame {
        StartupFrame {
            kind: if request { FrameKind::Request } else { FrameKind::Reply },
            markers,
            crc,
            reject: reject && !request,
            revision: if enhanced.is_some() { 2 } else { old_revision },
            enhanced,
            private_data,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_emitted_is_parsed(frame in any_frame(), behind: Vec<u8>) {
        let mut bytes = emitted(&frame);
        let len = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(StartupFrame::parse(&bytes), Ok(Some((frame, len))));
    }

    /// Once refused, no further byte changes the verdict; until then, no error is missed.
    #[test]
    fn a_verdict_comes_at_one_byte_and_stays(
        frame in any_frame(),
        at in 0..HEADER_LEN,
        byte: u8,
    ) {
        let mut bytes = emitted(&frame);
        bytes[at] = byte;
        let first_error = (0..=bytes.len()).find_map(|cut| {
            StartupFrame::parse(&bytes[..cut]).err().map(|error| (cut, error))
        });
        if let Some((cut, StartupFrameError::Key { at, .. })) = first_error {
            prop_assert_eq!(cut, at + 1);
        }
        if let Some((cut, error)) = first_error {
            for longer in cut.max(HEADER_LEN)..=bytes.len() {
                let same_kind = StartupFrame::parse(&bytes[..longer]).map_err(|found| {
                    std::mem::discriminant(&found) == std::mem::discriminant(&error)
                });
                prop_assert_eq!(same_kind, Err(true));
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..40), key: bool) {
        let mut bytes = if key { REQUEST_KEY.to_vec() } else { Vec::new() };
        bytes.extend_from_slice(&tail);
        let _ = StartupFrame::parse(&bytes);
    }
}
