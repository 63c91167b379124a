//! How a connection ends: by leaving, by loss, by the other's Terminate; and that every request
//! comes back.

use outboard_iwarp::work::{Remote, SendOp, SendRequest};
use outboard_iwarp::{CLOSE_LIMIT, Event, Phase, PostError, RECEIVE_GRACE};
use outboard_mem::{Access, SgList};
use outboard_sim::lone::{self, Lone};
use outboard_sim::{End, Pair, Setup};
use outboard_wire::ddp::Header;
use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::{Layout, Terminate, TerminateCode};
use std::time::Duration;

const SEND: SendOp = SendOp::Send { invalidate: None };

#[test]
fn leaving_flushes_requests_that_were_not_begun() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 16, Access::REMOTE);
    pair.b.receive(9, 8);
    pair.a.send(1, SEND, b"on its way");
    pair.a.send(2, SendOp::Read { from: Remote { stag: mr.stag, offset: 0 } }, &[0; 4]);
    pair.a.connection.disconnect();
    pair.expect(
        "> FIN
         < FIN",
    );
    assert_eq!(pair.a.completion_lines(), ["1 Send Flushed 0", "2 Read Flushed 0"]);
    assert_eq!(pair.a.events, [Event::Over]);
    assert_eq!(pair.b.events, [Event::Over]);
    assert!(pair.is_closed());
    assert_eq!(pair.a.post(SendRequest::new(3, SEND, SgList::new())), Err(PostError::NotConnected));
}

#[test]
fn leaving_in_the_middle_of_an_fpdu_finishes_it() {
    for crc in [false, true] {
        let mut pair = Pair::open(Setup::default().both(|side| side.local.crc = crc));
        pair.b.receive(9, 10_000);
        pair.a.send(1, SEND, &[5; 10_000]);
        let now = pair.now();
        let first = pair.a.transmit(now, 100);
        pair.b.deliver(now, &first);
        pair.a.connection.disconnect();
        let rest = pair.a.transmit(now, 1 << 20);
        let mut decoder = outboard_sim::trace::Decoder::new(crc, false);
        let segments = decoder.push(&[first, rest].concat());
        assert!(decoder.is_between() && !segments.is_empty());
        assert!(segments.iter().all(|segment| segment.payload.iter().all(|byte| *byte == 5)));
        assert_eq!(pair.a.completion_lines(), ["1 Send Flushed 0"]);
    }
}

#[test]
fn a_peer_that_never_closes_is_given_up() {
    let mut pair = Pair::open(Setup::default());
    let now = pair.now();
    pair.a.connection.disconnect();
    assert!(pair.a.transmit(now, 1000).is_empty());
    assert_eq!(pair.a.connection.phase(), Phase::HalfClosed);
    pair.a.tick(now + CLOSE_LIMIT - Duration::from_millis(1));
    assert_eq!(pair.a.connection.phase(), Phase::HalfClosed);
    pair.a.tick(now + CLOSE_LIMIT);
    assert_eq!(pair.a.connection.phase(), Phase::Closed);
    assert_eq!(pair.a.connection.poll_timeout(), None);
}

/// A message waits for a receive, and its sender has closed behind it.
#[test]
fn a_stalled_message_of_a_peer_that_has_left_waits_a_moment_only() {
    let mut pair = Pair::open(Setup::default().both(|side| {
        side.rnr_policy = outboard_iwarp::RnrPolicy::Stall(Duration::from_secs(60));
    }));
    pair.a.send(1, SEND, b"first");
    pair.a.send(2, SEND, b"second");
    pair.carry(End::A, 1000);
    let start = pair.now();
    assert!(pair.b.connection.is_stalled());
    let later = start + Duration::from_secs(10);
    pair.b.tick(later);
    pair.b.connection.handle_hangup(later);
    assert_eq!(pair.b.connection.poll_timeout(), Some(later + RECEIVE_GRACE));
    // A receive for the first gives the second its own time.
    pair.b.receive(7, 8);
    let posted = later + RECEIVE_GRACE / 2;
    pair.b.deliver(posted, &[]);
    assert_eq!(pair.b.connection.poll_timeout(), Some(posted + RECEIVE_GRACE));
    pair.b.tick(posted + RECEIVE_GRACE);
    assert_eq!(pair.b.connection.phase(), Phase::HalfClosed);
    assert!(pair.b.transmit(posted + RECEIVE_GRACE, 1000).is_empty(), "no Terminate");
    assert_eq!(pair.b.completion_lines(), ["7 Receive Success 5"]);
    assert_eq!(pair.b.events, [Event::Over]);
}

#[test]
fn a_lost_connection_says_nothing_more() {
    let mut pair = Pair::open(Setup::default());
    pair.a.send(1, SEND, &[5; 10_000]);
    let now = pair.now();
    pair.a.transmit(now, 100);
    pair.a.lose(now);
    assert!(pair.a.transmit(now, 1000).is_empty());
    assert_eq!(pair.a.completion_lines(), ["1 Send Flushed 0"]);
    assert_eq!(pair.a.events, [Event::Over]);
}

#[test]
fn losing_the_connection_while_leaving_says_nothing_more() {
    let mut pair = Pair::open(Setup::default());
    pair.a.send(1, SEND, &[5; 10_000]);
    let now = pair.now();
    pair.a.transmit(now, 100);
    pair.a.connection.disconnect();
    pair.a.transmit(now, 100);
    pair.a.lose(now);
    assert!(pair.a.transmit(now, 1000).is_empty());
    assert_eq!(pair.a.completion_lines(), ["1 Send Flushed 0"]);
}

#[test]
fn both_leave_at_once() {
    let mut pair = Pair::open(Setup::default());
    pair.a.connection.disconnect();
    pair.b.connection.disconnect();
    pair.drive();
    assert!(pair.is_closed());
    assert_eq!(pair.a.connection.phase(), Phase::Closed);
    assert_eq!(pair.b.connection.phase(), Phase::Closed);
}

#[test]
fn payload_that_arrives_after_leaving_is_not_placed() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 1000, Access::REMOTE);
    pair.a.send(1, SendOp::Write { to: Remote { stag: mr.stag, offset: 0 } }, &[9; 1000]);
    let now = pair.now();
    let bytes = pair.a.transmit(now, 10_000);
    pair.b.deliver(now, &bytes[..100]);
    let before = mr.bytes();
    pair.b.connection.disconnect();
    pair.b.deliver(now, &bytes[100..]);
    assert!(mr.bytes() == before);
}

#[test]
fn memory_that_goes_while_it_is_read_ends_the_connection() {
    let mut pair = Pair::open(Setup::default().both(|side| side.max_ulpdu = 142));
    let mr = pair.b.register("mr", 4096, Access::REMOTE);
    pair.a.send(1, SendOp::Read { from: Remote { stag: mr.stag, offset: 0 } }, &[0; 600]);
    pair.carry(End::A, 1000);
    pair.carry(End::B, 150);
    pair.b.stags.deregister(mr.stag.0).expect("registered");
    pair.b.names.clear();
    pair.drive();
    let trace = pair.take_trace();
    let terminate = trace.iter().find(|line| line.contains("Terminate")).expect("a Terminate");
    assert!(terminate.contains("0x0/0x1/0x00"), "{terminate}");
    assert!(terminate.contains("read [sink=1+240 size=360 source=unknown+240]"), "{terminate}");
    assert_eq!(pair.a.completion_lines(), ["1 Read RemoteAccess 0"]);
}

/// A Terminate that blames the second of this side's three requests.
fn blamed(bytes: impl FnOnce(&Terminate, &mut Vec<u8>)) -> (Vec<String>, Vec<Event>) {
    let mut lone = Lone::new(lone::agreed());
    lone.segment(Header::Tagged(lone::write(outboard_wire::ddp::Stag(1), 0)), &[]);
    let there = Remote { stag: outboard_wire::ddp::Stag(0x1234_5678), offset: 0 };
    lone.side.send(1, SendOp::Read { from: there }, &[0; 4]);
    lone.side.send(2, SendOp::FetchAdd { at: there, add: 0, mask: 0 }, &[0; 8]);
    lone.side.send(3, SendOp::Read { from: there }, &[0; 4]);
    let ours = lone.segments();
    let terminate = Terminate {
        code: TerminateCode::PROTECTION_BOUNDS,
        segment_len: Some(70),
        ddp: Some(ours[1].header.into()),
        read_request: None,
    };
    let mut payload = Vec::new();
    bytes(&terminate, &mut payload);
    lone.segment(Header::Untagged(lone::untagged(Opcode::Terminate, 1)), &payload);
    let events = lone.side.events.clone();
    (lone.side.completion_lines(), events)
}

#[test]
fn a_peers_terminate_blames_the_request_that_it_quotes() {
    let (lines, events) = blamed(|terminate, out| terminate.emit(out));
    assert_eq!(lines, ["1 Read Flushed 0", "2 FetchAdd RemoteAccess 0", "3 Read Flushed 0"]);
    assert!(matches!(
        events[..],
        [Event::Established, Event::PeerTerminated { layout: Layout::Rfc, .. }, Event::Over]
    ));
}

#[test]
fn siws_terminate_is_understood_as_well() {
    let (lines, events) = blamed(|terminate, out| {
        terminate.emit(out);
        out[0] = out[0].rotate_left(4);
        out[2] = 0x03;
    });
    assert_eq!(lines, ["1 Read Flushed 0", "2 FetchAdd RemoteAccess 0", "3 Read Flushed 0"]);
    assert!(matches!(events[1], Event::PeerTerminated { layout: Layout::Siw, .. }));
}

#[test]
fn a_terminate_without_headers_blames_no_request() {
    let (lines, _) = blamed(|terminate, out| Terminate::new(terminate.code).emit(out));
    assert_eq!(lines, ["1 Read Flushed 0", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
}

#[test]
fn an_operational_error_is_no_access_error() {
    let (lines, _) = blamed(|terminate, out| {
        Terminate { code: TerminateCode::OPERATION_STREAM, ..*terminate }.emit(out);
    });
    assert_eq!(lines[1], "2 FetchAdd RemoteOperation 0");
}

#[test]
fn an_initiator_that_refuses_the_reply_says_why() {
    let mut negotiated = lone::agreed();
    negotiated.role = outboard_iwarp::startup::Role::Initiator;
    negotiated.refuse = Some(TerminateCode::MPA_NO_MATCHING_RTR);
    let mut lone = Lone::new(negotiated);
    assert_eq!(lone.lines(), ["Terminate msn=1 0x2/0x0/0x07"]);
    assert!(lone.side.connection.wants_fin());
}

#[test]
fn the_end_in_the_middle_of_an_fpdu_leaves_nothing_to_say() {
    for crc in [false, true] {
        let mut pair = Pair::open(Setup::default().both(|side| side.local.crc = crc));
        pair.b.receive(1, 8);
        pair.b.send(1, SEND, &[1; 1000]);
        pair.a.send(1, SEND, b"hello");
        pair.carry(End::A, 10);
        pair.carry(End::B, 10);
        let now = pair.now();
        pair.b.deliver_eof(now);
        assert_eq!(pair.b.connection.phase(), Phase::Closed);
        assert!(pair.b.transmit(now, 10_000).is_empty());
    }
}
