//! Local memory that is taken away while requests name it: nothing touches it any more, the request
//! that needs it fails alone, and those before it are carried out.

use outboard_iwarp::work::{Remote, SendOp, SendRequest};
use outboard_iwarp::{Event, Phase};
use outboard_mem::{Access, Segment, SgList, SharedRegion, SharedSlice};

use outboard_sim::{Chunks, End, Pair, Setup};

const SEND: SendOp = SendOp::Send { invalidate: None };
const TERMINATE: &str = "0x0/0x0/0x00";

fn list(region: &SharedRegion) -> SgList {
    SgList::from(SharedSlice::from(region.clone()))
}

/// A pair for each way in which payload is moved: with CRCs or without, whole or in pieces.
fn pairs() -> impl Iterator<Item = Pair> {
    let ways = [(false, Chunks::Whole), (false, Chunks::Every(100)), (true, Chunks::Whole)];
    ways.into_iter().map(|(crc, chunks)| {
        let setup = Setup { chunks, ..Setup::default() };
        Pair::open(setup.both(|side| side.local.crc = crc))
    })
}

fn has_terminate(pair: &mut Pair, mark: char) -> bool {
    let trace = pair.take_trace();
    trace.iter().any(|line| {
        line.starts_with(mark) && line.contains("Terminate") && line.contains(TERMINATE)
    })
}

#[test]
fn a_receive_without_its_memory_fails_when_a_message_needs_it() {
    for len in [1, 10_000] {
        for mut pair in pairs() {
            pair.b.receive_into(8, Segment::Gone { len }.into());
            pair.b.receive(9, len);
            pair.drive();
            assert_eq!(pair.b.connection.phase(), Phase::Open);
            pair.a.send(1, SEND, &vec![5; len]);
            pair.drive();
            assert_eq!(pair.b.completion_lines(), ["8 Receive LocalProtection 0"]);
            assert!(has_terminate(&mut pair, '<') && pair.is_closed());
            assert_eq!(pair.a.completion_lines().len(), 1);
            assert!(pair.a.events.iter().any(|e| matches!(e, Event::PeerTerminated { .. })));
        }
    }
}

#[test]
fn a_message_without_bytes_needs_no_memory() {
    for mut pair in pairs() {
        pair.b.receive_into(8, Segment::Gone { len: 10 }.into());
        pair.a.send(1, SEND, &[]);
        pair.drive();
        assert_eq!(pair.b.completion_lines(), ["8 Receive Success 0"]);
        assert_eq!(pair.b.connection.phase(), Phase::Open);
    }
}

#[test]
fn a_receive_that_loses_its_memory_is_filled_no_further() {
    for direct in [false, true] {
        let mut pair = Pair::open(Setup::default().both(|side| side.max_ulpdu = 10_000));
        pair.b.direct = direct;
        let region = pair.b.region(9000);
        pair.b.receive_into(8, list(&region));
        pair.a.send(1, SEND, &[5; 9000]);
        pair.carry(End::A, 3000);
        let before = region.snapshot(0..9000).expect("all");
        assert!(before[..2900] == [5; 2900]);
        pair.b.connection.revoke(&region);
        pair.drive();
        assert!(region.snapshot(0..9000).expect("all") == before);
        assert_eq!(pair.b.completion_lines(), ["8 Receive LocalProtection 0"]);
        assert!(has_terminate(&mut pair, '<'));
    }
}

#[test]
fn a_response_without_a_place_fails_its_request() {
    for read in [false, true] {
        for mut pair in pairs() {
            let mr = pair.b.register("mr", 5000, Access::REMOTE);
            let at = Remote { stag: mr.stag, offset: 0 };
            let region = pair.a.region(if read { 5000 } else { 8 });
            region.copy_in(0, &[9; 8]).expect("inside");
            let op = if read { SendOp::Read { from: at } } else { SendOp::fetch_add(at, 1) };
            pair.a.post(SendRequest::new(1, op, list(&region))).expect("posted");
            pair.a.send(2, SendOp::Read { from: at }, &[0; 4]);
            pair.carry(End::A, 1000);
            pair.a.connection.revoke(&region);
            assert_eq!(pair.a.connection.phase(), Phase::Open);
            pair.drive();
            let expected = if read { "1 Read" } else { "1 FetchAdd" };
            let expected = [format!("{expected} LocalProtection 0"), "2 Read Flushed 0".into()];
            assert_eq!(pair.a.completion_lines(), expected);
            assert_eq!(region.snapshot(0..8), Ok(vec![9; 8]));
            assert!(has_terminate(&mut pair, '>') && pair.is_closed());
        }
    }
}

#[test]
fn requests_before_one_without_memory_are_carried_out_and_those_behind_flushed() {
    for op in [SEND, SendOp::Read { from: Remote { stag: SEND_NOWHERE, offset: 0 } }] {
        for mut pair in pairs() {
            let mr = pair.b.register("mr", 5000, Access::REMOTE);
            let at = Remote { stag: mr.stag, offset: 0 };
            pair.b.receive(9, 5000);
            pair.a.send(1, SEND, &[5; 5000]);
            pair.a.send(2, SendOp::Read { from: at }, &[0; 5000]);
            let gone = Segment::Gone { len: 5000 };
            pair.a.post(SendRequest::new(3, op, gone.into())).expect("posted");
            pair.a.send(4, SEND, &[6; 8]);
            pair.drive();
            let name = format!("{:?}", op.operation());
            let expected = ["1 Send Success 5000", "2 Read Success 5000"].map(String::from);
            let failed = [format!("3 {name} LocalProtection 0"), "4 Send Flushed 0".into()];
            assert_eq!(pair.a.completion_lines(), [expected, failed].concat());
            assert_eq!(pair.b.completion_lines(), ["9 Receive Success 5000"]);
            assert!(has_terminate(&mut pair, '>') && pair.is_closed());
        }
    }
}

const SEND_NOWHERE: outboard_wire::ddp::Stag = outboard_wire::ddp::Stag(0x1234_5678);

#[test]
fn half_an_fpdu_without_its_memory_ends_the_connection_at_once() {
    let mut pair = Pair::open(Setup::default().both(|side| side.max_ulpdu = 10_000));
    let (region, other) = (pair.a.region(9000), pair.a.region(9000));
    pair.a.post(SendRequest::new(1, SEND, list(&region))).expect("posted");
    pair.a.post(SendRequest::new(2, SEND, list(&other))).expect("posted");
    let now = pair.now();
    assert_eq!(pair.a.transmit(now, 100).len(), 100);
    pair.a.connection.revoke(&region);
    assert_eq!(pair.a.connection.phase(), Phase::Closed);
    assert!(pair.a.transmit(now, 1000).is_empty());
    assert_eq!(pair.a.completion_lines(), ["1 Send LocalProtection 0", "2 Send Flushed 0"]);
    assert_eq!(pair.a.events, [Event::Over]);
}

#[test]
fn bytes_that_were_copied_need_no_memory() {
    let mut pair = Pair::open(Setup::default().both(|side| side.local.crc = true));
    let (region, now) = (pair.a.region(1000), pair.now());
    pair.a.post(SendRequest::new(1, SEND, list(&region))).expect("posted");
    pair.b.receive(9, 1000);
    let first = pair.a.transmit(now, 100);
    pair.a.connection.revoke(&region);
    pair.b.deliver(now, &first);
    let rest = pair.a.transmit(now, 10_000);
    pair.b.deliver(now, &rest);
    assert_eq!(pair.a.completion_lines(), ["1 Send Success 1000"]);
    assert_eq!(pair.b.completion_lines(), ["9 Receive Success 1000"]);
}

#[test]
fn bytes_that_are_out_already_are_not_missed() {
    let mut pair = Pair::open(Setup::default().both(|side| side.max_ulpdu = 10_000));
    let regions = [pair.a.region(4000), pair.a.region(5000)];
    let parts = regions.each_ref().map(|region| SharedSlice::from(region.clone()).into());
    pair.a.post(SendRequest::new(1, SEND, Vec::<Segment>::from(parts).into())).expect("posted");
    pair.b.receive(9, 9000);
    pair.carry(End::A, 5000);
    pair.a.connection.revoke(&regions[0]);
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["1 Send Success 9000"]);
}

#[test]
fn memory_that_no_request_names_may_go() {
    let mut pair = Pair::open(Setup::default());
    let (region, other) = (pair.a.region(9000), pair.a.region(9000));
    pair.a.post(SendRequest::new(1, SEND, list(&region))).expect("posted");
    pair.b.receive(9, 9000);
    pair.carry(End::A, 100);
    pair.a.connection.revoke(&other);
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["1 Send Success 9000"]);
}
