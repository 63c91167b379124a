//! The ends of connections: the bytes of completed requests arrive, whatever their sender does
//! next; a waiting program is told of the end in time, and after everything that came before it;
//! nothing is kept for ever.

mod common;
#[path = "bad_peers/raw.rs"]
#[allow(dead_code, reason = "the other test program uses more of it")]
mod raw;

use common::{ANY, SEND, Side, address, at, ends, pair, tcp_end};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, Bound, CmChannel, CmEventKind, ConnectParams, Context, EndReason, OwnedBuf, Qp,
    QpConfig, QpState, RnrPolicy, SendRequest, Status,
};
use raw::{CRC, Raw, fpdu, last_ulpdu, read_request, request, tagged, untagged};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Two connected sides, and the channels with the events of their connection.
fn watched_pair() -> (Side, Side, CmChannel, CmChannel) {
    let (a, b) = (Side::new(), Side::new());
    let (ours, theirs) = watch(&a, &b);
    (a, b, ours, theirs)
}

fn watch(a: &Side, b: &Side) -> (CmChannel, CmChannel) {
    let listener = b.listen();
    let [ours, theirs] =
        [a, b].map(|side| side.context.create_cm_channel_without_established().expect("a channel"));
    let params = ConnectParams::default();
    a.qp.start_connect(listener.local_addr(), &params, &ours).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept_on(&b.qp, &params, &theirs).expect("a connection");
    common::connected(&ours);
    (ours, theirs)
}

fn hears_of_the_end(events: &CmChannel) {
    let event = events.next(Some(PATIENCE)).expect("an event").kind;
    assert!(matches!(event, CmEventKind::Disconnected), "{event:?}");
}

fn is_quiet(events: &CmChannel) -> bool {
    events.next(Some(Duration::from_millis(100))).is_none()
}

/// How a side goes away after its last Send has completed.
#[derive(Clone, Copy, Debug)]
enum Farewell {
    Disconnect,
    LetGo,
    DropQp,
    Reset,
    DropContext,
}

/// More than both ends' TCP buffers hold; the peer answers each message, and the answers reach a
/// side that is gone.
#[test]
fn completed_requests_arrive_however_their_sender_leaves() {
    const MESSAGES: u64 = 64;
    const LEN: usize = 16 * 1024;
    let all = [
        Farewell::Disconnect,
        Farewell::LetGo,
        Farewell::DropQp,
        Farewell::Reset,
        Farewell::DropContext,
    ];
    for farewell in all {
        let (a, b) = pair();
        let ((gone, left), (arrived, all)) = (channel(), channel::<()>());
        for wr_id in 0..MESSAGES {
            a.receive(wr_id, 8);
            a.post(wr_id, SEND, OwnedBuf::zeroed(LEN));
        }
        let sent = a.cq.clone();
        let done = common::take(&sent, 64);
        assert!(done.iter().all(|done| done.status == Status::Success), "{farewell:?}");
        drop((done, sent));
        thread::scope(|scope| {
            scope.spawn(move || leave(a, farewell, &gone, &all));
            left.recv().expect("it leaves");
            for wr_id in 0..MESSAGES {
                b.receive(wr_id, LEN);
                let done = b.take(1).remove(0);
                assert_eq!((done.wr_id, done.status), (wr_id, Status::Success), "{farewell:?}");
                let answer = SendRequest::new(1000, SEND, OwnedBuf::zeroed(8).into());
                let answered = b.qp.post_send(SendRequest { signaled: false, ..answer });
                // The end is behind the last message.
                assert!(answered.is_ok() || wr_id + 1 == MESSAGES, "{farewell:?}: {wr_id}");
            }
            drop(arrived);
        });
        eventually("the end", || b.qp.state() == QpState::Error);
    }
}

/// Leaves, and says so; the context lives until all has arrived, unless its end is the farewell.
fn leave(a: Side, farewell: Farewell, gone: &Sender<()>, all: &Receiver<()>) {
    let tell = || gone.send(()).expect("it is waited for");
    match farewell {
        Farewell::Disconnect => {
            a.qp.disconnect();
            tell();
            eventually("both have closed", || a.qp.state() == QpState::Error);
        }
        Farewell::LetGo | Farewell::Reset => {
            let go = if matches!(farewell, Farewell::Reset) { Qp::reset } else { Qp::let_go };
            go(&a.qp);
            tell();
            let _arrived = all.recv();
        }
        Farewell::DropQp => {
            let Side { context, qp, .. } = a;
            drop(qp);
            tell();
            let _arrived = all.recv();
            drop(context);
        }
        Farewell::DropContext => {
            // It waits for the peer's TCP.
            tell();
            drop(a);
        }
    }
}

#[test]
fn a_side_that_leaves_gets_the_end_when_both_have_closed() {
    let (a, b, ours, theirs) = watched_pair();
    a.send(1, b"waits for a receive");
    a.success();
    a.qp.disconnect();
    assert_eq!(a.qp.state(), QpState::Closing);
    assert!(is_quiet(&ours), "the peer has not read what came before the end");
    b.receive(1, 32);
    b.success();
    hears_of_the_end(&theirs);
    hears_of_the_end(&ours);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Error, QpState::Error));
}

#[test]
fn a_channel_gets_the_end_of_a_queue_pair_that_was_let_go() {
    let (a, _b, ours, theirs) = watched_pair();
    a.qp.let_go();
    hears_of_the_end(&ours);
    hears_of_the_end(&theirs);
    assert!(is_quiet(&ours), "once");
}

#[test]
fn the_end_of_an_old_connection_is_no_news_of_the_next() {
    let (a, b, ours, _theirs) = watched_pair();
    a.send(1, b"waits for a receive");
    a.success();
    a.qp.reset();
    let next = Side::new();
    let (ours_next, _) = watch(&a, &next);
    b.receive(1, 32);
    b.success();
    eventually("the old one ends", || b.qp.state() == QpState::Error);
    assert!(is_quiet(&ours) && is_quiet(&ours_next));
    assert_eq!(a.qp.state(), QpState::Rts);
}

/// The peer's last message and its end come together.
#[test]
fn completions_come_before_the_event_of_the_end() {
    let (context, other) = (Context::open().expect("a context"), Context::open().expect("one"));
    let (pd, other_pd) = (context.alloc_pd(), other.alloc_pd());
    for round in 0..300 {
        let a = Side::in_domain(context.clone(), pd.clone(), |_| {});
        let b = Side::in_domain(other.clone(), other_pd.clone(), |_| {});
        let (_ours, theirs) = watch(&a, &b);
        b.receive(1, 32);
        thread::scope(|scope| {
            scope.spawn(|| {
                a.send(1, b"last");
                a.qp.disconnect();
            });
            // Looks without a pause, and so sees each moment.
            let start = Instant::now();
            while theirs.try_next().is_none() {
                assert!(start.elapsed() < PATIENCE, "the end is reported");
            }
            let mut done = Vec::new();
            b.cq.poll(&mut done, 4).expect("no overflow");
            assert_eq!(common::ends(&done), [(1, Status::Success)], "round {round}");
        });
    }
}

/// No message waits too long.
fn for_ever(config: &mut QpConfig) {
    config.rnr_policy = RnrPolicy::Stall(Duration::MAX);
}

/// A message waits for a receive; behind it its sender leaves, or dies with half of a message out.
#[test]
fn a_peers_end_is_seen_behind_a_message_that_waits() {
    for count in [2, 64] {
        let (a, b) = (Side::new(), Side::with(for_ever));
        let (_ours, theirs) = watch(&a, &b);
        b.receive(1, 65_536);
        for wr_id in 0..count {
            a.post(wr_id, SEND, OwnedBuf::zeroed(65_536));
        }
        b.success();
        let start = Instant::now();
        a.qp.disconnect();
        hears_of_the_end(&theirs);
        let took = start.elapsed();
        assert!(took > Duration::from_millis(500), "a receive might have come: {took:?}");
    }
    for kill in [true, false] {
        let (mut peer, side) = raw_pair(for_ever);
        side.receive(1, 1024);
        for msn in 1..200 {
            peer.send(&message(msn, 1024));
        }
        side.success();
        if kill {
            reset(peer);
        } else {
            peer.0.shutdown(std::net::Shutdown::Write).expect("half closed");
            eventually("the end", || side.qp.state().is_over());
        }
        eventually("the end", || side.qp.state() == QpState::Error);
    }
}

/// The peer has no room for the FIN of a side that has left, and its program reads nothing.
#[test]
fn a_peer_without_room_is_told_by_a_reset() {
    let (mut peer, side) = raw_pair(|_| {});
    // The kernel gives it no more room, however long bytes wait.
    socket2::SockRef::from(&peer.0).set_recv_buffer_size(1 << 16).expect("an option");
    let take = || {
        side.cq.wait(&mut Vec::new(), 64, Some(Duration::from_millis(100))).expect("no overflow")
    };
    let (mut posted, mut done) = (0, 0);
    eventually("TCP has no room", || {
        if done == posted {
            side.post(1, SEND, OwnedBuf::zeroed(1 << 16));
            posted += 1;
        }
        done += take();
        has_no_room(&peer)
    });
    while done < posted {
        peer.0.read_exact(&mut [0; 1 << 15]).expect("bytes");
        done += take();
    }
    eventually("TCP has no room again", || has_no_room(&peer));
    side.qp.let_go();
    let limit = Timespec::try_from(PATIENCE).expect("short");
    let mut fds = [PollFd::new(&peer.0, PollFlags::HUP)];
    assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "the peer is told nothing");
    let read = || peer.0.read(&mut [0; 1 << 15]);
    let last = std::iter::repeat_with(read).find(|read| !matches!(read, Ok(1..)));
    let error = last.and_then(Result::err).map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
}

/// A slow peer and an absent one cannot be distinguished before the end is known.
#[test]
fn a_slow_peer_gets_everything_from_a_side_that_has_left() {
    let (a, b) = pair();
    for wr_id in 0..10 {
        a.send(wr_id, b"one of ten");
    }
    a.take(10);
    a.qp.disconnect();
    for wr_id in 0..10 {
        thread::sleep(Duration::from_millis(300));
        b.receive(wr_id, 16);
        assert_eq!(b.success().wr_id, wr_id);
    }
    eventually("the end", || a.qp.state() == QpState::Error);
}

/// A peer's program answers and ends; messages that are sent to it after that have no receiver.
#[test]
fn last_words_are_read_though_nothing_can_be_sent() {
    const MESSAGES: u32 = 40;
    let (mut peer, side) = raw_pair(|_| {});
    side.receive(1, 1024);
    // The second waits for a receive, so that the others wait in the kernel.
    peer.send(&[message(1, 1024), message(2, 1024)].concat());
    side.success();
    let [ours, theirs] = ports(&peer);
    eventually("the second is read", || tcp_end(theirs, ours).is_some_and(|end| end.unread == 0));
    for msn in 3..=MESSAGES {
        peer.send(&message(msn, 1024));
    }
    eventually("TCP has them all", || {
        tcp_end(ours, theirs).is_some_and(|end| end.unacknowledged == 0)
    });
    reset(peer);
    for wr_id in 1000..1004 {
        side.send(wr_id, b"is anybody there?");
        thread::sleep(Duration::from_millis(10));
    }
    for msn in 2..=MESSAGES {
        side.receive(u64::from(msn), 1024);
    }
    let done = side.take(43);
    let received: Vec<_> = done.iter().filter(|done| done.operation.is_receive()).collect();
    assert_eq!(received.len(), 39);
    assert!(received.iter().all(|done| done.status == Status::Success), "{:?}", ends(&done));
    eventually("the end", || side.qp.state() == QpState::Error);
}

/// The end of a context: what TCP has not taken is not cut.
#[test]
fn the_end_of_a_context_cuts_no_terminate() {
    const SIZE: u32 = 16 << 20;
    let (mut peer, side) = raw_pair(|_| {});
    let mr = side.register(SIZE as usize, Access::REMOTE_READ);
    let from = at(&mr, 0);
    let read = [untagged(1, 1, 1, 0), read_request(from.stag.0, from.offset, SIZE)].concat();
    peer.send(&fpdu(&read));
    eventually("TCP has no room", || has_no_room(&peer));
    // Each has the engine try again, until this side's TCP is full, too.
    for _ in 0..200 {
        peer.send(&fpdu(&tagged(0, 1, 0)));
        thread::sleep(Duration::from_millis(2));
    }
    // A Send whose number is wrong.
    peer.send(&message(7, 8));
    eventually("the fault", || side.qp.state() == QpState::Terminate);
    let ending = thread::spawn(move || drop((mr, side)));
    thread::sleep(Duration::from_millis(100));
    let rest = peer.rest();
    assert_eq!(last_ulpdu(&rest)[1] & 0x0f, 7, "the last word is a Terminate");
    ending.join().expect("an end");
}

#[test]
fn the_end_of_a_context_waits_for_no_peer_for_ever() {
    let (mut peer, side) = raw_pair(|_| {});
    let mr = side.register(16 << 20, Access::REMOTE_READ);
    let from = at(&mr, 0);
    let read = [untagged(1, 1, 1, 0), read_request(from.stag.0, from.offset, 16 << 20)].concat();
    peer.send(&fpdu(&read));
    eventually("TCP has no room", || has_no_room(&peer));
    let ending = thread::spawn(move || drop((mr, side)));
    eventually("the end of the context", || ending.is_finished());
    ending.join().expect("no panic");
    drop(peer);
}

/// Sockets of this process that came from `port`'s listener's clients and are still open.
fn open_sockets_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("procfs");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let port = format!(":{port:04X}");
    // A socket that no process has open has no inode.
    rows.filter(|row| row[2].ends_with(&port) && row[9] != "0").count()
}

#[test]
fn streams_that_linger_are_bounded() {
    const STREAMS: usize = 300;
    const LINGER_MAX: usize = 256;
    let (a, b) = (Side::new(), Side::new());
    let listener = b.context.listen(address(ANY), STREAMS).expect("a listener");
    let port = listener.local_addr().port();
    let qps = |side: &Side| -> Vec<Qp> {
        let qp = |_| side.pd.create_qp(QpConfig::new(&side.cq)).expect("a queue pair");
        (0..STREAMS).map(qp).collect()
    };
    let (ours, theirs) = (qps(&a), qps(&b));
    let events = a.context.create_cm_channel().expect("a channel");
    let params = ConnectParams { timeout: PATIENCE, ..ConnectParams::default() };
    for (ours, theirs) in ours.iter().zip(&theirs) {
        ours.start_connect(listener.local_addr(), &params, &events).expect("an attempt");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        request.accept(theirs, &params).expect("a connection");
        common::connected(&events);
        // No receive is posted, so the peer does not reach the FIN.
        let hello = SendRequest::new(1, SEND, OwnedBuf::zeroed(8).into());
        ours.post_send(hello).expect("room");
    }
    assert_eq!(open_sockets_to(port), STREAMS);
    drop(ours);
    let left = open_sockets_to(port);
    assert!(left <= LINGER_MAX, "{left} of {STREAMS} linger");
    eventually("all are gone", || open_sockets_to(port) == 0);
}

/// A program may announce its port before it listens there.
#[test]
fn a_connect_that_is_refused_tries_again_for_a_moment() {
    let (a, b) = (Side::new(), Side::new());
    let params = ConnectParams::default();
    let connects = || {
        let at = Bound::new(address(ANY)).expect("a port");
        let to = at.local_addr().expect("an address");
        let events = a.context.create_cm_channel().expect("a channel");
        a.qp.start_connect(to, &params, &events).expect("an attempt");
        let listener = b.context.listen_at(at, 4, &b.context.create_cm_channel().expect("one"));
        let listener = listener.expect("a listener");
        let request = loop {
            if let Some(request) = listener.next_request(Some(Duration::from_millis(10))) {
                break request;
            }
            if events.try_next().is_some() {
                return false;
            }
        };
        request.accept(&b.qp, &params).expect("a connection");
        common::connected(&events);
        a.qp.reset();
        b.qp.reset();
        true
    };
    for _ in 0..10 {
        // A busy machine may listen when the moment is over, but not each time.
        eventually("the client connects again", connects);
    }
    let nobody: SocketAddr = Bound::new(address(ANY)).expect("a port").local_addr().expect("one");
    let start = Instant::now();
    a.qp.connect(nobody, &params).expect_err("no program listens");
    assert!(start.elapsed() >= Duration::from_millis(50));
}

/// A peer by hand, and a side that has accepted it.
fn raw_pair(change: impl FnOnce(&mut QpConfig)) -> (Raw, Side) {
    let side = Side::with(change);
    let listener = side.listen();
    let mut peer = Raw::connect(listener.local_addr());
    peer.send(&request(CRC));
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept(&side.qp, &ConnectParams::default()).expect("a connection");
    peer.reply();
    (peer, side)
}

/// The ports of a peer's end and of the other one.
fn ports(peer: &Raw) -> [u16; 2] {
    [peer.0.local_addr(), peer.0.peer_addr()].map(|end| end.expect("an address").port())
}

/// A side has filled TCP: the peer reads nothing and has no room.
fn has_no_room(peer: &Raw) -> bool {
    let [ours, theirs] = ports(peer);
    tcp_end(theirs, ours).is_some_and(|end| end.asks_for_room)
}

/// A Send of zeros.
fn message(msn: u32, len: usize) -> Vec<u8> {
    let mut ulpdu = untagged(3, 0, msn, 0);
    ulpdu.resize(ulpdu.len() + len, 0);
    fpdu(&ulpdu)
}

/// What the kernel does for a program that ends with bytes unread.
fn reset(peer: Raw) {
    let socket = socket2::Socket::from(peer.0);
    socket.set_linger(Some(Duration::ZERO)).expect("an option");
}

#[test]
fn an_engine_counts_connections_their_ends_and_bytes() {
    let (a, b) = pair();
    b.receive(1, 1000);
    a.send(2, &[7; 1000]);
    b.success();
    a.success();
    a.qp.disconnect();
    eventually("both are over", || b.qp.end_reason().is_some() && a.qp.end_reason().is_some());
    assert_eq!(b.qp.end_reason(), Some(EndReason::Left));
    let (ours, theirs) = (a.context.counters(), b.context.counters());
    assert_eq!((ours.connections, ours.ended_in_order, ours.ended_by_loss), (1, 1, 0));
    assert_eq!((theirs.connections, theirs.ended_in_order, theirs.panics), (1, 1, 0));
    assert!((1000..2000).contains(&ours.sent_bytes), "{ours:?}");
    // The start-up's bytes that come with the first message are counted by neither.
    assert!((1000..2000).contains(&theirs.received_bytes), "{theirs:?}");
    assert!(theirs.sleeps > 0, "{theirs:?}");
}
