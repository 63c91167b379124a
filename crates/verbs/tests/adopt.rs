//! Connections over sessions: everything that works in clear works sealed, in both roles, and a
//! session that fails ends its connection and says why.

mod common;
#[path = "adopt/session.rs"]
mod session;

use common::{SEND, Side, at, bytes, ends, pattern};
use outboard_secure::{Fabric, SessionError};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, AsyncEvent, CmEventKind, ConnectError, ConnectParams, Connected, EndReason, OwnedBuf,
    QpState, Role, Secured, SendOp, SendRequest, SgList, Status, StreamError,
};
use session::{Meddler, between, secured_pair};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Adopts both ends of a pair, and returns what each knows.
fn adopt_both(a: &Side, b: &Side, ends: (Secured, Secured)) -> (Connected, Connected) {
    let params = ConnectParams::default();
    thread::scope(|scope| {
        let active = scope.spawn(|| adopt(a, ends.0, Role::Initiator, &params));
        let passive = adopt(b, ends.1, Role::Responder, &params);
        (active.join().expect("no panic").expect("adopted"), passive.expect("adopted"))
    })
}

fn adopt(
    side: &Side,
    end: Secured,
    role: Role,
    params: &ConnectParams,
) -> Result<Connected, ConnectError> {
    let channel = side.context.create_cm_channel().expect("a channel");
    side.qp.adopt(end, role, params, &channel)
}

fn sealed_pair(fabric: Fabric) -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    adopt_both(&a, &b, secured_pair(fabric));
    (a, b)
}

fn async_event(side: &Side) -> AsyncEvent {
    let mut found = None;
    eventually("an event", || {
        found = side.context.poll_async_event();
        found.is_some()
    });
    found.expect("an event")
}

#[test]
fn crcs_are_off_in_an_encrypted_session_only() {
    for (fabric, crc) in [(Fabric::Untrusted, false), (Fabric::Trusted, true)] {
        let (a, b) = (Side::new(), Side::new());
        let (active, passive) = adopt_both(&a, &b, secured_pair(fabric));
        assert_eq!((active.crc, passive.crc), (crc, crc));
    }
}

#[test]
fn sends_writes_and_reads_of_every_size_arrive() {
    for fabric in [Fabric::Untrusted, Fabric::Trusted] {
        let (a, b) = sealed_pair(fabric);
        for len in [0, 1, 100, 16_383, 16_384, 65_000, 3_000_001] {
            let data = pattern(len, len);
            b.receive(1, len);
            a.send(2, &data);
            assert_eq!(bytes(b.success()), data, "{fabric:?} {len}");
            a.success();
            let target = b.register(len + 1, Access::REMOTE_WRITE | Access::REMOTE_READ);
            a.carry_out(SendOp::Write { to: at(&target, 0) }, SgList::copied(&data));
            let sink = OwnedBuf::zeroed(len);
            let done = a.carry_out(SendOp::Read { from: at(&target, 0) }, sink);
            assert_eq!(bytes(done), data, "{fabric:?} {len}");
        }
    }
}

#[test]
fn many_small_and_large_messages_cross_both_ways_at_once() {
    let (a, b) = sealed_pair(Fabric::Untrusted);
    let lens: Vec<usize> = (0..100).map(|i| [7, 70_000, 300, 1 << 20][i % 4]).collect();
    for side in [&a, &b] {
        for (id, len) in lens.iter().enumerate() {
            side.receive(1000 + id as u64, *len);
        }
    }
    for (id, len) in lens.iter().enumerate() {
        a.send(id as u64, &pattern(id, *len));
        b.send(id as u64, &pattern(id + 1, *len));
    }
    for (side, shift) in [(&b, 0), (&a, 1)] {
        let mut done = side.take(2 * lens.len());
        done.retain(|one| one.wr_id >= 1000);
        for (id, one) in done.into_iter().enumerate() {
            assert_eq!((one.wr_id, one.status), (1000 + id as u64, Status::Success));
            assert_eq!(bytes(one), pattern(id + shift, lens[id]));
        }
    }
}

#[test]
fn leaving_in_order_is_no_fault_of_the_session() {
    let (a, b) = (Side::new(), Side::new());
    let params = ConnectParams::default();
    let (one, other) = secured_pair(Fabric::Untrusted);
    let channel = b.context.create_cm_channel().expect("a channel");
    thread::scope(|scope| {
        scope.spawn(|| adopt(&a, one, Role::Initiator, &params).expect("adopted"));
        b.qp.adopt(other, Role::Responder, &params, &channel).expect("adopted");
    });
    b.receive(1, 3_000_000);
    a.send(2, &pattern(3, 3_000_000));
    a.success();
    a.qp.disconnect();
    // Bytes that TCP had no room for arrive later, sealed as they are.
    let done = b.take(1).remove(0);
    assert!(matches!(done.status, Status::Success), "{:?}", done.status);
    loop {
        let event = channel.next(Some(PATIENCE)).expect("an event");
        if matches!(event.kind, CmEventKind::Disconnected) {
            break;
        }
    }
    eventually("both are over", || {
        a.qp.state() == QpState::Error && b.qp.state() == QpState::Error
    });
    assert_eq!(a.context.poll_async_event(), None);
    assert_eq!(b.context.poll_async_event(), None);
}

/// More than TCP's buffers take: the rest waits, sealed, until the peer reads.
const MUCH: usize = 16;

/// Two ends; the first sends many messages for which the second has no receives.
fn congested(buffer: usize) -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    let (one, other) = secured_pair(Fabric::Untrusted);
    // TCP takes less than a batch, and little more before the peer reads.
    socket2::SockRef::from(one.socket()).set_send_buffer_size(buffer).expect("set");
    socket2::SockRef::from(other.socket()).set_recv_buffer_size(buffer).expect("set");
    adopt_both(&a, &b, (one, other));
    for id in 0..MUCH {
        a.send(id as u64, &pattern(id, 1 << 20));
    }
    std::thread::sleep(Duration::from_millis(300));
    (a, b)
}

#[test]
fn a_peer_that_does_not_read_for_a_while_loses_nothing() {
    let (a, b) = congested(256 * 1024);
    let mut done = Vec::new();
    a.cq.poll(&mut done, MUCH).expect("no overflow");
    assert!(done.len() < MUCH, "the kernel took everything: nothing was tested");
    for id in 0..MUCH {
        b.receive(id as u64, 1 << 20);
        assert_eq!(bytes(b.success()), pattern(id, 1 << 20));
    }
    let left = MUCH - done.len();
    done.append(&mut a.take(left));
    assert!(done.iter().all(|one| one.status == Status::Success), "{:?}", ends(&done));
}

#[test]
fn a_side_that_leaves_while_tcp_has_no_room_still_ends_its_stream() {
    let (a, b) = congested(64 * 1024);
    a.qp.disconnect();
    // Its requests are flushed although the peer reads nothing.
    let done = a.take(MUCH);
    assert_eq!(done[MUCH - 1].status, Status::Flushed);
    for id in 0..MUCH {
        b.receive(id as u64, 1 << 20);
    }
    b.take(MUCH);
    eventually("both are over", || {
        a.qp.state() == QpState::Error && b.qp.state() == QpState::Error
    });
    assert_eq!(a.context.poll_async_event(), None);
    assert_eq!(b.context.poll_async_event(), None);
}

#[test]
fn a_side_that_leaves_ignores_what_the_other_could_no_longer_send() {
    let (a, b) = congested(8 * 1024);
    b.qp.disconnect();
    eventually("both are over", || {
        a.qp.state() == QpState::Error && b.qp.state() == QpState::Error
    });
    assert_eq!(a.context.poll_async_event(), None);
    assert_eq!(b.context.poll_async_event(), None);
}

/// A message each way: behind it no frame of the start-up is due.
fn talk(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        to.receive(1, 100);
        from.send(2, b"a word");
        from.success();
        to.success();
    }
}

#[test]
fn a_record_altered_on_the_way_ends_the_connection_with_an_event() {
    let (a, b) = (Side::new(), Side::new());
    let (ends_of_pair, meddler) = between();
    adopt_both(&a, &b, ends_of_pair);
    talk(&a, &b);
    b.receive(1, 100);
    meddler.set(Meddler::Alter);
    a.send(2, b"money");
    let done = b.take(1);
    assert_eq!(ends(&done), [(1, Status::Flushed)]);
    let event = async_event(&b);
    let AsyncEvent::SessionFailed { qp, error } = event else { panic!("{event:?}") };
    assert_eq!(qp, b.qp.number());
    assert!(matches!(error, SessionError::Altered { .. }), "{error:?}");
    let reason = b.qp.end_reason().expect("it is over");
    assert_eq!(reason, EndReason::SessionFailed(error));
    assert!(reason.to_string().starts_with("decryption failed: "), "{reason}");
    assert_eq!(b.context.counters().ended_by_decryption, 1);
    eventually("both are over", || {
        a.qp.state() == QpState::Error && b.qp.state() == QpState::Error
    });
}

#[test]
fn a_cut_shows() {
    let (a, b) = (Side::new(), Side::new());
    let (ends_of_pair, meddler) = between();
    adopt_both(&a, &b, ends_of_pair);
    b.receive(1, 100);
    meddler.set(Meddler::Cut);
    // The connection may also be refused: this end may have sent to it after the cut.
    let last = SendRequest::new(2, SEND, SgList::copied(b"the last word"));
    let _refused = a.qp.post_send(last);
    assert_eq!(ends(&b.take(1)), [(1, Status::Flushed)]);
    let event = async_event(&b);
    let cut =
        matches!(event, AsyncEvent::SessionFailed { error: SessionError::Truncated { .. }, .. });
    assert!(cut, "{event:?}");
    let counters = b.context.counters();
    assert_eq!((counters.ended_by_decryption, counters.ended_by_loss), (0, 1));
}

#[test]
fn a_cut_after_our_own_end_is_not_reported() {
    let (a, b) = (Side::new(), Side::new());
    let (ends_of_pair, meddler) = between();
    adopt_both(&a, &b, ends_of_pair);
    // The next thing that the other end sends is its own end.
    talk(&a, &b);
    meddler.set(Meddler::Cut);
    b.qp.disconnect();
    eventually("it is over", || b.qp.state() == QpState::Error);
    assert_eq!(b.context.poll_async_event(), None);
}

#[test]
fn a_silent_peer_costs_the_time_limit_and_the_queue_pair_is_good_for_more() {
    let (a, b) = (Side::new(), Side::new());
    let params = ConnectParams { timeout: Duration::from_millis(50), ..ConnectParams::default() };
    for role in [Role::Initiator, Role::Responder] {
        let (end, _silent) = secured_pair(Fabric::Untrusted);
        let error = adopt(&a, end, role, &params).expect_err("no peer answers");
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
        assert_eq!(a.qp.state(), QpState::Idle);
    }
    adopt_both(&a, &b, secured_pair(Fabric::Untrusted));
}

#[test]
fn bytes_that_are_no_record_fail_the_start_up() {
    let a = Side::new();
    let (end, other) = secured_pair(Fabric::Untrusted);
    let (mut socket, _, _) = other.into_parts();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    let error = adopt(&a, end, Role::Responder, &ConnectParams::default()).expect_err("no");
    assert!(matches!(error, ConnectError::SecureSession { .. }), "{error}");
}

#[test]
fn a_busy_queue_pair_adopts_nothing() {
    let (a, _b) = sealed_pair(Fabric::Untrusted);
    let (end, _other) = secured_pair(Fabric::Untrusted);
    let error = adopt(&a, end, Role::Initiator, &ConnectParams::default()).expect_err("no");
    assert!(matches!(error, ConnectError::Verbs(_)), "{error}");
}

#[test]
fn small_talk_passes_before_a_connection_does() {
    let (mut one, mut other) = secured_pair(Fabric::Untrusted);
    let deadline = Instant::now() + PATIENCE;
    one.send(b"hello", deadline).expect("sent");
    let mut heard = Vec::new();
    other.receive(&mut heard, deadline).expect("heard");
    assert_eq!(heard, b"hello");
    let (a, b) = (Side::new(), Side::new());
    adopt_both(&a, &b, (one, other));
    b.receive(1, 10);
    a.send(2, b"more");
    assert_eq!(bytes(b.success()), b"more");
}

#[test]
fn an_end_after_small_messages_is_not_taken_for_a_cut() {
    let (mut one, mut other) = secured_pair(Fabric::Untrusted);
    let deadline = Instant::now() + PATIENCE;
    one.finish(deadline).expect("finished");
    let error = other.receive(&mut Vec::new(), deadline).expect_err("the end");
    assert!(matches!(error, StreamError::Ended), "{error}");
    let (one, mut other) = secured_pair(Fabric::Untrusted);
    drop(one);
    let error = other.receive(&mut Vec::new(), deadline).expect_err("a cut");
    assert!(matches!(error, StreamError::SecureSession(SessionError::Truncated { .. })), "{error}");
}
