//! Peers that break the rules, one byte string each: the Terminate that tells them, what it
//! quotes, and that nothing else happened.

mod answers;
mod victim;

use self::victim::Victim;
use outboard_iwarp::startup::Negotiated;
use outboard_iwarp::{Phase, RnrPolicy};
use outboard_mem::Access;
use outboard_sim::lone::{Lone, agreed, ulpdu, untagged, write};
use outboard_sim::side::OTHER_PD;
use outboard_wire::ddp::{Header, HeaderError, Stag, Untagged};
use outboard_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};

fn read_request(source_stag: Stag, source_offset: u64, size: u32) -> Vec<u8> {
    let request =
        ReadRequest { sink_stag: Stag(9), sink_offset: 5, size, source_stag, source_offset };
    let mut payload = Vec::new();
    request.emit(&mut payload);
    payload
}

fn atomic_request(stag: Stag, offset: u64) -> Vec<u8> {
    let request = AtomicRequest {
        op: AtomicOp::FetchAdd,
        request_id: 1,
        stag,
        offset,
        add_swap: 1,
        add_swap_mask: 0,
        compare: 0,
        compare_mask: 0,
    };
    let mut payload = Vec::new();
    request.emit(&mut payload);
    payload
}

const READ: fn(u32) -> Untagged = |msn| untagged(Opcode::ReadRequest, msn);
const ATOMIC: fn(u32) -> Untagged = |msn| untagged(Opcode::AtomicRequest, msn);
const SEND: fn(u32) -> Untagged = |msn| untagged(Opcode::Send, msn);

#[test]
fn the_victim_works_as_long_as_rules_are_kept() {
    let mut victim = Victim::new();
    let rw = victim.rw;
    let edge = victim.edge;
    victim.lone.segment(Header::Tagged(write(rw, 63)), b"x");
    victim.lone.segment(Header::Tagged(write(edge, u64::MAX - 1)), b"y");
    victim.lone.segment(Header::Untagged(READ(1)), &read_request(rw, 60, 4));
    victim.lone.segment(Header::Untagged(ATOMIC(2)), &atomic_request(rw, 56));
    victim.lone.segment(Header::Untagged(SEND(1)), b"hello");
    assert_eq!(
        victim.lone.lines(),
        ["ReadResponse last stag=9 to=5 len=4", "AtomicResponse msn=1 original=0x78a5a5a5a5a5a5a5"]
    );
    assert_eq!(victim.lone.side.completion_lines(), ["11 Receive Success 5"]);
}

// ---- MPA -------------------------------------------------------------------------------------

fn with_crc() -> Negotiated {
    Negotiated { crc: true, ..agreed() }
}

fn with_markers(crc: bool) -> Negotiated {
    Negotiated { crc, rx_markers: true, ..agreed() }
}

#[test]
fn a_wrong_crc() {
    for (negotiated, len) in [(with_crc(), 40), (with_markers(true), 40), (with_markers(true), 900)]
    {
        let clean = {
            let mut victim = Victim::with(negotiated.clone());
            victim.lone.frame(&ulpdu(Header::Untagged(SEND(1)), &vec![1; len])).len()
        };
        for at in (2..clean).step_by(3) {
            let mut victim = Victim::with(negotiated.clone());
            let rw = victim.rw;
            let mut bytes =
                victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &vec![1; len + 4]));
            assert_eq!(bytes.len(), clean);
            // The length field's own bytes decide how much is waited for: left alone.
            if bytes[at] == 0 && at < 4 {
                continue;
            }
            bytes[at] ^= 0x10;
            victim.lone.raw(&bytes);
            victim.ends_with("0x2/0x0/0x02");
        }
    }
}

#[test]
fn a_wrong_marker() {
    for crc in [false, true] {
        let mut victim = Victim::with(with_markers(crc));
        let rw = victim.rw;
        let mut bytes = victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &[1; 600]));
        let at = 512 - 24;
        assert_eq!(bytes[at..at + 2], [0, 0], "no marker here");
        assert_eq!(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]) as usize, at);
        bytes[at + 3] ^= 8;
        if crc {
            let end = bytes.len() - 4;
            let right = outboard_wire::crc::crc32c(&bytes[..end]).to_le_bytes();
            bytes[end..].copy_from_slice(&right);
        }
        victim.lone.raw(&bytes);
        victim.ends_with("0x2/0x0/0x03");
    }
}

#[test]
fn a_length_that_no_segment_has() {
    for negotiated in [agreed(), with_crc(), with_markers(false), with_markers(true)] {
        for len in [0u16, 1, 13] {
            let mut victim = Victim::with(negotiated.clone());
            victim.lone.raw(&len.to_be_bytes());
            victim.ends_with("0x2/0x0/0x03");
        }
    }
    let mut victim = Victim::with(with_markers(false));
    victim.lone.raw(&0xffffu16.to_be_bytes());
    victim.ends_with("0x2/0x0/0x03");
}

#[test]
fn the_end_in_the_middle_of_an_fpdu() {
    for negotiated in [agreed(), with_crc(), with_markers(true)] {
        let frame = {
            let mut victim = Victim::with(negotiated.clone());
            let rw = victim.rw;
            victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &[0xa5; 40]))
        };
        for len in 1..frame.len() {
            let mut victim = Victim::with(negotiated.clone());
            let rw = victim.rw;
            let frame = victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &[0xa5; 40]));
            victim.lone.raw(&frame[..len]);
            victim.lone.eof();
            assert_eq!(victim.lone.side.connection.phase(), Phase::Closed);
            victim.ends_with("");
        }
    }
}

// ---- headers ---------------------------------------------------------------------------------

#[test]
fn versions_and_opcodes() {
    for (control, len, terminate) in [
        // T, L, version 2 of DDP; the same untagged.
        (0xc240u16, 30, "0x1/0x1/0x04"),
        (0x4243, 30, "0x1/0x2/0x06"),
        (0xc040, 30, "0x1/0x1/0x04"),
        // RDMAP version 2 and 0.
        (0xc180, 30, "0x0/0x2/0x05"),
        (0x4183, 30, "0x0/0x2/0x05"),
        (0x4103, 30, "0x0/0x2/0x05"),
        // Undefined opcodes, and defined ones in the other kind of header.
        (0xc14f, 30, "0x0/0x2/0x06"),
        (0x414c, 30, "0x0/0x2/0x06"),
        (0xc143, 30, "0x0/0x2/0x06"),
        (0x4140, 30, "0x0/0x2/0x06"),
        (0x4142, 30, "0x0/0x2/0x06"),
        (0xc147, 30, "0x0/0x2/0x06"),
        // Too short for its header.
        (0x4143, 17, "0x0/0x2/0xff"),
    ] {
        for negotiated in [agreed(), with_crc(), with_markers(true)] {
            let mut victim = Victim::with(negotiated);
            let mut bytes = vec![0; len];
            bytes[..2].copy_from_slice(&control.to_be_bytes());
            victim.lone.ulpdu(&bytes);
            // RFC 5040 figure 10: the header is quoted, wrong as it is.
            let quoted = match Header::parse(&bytes) {
                Err(HeaderError::TooShort { .. }) => String::new(),
                _ => {
                    let header = if control & 0x8000 == 0 { &bytes[..18] } else { &bytes[..14] };
                    format!(" of [unreadable {header:02x?}] len={len}")
                }
            };
            victim.ends_with(&format!("{terminate}{quoted}"));
        }
    }
}

#[test]
fn wrong_queues() {
    for opcode in Opcode::ALL {
        let Some(right) = opcode.queue() else { continue };
        for queue in [0, 1, 2, 3, 4, 7, 0xffff_ffff] {
            if queue == right {
                continue;
            }
            let mut victim = Victim::new();
            let header = Untagged { queue, ..untagged(opcode, 1) };
            let inv = if opcode.invalidates() { " inv=0" } else { "" };
            let last = if right == 0 { " last" } else { "" };
            let told = format!("0x1/0x2/0x01 of [{opcode:?}{last}{inv} msn=1] len=78");
            victim.refuses(header, &[0; 60], &told);
        }
    }
}

#[test]
fn wrong_message_numbers_and_offsets() {
    for (header, terminate) in [
        (SEND(0), "0x1/0x2/0x03 of [Send last msn=0] len=22"),
        (SEND(2), "0x1/0x2/0x03 of [Send last msn=2] len=22"),
        (READ(7), "0x1/0x2/0x03 of [ReadRequest msn=7] len=22"),
        (untagged(Opcode::AtomicResponse, 2), "0x1/0x2/0x03 of [AtomicResponse msn=2] len=22"),
        (untagged(Opcode::Terminate, 9), "0x1/0x2/0x03 of [Terminate msn=9] len=22"),
        (untagged(Opcode::Immediate, 3), "0x1/0x2/0x03 of [Immediate last msn=3] len=22"),
        (Untagged { offset: 1, ..SEND(1) }, "0x1/0x2/0x04 of [Send last msn=1 mo=1] len=22"),
        (Untagged { offset: 4, ..READ(1) }, "0x1/0x2/0x04 of [ReadRequest msn=1 mo=4] len=22"),
    ] {
        Victim::new().refuses(header, &[0; 4], terminate);
    }
}

#[test]
fn a_message_that_goes_on_elsewhere() {
    for (header, terminate) in [
        (Untagged { offset: 3, ..SEND(1) }, "0x1/0x2/0x04 of [Send last msn=1 mo=3] len=22"),
        (Untagged { offset: 5, ..SEND(1) }, "0x1/0x2/0x04 of [Send last msn=1 mo=5] len=22"),
        (Untagged { offset: 4, ..SEND(2) }, "0x1/0x2/0x03 of [Send last msn=2 mo=4] len=22"),
        (Untagged { offset: 0, ..SEND(1) }, "0x1/0x2/0x04 of [Send last msn=1] len=22"),
    ] {
        let mut victim = Victim::new();
        victim.lone.segment(Header::Untagged(Untagged { last: false, ..SEND(1) }), &[0; 4]);
        victim.refuses(header, &[0; 4], terminate);
    }
}

// ---- Sends -----------------------------------------------------------------------------------

#[test]
fn a_message_too_long_for_its_receive() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Untagged(SEND(1)), &[1; 33]);
    assert_eq!(victim.lone.lines(), ["Terminate msn=1 0x1/0x2/0x05 of [Send last msn=1] len=51"]);
    let lines = victim.lone.side.completion_lines();
    assert_eq!(lines[0], "11 Receive LocalLength 0");
    assert_eq!(lines.len(), 4, "{lines:?}");
}

#[test]
fn a_message_too_long_in_its_second_segment() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Untagged(Untagged { last: false, ..SEND(1) }), &[1; 30]);
    let second = Untagged { offset: 30, ..SEND(1) };
    victim.lone.segment(Header::Untagged(second), &[1; 3]);
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x1/0x2/0x05 of [Send last msn=1 mo=30] len=21"]
    );
    assert_eq!(victim.lone.side.completion_lines()[0], "11 Receive LocalLength 30");
}

#[test]
fn invalidations_that_are_not_the_peers_business() {
    let v = Victim::new();
    let cases = [
        (v.foreign, "0x0/0x1/0x03"),
        (v.stale, "0x0/0x1/0x00"),
        (v.local, "0x0/0x1/0x09"),
        (Stag(0xffff_ffff), "0x0/0x1/0x00"),
        (Stag(0), "0x0/0x1/0x00"),
    ];
    for (i, (_, code)) in cases.iter().enumerate() {
        let mut victim = Victim::new();
        let stag = [victim.foreign, victim.stale, victim.local, Stag(0xffff_ffff), Stag(0)][i];
        let name = ["foreign", "stale", "local", "unknown", "0"][i];
        let header = Untagged { invalidate: stag, ..untagged(Opcode::SendInvalidate, 1) };
        let told = format!("{code} of [SendInvalidate last inv={name} msn=1] len=20");
        victim.lone.segment(Header::Untagged(header), b"hi");
        victim.wrote_nothing();
        assert_eq!(victim.lone.lines(), [format!("Terminate msn=1 {told}")]);
        let lines = victim.lone.side.completion_lines();
        assert_eq!(lines[0], "11 Receive Flushed 2");
        let foreign = victim.foreign;
        let stags = &victim.lone.side.stags;
        assert!(stags.resolve(foreign.0, OTHER_PD, Access::REMOTE_READ, 0, 1).is_ok());
    }
}

#[test]
fn without_a_receive() {
    let mut lone = Lone::with(agreed(), RnrPolicy::Terminate);
    lone.segment(Header::Untagged(SEND(1)), &[1; 5]);
    lone.pass(std::time::Duration::ZERO);
    assert_eq!(lone.lines(), ["Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=23"]);
}

#[test]
fn immediate_data_of_another_length() {
    let header = untagged(Opcode::Immediate, 1);
    let told = "0x0/0x2/0xff of [Immediate last msn=1] len=25";
    Victim::new().refuses(header, &[0; 7], told);
    let told = "0x1/0x2/0x05 of [Immediate last msn=1] len=27";
    Victim::new().refuses(header, &[0; 9], told);
}

// ---- Writes ----------------------------------------------------------------------------------

/// What is wrong with an access, for Writes, and for Reads and atomics.
fn wrong_accesses(
    v: &Victim,
    wrong: Stag,
) -> [(Stag, &'static str, u64, &'static str, &'static str); 9] {
    [
        (Stag(0x0000_1234), "unknown", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (Stag(0), "0", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (v.stale, "stale", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (Stag(v.rw.0 ^ 1), "unknown", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (v.foreign, "foreign", 0, "0x1/0x1/0x02", "0x0/0x1/0x03"),
        (
            wrong,
            if wrong == v.read_only { "read-only" } else { "write-only" },
            0,
            "0x1/0x1/0x00",
            "0x0/0x1/0x02",
        ),
        (v.rw, "rw", 64 - 7, "0x1/0x1/0x01", "0x0/0x1/0x01"),
        (v.edge, "edge", u64::MAX - 65, "0x1/0x1/0x01", "0x0/0x1/0x01"),
        (v.edge, "edge", u64::MAX - 6, "0x1/0x1/0x03", "0x0/0x1/0x04"),
    ]
}

/// The same memory has other STags in every victim.
fn again(
    case: usize,
    pick: fn(&Victim) -> Stag,
) -> (Victim, (Stag, &'static str, u64, &'static str, &'static str)) {
    let victim = Victim::new();
    let wrong = pick(&victim);
    let found = wrong_accesses(&victim, wrong)[case];
    (victim, found)
}

#[test]
fn writes_where_the_peer_may_not_write() {
    for case in 0..9 {
        let (mut victim, (stag, name, offset, code, _)) = again(case, |v| v.read_only);
        let told = format!("{code} of [Write last stag={name} to={offset}] len=22");
        victim.refuses(write(stag, offset), b"8 bytes!", &told);

        // The same while the payload is still arriving.
        let (mut victim, (stag, name, offset, code, _)) = again(case, |v| v.read_only);
        let frame = victim.lone.frame(&ulpdu(Header::Tagged(write(stag, offset)), b"8 bytes!"));
        victim.lone.raw_pieces(&frame, 1);
        let told = format!("{code} of [Write last stag={name} to={offset}] len=22");
        victim.ends_with(&told);
    }
}

#[test]
fn an_stag_that_goes_while_a_payload_arrives() {
    let mut victim = Victim::new();
    let rw = victim.rw;
    victim.lone.side.direct = false;
    let frame = victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &[0xa5; 60]));
    victim.lone.raw(&frame[..40]);
    victim.lone.side.stags.deregister(rw.0).expect("registered");
    victim.lone.raw(&frame[40..]);
    victim.ends_with("0x1/0x1/0x00 of [Write last stag=rw to=0] len=74");
}

// ---- Reads and atomics -----------------------------------------------------------------------

#[test]
fn reads_where_the_peer_may_not_read() {
    for case in 0..9 {
        let (mut victim, (stag, name, offset, _, code)) = again(case, |v| v.write_only);
        let told = format!(
            "{code} of [ReadRequest msn=1] len=46 read [sink=9+5 size=8 source={name}+{offset}]"
        );
        victim.refuses(READ(1), &read_request(stag, offset, 8), &told);
    }
}

#[test]
fn atomics_where_the_peer_may_not() {
    for case in 0..9 {
        let (mut victim, (stag, _, offset, _, code)) = again(case, |v| v.write_only);
        let told = format!("{code} of [AtomicRequest msn=1] len=70");
        victim.refuses(ATOMIC(1), &atomic_request(stag, offset), &told);
    }
}

#[test]
fn atomics_on_unaligned_words() {
    for offset in [1, 4, 7] {
        let mut victim = Victim::new();
        let rw = victim.rw;
        let told = "0x0/0x2/0x07 of [AtomicRequest msn=1] len=70";
        victim.refuses(ATOMIC(1), &atomic_request(rw, offset), told);
    }
}

#[test]
fn an_undefined_atomic_operation() {
    for code in [1, 3, 15] {
        let mut victim = Victim::new();
        let rw = victim.rw;
        let mut payload = atomic_request(rw, 0);
        payload[3] = code;
        victim.refuses(ATOMIC(1), &payload, "0x0/0x2/0x06 of [AtomicRequest msn=1] len=70");
    }
}

#[test]
fn requests_of_another_length() {
    let mut victim = Victim::new();
    let mut payload = read_request(victim.rw, 0, 8);
    payload.push(0);
    victim.refuses(READ(1), &payload, "0x1/0x2/0x05 of [ReadRequest msn=1] len=47");
    Victim::new().refuses(READ(1), &payload[..27], "0x0/0x2/0xff of [ReadRequest msn=1] len=45");

    let mut victim = Victim::new();
    let mut payload = atomic_request(victim.rw, 0);
    payload.push(0);
    victim.refuses(ATOMIC(1), &payload, "0x1/0x2/0x05 of [AtomicRequest msn=1] len=71");
    let told = "0x0/0x2/0xff of [AtomicRequest msn=1] len=69";
    Victim::new().refuses(ATOMIC(1), &payload[..51], told);

    let mut victim = Victim::new();
    let rw = victim.rw;
    let unfinished = Untagged { last: false, ..READ(1) };
    let told = "0x1/0x2/0x05 of [ReadRequest msn=1] len=46";
    victim.refuses(unfinished, &read_request(rw, 0, 8), told);
}

#[test]
fn more_requests_than_the_ird() {
    let mut victim = Victim::new();
    let rw = victim.rw;
    for msn in 1..=4 {
        victim.lone.segment(Header::Untagged(READ(msn)), &read_request(rw, 0, 8));
    }
    let told = "0x1/0x2/0x02 of [ReadRequest msn=5] len=46";
    victim.refuses(READ(5), &read_request(rw, 0, 8), told);
}
