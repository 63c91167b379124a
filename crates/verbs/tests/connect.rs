//! Making and ending connections: what is negotiated, refused and bounded, and that programs may
//! use any threads and drop objects in any order.

mod common;

use common::{
    ANY, Side, address, at, bytes, connect, connect_with, connected, descriptors, ends, pair,
    pattern, take, threads,
};
use outboard_iwarp::startup::StartupError;
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, CmChannel, CmEventKind, ConnectError, ConnectParams, Context, OwnedBuf, Qp, QpConfig,
    QpState, SendOp, SgList, Status,
};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn params(change: impl FnOnce(&mut ConnectParams)) -> ConnectParams {
    let mut params = ConnectParams::default();
    change(&mut params);
    params
}

/// The next event, which must be a failed attempt.
fn failure(events: &CmChannel) -> ConnectError {
    match events.next(Some(PATIENCE)).expect("an event").kind {
        CmEventKind::Failed(error) => error,
        other => panic!("not failed: {other:?}"),
    }
}

#[test]
fn private_data_goes_both_ways() {
    for (revision, len) in [(2, 0), (2, 1), (2, 508), (1, 0), (1, 512)] {
        let (a, b) = (Side::new(), Side::new());
        let listener = b.listen();
        let events = a.context.create_cm_channel().expect("a channel");
        let ours = params(|p| {
            (p.private_data, p.revision) = (pattern(1, len), revision);
        });
        a.qp.start_connect(listener.local_addr(), &ours, &events).expect("an attempt");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        assert_eq!(request.private_data(), pattern(1, len));
        assert!(request.peer_addr().ip().is_loopback());
        let theirs = params(|p| p.private_data = pattern(2, len));
        request.accept(&b.qp, &theirs).expect("accepted");
        let agreed = connected(&events);
        assert_eq!((agreed.private_data, agreed.revision), (pattern(2, len), revision));
    }
}

#[test]
fn too_much_private_data_is_refused_before_anything_is_sent() {
    for (revision, len) in [(2, 509), (1, 513)] {
        let (a, b) = (Side::new(), Side::new());
        let listener = b.listen();
        let ours = params(|p| {
            (p.private_data, p.revision) = (vec![0; len], revision);
        });
        let refused = a.qp.connect(listener.local_addr(), &ours);
        let Err(ConnectError::Startup {
            source: StartupError::CallerPrivateData { found, .. },
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((found, a.qp.state()), (len, QpState::Idle));
        let events = a.context.create_cm_channel().expect("a channel");
        let plain = params(|p| p.revision = revision);
        a.qp.start_connect(listener.local_addr(), &plain, &events).expect("usable still");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        assert!(request.private_data().is_empty());
        let long = params(|p| p.private_data = vec![0; len]);
        let refused = request.accept(&b.qp, &long).expect_err("too long");
        assert!(matches!(refused.error, ConnectError::Startup { .. }), "{refused}");
        assert_eq!(b.qp.state(), QpState::Idle);
        drop(refused.into_request().expect("the peer is there"));
        assert!(matches!(failure(&events), ConnectError::Closed { .. }));
    }
}

#[test]
fn a_rejection_carries_private_data_and_leaves_the_queue_pair_usable() {
    for revision in [1, 2] {
        let (a, b) = (Side::new(), Side::new());
        let listener = b.listen();
        let events = a.context.create_cm_channel().expect("a channel");
        let ours = params(|p| p.revision = revision);
        a.qp.start_connect(listener.local_addr(), &ours, &events).expect("an attempt");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        request.reject(&pattern(5, 508)).expect("told");
        match failure(&events) {
            ConnectError::Rejected { private_data, .. } => {
                assert_eq!(private_data, pattern(5, 508))
            }
            other => panic!("{other}"),
        }
        assert_eq!(a.qp.state(), QpState::Idle);
        connect(&a, &b);
    }
}

#[test]
fn a_request_that_is_dropped_or_rejected_at_length_closes_the_connection() {
    let (a, b) = (Side::new(), Side::new());
    let listener = b.listen();
    let events = a.context.create_cm_channel().expect("a channel");
    for too_long in [false, true] {
        let plain = ConnectParams::default();
        a.qp.start_connect(listener.local_addr(), &plain, &events).expect("an attempt");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        if too_long {
            let refused = request.reject(&[0; 509]);
            assert!(matches!(refused, Err(ConnectError::Startup { .. })), "{refused:?}");
        } else {
            drop(request);
        }
        assert!(matches!(failure(&events), ConnectError::Closed { .. }));
    }
}

#[test]
fn revision_1_does_everything_but_negotiate_depths() {
    let (a, b) = (Side::new(), Side::new());
    let old = params(|p| p.revision = 1);
    let (ours, theirs) = connect_with(&a, &b, &old, &ConnectParams::default());
    assert_eq!((ours.revision, theirs.revision), (1, 1));
    let mr = b.register(64, Access::REMOTE);
    b.receive(1, 8);
    a.send(1, b"first");
    assert_eq!(bytes(b.success()), b"first");
    a.success();
    a.carry_out(SendOp::Read { from: at(&mr, 0) }, OwnedBuf::zeroed(64));
    a.receive(2, 8);
    b.send(2, b"back");
    assert_eq!(bytes(a.success()), b"back");
}

#[test]
fn read_depths_are_the_lesser_of_both_sides() {
    for ((ird_a, ord_a), (ird_b, ord_b)) in
        [((4, 7), (9, 3)), ((1, 0), (0, 1)), ((16, 16), (2, 32))]
    {
        let (a, b) = (Side::new(), Side::new());
        let ours = params(|p| (p.ird, p.ord) = (ird_a, ord_a));
        let theirs = params(|p| (p.ird, p.ord) = (ird_b, ord_b));
        let (at_a, at_b) = connect_with(&a, &b, &ours, &theirs);
        assert_eq!((at_a.ord, at_b.ord), (ord_a.min(ird_b), ord_b.min(ird_a)));
        assert!(at_a.ird >= at_b.ord && at_b.ird >= at_a.ord, "{at_a:?} {at_b:?}");
    }
}

#[test]
fn the_responder_may_speak_first_when_the_initiator_promised_to_open() {
    let (a, b) = pair();
    a.receive(1, 8);
    b.send(2, b"first");
    assert_eq!(bytes(a.success()), b"first");
    // Without the promise it waits for a moment, then sends.
    let (a, b) = (Side::new(), Side::new());
    let quiet = params(|p| p.peer_to_peer = false);
    connect_with(&a, &b, &quiet, &ConnectParams::default());
    a.receive(1, 8);
    b.send(2, b"first");
    assert_eq!(bytes(a.success()), b"first");
}

#[test]
fn a_peer_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind(ANY).expect("a port");
    let peer = silent.local_addr().expect("an address");
    let a = Side::new();
    // Begun sooner and with more time: it is not given up yet.
    let patient = Side::in_domain(a.context.clone(), a.pd.clone(), |_| {});
    let events = a.context.create_cm_channel().expect("a channel");
    let params = |timeout| params(|p| p.timeout = timeout);
    patient.qp.start_connect(peer, &params(PATIENCE), &events).expect("an attempt");
    let _patients = silent.accept().expect("a stream");
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let failed = a.qp.connect(peer, &params(limit));
    assert!(matches!(failed, Err(ConnectError::TimedOut { reached: true, .. })), "{failed:?}");
    assert!(began.elapsed() >= limit);
    assert_eq!((a.qp.state(), patient.qp.state()), (QpState::Idle, QpState::Connecting));
    assert!(events.try_next().is_none());
    // The other end was told: its stream has the Request, then the end.
    let (mut stream, _) = silent.accept().expect("a stream");
    let mut said = Vec::new();
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let _reset = stream.read_to_end(&mut said);
    assert!(said.starts_with(b"MPA ID Req Frame"));
}

#[test]
fn a_port_without_a_listener_is_reported_as_unreachable() {
    let free = TcpListener::bind(ANY).expect("a port").local_addr().expect("an address");
    let a = Side::new();
    for _ in 0..3 {
        let failed = a.qp.connect(free, &ConnectParams::default());
        let Err(ConnectError::Unreachable { peer, .. }) = failed else { panic!("{failed:?}") };
        assert_eq!((peer, a.qp.state()), (free, QpState::Idle));
    }
}

#[test]
fn a_dropped_listener_listens_no_more_but_its_requests_stay_good() {
    let (a, b, c) = (Side::new(), Side::new(), Side::new());
    let listener = b.listen();
    let peer = listener.local_addr();
    let events = a.context.create_cm_channel().expect("a channel");
    let plain = ConnectParams::default();
    a.qp.start_connect(peer, &plain, &events).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    drop(listener);
    request.accept(&b.qp, &plain).expect("accepted");
    connected(&events);
    eventually("the port is closed", || {
        matches!(c.qp.connect(peer, &plain), Err(ConnectError::Unreachable { .. }))
    });
    let again = b.context.listen(peer, 4).expect("the address is free again");
    assert_eq!(again.local_addr(), peer);
}

#[test]
fn a_small_backlog_serves_everybody_in_the_end() {
    const CONNECTORS: usize = 50;
    let server = Side::new();
    let listener = server.context.listen(address(ANY), 2).expect("a listener");
    let client = Side::new();
    let events = client.context.create_cm_channel().expect("a channel");
    let patient = params(|p| p.timeout = PATIENCE);
    let clients: Vec<Side> = (0..CONNECTORS)
        .map(|_| Side::in_domain(client.context.clone(), client.pd.clone(), |_| {}))
        .collect();
    for side in &clients {
        side.qp.start_connect(listener.local_addr(), &patient, &events).expect("an attempt");
    }
    let mut servers = Vec::new();
    while servers.len() < CONNECTORS {
        let request = listener.next_request(Some(PATIENCE)).expect("no request is lost");
        let side = Side::in_domain(server.context.clone(), server.pd.clone(), |_| {});
        request.accept(&side.qp, &patient).expect("accepted");
        servers.push(side);
    }
    for _ in 0..CONNECTORS {
        connected(&events);
    }
}

#[test]
fn a_backlog_holds_no_more_than_it_may() {
    let server = Side::new();
    let requests = server.context.create_cm_channel().expect("a channel");
    let listener = server.context.listen_on(address(ANY), 2, &requests).expect("a listener");
    let client = Side::new();
    let events = client.context.create_cm_channel().expect("a channel");
    let clients: Vec<Side> = (0..5)
        .map(|_| Side::in_domain(client.context.clone(), client.pd.clone(), |_| {}))
        .collect();
    let plain = ConnectParams::default();
    for side in &clients {
        side.qp.start_connect(listener.local_addr(), &plain, &events).expect("an attempt");
    }
    let mut held = vec![requests.next(Some(PATIENCE)), requests.next(Some(PATIENCE))];
    let third = requests.next(Some(Duration::from_millis(200)));
    assert!(third.is_none(), "two places allow two requests without an answer");
    // An answer, here a refusal, makes room.
    held.pop();
    assert!(requests.next(Some(PATIENCE)).is_some());
}

#[test]
fn one_sided_operations_are_served_while_the_target_sleeps_or_computes() {
    let (a, b) = pair();
    let mr = b.register(4096, Access::REMOTE);
    let stop = AtomicBool::new(false);
    let served = |what: &str| {
        for i in 0..50u64 {
            a.carry_out(SendOp::Write { to: at(&mr, 8) }, SgList::copied(&i.to_be_bytes()));
            let read = a.carry_out(SendOp::Read { from: at(&mr, 8) }, OwnedBuf::zeroed(8));
            assert_eq!(bytes(read), i.to_be_bytes(), "{what}");
        }
    };
    // The target's program has just polled, so its engine had stood down for it.
    b.cq.poll(&mut Vec::new(), 1).expect("no overflow");
    served("asleep");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100_000 {
                b.cq.poll(&mut Vec::new(), 1).expect("no overflow");
            }
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        served("computing");
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn threads_wait_on_different_queues_of_one_context() {
    const ROUNDS: u64 = 300;
    let (client, server) = (Side::new(), Side::new());
    let connections: Vec<(Side, Side)> = (0..4)
        .map(|_| {
            let a = Side::in_domain(client.context.clone(), client.pd.clone(), |_| {});
            let b = Side::in_domain(server.context.clone(), server.pd.clone(), |_| {});
            connect(&a, &b);
            (a, b)
        })
        .collect();
    let ping = |side: &Side, first: bool| {
        for i in 0..ROUNDS {
            side.receive(i, 8);
            if first {
                side.send(i, &i.to_be_bytes());
            }
            let got = take(&side.cq, if first { 2 } else { 1 });
            assert!(got.iter().all(|done| done.status == Status::Success));
            if !first {
                side.send(i, &i.to_be_bytes());
                take(&side.cq, 1);
            }
        }
    };
    for (_, b) in &connections {
        // The first message must find its receive whichever side is faster: the stream stalls
        // until the receive is posted.
        assert_eq!(b.qp.state(), QpState::Rts);
    }
    std::thread::scope(|scope| {
        for (a, b) in &connections {
            scope.spawn(move || ping(a, true));
            scope.spawn(move || ping(b, false));
        }
    });
}

#[test]
fn one_context_connects_to_itself() {
    let a = Side::new();
    let b = Side::in_domain(a.context.clone(), a.pd.clone(), |_| {});
    connect(&a, &b);
    let mr = b.register(100_000, Access::REMOTE);
    a.carry_out(SendOp::Write { to: at(&mr, 0) }, OwnedBuf::from(pattern(1, 100_000)));
    let read = a.carry_out(SendOp::Read { from: at(&mr, 0) }, OwnedBuf::zeroed(100_000));
    assert!(bytes(read) == pattern(1, 100_000));
}

#[test]
fn dropping_everything_in_the_middle_of_traffic_leaks_nothing() {
    if std::env::var_os("OUTBOARD_DROP_TEST").is_none() {
        // Other tests have descriptors and threads of their own: this one gets a process.
        let this = std::env::current_exe().expect("a path");
        let name = "dropping_everything_in_the_middle_of_traffic_leaks_nothing";
        let mut alone = std::process::Command::new(this);
        alone.args([name, "--exact", "--test-threads=1"]).env("OUTBOARD_DROP_TEST", "1");
        let output = alone.output().expect("this test again");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    drop_in_the_middle(0);
    let before = (descriptors(), threads());
    (0..12).for_each(drop_in_the_middle);
    eventually("descriptors and threads are as before", || (descriptors(), threads()) == before);
}

/// Writes, Reads and Sends are under way in both directions when all objects are dropped, in one of
/// several orders.
fn drop_in_the_middle(order: usize) {
    let (a, b) = (Side::new(), Side::new());
    let crc = order.is_multiple_of(2);
    connect_with(&a, &b, &params(|p| p.crc = crc), &params(|p| p.crc = crc));
    let (here, there) = (a.register(8 << 20, Access::REMOTE), b.register(8 << 20, Access::REMOTE));
    let pending = b.context.listen(address(ANY), 4).expect("a listener");
    let third = Side::new();
    let events = third.context.create_cm_channel().expect("a channel");
    third.qp.start_connect(pending.local_addr(), &params(|_| {}), &events).expect("an attempt");
    for (from, mr) in [(&a, &there), (&b, &here)] {
        for i in 0..8 {
            from.post(i, SendOp::Write { to: at(mr, 0) }, OwnedBuf::zeroed(8 << 20));
            from.post(i, SendOp::Read { from: at(mr, 0) }, OwnedBuf::zeroed(8 << 20));
            from.send(i, b"nobody receives this");
        }
    }
    match order % 4 {
        0 => drop((a, b, here, there, pending, third)),
        1 => drop((here, there, third, b, a, pending)),
        2 => {
            // Another thread polls and waits at the same time.
            let (cq, context) = (a.cq.clone(), b.context.clone());
            std::thread::scope(|scope| {
                scope.spawn(|| cq.wait(&mut Vec::new(), 64, Some(Duration::from_millis(20))));
                scope.spawn(|| context.wait_until(Some(Duration::from_millis(20)), || false));
                drop((a, b, here, there, pending, third));
            });
        }
        _ => {
            let b = std::thread::spawn(move || drop((b, pending, there)));
            drop((a, here, events, third));
            b.join().expect("dropped");
        }
    }
}

#[test]
fn a_dropped_queue_pair_ends_the_connection_in_order() {
    /// Less than any limit of time after which a connection that is left ends anyway.
    const AT_ONCE: Duration = Duration::from_secs(1);
    let takes = || {
        let (a, b) = pair();
        (0..3).for_each(|i| b.receive(i, 8));
        a.send(1, b"last");
        a.success();
        let began = Instant::now();
        // The context stays: its end would close the socket.
        drop(a.qp);
        let mut done = b.take(3);
        let took = began.elapsed();
        let expected = [(0, Status::Success), (1, Status::Flushed), (2, Status::Flushed)];
        assert_eq!(ends(&done), expected);
        assert_eq!(bytes(done.remove(0)), b"last");
        took
    };
    // On a busy machine it is seen late, but not each time.
    assert!((0..5).any(|_| takes() < AT_ONCE), "the peer is told at once");
}

#[test]
fn a_connection_that_tcp_loses_is_over() {
    let b = Side::new();
    let listener = b.listen();
    let mut raw = TcpStream::connect(listener.local_addr()).expect("a stream");
    use std::io::Write;
    raw.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").expect("sent");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    let later = b.context.create_cm_channel().expect("a channel");
    request.accept_on(&b.qp, &ConnectParams::default(), &later).expect("accepted");
    b.receive(1, 8);
    drop(raw);
    assert_eq!(ends(&b.take(1)), [(1, Status::Flushed)]);
    eventually("it is over", || b.qp.state() == QpState::Error);
    let kinds: Vec<String> = std::iter::from_fn(|| later.next(Some(Duration::from_millis(200))))
        .map(|event| format!("{:?}", event.kind))
        .collect();
    assert_eq!(kinds, ["Disconnected"]);
}

#[test]
fn an_attempt_is_given_up_by_disconnect_and_by_reset() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer = silent.local_addr().expect("its address");
    let context = Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(4));
    let qp = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
    let channel = context.create_cm_channel().expect("a channel");
    for give_up in [Qp::disconnect, Qp::reset] {
        qp.start_connect(peer, &ConnectParams::default(), &channel).expect("begun");
        assert_eq!(qp.state(), QpState::Connecting);
        give_up(&qp);
        assert_eq!(qp.state(), QpState::Idle);
        let event = channel.next(Some(PATIENCE)).expect("an end");
        assert!(
            matches!(event.kind, CmEventKind::Failed(ConnectError::Cancelled { .. })),
            "{event:?}"
        );
    }
}

#[test]
fn a_peer_that_accepts_and_leaves_is_seen_in_that_order() {
    let context = Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(64));
    let listener = context.listen("127.0.0.1:0".parse().expect("an address"), 4).expect("a port");
    let channel = context.create_cm_channel().expect("a channel");
    for _ in 0..50 {
        let client = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
        let server = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
        let params = ConnectParams::default();
        client.start_connect(listener.local_addr(), &params, &channel).expect("begun");
        let request = listener.next_request(Some(Duration::from_secs(5))).expect("a request");
        request.accept(&server, &params).expect("accepted");
        server.disconnect();
        let kinds = [(); 2].map(|()| channel.next(Some(Duration::from_secs(5))).expect("two").kind);
        assert!(matches!(kinds[0], CmEventKind::Connected(_)), "{kinds:?}");
        assert!(matches!(kinds[1], CmEventKind::Disconnected), "{kinds:?}");
    }
}
