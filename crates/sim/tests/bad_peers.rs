//! Peers that break the rules, one octet string each: the Terminate that tells them, what it
//! quotes, and that nothing else happened.

use outboard_iwarp::startup::Negotiated;
use outboard_iwarp::work::{Remote, SendOp};
use outboard_iwarp::{MissingReceive, Phase};
use outboard_mem::{Access, SharedRegion};
use outboard_sim::lone::{self, Lone, agreed, response, ulpdu, untagged, write};
use outboard_sim::side::{OTHER_PD, PD};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged};
use outboard_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};

/// A connection with one of everything under way, and canaries around all memory.
struct Victim {
    lone: Lone,
    region: SharedRegion,
    before: Vec<u8>,
    rw: Stag,
    read_only: Stag,
    write_only: Stag,
    local: Stag,
    stale: Stag,
    foreign: Stag,
    edge: Stag,
}

/// The STags' shares of the region are this long, with as much canary on either side.
const LEN: usize = 64;

impl Victim {
    fn new() -> Self {
        Self::with(agreed())
    }

    /// Work requests 1 (Read of 100), 2 (FetchAdd), 3 (Read of 50) are under way; receives 11 and
    /// 12 of 32 octets are posted; the first FPDU has been exchanged.
    fn with(negotiated: Negotiated) -> Self {
        let mut lone = Lone::new(negotiated);
        let region = lone.side.region(LEN * 16);
        let everything = Access::REMOTE | Access::LOCAL_WRITE;
        let mut next = 0;
        let mut register = |name: &str, pd, base, access| {
            let share = region.slice((2 * next + 1) * LEN..(2 * next + 2) * LEN).expect("inside");
            next += 1;
            let stag = Stag(lone.side.stags.register(pd, share, base, access).expect("room"));
            lone.side.names.insert(stag, name.to_owned());
            stag
        };
        let rw = register("rw", PD, 0, everything);
        let read_only = register("read-only", PD, 0, Access::REMOTE_READ);
        let write_only = register("write-only", PD, 0, Access::REMOTE_WRITE);
        let local = register("local", PD, 0, Access::LOCAL_WRITE);
        let stale = register("stale", PD, 0, everything);
        let foreign = register("foreign", OTHER_PD, 0, everything);
        let edge = register("edge", PD, u64::MAX - 64, everything);
        lone.side.stags.deregister(stale.0).expect("registered");
        region.copy_in(0, &[0xa5; LEN * 16]).expect("inside");
        let before = region.snapshot(0..LEN * 16).expect("inside");
        lone.segment(Header::Tagged(write(Stag(1), 0)), &[]);
        let there = Remote { stag: Stag(0x7777_7000), offset: 0 };
        lone.side.send(1, SendOp::Read { from: there }, &[0; 100]);
        lone.side.send(2, SendOp::FetchAdd { at: there, add: 1, mask: 0 }, &[0; 8]);
        lone.side.send(3, SendOp::Read { from: there }, &[0; 50]);
        lone.side.receive(11, 32);
        lone.side.receive(12, 32);
        assert_eq!(lone.segments().len(), 3);
        Self { lone, region, before, rw, read_only, write_only, local, stale, foreign, edge }
    }

    /// Delivers a segment and expects the Terminate.
    #[track_caller]
    fn refuses(&mut self, header: impl Into<Head>, payload: &[u8], terminate: &str) {
        self.lone.segment(header.into().0, payload);
        self.ends_with(terminate);
    }

    /// The connection said exactly this, told everybody once, and wrote nothing.
    #[track_caller]
    fn ends_with(&mut self, terminate: &str) {
        self.wrote_nothing();
        let expected = if terminate.is_empty() {
            vec![]
        } else {
            vec![format!("Terminate msn=1 {terminate}")]
        };
        assert_eq!(self.lone.lines(), expected);
        self.is_over(&["1 Read Flushed 0", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
    }

    #[track_caller]
    fn wrote_nothing(&self) {
        let now = self.region.snapshot(0..LEN * 16).expect("inside");
        let at = now.iter().zip(&self.before).position(|(now, before)| now != before);
        assert_eq!(at, None, "octet written");
    }

    /// Every request came back once with its buffer, later octets are dropped, FIN is due.
    #[track_caller]
    fn is_over(&mut self, expected: &[&str]) {
        let mut lines = self.lone.side.completion_lines();
        lines.retain(|line| !line.contains("Receive "));
        assert_eq!(lines, expected);
        self.lone.raw(&[0xff; 1000]);
        self.lone.segment(Header::Tagged(write(self.rw, 0)), b"too late");
        self.wrote_nothing();
        assert_eq!(self.lone.side.untaken(), 0, "octets after the end were kept");
        assert_eq!(self.lone.lines(), Vec::<String>::new());
        assert_eq!(self.lone.side.completion_lines(), Vec::<String>::new());
        assert!(self.lone.side.connection.wants_fin());
        self.lone.eof();
        assert_eq!(self.lone.side.connection.phase(), Phase::Closed);
    }
}

struct Head(Header);

impl From<Untagged> for Head {
    fn from(header: Untagged) -> Self {
        Self(Header::Untagged(header))
    }
}

impl From<Tagged> for Head {
    fn from(header: Tagged) -> Self {
        Self(Header::Tagged(header))
    }
}

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
    for (negotiated, len) in [(with_crc(), 40), (with_markers(true), 40), (with_markers(true), 900)] {
        let clean = {
            let mut victim = Victim::with(negotiated.clone());
            victim.lone.frame(&ulpdu(Header::Untagged(SEND(1)), &vec![1; len])).len()
        };
        for at in (2..clean).step_by(3) {
            let mut victim = Victim::with(negotiated.clone());
            let rw = victim.rw;
            let mut bytes = victim.lone.frame(&ulpdu(Header::Tagged(write(rw, 0)), &vec![1; len + 4]));
            assert_eq!(bytes.len(), clean);
            // The length field's own octets decide how much is waited for: left alone.
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
        // Opcodes that nobody knows, and known ones in the other kind of header.
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
            victim.ends_with(terminate);
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
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x1/0x2/0x05 of [Send last msn=1] len=51"]
    );
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
    let mut lone = Lone::with(agreed(), MissingReceive::Terminate);
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
fn wrong_accesses(v: &Victim, wrong: Stag) -> [(Stag, &'static str, u64, &'static str, &'static str); 9] {
    [
        (Stag(0x0000_1234), "unknown", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (Stag(0), "0", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (v.stale, "stale", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (Stag(v.rw.0 ^ 1), "unknown", 0, "0x1/0x1/0x00", "0x0/0x1/0x00"),
        (v.foreign, "foreign", 0, "0x1/0x1/0x02", "0x0/0x1/0x03"),
        (wrong, if wrong == v.read_only { "read-only" } else { "write-only" }, 0, "0x1/0x1/0x00", "0x0/0x1/0x02"),
        (v.rw, "rw", 64 - 7, "0x1/0x1/0x01", "0x0/0x1/0x01"),
        (v.edge, "edge", u64::MAX - 65, "0x1/0x1/0x01", "0x0/0x1/0x01"),
        (v.edge, "edge", u64::MAX - 6, "0x1/0x1/0x03", "0x0/0x1/0x04"),
    ]
}

/// The same memory has other STags in every victim.
fn again(case: usize, pick: fn(&Victim) -> Stag) -> (Victim, (Stag, &'static str, u64, &'static str, &'static str)) {
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
        victim.refuses(write(stag, offset), b"8 octets", &told);

        // The same while the payload is still arriving.
        let (mut victim, (stag, name, offset, code, _)) = again(case, |v| v.read_only);
        let frame = victim.lone.frame(&ulpdu(Header::Tagged(write(stag, offset)), b"8 octets"));
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
fn an_atomic_operation_that_nobody_defined() {
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

// ---- responses -------------------------------------------------------------------------------

#[test]
fn responses_to_nothing() {
    let mut lone = Lone::new(agreed());
    lone.segment(Header::Tagged(response(Stag(1), 0)), b"what");
    assert_eq!(
        lone.lines(),
        ["Terminate msn=1 0x1/0x1/0x00 of [ReadResponse last stag=1 to=0] len=18"]
    );
    let mut lone = Lone::new(agreed());
    lone.segment(Header::Untagged(untagged(Opcode::AtomicResponse, 1)), &[0; 12]);
    assert_eq!(
        lone.lines(),
        ["Terminate msn=1 0x0/0x2/0x06 of [AtomicResponse msn=1] len=30"]
    );
}

#[test]
fn responses_that_do_not_fit_the_request() {
    let short = Tagged { last: true, ..response(Stag(1), 0) };
    for (header, len, terminate) in [
        (response(Stag(2), 0), 100, "0x1/0x1/0x00 of [ReadResponse last stag=2 to=0] len=114"),
        (response(Stag(3), 0), 50, "0x1/0x1/0x00 of [ReadResponse last stag=3 to=0] len=64"),
        (response(Stag(1), 1), 99, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=1] len=113"),
        (response(Stag(1), 0), 101, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=0] len=115"),
        (short, 99, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=0] len=113"),
    ] {
        Victim::new().refuses(header, &vec![9; len], terminate);
    }
}

#[test]
fn a_response_that_goes_on_elsewhere_or_too_long() {
    for (offset, len) in [(39, 60), (41, 60), (0, 60), (40, 61)] {
        let mut victim = Victim::new();
        let first = Tagged { last: false, ..response(Stag(1), 0) };
        victim.lone.segment(Header::Tagged(first), &[9; 40]);
        let told = format!(
            "0x1/0x1/0x01 of [ReadResponse last stag=1 to={offset}] len={}",
            len + 14
        );
        victim.refuses(response(Stag(1), offset), &vec![9; len], &told);
    }
}

#[test]
fn responses_out_of_turn() {
    let mut payload = Vec::new();
    outboard_wire::rdmap::AtomicResponse { request_id: 1, original: 7 }.emit(&mut payload);
    let header = untagged(Opcode::AtomicResponse, 1);
    Victim::new().refuses(header, &payload, "0x0/0x2/0x06 of [AtomicResponse msn=1] len=30");

    let mut victim = Victim::new();
    victim.lone.segment(Header::Tagged(response(Stag(1), 0)), &[9; 100]);
    victim.lone.segment(Header::Tagged(response(Stag(2), 0)), &[9; 50]);
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x0/0x2/0x06 of [ReadResponse last stag=2 to=0] len=64"]
    );
    victim.is_over(&["1 Read Success 100", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
}

#[test]
fn an_atomic_response_with_anothers_number() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Tagged(response(Stag(1), 0)), &[9; 100]);
    let mut payload = Vec::new();
    outboard_wire::rdmap::AtomicResponse { request_id: 77, original: 7 }.emit(&mut payload);
    victim.lone.segment(Header::Untagged(untagged(Opcode::AtomicResponse, 1)), &payload);
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x0/0x2/0x06 of [AtomicResponse msn=1] len=30"]
    );
    victim.is_over(&["1 Read Success 100", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
}

// ---- Terminates ------------------------------------------------------------------------------

#[test]
fn a_terminate_ends_everything_silently() {
    let mut victim = Victim::new();
    let payload = [0x12, 0x02, 0, 0];
    victim.refuses(untagged(Opcode::Terminate, 1), &payload, "");
}

#[test]
fn a_terminate_too_short_to_read() {
    let told = "0x0/0x2/0xff";
    Victim::new().refuses(untagged(Opcode::Terminate, 1), &[0x12], told);
    Victim::new().refuses(untagged(Opcode::Terminate, 1), &[0x12, 2, 0xc0, 0, 0], told);
}

#[test]
fn the_receive_in_progress_comes_back_too() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Untagged(Untagged { last: false, ..SEND(1) }), &[5; 10]);
    victim.lone.segment(Header::Tagged(lone::write(Stag(0), 0)), b"x");
    victim.lone.lines();
    let completions = std::mem::take(&mut victim.lone.side.completions);
    let receive = completions.iter().find(|c| c.wr_id == 11).expect("it came back");
    assert_eq!(receive.local.len(), 32);
    assert_eq!(completions.len(), 4);
    assert!(completions.iter().all(|c| c.status == outboard_iwarp::work::Status::Flushed));
    let lens: Vec<usize> = completions.iter().map(|c| c.local.len()).collect();
    assert_eq!(lens, [100, 8, 50, 32], "buffers come back");
}
