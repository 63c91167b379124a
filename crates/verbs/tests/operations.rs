//! Every operation over loopback TCP, both ways, with and without CRCs, with markers asked for
//! by either side, and with FPDUs of several sizes.

mod common;

use common::{SEND, Side, at, bytes, connect_with, ends, pair, pattern};
use outboard_verbs::{
    Access, ConnectParams, FpduPolicy, Mr, Operation, OwnedBuf, Segment, SendOp, SendRequest,
    SgList, Status,
};

/// Around every limit that framing has: markers, small FPDUs, segments, one TCP buffer.
const LENGTHS: [usize; 12] = [0, 1, 3, 4, 100, 507, 512, 1452, 2049, 4096, 65_000, 300_001];
/// Large enough for all of them.
const REGION: usize = 512 * 1024;
/// Where tests put data: odd on purpose.
const PLACE: usize = 13;

/// Runs every operation both ways on a connection of this kind.
fn all_operations(crc: [bool; 2], markers: [bool; 2], fpdu: FpduPolicy) {
    let (a, b) = (Side::new(), Side::new());
    let params = |side: usize| ConnectParams {
        crc: crc[side],
        markers: markers[side],
        fpdu,
        ..ConnectParams::default()
    };
    let (ours, theirs) = connect_with(&a, &b, &params(0), &params(1));
    assert_eq!((ours.crc, theirs.crc), (crc[0] || crc[1], crc[0] || crc[1]));
    for (from, to) in [(&a, &b), (&b, &a)] {
        sends(from, to);
        writes(from, to);
        reads(from, to);
        immediates(from, to);
        atomics(from, to);
    }
}

fn sends(from: &Side, to: &Side) {
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        to.receive(len as u64, len + 5);
        from.send(1, &pattern(seed, len));
        let done = to.success();
        assert_eq!((done.wr_id, done.operation), (len as u64, Operation::Receive));
        assert_eq!(bytes(done), pattern(seed, len));
        assert_eq!(from.success().bytes as usize, len);
    }
    for (invalidate, solicited) in [(false, true), (true, false), (true, true)] {
        let victim = to.register(64, Access::REMOTE);
        let invalidate = invalidate.then(|| victim.stag());
        let op = SendOp::Send { invalidate };
        to.receive(2, 64);
        let request = SendRequest { solicited, ..SendRequest::new(3, op, SgList::copied(b"hi")) };
        from.qp.post_send(request).expect("room");
        let done = to.success();
        assert_eq!((done.invalidated, done.solicited), (invalidate, solicited));
        from.success();
    }
}

/// The target gets no event of a Write: a Send behind it says that the Write is placed.
fn writes(from: &Side, to: &Side) {
    let target = to.register(REGION, Access::REMOTE_WRITE);
    let source = from.register(REGION, Access::empty());
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let data = pattern(seed + 100, len);
        source.memory().copy_in(1, &data).expect("room");
        let local = source.segment(1..1 + len).expect("inside");
        from.post(1, SendOp::Write { to: at(&target, PLACE as u64) }, local);
        to.receive(2, 0);
        from.send(3, b"");
        assert_eq!(ends(&from.take(2)), [(1, Status::Success), (3, Status::Success)]);
        to.success();
        assert_eq!(placed(&target, len), data);
    }
}

/// What stands at [`PLACE`]; what is before it must be untouched.
fn placed(mr: &Mr, len: usize) -> Vec<u8> {
    assert_eq!(mr.memory().snapshot(0..PLACE).expect("inside"), [0; PLACE]);
    mr.memory().snapshot(PLACE..PLACE + len).expect("inside")
}

fn reads(from: &Side, to: &Side) {
    let source = to.register(REGION, Access::REMOTE_READ);
    let sink = from.register(REGION, Access::empty());
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let data = pattern(seed + 200, len);
        source.memory().copy_in(PLACE, &data).expect("room");
        let read = SendOp::Read { from: at(&source, PLACE as u64) };
        let done = from.carry_out(read, OwnedBuf::zeroed(len));
        assert_eq!(bytes(done), data);
        from.carry_out(read, sink.segment(7..7 + len).expect("inside"));
        assert_eq!(sink.memory().snapshot(7..7 + len).expect("inside"), data);
    }
}

fn immediates(from: &Side, to: &Side) {
    let target = to.register(REGION, Access::REMOTE_WRITE);
    for len in [0, 5, 70_000] {
        to.receive(1, 0);
        let op = SendOp::WriteWithImm {
            to: at(&target, PLACE as u64),
            immediate: 0x0102_0304_0506_0708,
        };
        from.carry_out(op, SgList::copied(&pattern(len, len)));
        let done = to.success();
        assert_eq!(done.operation, Operation::ReceiveImmediate);
        assert_eq!((done.immediate, done.bytes as usize), (Some(0x0102_0304_0506_0708), len));
        assert_eq!(placed(&target, len), pattern(len, len));
    }
    for solicited in [false, true] {
        to.receive(1, 0);
        let op = SendOp::Immediate { immediate: 9 };
        let request = SendRequest { solicited, ..SendRequest::new(3, op, SgList::new()) };
        from.qp.post_send(request).expect("room");
        let done = to.success();
        assert_eq!((done.immediate, done.solicited, done.bytes), (Some(9), solicited, 0));
        from.success();
    }
}

fn atomics(from: &Side, to: &Side) {
    let target = to.register(64, Access::REMOTE_ATOMIC);
    let word = || target.memory().load_u64(8).expect("aligned");
    let original = |op| {
        let result = bytes(from.carry_out(op, OwnedBuf::zeroed(8)));
        u64::from_ne_bytes(*result.first_chunk().expect("eight bytes"))
    };
    let at = at(&target, 8);
    target.memory().store_u64(8, u64::MAX).expect("aligned");
    assert_eq!(original(SendOp::FetchAdd { at, add: 3, mask: 0 }), u64::MAX);
    assert_eq!(word(), 2, "a plain add wraps");
    target.memory().store_u64(8, 0x1_FFFF_FFFF).expect("aligned");
    assert_eq!(original(SendOp::FetchAdd { at, add: 1, mask: 1 << 31 }), 0x1_FFFF_FFFF);
    assert_eq!(word(), 0x1_0000_0000, "no carry out of a field");
    let swap = |compare, compare_mask, swap_mask| SendOp::CompareSwap {
        at,
        swap: 0xAAAA_AAAA_AAAA_AAAA,
        swap_mask,
        compare,
        compare_mask,
    };
    assert_eq!(original(swap(0x1_0000_0001, u64::MAX, u64::MAX)), 0x1_0000_0000);
    assert_eq!(word(), 0x1_0000_0000, "unequal: nothing changes");
    assert_eq!(original(swap(0x0000_0001_0000_0007, !7, 0xFF)), 0x1_0000_0000);
    assert_eq!(word(), 0x1_0000_00AA, "equal under one mask, swapped under the other");
}

#[test]
fn every_operation_with_and_without_crcs() {
    for crc in [[true, true], [true, false], [false, true], [false, false]] {
        all_operations(crc, [false, false], FpduPolicy::Auto);
    }
}

#[test]
fn every_operation_with_markers_asked_for_by_either_side() {
    for markers in [[true, false], [false, true], [true, true]] {
        for crc in [true, false] {
            all_operations([crc; 2], markers, FpduPolicy::Auto);
        }
    }
}

#[test]
fn every_operation_in_small_fpdus() {
    for len in [128, 129, 514, 1460] {
        for crc in [true, false] {
            all_operations([crc; 2], [false, false], FpduPolicy::Max(len));
        }
        all_operations([true; 2], [true, true], FpduPolicy::Max(len));
    }
}

#[test]
fn lists_of_many_pieces_are_gathered_and_scattered() {
    for crc in [true, false] {
        let (a, b) = (Side::new(), Side::new());
        let params = ConnectParams { crc, ..ConnectParams::default() };
        connect_with(&a, &b, &params, &params);
        let shared = a.register(9000, Access::REMOTE_READ);
        shared.memory().copy_in(0, &pattern(1, 9000)).expect("room");
        let mut pieces: Vec<Segment> = Vec::new();
        let mut expected = Vec::new();
        for (i, len) in [3, 0, 5000, 1, 2500].into_iter().enumerate() {
            pieces.push(shared.segment(i * 10..i * 10 + len).expect("inside"));
            pieces.push(OwnedBuf::from(pattern(i, len)).into());
            expected.extend(shared.memory().snapshot(i * 10..i * 10 + len).expect("inside"));
            expected.extend(pattern(i, len));
        }
        let target = b.register(expected.len(), Access::REMOTE_WRITE | Access::REMOTE_READ);
        a.carry_out(SendOp::Write { to: at(&target, 0) }, pieces);
        let sink = [700, 1, 0, 9000, expected.len() - 9701];
        let sink: Vec<Segment> = sink.map(|len| OwnedBuf::zeroed(len).into()).into();
        let done = a.carry_out(SendOp::Read { from: at(&target, 0) }, sink);
        let mut got = Vec::new();
        for piece in done.local.into_segments() {
            let Segment::Owned(buffer) = piece else { panic!("not what was posted") };
            got.extend_from_slice(&buffer);
        }
        assert!(got == expected, "crc {crc}");
    }
}

#[test]
fn large_messages_cross_in_both_directions_at_once() {
    const LARGE: usize = 24 << 20;
    for crc in [true, false] {
        let (a, b) = (Side::new(), Side::new());
        let params = ConnectParams { crc, ..ConnectParams::default() };
        connect_with(&a, &b, &params, &params);
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (here, there) = (a.register(LARGE, rights), b.register(LARGE, rights));
        let data = pattern(3, LARGE);
        here.memory().copy_in(0, &data).expect("room");
        a.post(1, SendOp::Write { to: at(&there, 0) }, here.segment(0..LARGE).expect("inside"));
        b.post(2, SendOp::Read { from: at(&here, 0) }, OwnedBuf::zeroed(LARGE));
        assert!(bytes(b.success()) == data, "crc {crc}");
        a.success();
        a.post(3, SendOp::Read { from: at(&there, 0) }, OwnedBuf::zeroed(LARGE));
        assert!(bytes(a.success()) == data, "crc {crc}");
    }
}

#[test]
fn more_reads_than_the_ord_wait_their_turn() {
    let (a, b) = (Side::new(), Side::new());
    let params = ConnectParams { ord: 2, ..ConnectParams::default() };
    let (connected, _) = connect_with(&a, &b, &params, &ConnectParams::default());
    assert_eq!(connected.ord, 2);
    let source = b.register(1 << 20, Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    for (i, len) in (0..40).zip((8..).step_by(1000)) {
        let read = SendOp::Read { from: at(&source, i) };
        let add = SendOp::FetchAdd { at: at(&source, 0), add: 1, mask: 0 };
        a.post(i, if i % 3 == 0 { add } else { read }, OwnedBuf::zeroed(len));
    }
    let done = a.take(40);
    assert_eq!(ends(&done), (0..40).map(|i| (i, Status::Success)).collect::<Vec<_>>());
    assert_eq!(source.memory().load_u64(0).expect("aligned"), 14);
}

#[test]
fn requests_of_every_kind_complete_in_the_order_of_posting() {
    let (a, b) = pair();
    let target = b.register(4096, Access::REMOTE);
    (0..25).for_each(|i| b.receive(i, 100));
    for i in 0..100 {
        let to = at(&target, 8 * (i % 100));
        match i % 4 {
            0 => a.post(i, SEND, SgList::copied(&i.to_be_bytes())),
            1 => a.post(i, SendOp::Write { to }, SgList::copied(&[1; 8])),
            2 => a.post(i, SendOp::Read { from: to }, OwnedBuf::zeroed(8)),
            _ => a.post(i, SendOp::FetchAdd { at: to, add: 1, mask: 0 }, OwnedBuf::zeroed(8)),
        }
    }
    assert_eq!(ends(&a.take(100)), (0..100).map(|i| (i, Status::Success)).collect::<Vec<_>>());
    let texts: Vec<_> = b.take(25).into_iter().map(bytes).collect();
    let sent: Vec<_> = (0..25u64).map(|i| (4 * i).to_be_bytes().to_vec()).collect();
    assert_eq!(texts, sent);
}
