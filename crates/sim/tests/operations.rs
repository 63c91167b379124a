//! What every operation looks like on the wire and what its two ends get of it.

use outboard_iwarp::PostError;
use outboard_iwarp::work::{Remote, SendOp, SendRequest};
use outboard_mem::{Access, OwnedBuf, Segment, SgList};
use outboard_sim::{Chunks, Pair, Setup};

/// All rights that a peer can have.
fn everything() -> Access {
    Access::REMOTE | Access::LOCAL_WRITE
}

fn pair() -> Pair {
    Pair::open(Setup::default())
}

#[test]
fn start_up_and_the_first_message() {
    let mut pair = Pair::connect(Setup::default().both(|side| {
        side.local.ird = 5;
        side.local.ord = 9;
    }));
    pair.expect(
        "> Request rev=2 ird=5 ord=9 peer-to-peer rtr-send rtr-write rtr-read
         < Reply rev=2 ird=5 ord=5 peer-to-peer rtr-send rtr-write rtr-read
         > Write last stag=1 to=0 len=0",
    );
}

#[test]
fn sends_of_all_four_kinds() {
    let mut pair = pair();
    let doomed = pair.b.register("doomed", 16, Access::REMOTE_INVALIDATE);
    let gone = pair.b.register("gone", 16, Access::REMOTE);
    for wr_id in 10..14 {
        pair.b.receive(wr_id, 8);
    }
    for (wr_id, invalidate, solicited) in [
        (1, None, false),
        (2, Some(doomed.stag), false),
        (3, None, true),
        (4, Some(gone.stag), true),
    ] {
        let op = SendOp::Send { invalidate };
        let mut request = SendRequest::new(wr_id, op, SgList::copied(b"hello"));
        request.solicited = solicited;
        pair.a.post(request).expect("posted");
    }
    pair.expect(
        "> Send last msn=1 len=5
         > SendInvalidate last inv=doomed msn=2 len=5
         > SendSolicited last msn=3 len=5
         > SendSolicitedInvalidate last inv=gone msn=4 len=5",
    );
    assert_eq!(
        pair.a.completion_lines(),
        ["1 Send Success 5", "2 Send Success 5", "3 Send Success 5", "4 Send Success 5"]
    );
    assert_eq!(
        pair.b.completion_lines(),
        [
            "10 Receive Success 5",
            "11 Receive Success 5 inv",
            "12 Receive Success 5 solicited",
            "13 Receive Success 5 inv solicited"
        ]
    );
    let resolved =
        pair.b.stags.resolve(doomed.stag.0, outboard_sim::side::PD, Access::REMOTE_READ, 0, 1);
    assert!(resolved.is_err(), "an invalidated STag still resolves");
    assert!(pair.b.stags.deregister(doomed.stag.0).is_ok());
}

#[test]
fn a_long_send_is_cut_into_segments() {
    let mut pair = pair();
    pair.b.receive(9, 4000);
    let bytes: Vec<u8> = (0..3000u32).map(|i| i.to_le_bytes()[0]).collect();
    pair.a.send(1, SendOp::Send { invalidate: None }, &bytes);
    pair.expect(
        "> Send msn=1 len=1000
         > Send msn=1 mo=1000 len=1000
         > Send last msn=1 mo=2000 len=1000",
    );
    assert_eq!(pair.b.received(), [bytes]);
}

#[test]
fn writes_with_and_without_immediate_data() {
    let mut pair = pair();
    let mr = pair.b.register("mr", 4096, Access::REMOTE_WRITE);
    pair.b.receive(7, 0);
    pair.b.receive(8, 0);
    let to = Remote { stag: mr.stag, offset: 100 };
    pair.a.send(1, SendOp::Write { to }, &[1; 1500]);
    pair.a.send(2, SendOp::WriteWithImm { to, immediate: 0xabcd }, &[2; 3]);
    pair.a.send(3, SendOp::Write { to }, &[]);
    let mut alone = SendRequest::new(4, SendOp::Immediate { immediate: 5 }, SgList::new());
    alone.solicited = true;
    pair.a.post(alone).expect("posted");
    pair.expect(
        "> Write stag=mr to=100 len=752
         > Write last stag=mr to=852 len=748
         > Write last stag=mr to=100 len=3
         > Immediate last msn=1 data=0xabcd
         > Write last stag=mr to=100 len=0
         > ImmediateSolicited last msn=2 data=0x5",
    );
    let mut expected = vec![0; 4096];
    expected[100..1600].fill(1);
    expected[100..103].fill(2);
    assert_eq!(mr.bytes(), expected);
    assert_eq!(
        pair.a.completion_lines(),
        ["1 Write Success 1500", "2 Write Success 3", "3 Write Success 0", "4 Immediate Success 0"]
    );
    assert_eq!(
        pair.b.completion_lines(),
        [
            "7 ReceiveImmediate Success 3 imm=0xabcd",
            "8 ReceiveImmediate Success 0 imm=0x5 solicited"
        ]
    );
}

/// A pair of which both ends have agreed on that.
fn paired() -> Pair {
    let mut pair = pair();
    pair.a.connection.allow_send_with_imm(true);
    pair.b.connection.allow_send_with_imm(true);
    pair
}

#[test]
fn immediate_data_with_sends() {
    let mut pair = paired();
    pair.b.receive(7, 1500);
    pair.a.send(1, SendOp::SendWithImm { immediate: 0xabcd }, &[1; 1500]);
    pair.a.send(2, SendOp::Send { invalidate: None }, &[2; 2]);
    let op = SendOp::SendWithImm { immediate: 0 };
    let mut solicited = SendRequest::new(3, op, SgList::new());
    solicited.solicited = true;
    pair.a.post(solicited).expect("posted");
    pair.a.send(4, SendOp::Immediate { immediate: 5 << 32 }, &[]);
    pair.expect(
        "> Immediate last msn=1 data=0xabcd00000001
         > Send msn=2 len=752
         > Send last msn=2 mo=752 len=748
         > Send last msn=3 len=2
         > Immediate last msn=4 data=0x1
         > SendSolicited last msn=5 len=0
         > Immediate last msn=6 data=0x500000000",
    );
    // One receive each.
    (8..11).for_each(|wr_id| pair.b.receive(wr_id, 2));
    pair.expect("");
    assert_eq!(
        pair.b.completion_lines(),
        [
            "7 Receive Success 1500 imm=0xabcd00000000",
            "8 Receive Success 2",
            "9 Receive Success 0 imm=0x0 solicited",
            "10 ReceiveImmediate Success 0 imm=0x500000000"
        ]
    );
    let ends = ["1 Send Success 1500", "2 Send Success 2", "3 Send Success 0"];
    assert_eq!(pair.a.completion_lines()[..3], ends);
}

#[test]
fn immediate_data_with_sends_is_agreed_on_first() {
    let with = |op| SendRequest::new(1, op, SgList::new());
    let mut other = pair();
    let op = SendOp::SendWithImm { immediate: 1 };
    assert_eq!(other.a.post(with(op)), Err(PostError::NoSendWithImm));
    other.b.receive(7, 0);
    other.a.send(2, SendOp::Immediate { immediate: 1 }, &[]);
    other.expect("> Immediate last msn=1 data=0x1");
    assert_eq!(other.b.completion_lines(), ["7 ReceiveImmediate Success 0 imm=0x1"]);
    // What would be taken for a Send's.
    let refused = paired().a.post(with(SendOp::Immediate { immediate: 1 }));
    assert!(matches!(refused, Err(PostError::TooLarge { found: 8, limit: 4, .. })), "{refused:?}");
}

#[test]
fn immediate_data_without_its_send_is_a_fault() {
    let mut pair = pair();
    pair.b.connection.allow_send_with_imm(true);
    pair.b.receive(7, 8);
    for (wr_id, immediate) in [(1, 1), (2, 2)] {
        pair.a.send(wr_id, SendOp::Immediate { immediate }, &[]);
    }
    pair.expect(
        "> Immediate last msn=1 data=0x1
         > Immediate last msn=2 data=0x2
         < Terminate msn=1 0x0/0x2/0x06 of [Immediate last msn=2] len=26
         > FIN
         < FIN",
    );
}

#[test]
fn reads_come_in_order_and_need_no_registered_sink() {
    let mut pair = pair();
    let mr = pair.b.register("mr", 4096, Access::REMOTE_READ);
    mr.region.copy_in(10, &[7; 3000]).expect("inside");
    let from = Remote { stag: mr.stag, offset: 10 };
    pair.a.send(1, SendOp::Read { from }, &[0; 2000]);
    pair.a.send(2, SendOp::Read { from }, &[]);
    pair.expect(
        "> ReadRequest msn=1 sink=1+0 size=2000 source=mr+10
         > ReadRequest msn=2 sink=2+0 size=0 source=mr+10
         < ReadResponse stag=1 to=0 len=1000
         < ReadResponse last stag=1 to=1000 len=1000
         < ReadResponse last stag=2 to=0 len=0",
    );
    assert_eq!(pair.a.received(), [vec![7; 2000], vec![]]);
}

#[test]
fn a_zero_length_read_names_nothing() {
    let mut pair = pair();
    let from = Remote { stag: outboard_wire::ddp::Stag(0xdead_beef), offset: u64::MAX };
    pair.a.send(1, SendOp::Read { from }, &[]);
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["1 Read Success 0"]);
}

#[test]
fn atomics_return_the_original() {
    let mut pair = pair();
    let mr = pair.b.register("mr", 64, Access::REMOTE_ATOMIC);
    mr.region.store_u64(8, 0x10_00ff).expect("aligned");
    let at = Remote { stag: mr.stag, offset: 8 };
    pair.a.send(1, SendOp::FetchAdd { at, add: 1, mask: 0 }, &[0; 8]);
    pair.a.send(2, SendOp::FetchAdd { at, add: 0x01_00ff, mask: 0x80_0080 }, &[0; 8]);
    let swap = SendOp::CompareSwap {
        at,
        swap: 0xffff,
        swap_mask: 0xf0,
        compare: 0x11_01ff,
        compare_mask: 0xff_0000,
    };
    pair.a.send(3, swap, &[0; 8]);
    pair.a.send(4, swap, &[0; 8]);
    pair.expect(
        "> AtomicRequest msn=1 add at=mr+8 0x1 mask=0x0
         > AtomicRequest msn=2 add at=mr+8 0x100ff mask=0x800080
         > AtomicRequest msn=3 swap at=mr+8 0xffff/0xf0 if 0x1101ff/0xff0000
         > AtomicRequest msn=4 swap at=mr+8 0xffff/0xf0 if 0x1101ff/0xff0000
         < AtomicResponse msn=1 original=0x1000ff
         < AtomicResponse msn=2 original=0x100100
         < AtomicResponse msn=3 original=0x1101ff
         < AtomicResponse msn=4 original=0x1101ff",
    );
    assert_eq!(mr.region.load_u64(8), Ok(0x11_01ff));
    let words: Vec<u64> = pair
        .a
        .received()
        .iter()
        .map(|bytes| u64::from_ne_bytes(bytes[..].try_into().expect("eight bytes")))
        .collect();
    assert_eq!(words, [0x10_00ff, 0x10_0100, 0x11_01ff, 0x11_01ff]);
}

#[test]
fn an_atomic_completes_with_eight_bytes_whatever_the_list() {
    let mut pair = pair();
    let mr = pair.b.register("mr", 8, Access::REMOTE_ATOMIC);
    let at = Remote { stag: mr.stag, offset: 0 };
    pair.a.send(1, SendOp::FetchAdd { at, add: 1, mask: 0 }, &[0; 20]);
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["1 FetchAdd Success 8"]);
}

#[test]
fn both_sides_speak_at_the_same_time() {
    let mut pair = pair();
    let a = pair.a.register("a", 64, everything());
    let b = pair.b.register("b", 64, everything());
    a.region.copy_in(0, b"from a").expect("inside");
    b.region.copy_in(0, b"from b").expect("inside");
    pair.a.send(1, SendOp::Read { from: Remote { stag: b.stag, offset: 0 } }, &[0; 6]);
    pair.b.send(2, SendOp::Read { from: Remote { stag: a.stag, offset: 0 } }, &[0; 6]);
    pair.drive();
    assert_eq!(pair.a.received(), [b"from b".to_vec()]);
    assert_eq!(pair.b.received(), [b"from a".to_vec()]);
}

#[test]
fn lists_of_many_segments_go_both_ways() {
    let mut pair = Pair::open(Setup::default().both(|side| side.max_ulpdu = 40_000));
    let mr = pair.b.register("mr", 30_000, everything());
    let mut list: Vec<Segment> = Vec::new();
    let shared = pair.a.region(9000);
    shared.copy_in(0, &[3; 9000]).expect("inside");
    for i in 0..12u8 {
        list.push(OwnedBuf::from(vec![i; 1000]).into());
    }
    list.push(shared.slice(500..8500).expect("inside").into());
    let to = Remote { stag: mr.stag, offset: 0 };
    pair.a.post(SendRequest::new(1, SendOp::Write { to }, list.into())).expect("posted");
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["1 Write Success 20000"]);
    let expected = (0..12).flat_map(|i| vec![i; 1000]).chain(vec![3; 8000]);
    assert!(mr.bytes().into_iter().take(20_000).eq(expected));

    let sink = pair.a.region(20_000);
    let halves: Vec<Segment> = vec![
        sink.slice(10_000..20_000).expect("inside").into(),
        sink.slice(0..10_000).expect("inside").into(),
    ];
    let read = SendRequest::new(2, SendOp::Read { from: to }, halves.into());
    pair.a.post(read).expect("posted");
    pair.drive();
    assert_eq!(pair.a.completion_lines(), ["2 Read Success 20000"]);
    let bytes = mr.bytes();
    assert_eq!(sink.snapshot(10_000..20_000).expect("inside"), bytes[..10_000]);
    assert_eq!(sink.snapshot(0..10_000).expect("inside"), bytes[10_000..20_000]);
}

#[test]
fn unsignaled_requests_are_silent() {
    let mut pair = pair();
    pair.b.receive(9, 8);
    let mut request =
        SendRequest::new(1, SendOp::Send { invalidate: None }, SgList::copied(b"psst"));
    request.signaled = false;
    pair.a.post(request).expect("posted");
    pair.drive();
    assert_eq!(pair.a.completion_lines(), Vec::<String>::new());
    assert_eq!(pair.b.completion_lines(), ["9 Receive Success 4"]);
    assert!(pair.a.connection.is_idle());
}

#[test]
fn an_atomic_behind_a_long_read_does_not_show_in_it() {
    for chunks in [Chunks::Whole, Chunks::Every(50)] {
        let setup = Setup { chunks, ..Setup::default() }.both(|side| side.max_ulpdu = 9000);
        let mut pair = Pair::open(setup);
        let mr = pair.b.register("mr", 8192, everything());
        let there = Remote { stag: mr.stag, offset: 0 };
        pair.a.send(1, SendOp::Read { from: there }, &[9; 8192]);
        pair.a.send(2, SendOp::FetchAdd { at: there, add: u64::MAX, mask: 0 }, &[0; 8]);
        pair.drive();
        assert!(pair.a.received()[0] == [0; 8192], "{chunks:?}");
    }
}
