//! From the first message to the last: which side may send when, how much may be under way, what
//! waits, and how a connection ends.

use outboard_iwarp::startup::{Initiator, LocalParams, Responder};
use outboard_iwarp::work::{Operation, Remote, SendOp, SendRequest};
use outboard_iwarp::{Event, Phase, PostError, RnrPolicy};
use outboard_mem::{Access, SgList};
use outboard_sim::lone::{self, Lone};
use outboard_sim::{Chunks, End, Pair, Setup};
use outboard_wire::ddp::Header;
use outboard_wire::rdmap::Opcode;
use outboard_wire::startup::RtrModes;
use std::time::Duration;

const SEND: SendOp = SendOp::Send { invalidate: None };
const NONE: RtrModes = RtrModes { send: false, write: false, read: false };

fn without_rtr() -> Setup {
    Setup::default().both(|side| side.local.peer_to_peer = false)
}

fn depths(ird: u16, ord: u16) -> Setup {
    Setup::default().both(|side| (side.local.ird, side.local.ord) = (ird, ord))
}

#[test]
fn rtr_by_each_kind_opens_the_responder() {
    for (rtr, first) in [
        (RtrModes { write: true, ..NONE }, "> Write last stag=1 to=0 len=0"),
        (RtrModes { read: true, ..NONE }, "> ReadRequest msn=1 sink=1+0 size=0 source=1+0"),
        (RtrModes { send: true, ..NONE }, "> Send last msn=1 len=0"),
    ] {
        let mut pair = Pair::connect(Setup { rtr: Some(rtr), ..Setup::default() });
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
        assert_eq!(pair.b.completion_lines(), ["1 Send Success 5"], "the RTR took a receive");
    }
}

#[test]
fn an_rtr_by_send_takes_no_receive_and_the_next_send_does() {
    let rtr = RtrModes { send: true, ..NONE };
    let mut pair = Pair::open(Setup { rtr: Some(rtr), ..Setup::default() });
    pair.b.receive(7, 0);
    pair.a.send(1, SEND, b"");
    pair.expect("> Send last msn=2 len=0");
    assert_eq!(pair.b.completion_lines(), ["7 Receive Success 0"]);
}

#[test]
fn an_rtr_by_read_counts_against_ord_and_is_answered() {
    let rtr = RtrModes { read: true, ..NONE };
    let mut pair = Pair::connect(Setup { rtr: Some(rtr), ..depths(1, 1) });
    pair.take_trace();
    let mr = pair.b.register("mr", 8, Access::REMOTE_READ);
    let from = Remote { stag: mr.stag, offset: 0 };
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
        side.local = LocalParams { revision: 1, ..LocalParams::default() };
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
    let there = Remote { stag: mr.stag, offset: 0 };
    for wr_id in 0..3 {
        pair.a.send(wr_id, SendOp::Read { from: there }, &[0; 4]);
        pair.a.send(10 + wr_id, SendOp::FetchAdd { at: there, add: 1, mask: 0 }, &[0; 8]);
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
    let there = Remote { stag: outboard_wire::ddp::Stag(5), offset: 0 };
    let read = SendRequest::new(1, SendOp::Read { from: there }, SgList::copied(b"1234"));
    assert_eq!(pair.a.post(read), Err(PostError::NoReads));
}

#[test]
fn sends_overtake_the_answers_to_reads_but_not_a_fence() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 16, Access::REMOTE);
    let there = Remote { stag: mr.stag, offset: 0 };
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
    assert_eq!(lines[0], "1 Read Success 4", "completions in posting order: {lines:?}");
}

#[test]
fn responses_and_requests_take_turns() {
    let mut pair = Pair::open(Setup::default());
    let a = pair.a.register("a", 16, Access::REMOTE);
    let b = pair.b.register("b", 16, Access::REMOTE);
    for wr_id in 0..3 {
        let from = Remote { stag: b.stag, offset: 0 };
        pair.a.send(wr_id, SendOp::Read { from }, &[0; 4]);
        let to = Remote { stag: a.stag, offset: 0 };
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
                let setup = Setup { chunks, ..Setup::default() };
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
    pair.a.send(3, SendOp::Write { to: Remote { stag: mr.stag, offset: 0 } }, b"behind");
    pair.drive();
    assert!(pair.b.connection.is_stalled());
    assert_eq!(mr.bytes(), [0; 8], "the Write overtook the Send");
    pair.pass(Duration::from_millis(900));
    pair.b.receive(7, 3000);
    pair.drive();
    pair.pass(Duration::from_millis(900));
    assert!(pair.b.connection.is_stalled(), "the clock starts again with each stall");
    assert_eq!(pair.b.received(), [vec![1; 3000]]);
    pair.b.receive(8, 0);
    pair.drive();
    assert!(!pair.b.connection.is_stalled());
    assert_eq!(pair.b.completion_lines(), ["8 ReceiveImmediate Success 0 imm=0x9"]);
    assert_eq!(&mr.bytes()[..6], b"behind");
}

/// Both sides lack a receive while each waits for the other's answers.
#[test]
fn answers_pass_messages_that_wait_for_a_receive() {
    for crc in [false, true] {
        for chunks in [Chunks::Whole, Chunks::Every(1), Chunks::Every(100)] {
            for markers in [false, true] {
                let setup = Setup { chunks, ..Setup::default() };
                let setup =
                    setup.both(|side| (side.local.crc, side.local.markers) = (crc, markers));
                answers_pass(Pair::open(setup));
            }
        }
    }
}

fn answers_pass(mut pair: Pair) {
    let mr = pair.a.register("mr", 8, Access::REMOTE);
    let there = Remote { stag: mr.stag, offset: 0 };
    let own = pair.b.register("own", 8, Access::REMOTE);
    pair.a.send(1, SEND, &[1; 3000]);
    pair.a.send(2, SendOp::Read { from: Remote { stag: own.stag, offset: 0 } }, &[0; 8]);
    pair.drive();
    assert!(pair.b.connection.is_stalled());
    assert_eq!(pair.a.completion_lines(), ["1 Send Success 3000"]);
    pair.b.send(3, SendOp::Read { from: there }, &[0; 8]);
    pair.b.send(4, SendOp::fetch_add(there, 1), &[0; 8]);
    pair.drive();
    assert_eq!(pair.b.completion_lines(), ["3 Read Success 8", "4 FetchAdd Success 8"]);
    // The answer to a Read says that everything before it was delivered: it has to wait.
    assert_eq!(pair.a.completion_lines(), [""; 0]);
    pair.pass(Duration::from_millis(900));
    pair.b.receive(7, 3000);
    pair.drive();
    assert_eq!(pair.b.received(), [vec![1; 3000]]);
    assert_eq!(pair.a.completion_lines(), ["2 Read Success 8"]);
    assert!(!pair.b.connection.is_stalled());
    pair.pass(Duration::from_secs(5));
    assert!(!pair.is_closed(), "the clock of a message that was delivered goes on");
}

/// A receiver keeps a bounded number of bytes, whatever the sizes of the messages.
#[test]
fn a_stall_keeps_a_bounded_part_of_the_stream() {
    for len in [0, 1, 1000, 60_000] {
        let setup = Setup::default().both(|side| {
            (side.send_depth, side.max_ulpdu) = (20_000, 64_768);
        });
        let mut pair = Pair::open(setup);
        let count: u64 = if len < 1000 { 12_000 } else { 300 };
        let message = vec![5; len];
        (0..count).for_each(|wr_id| pair.a.send(wr_id, SEND, &message));
        pair.drive();
        assert!(pair.b.connection.is_full(), "{count} messages of {len} bytes all taken");
        pair.b.send(1, SEND, b"nobody");
        (0..count).for_each(|wr_id| pair.b.receive(wr_id, len));
        pair.drive();
        assert!(!pair.b.connection.is_stalled());
        let done = pair.b.completions.iter().filter(|done| done.operation == Operation::Receive);
        assert!(done.map(|done| done.wr_id).eq(0..count), "order");
    }
}

#[test]
fn a_long_stall_ends_with_a_terminate_that_quotes_the_header() {
    let mut pair = Pair::open(Setup::default());
    pair.a.send(1, SEND, b"nobody is there");
    pair.drive();
    pair.take_trace();
    pair.pass(Duration::from_secs(1));
    pair.expect(
        "> Write last stag=1 to=0 len=0
         < Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=33
         > FIN
         < FIN",
    );
    assert!(pair.is_closed());
}

#[test]
fn more_bytes_do_not_prolong_a_stall() {
    let mut lone = Lone::new(lone::agreed());
    for msn in 1..5 {
        lone.segment(Header::Untagged(lone::untagged(Opcode::Send, msn)), b"nobody");
        lone.pass(Duration::from_millis(300));
    }
    assert_eq!(lone.lines(), ["Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=24"]);
}

#[test]
fn without_patience_a_missing_receive_ends_the_connection_at_once() {
    let setup = Setup::default().both(|side| side.rnr_policy = RnrPolicy::Terminate);
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
    let mut lone = Lone::with(lone::agreed(), RnrPolicy::Stall(Duration::from_millis(10)));
    lone.segment(Header::Untagged(lone::untagged(Opcode::Send, 1)), b"nobody");
    lone.pass(Duration::from_millis(30));
    assert_eq!(lone.lines(), ["Terminate msn=1 0x1/0x2/0x02 of [Send last msn=1] len=24"]);
}

#[test]
fn an_initiator_without_an_answer_nudges_three_times() {
    let mut pair = Pair::connect(without_rtr());
    pair.take_trace();
    pair.pass(Duration::from_secs(1));
    pair.expect("");
    pair.b.receive(1, 8);
    pair.a.send(1, SEND, b"hello");
    pair.expect("> Send last msn=1 len=5");
    for (wait, trace) in [(19, ""), (1, NUDGE), (79, ""), (1, NUDGE), (399, ""), (1, NUDGE)] {
        pair.pass(Duration::from_millis(wait));
        pair.expect(trace);
    }
    pair.pass(Duration::from_secs(60));
    pair.expect("");
}

const NUDGE: &str = "> Write last stag=1 to=0 len=0";

#[test]
fn an_answer_ends_the_nudging() {
    let mut pair = Pair::open(Setup::default());
    pair.a.receive(1, 8);
    pair.b.send(1, SEND, b"hello");
    pair.drive();
    pair.take_trace();
    pair.pass(Duration::from_secs(1));
    pair.expect("");
}

#[test]
fn a_nudge_waits_for_the_end_of_a_message() {
    let mut pair = Pair::open(Setup::default());
    pair.b.receive(1, 8192);
    pair.a.send(1, SEND, &[1; 4272]);
    pair.carry(End::A, 10);
    let now = pair.now() + Duration::from_millis(20);
    assert!(pair.a.tick(now));
    pair.expect(
        "> Send msn=1 len=1424
         > Send msn=1 mo=1424 len=1424
         > Send last msn=1 mo=2848 len=1424
         > Write last stag=1 to=0 len=0",
    );
}

#[test]
fn a_nudge_does_not_change_immediate_data_of_a_write() {
    let mut pair = Pair::open(Setup::default());
    let mr = pair.b.register("mr", 8, Access::REMOTE);
    pair.b.receive(1, 0);
    pair.a.send(1, SendOp::Write { to: Remote { stag: mr.stag, offset: 0 } }, b"hello");
    pair.drive();
    pair.take_trace();
    pair.pass(Duration::from_millis(20));
    pair.a.send(2, SendOp::Immediate { immediate: 9 }, &[]);
    pair.expect(
        "> Write last stag=1 to=0 len=0
         > Immediate last msn=1 data=0x9",
    );
    assert_eq!(pair.b.completion_lines(), ["1 ReceiveImmediate Success 5 imm=0x9"]);
}

#[test]
fn a_responder_settles_for_the_depth_that_there_is() {
    let local = LocalParams { ird: 60_000, ord: 60_000, ..LocalParams::default() };
    let (_, request) = Initiator::new(LocalParams::default()).expect("a Request");
    let mut responder = Responder::default();
    responder.handle_bytes(&request).expect("our own");
    let (_, agreed) = responder.accept(&local).expect("a Reply").expect("after the Request");
    assert_eq!((agreed.ird, agreed.ord), (1024, 128));
}
