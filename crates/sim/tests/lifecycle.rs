//! From the first message to the last: who may speak when, how much may be under way, what waits,
//! and how a connection ends.

use outboard_iwarp::startup::LocalParams;
use outboard_iwarp::work::{Remote, SendOp, SendRequest};
use outboard_iwarp::{Event, MissingReceive, Phase, PostError};
use outboard_mem::{Access, SgList};
use outboard_sim::lone::{self, Lone};
use outboard_sim::{Chunks, Pair, Setup, Who};
use outboard_wire::ddp::Header;
use outboard_wire::rdmap::Opcode;
use outboard_wire::startup::RtrModes;
use outboard_wire::terminate::{Layout, Terminate, TerminateCode};
use std::time::Duration;

const SEND: SendOp = SendOp::Send { invalidate: None };
const NONE: RtrModes = RtrModes {
    send: false,
    write: false,
    read: false,
};

fn without_rtr() -> Setup {
    Setup::default().both(|side| side.local.peer_to_peer = false)
}

fn depths(ird: u16, ord: u16) -> Setup {
    Setup::default().both(|side| (side.local.ird, side.local.ord) = (ird, ord))
}

#[test]
fn rtr_by_each_kind_opens_the_responder() {
    for (rtr, first) in [
        (
            RtrModes {
                write: true,
                ..NONE
            },
            "> Write last stag=1 to=0 len=0",
        ),
        (
            RtrModes { read: true, ..NONE },
            "> ReadRequest msn=1 sink=1+0 size=0 source=1+0",
        ),
        (RtrModes { send: true, ..NONE }, "> Send last msn=1 len=0"),
    ] {
        let mut pair = Pair::connect(Setup {
            rtr: Some(rtr),
            ..Setup::default()
        });
        pair.take_trace();
        assert_eq!(pair.b.connection.phase(), Phase::Held);
        assert!(pair.b.connection.waits_for_rtr());
        pair.a.receive(5, 10);
        pair.b.send(1, SEND, b"first");
        pair.pass(Duration::from_secs(1));
        let trace = pair.take_trace();
        assert_eq!(trace[0], first);
        assert!(trace.iter().any(|line| line == "< Send last msn=1 len=5"));
        assert_eq!(pair.b.events, [Event::Established]);
        assert_eq!(pair.a.completion_lines(), ["5 Receive Success 5"]);
        assert_eq!(
            pair.b.completion_lines(),
            ["1 Send Success 5"],
            "the RTR took a receive"
        );
    }
}

#[test]
fn an_rtr_by_send_takes_no_receive_and_the_next_send_does() {
    let rtr = RtrModes { send: true, ..NONE };
    let mut pair = Pair::open(Setup {
        rtr: Some(rtr),
        ..Setup::default()
    });
    pair.b.receive(7, 0);
    pair.a.send(1, SEND, b"");
    pair.expect("> Send last msn=2 len=0");
    assert_eq!(pair.b.completion_lines(), ["7 Receive Success 0"]);
}

#[test]
fn an_rtr_by_read_counts_against_ord_and_is_answered() {
    let rtr = RtrModes { read: true, ..NONE };
    let mut pair = Pair::connect(Setup {
        rtr: Some(rtr),
        ..depths(1, 1)
    });
    pair.take_trace();
    let mr = pair.b.register("mr", 8, Access::REMOTE_READ);
    let from = Remote {
        stag: mr.stag,
        offset: 0,
    };
    pair.a.send(1, SendOp::Read { from }, &[0; 8]);
    pair.expect(
        "> ReadRequest msn=1 sink=1+0 size=0 source=1+0
         < ReadResponse last stag=1 to=0 len=0
         > ReadRequest msn=2 sink=2+0 size=8 source=mr+0
         < ReadResponse last stag=2 to=0 len=8",
    );
    assert_eq!(pair.a.completion_lines(), ["1 Read Success 8"]);
}

#[test]
fn a_responder_is_silent_until_spoken_to() {
    let mut pair = Pair::open(without_rtr());
    pair.a.receive(5, 10);
    pair.b.receive(6, 10);
    pair.b.send(1, SEND, b"answer");
    pair.expect("");
    pair.a.send(2, SEND, b"question");
    pair.expect(
        "> Send last msn=1 len=8
         < Send last msn=1 len=6",
    );
    assert_eq!(pair.b.events, [Event::Established]);
}

#[test]
fn a_responder_without_promise_speaks_after_the_grace() {
    let mut pair = Pair::open(without_rtr());
    pair.a.receive(5, 10);
    pair.b.send(1, SEND, b"hello");
    pair.pass(Duration::from_millis(19));
    pair.expect("");
    pair.pass(Duration::from_millis(1));
    pair.expect("< Send last msn=1 len=5");
    assert_eq!(pair.b.events, [Event::Established]);
}

#[test]
fn a_responder_with_promise_waits_for_ever() {
    let mut pair = Pair::connect(Setup::default());
    pair.b.send(1, SEND, b"hello");
    for _ in 0..100 {
        let time = pair.now() + Duration::from_secs(60);
        pair.b.tick(time);
        assert!(pair.b.transmit(time, 100).is_empty());
    }
}

#[test]
fn revision_1_has_no_rtr() {
    let mut pair = Pair::connect(Setup::default().both(|side| {
        side.local = LocalParams {
            revision: 1,
            ..LocalParams::default()
        };
    }));
    pair.b.receive(1, 5);
    pair.a.send(2, SEND, b"hello");
    pair.expect(
        "> Request rev=1 crc
         < Reply rev=1 crc
         > Send last msn=1 len=5",
    );
}

#[test]
fn ord_limits_reads_and_atomics_together() {
    let mut pair = Pair::open(depths(2, 8));
    let mr = pair.b.register("mr", 16, Access::REMOTE);
    let there = Remote {
        stag: mr.stag,
        offset: 0,
    };
    for wr_id in 0..3 {
        pair.a.send(wr_id, SendOp::Read { from: there }, &[0; 4]);
        pair.a.send(
            10 + wr_id,
            SendOp::FetchAdd {
                at: there,
                add: 1,
                mask: 0,
            },
            &[0; 8],
        );
    }
    pair.drive();
    let mut under_way = 0i32;
    for line in pair.take_trace() {
        under_way += if line.starts_with('>') { 1 } else { -1 };
        assert!((0..=2).contains(&under_way), "{under_way} under way");
    }
    assert_eq!(under_way, 0);
    assert_eq!(pair.a.completion_lines().len(), 6);
    assert_eq!(mr.region.load_u64(0), Ok(3));
}

#[test]
fn ord_0_refuses_reads_at_the_call() {
    let mut pair = Pair::open(depths(0, 0));
    let there = Remote {
        stag: outboard_wire::ddp::Stag(5),
        offset: 0,
    };
    let read = SendRequest::new(1, SendOp::Read { from: there }, SgList::copied(b"1234"));
    assert_eq!(pair.a.post(read), Err(PostError::NoReads));
}

#[test]
fn sends_overtake_the_answers_to_reads_but_not_a_fence() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 16, Access::REMOTE);
    let there = Remote {
        stag: mr.stag,
        offset: 0,
    };
    for wr_id in 0..3 {
        pair.b.receive(wr_id, 4);
    }
    pair.a.send(1, SendOp::Read { from: there }, &[0; 4]);
    pair.a.send(2, SEND, b"a");
    let mut fenced = SendRequest::new(3, SEND, SgList::copied(b"b"));
    fenced.fence = true;
    pair.a.post(fenced).expect("posted");
    pair.a.send(4, SEND, b"c");
    pair.expect(
        "> ReadRequest msn=1 sink=1+0 size=4 source=mr+0
         > Send last msn=1 len=1
         < ReadResponse last stag=1 to=0 len=4
         > Send last msn=2 len=1
         > Send last msn=3 len=1",
    );
    let lines = pair.a.completion_lines();
    assert_eq!(
        lines[0], "1 Read Success 4",
        "completions in posting order: {lines:?}"
    );
}

#[test]
fn responses_and_requests_take_turns() {
    let mut pair = Pair::open(Setup::default());
    let a = pair.a.register("a", 16, Access::REMOTE);
    let b = pair.b.register("b", 16, Access::REMOTE);
    for wr_id in 0..3 {
        let from = Remote {
            stag: b.stag,
            offset: 0,
        };
        pair.a.send(wr_id, SendOp::Read { from }, &[0; 4]);
        let to = Remote {
            stag: a.stag,
            offset: 0,
        };
        pair.b.send(wr_id, SendOp::Write { to }, b"x");
    }
    let now = pair.now();
    let requests = pair.a.transmit(now, 1 << 20);
    pair.b.deliver(now, &requests);
    let mut decoder = outboard_sim::trace::Decoder::new(false, false);
    let opcodes: Vec<Opcode> = decoder
        .push(&pair.b.transmit(now, 1 << 20))
        .iter()
        .map(|segment| segment.header.opcode())
        .collect();
    use Opcode::{ReadResponse as R, Write as W};
    assert_eq!(opcodes, [R, W, R, W, R, W]);
}

#[test]
fn the_send_queue_has_a_depth() {
    let mut pair = Pair::open(Setup::default().both(|side| side.send_depth = 2));
    pair.b.receive(1, 4);
    pair.a.send(1, SEND, b"1");
    pair.a.send(2, SEND, b"2");
    let third = SendRequest::new(3, SEND, SgList::new());
    assert_eq!(pair.a.post(third), Err(PostError::QueueFull { depth: 2 }));
    pair.drive();
    assert_eq!(pair.a.connection.send_room(), 2);
}

#[test]
fn a_stalled_stream_goes_on_after_a_receive_is_posted() {
    for crc in [false, true] {
        for chunks in [Chunks::Whole, Chunks::Every(1), Chunks::Every(100)] {
            for markers in [false, true] {
                let setup = Setup {
                    chunks,
                    ..Setup::default()
                };
                let setup =
                    setup.both(|side| (side.local.crc, side.local.markers) = (crc, markers));
                stall_and_go_on(Pair::open(setup));
            }
        }
    }
}

fn stall_and_go_on(mut pair: Pair) {
    let mr = pair.b.register("mr", 8, Access::REMOTE);
    pair.a.send(1, SEND, &[1; 3000]);
    pair.a.send(2, SendOp::Immediate { immediate: 9 }, &[]);
    pair.a.send(
        3,
        SendOp::Write {
            to: Remote {
                stag: mr.stag,
                offset: 0,
            },
        },
        b"behind",
    );
    pair.drive();
    assert!(pair.b.connection.is_stalled());
    assert_eq!(mr.bytes(), [0; 8], "the Write overtook the Send");
    pair.pass(Duration::from_millis(900));
    pair.b.receive(7, 3000);
    pair.drive();
    pair.pass(Duration::from_millis(900));
    assert!(
        pair.b.connection.is_stalled(),
        "the clock starts again with each stall"
    );
    assert_eq!(pair.b.received(), [vec![1; 3000]]);
    pair.b.receive(8, 0);
    pair.drive();
    assert!(!pair.b.connection.is_stalled());
    assert_eq!(
        pair.b.completion_lines(),
        ["8 ReceiveImmediate Success 0 imm=0x9"]
    );
    assert_eq!(&mr.bytes()[..6], b"behind");
}

#[test]
fn a_stall_that_lasts_is_told_with_the_header() {
    let mut pair = Pair::open(Setup::default());
    pair.a.send(1, SEND, b"nobody is there");
    pair.drive();
    pair.take_trace();
    pair.pass(Duration::from_secs(1));
    pair.expect(
        "< Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=33
         > FIN
         < FIN",
    );
    assert!(pair.is_closed());
}

#[test]
fn more_octets_do_not_prolong_a_stall() {
    let mut lone = Lone::new(lone::agreed());
    let header = Header::Untagged(lone::untagged(Opcode::Send, 1));
    lone.segment(header, b"nobody");
    for _ in 0..4 {
        lone.pass(Duration::from_millis(300));
        lone.raw(&[0]);
    }
    assert_eq!(
        lone.lines(),
        ["Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=24"]
    );
}

#[test]
fn without_patience_a_missing_receive_ends_the_connection_at_once() {
    let setup = Setup::default().both(|side| side.missing_receive = MissingReceive::Terminate);
    let mut pair = Pair::open(setup);
    pair.a.send(1, SEND, b"nobody");
    pair.drive();
    pair.pass(Duration::ZERO);
    pair.expect(
        "> Send last msn=1 len=6
         < Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=24
         > FIN
         < FIN",
    );
}

#[test]
fn a_stall_and_the_grace_that_end_together_still_send_the_terminate() {
    let mut lone = Lone::with(
        lone::agreed(),
        MissingReceive::Stall(Duration::from_millis(10)),
    );
    lone.segment(Header::Untagged(lone::untagged(Opcode::Send, 1)), b"nobody");
    lone.pass(Duration::from_millis(30));
    assert_eq!(
        lone.lines(),
        ["Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=24"]
    );
}

#[test]
fn leaving_flushes_what_was_not_begun() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 16, Access::REMOTE);
    pair.b.receive(9, 8);
    pair.a.send(1, SEND, b"on its way");
    pair.a.send(
        2,
        SendOp::Read {
            from: Remote {
                stag: mr.stag,
                offset: 0,
            },
        },
        &[0; 4],
    );
    pair.a.connection.disconnect();
    pair.expect(
        "> FIN
         < FIN",
    );
    assert_eq!(
        pair.a.completion_lines(),
        ["1 Send Flushed 0", "2 Read Flushed 0"]
    );
    assert_eq!(pair.a.events, [Event::Over]);
    assert_eq!(pair.b.events, [Event::Over]);
    assert!(pair.is_closed());
    assert_eq!(
        pair.a.post(SendRequest::new(3, SEND, SgList::new())),
        Err(PostError::NotConnected)
    );
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
        assert!(
            segments
                .iter()
                .all(|segment| segment.payload.iter().all(|octet| *octet == 5))
        );
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
    pair.a.tick(now + Duration::from_millis(1999));
    assert_eq!(pair.a.connection.phase(), Phase::HalfClosed);
    pair.a.tick(now + Duration::from_millis(2000));
    assert_eq!(pair.a.connection.phase(), Phase::Closed);
    assert_eq!(pair.a.connection.poll_timeout(), None);
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
    pair.a.send(
        1,
        SendOp::Write {
            to: Remote {
                stag: mr.stag,
                offset: 0,
            },
        },
        &[9; 1000],
    );
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
    pair.a.send(
        1,
        SendOp::Read {
            from: Remote {
                stag: mr.stag,
                offset: 0,
            },
        },
        &[0; 600],
    );
    pair.carry(Who::A, 1000);
    pair.carry(Who::B, 150);
    pair.b.stags.deregister(mr.stag.0).expect("registered");
    pair.b.names.clear();
    pair.drive();
    let trace = pair.take_trace();
    let terminate = trace
        .iter()
        .find(|line| line.contains("Terminate"))
        .expect("a Terminate");
    assert!(terminate.contains("0x0/0x1/0x00"), "{terminate}");
    assert!(
        terminate.contains("read [sink=1+240 size=360 source=unknown+240]"),
        "{terminate}"
    );
    assert_eq!(pair.a.completion_lines(), ["1 Read RemoteAccess 0"]);
}

/// A Terminate that blames the second of three requests of ours.
fn blamed(bytes: impl FnOnce(&Terminate, &mut Vec<u8>)) -> (Vec<String>, Vec<Event>) {
    let mut lone = Lone::new(lone::agreed());
    lone.segment(
        Header::Tagged(lone::write(outboard_wire::ddp::Stag(1), 0)),
        &[],
    );
    let there = Remote {
        stag: outboard_wire::ddp::Stag(0x1234_5678),
        offset: 0,
    };
    lone.side.send(1, SendOp::Read { from: there }, &[0; 4]);
    lone.side.send(
        2,
        SendOp::FetchAdd {
            at: there,
            add: 0,
            mask: 0,
        },
        &[0; 8],
    );
    lone.side.send(3, SendOp::Read { from: there }, &[0; 4]);
    let ours = lone.segments();
    let terminate = Terminate {
        code: TerminateCode::PROTECTION_BOUNDS,
        segment_len: Some(70),
        ddp: Some(ours[1].header),
        read_request: None,
    };
    let mut payload = Vec::new();
    bytes(&terminate, &mut payload);
    lone.segment(
        Header::Untagged(lone::untagged(Opcode::Terminate, 1)),
        &payload,
    );
    let events = lone.side.events.clone();
    (lone.side.completion_lines(), events)
}

#[test]
fn a_peers_terminate_blames_the_request_that_it_quotes() {
    let (lines, events) = blamed(|terminate, out| terminate.emit(out));
    assert_eq!(
        lines,
        [
            "1 Read Flushed 0",
            "2 FetchAdd RemoteAccess 0",
            "3 Read Flushed 0"
        ]
    );
    assert!(matches!(
        events[..],
        [
            Event::Established,
            Event::PeerTerminated {
                layout: Layout::Rfc,
                ..
            },
            Event::Over
        ]
    ));
}

#[test]
fn siws_terminate_is_understood_as_well() {
    let (lines, events) = blamed(|terminate, out| {
        terminate.emit(out);
        out[0] = out[0].rotate_left(4);
        out[2] = 0x03;
    });
    assert_eq!(
        lines,
        [
            "1 Read Flushed 0",
            "2 FetchAdd RemoteAccess 0",
            "3 Read Flushed 0"
        ]
    );
    assert!(matches!(
        events[1],
        Event::PeerTerminated {
            layout: Layout::Siw,
            ..
        }
    ));
}

#[test]
fn a_terminate_without_headers_blames_nobody() {
    let (lines, _) = blamed(|terminate, out| Terminate::new(terminate.code).emit(out));
    assert_eq!(
        lines,
        [
            "1 Read Flushed 0",
            "2 FetchAdd Flushed 0",
            "3 Read Flushed 0"
        ]
    );
}

#[test]
fn an_operational_error_is_no_access_error() {
    let (lines, _) = blamed(|terminate, out| {
        Terminate {
            code: TerminateCode::OPERATION_STREAM,
            ..*terminate
        }
        .emit(out);
    });
    assert_eq!(lines[1], "2 FetchAdd RemoteOperation 0");
}

#[test]
fn an_initiator_that_cannot_live_with_the_reply_says_why() {
    let mut negotiated = lone::agreed();
    negotiated.role = outboard_iwarp::startup::Role::Initiator;
    negotiated.refuse = Some(TerminateCode::MPA_NO_MATCHING_RTR);
    let mut lone = Lone::new(negotiated);
    assert_eq!(lone.lines(), ["Terminate msn=1 0x2/0x0/0x07"]);
    assert!(lone.side.connection.wants_fin());
}
