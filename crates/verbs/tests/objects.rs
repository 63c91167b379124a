//! What the objects promise beside moving data: queues and their limits, events, states, and the
//! state of requests and memory when a connection ends.

mod common;

use common::{SEND, Side, address, at, bytes, connect, connect_with, ends, pair, pattern, take};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, AsyncEvent, CmEventKind, CompChannel, ConnectError, ConnectParams, Context, CqOverflow,
    NotifyOn, OwnedBuf, PostError, QpConfig, QpState, RecvRequest, Refused, RnrPolicy, Segment,
    SendOp, SendRequest, SgList, Status, VerbsError,
};
use outboard_wire::terminate::TerminateCode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether a descriptor is readable within this time.
fn readable(fd: impl AsFd, within: Duration) -> bool {
    let limit = Timespec::try_from(within).expect("short");
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("poll") == 1
}

/// Readable at all, given time.
fn becomes_readable(fd: impl AsFd) -> bool {
    readable(fd, PATIENCE)
}

/// Not readable, nor a moment later.
fn stays_unreadable(fd: impl AsFd) -> bool {
    !readable(fd, Duration::from_millis(50))
}

/// The next asynchronous event.
fn async_event(context: &Context) -> AsyncEvent {
    assert!(becomes_readable(context.async_fd()), "no asynchronous event");
    context.poll_async_event().expect("readable means an event")
}

fn receive_request(wr_id: u64, len: usize) -> RecvRequest {
    RecvRequest { wr_id, local: OwnedBuf::zeroed(len).into() }
}

#[test]
fn a_completion_queue_is_not_resized_below_its_completions() {
    let context = Context::open().expect("a context");
    let a = Side::with(|_| {});
    let pd = context.alloc_pd();
    let cq = context.create_cq(2);
    let b = Side::in_domain(context, pd, |config| config.recv_cq = cq.clone());
    connect(&a, &b);
    cq.resize(4).expect("larger");
    (0..4).for_each(|i| b.receive(i, 8));
    (0..4).for_each(|i| a.send(i, b"x"));
    a.take(4);
    // The Sends have been placed when a Read behind them is answered, and have completed when the
    // queue pair is at rest.
    let source = b.register(8, Access::REMOTE_READ);
    a.carry_out(SendOp::Read { from: at(&source, 0) }, OwnedBuf::zeroed(8));
    assert_eq!(b.qp.state(), QpState::Rts);
    for capacity in [0, 3] {
        let refused = cq.resize(capacity);
        assert!(matches!(refused, Err(VerbsError::BadParameter { .. })), "{refused:?}");
    }
    assert_eq!(take(&cq, 4).len(), 4);
    cq.resize(1).expect("empty again");
}

#[test]
fn an_overflow_is_reported_after_the_queue_is_drained() {
    let context = Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(3));
    let b = Side::in_domain(context, pd, |config| config.recv_cq = cq.clone());
    let a = Side::new();
    connect(&a, &b);
    (0..5).for_each(|i| b.receive(i, 8));
    // All at once: the connection is over after the fourth.
    let mut five = (0..5).map(|i| SendRequest::new(i, SEND, SgList::copied(b"x"))).collect();
    a.qp.post_send_batch(&mut five).expect("room");
    let overflow = AsyncEvent::CqOverflow { cq: cq.number(), qp: b.qp.number() };
    assert_eq!(async_event(&b.context), overflow);
    let mut done = Vec::new();
    assert_eq!(cq.poll(&mut done, 16), Ok(3));
    assert_eq!(ends(&done), [0, 1, 2].map(|i| (i, Status::Success)));
    let lost = Err(CqOverflow { capacity: 3 });
    assert_eq!(cq.poll(&mut done, 16), lost);
    assert_eq!(cq.wait(&mut done, 16, Some(PATIENCE)), lost);
    eventually("the peer sees the end", || a.qp.state() == QpState::Error);
    assert_ne!(b.qp.state(), QpState::Rts);
}

#[test]
fn a_shared_receive_queue_serves_two_queue_pairs_and_raises_its_limit_event() {
    let context = Context::open().expect("a context");
    let pd = context.alloc_pd();
    let srq = pd.create_srq(4, 4);
    let servers = [(); 2].map(|()| {
        Side::in_domain(context.clone(), pd.clone(), |config| config.srq = Some(srq.clone()))
    });
    let clients = [(); 2].map(|()| Side::new());
    clients.iter().zip(&servers).for_each(|(client, server)| connect(client, server));
    for i in 0..4 {
        srq.post_recv(receive_request(i, 8)).expect("room");
    }
    let Refused { error, request: back } = srq.post_recv(receive_request(9, 8)).expect_err("full");
    assert_eq!((error, back.wr_id), (PostError::QueueFull { depth: 4 }, 9));
    srq.arm_limit(2);
    for (i, client) in clients.iter().chain(&clients).enumerate() {
        client.send(0, &[u8::try_from(i).expect("small")]);
        let server = &servers[i % 2];
        let done = server.success();
        assert_eq!((done.wr_id, done.qp), (i as u64, server.qp.number()));
        assert_eq!(bytes(done), [u8::try_from(i).expect("small")]);
        assert_eq!(srq.len(), 3 - i);
    }
    assert!(srq.is_empty());
    assert_eq!(async_event(&context), AsyncEvent::SrqLimit { srq: srq.number() });
    assert!(stays_unreadable(context.async_fd()), "one event for each arming");
}

#[test]
fn a_shared_queue_raises_its_limit_event_when_messages_come_together() {
    let context = Context::open().expect("a context");
    let pd = context.alloc_pd();
    let srq = pd.create_srq(16, 4);
    let server =
        Side::in_domain(context.clone(), pd.clone(), |config| config.srq = Some(srq.clone()));
    let client = Side::new();
    connect(&client, &server);
    for wr_id in 0..16 {
        srq.post_recv(receive_request(wr_id, 8)).expect("room");
    }
    srq.arm_limit(8);
    let send = |wr_id| SendRequest::new(wr_id, SEND, SgList::copied(&[1; 8]));
    client.qp.post_send_batch(&mut (0..16).map(send).collect()).expect("room");
    server.take(16);
    assert_eq!(async_event(&context), AsyncEvent::SrqLimit { srq: srq.number() });
    assert!(stays_unreadable(context.async_fd()), "one event for each arming");
}

#[test]
fn queue_pairs_that_wait_for_a_shared_receive_go_on_when_one_is_posted() {
    let context = Context::open().expect("a context");
    let pd = context.alloc_pd();
    let srq = pd.create_srq(16, 4);
    let cq = context.create_cq(64);
    let servers = [(); 3].map(|()| {
        Side::in_domain(context.clone(), pd.clone(), |config| {
            config.srq = Some(srq.clone());
            config.recv_cq = cq.clone();
        })
    });
    let clients = [(); 3].map(|()| Side::new());
    clients.iter().zip(&servers).for_each(|(client, server)| connect(client, server));
    for round in 0..20 {
        clients.iter().for_each(|client| client.send(round, b"stall"));
        let nothing = cq.wait(&mut Vec::new(), 1, Some(Duration::from_millis(5)));
        assert_eq!(nothing, Ok(0));
        for i in 0..3 {
            srq.post_recv(receive_request(i, 8)).expect("room");
        }
        let mut qps: Vec<u32> = take(&cq, 3).iter().map(|done| done.qp).collect();
        qps.sort_unstable();
        assert_eq!(qps, servers.each_ref().map(|server| server.qp.number()));
    }
}

/// Two connected sides of which the second one's receives complete on a channel.
fn pair_with_channel() -> (Side, Side, CompChannel) {
    let context = Context::open().expect("a context");
    let channel = context.create_comp_channel().expect("a channel");
    let cq = context.create_cq_on(64, &channel).expect("a queue");
    let pd = context.alloc_pd();
    let mut b = Side::in_domain(context, pd, |config| config.recv_cq = cq.clone());
    b.cq = cq;
    let a = Side::new();
    connect(&a, &b);
    (0..8).for_each(|i| b.receive(i, 8));
    (a, b, channel)
}

#[test]
fn an_armed_queue_makes_one_event_and_a_disarmed_one_none() {
    let (a, b, channel) = pair_with_channel();
    a.send(0, b"x");
    assert!(stays_unreadable(&channel), "never armed");
    b.success();
    b.cq.request_notify(NotifyOn::Any);
    a.send(0, b"x");
    a.send(0, b"x");
    assert!(becomes_readable(&channel));
    assert_eq!(channel.try_next(), Some(b.cq.number()));
    assert!(stays_unreadable(&channel), "one event for one arming");
    assert_eq!(channel.try_next(), None);
    b.cq.request_notify(NotifyOn::Any);
    a.send(0, b"x");
    assert_eq!(channel.next(Some(PATIENCE)), Some(b.cq.number()));
    assert_eq!(channel.next(Some(Duration::from_millis(20))), None);
    assert_eq!(b.take(3).len(), 3);
}

#[test]
fn earlier_completions_make_an_event_only_when_recalled() {
    let (a, b, channel) = pair_with_channel();
    b.cq.request_notify(NotifyOn::Any);
    a.send(0, b"x");
    assert_eq!(channel.next(Some(PATIENCE)), Some(b.cq.number()));
    b.cq.recall(false);
    assert_eq!(channel.try_next(), None, "not armed");
    b.cq.request_notify(NotifyOn::Any);
    assert_eq!(channel.try_next(), None, "nothing new");
    b.cq.recall(false);
    assert_eq!(channel.try_next(), Some(b.cq.number()));
    b.success();
    b.cq.request_notify(NotifyOn::Any);
    b.cq.recall(false);
    assert_eq!(channel.try_next(), None, "nothing left behind");
    b.cq.recall(true);
    assert_eq!(channel.try_next(), Some(b.cq.number()), "kept elsewhere");
}

#[test]
fn a_queue_armed_for_solicited_completions_ignores_others_but_not_errors() {
    let (a, b, channel) = pair_with_channel();
    b.cq.request_notify(NotifyOn::SolicitedOnly);
    a.send(0, b"x");
    assert!(stays_unreadable(&channel), "not solicited");
    let solicited = SendRequest { solicited: true, ..SendRequest::new(0, SEND, SgList::new()) };
    a.qp.post_send(solicited).expect("room");
    assert!(becomes_readable(&channel), "solicited");
    assert_eq!(channel.try_next(), Some(b.cq.number()));
    b.take(2);
    b.cq.request_notify(NotifyOn::SolicitedOnly);
    a.qp.disconnect();
    assert!(becomes_readable(&channel), "flushed receives");
}

/// Two threads may ask for events of one queue.
#[test]
fn asking_for_solicited_completions_takes_nothing_back() {
    let (a, b, channel) = pair_with_channel();
    b.cq.request_notify(NotifyOn::Any);
    b.cq.request_notify(NotifyOn::SolicitedOnly);
    a.send(0, b"x");
    assert!(becomes_readable(&channel), "any was asked for before");
    assert_eq!(channel.try_next(), Some(b.cq.number()));
    b.success();
    b.cq.request_notify(NotifyOn::SolicitedOnly);
    a.send(0, b"x");
    assert!(stays_unreadable(&channel), "that event was the one");
    b.cq.request_notify(NotifyOn::Any);
    a.send(0, b"x");
    assert!(becomes_readable(&channel), "any is asked for now");
}

#[test]
fn channels_of_connections_and_asynchronous_events_can_be_polled() {
    let (a, b) = (Side::new(), Side::new());
    let requests = b.context.create_cm_channel().expect("a channel");
    let events = a.context.create_cm_channel().expect("a channel");
    let later = b.context.create_cm_channel().expect("a channel");
    let listener = b.context.listen_on(address(common::ANY), 4, &requests).expect("a listener");
    assert!(stays_unreadable(&requests));
    let params = ConnectParams::default();
    a.qp.start_connect(listener.local_addr(), &params, &events).expect("an attempt");
    assert!(becomes_readable(&requests));
    let Some(CmEventKind::ConnectRequest(request)) = requests.try_next().map(|event| event.kind)
    else {
        panic!("no request");
    };
    request.accept_on(&b.qp, &params, &later).expect("accepted");
    assert!(becomes_readable(&events));
    let event = events.try_next().expect("an event");
    assert_eq!(event.qp, a.qp.number());
    assert!(matches!(event.kind, CmEventKind::Connected(_)));
    let established = later.next(Some(PATIENCE)).expect("an event");
    assert!(matches!(established.kind, CmEventKind::Established), "{established:?}");
    a.qp.disconnect();
    for channel in [&events, &later] {
        assert!(becomes_readable(channel));
        let event = channel.try_next().expect("an event");
        assert!(matches!(event.kind, CmEventKind::Disconnected), "{event:?}");
    }
    assert!(stays_unreadable(a.context.async_fd()) && stays_unreadable(b.context.async_fd()));
}

#[test]
fn a_queue_pair_goes_through_its_states() {
    let (a, b) = (Side::new(), Side::new());
    assert_eq!(a.qp.state(), QpState::Idle);
    let listener = b.listen();
    let events = a.context.create_cm_channel().expect("a channel");
    let params = ConnectParams::default();
    a.qp.start_connect(listener.local_addr(), &params, &events).expect("an attempt");
    assert_eq!(a.qp.state(), QpState::Connecting);
    let twice = a.qp.start_connect(listener.local_addr(), &params, &events);
    assert!(matches!(twice, Err(ConnectError::Verbs(VerbsError::WrongState { .. }))), "{twice:?}");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept(&b.qp, &params).expect("accepted");
    common::connected(&events);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
    a.qp.disconnect();
    assert_ne!(a.qp.state(), QpState::Rts);
    eventually("both are over", || {
        [a.qp.state(), b.qp.state()] == [QpState::Error, QpState::Error]
    });
}

#[test]
fn a_terminate_shows_in_the_states_of_both() {
    let (a, b) = pair();
    let foreign = a.register(8, Access::REMOTE_READ);
    a.post(1, SendOp::Read { from: at(&foreign, 0) }, OwnedBuf::zeroed(8));
    assert_eq!(ends(&a.take(1)), [(1, Status::RemoteAccess)]);
    let code = TerminateCode::PROTECTION_INVALID_STAG;
    let told = AsyncEvent::PeerTerminated { qp: a.qp.number(), code };
    assert_eq!(async_event(&a.context), told);
    assert_eq!(async_event(&b.context), AsyncEvent::PeerFault { qp: b.qp.number(), code });
    eventually("both are over", || {
        [a.qp.state(), b.qp.state()] == [QpState::Error, QpState::Error]
    });
}

#[test]
fn posting_to_full_queues_gives_the_request_back() {
    let a = Side::with(|config| {
        config.send_depth = 3;
        config.recv_depth = 2;
        config.max_sge = 2;
    });
    let b = Side::new();
    let Refused { error, request: back } =
        a.qp.post_send(SendRequest::new(5, SEND, SgList::new())).expect_err("idle");
    assert_eq!((error, back.wr_id), (PostError::NotConnected, 5));
    connect(&a, &b);
    (0..3).for_each(|i| b.receive(i, 8));
    let mut batch: Vec<_> =
        (0..5).map(|i| SendRequest::new(i, SEND, SgList::copied(b"x"))).collect();
    assert_eq!(a.qp.post_send_batch(&mut batch), Err(PostError::QueueFull { depth: 3 }));
    assert_eq!(batch.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(a.take(3).len(), 3);
    assert_eq!(b.take(3).len(), 3);
    let mut batch: Vec<_> = (0..4).map(|i| receive_request(i, 8)).collect();
    assert_eq!(a.qp.post_recv_batch(&mut batch), Err(PostError::QueueFull { depth: 2 }));
    assert_eq!(batch.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [2, 3]);
    let pieces = || {
        SgList::from(vec![
            OwnedBuf::zeroed(1).into(),
            OwnedBuf::zeroed(1).into(),
            OwnedBuf::zeroed(1).into(),
        ])
    };
    let too_long = PostError::TooLarge {
        what: "the number of segments in the local list",
        found: 3,
        limit: 2,
    };
    let Refused { error, request: back } =
        a.qp.post_send(SendRequest::new(6, SEND, pieces())).expect_err("long");
    assert_eq!((error, back.local.segment_count()), (too_long, 3));
    let receive = RecvRequest { wr_id: 1, local: pieces() };
    assert_eq!(a.qp.post_recv(receive).expect_err("long").error, too_long);
}

#[test]
fn atomics_need_eight_bytes_and_an_ord() {
    let (a, b) = (Side::new(), Side::new());
    let params = ConnectParams { ord: 0, ..ConnectParams::default() };
    connect_with(&a, &b, &params, &params);
    let mr = b.register(8, Access::REMOTE);
    let read = SendRequest::new(1, SendOp::Read { from: at(&mr, 0) }, SgList::new());
    assert_eq!(a.qp.post_send(read).expect_err("no ORD").error, PostError::NoReads);
    let (a, _b) = pair();
    let add = SendOp::FetchAdd { at: at(&mr, 0), add: 1, mask: 0 };
    let short = SendRequest::new(1, add, OwnedBuf::zeroed(7).into());
    let refused = a.qp.post_send(short).expect_err("short").error;
    assert_eq!(refused, PostError::AtomicResult { found: 7 });
}

#[test]
fn unsignaled_requests_complete_only_when_they_fail() {
    let (a, b) = pair();
    (0..4).for_each(|i| b.receive(i, 8));
    let unsignaled = |wr_id| SendRequest {
        signaled: false,
        ..SendRequest::new(wr_id, SEND, SgList::copied(b"x"))
    };
    a.qp.post_send(unsignaled(1)).expect("room");
    a.send(2, b"x");
    a.qp.post_send(unsignaled(3)).expect("room");
    assert_eq!(ends(&a.take(1)), [(2, Status::Success)]);
    b.take(3);
    a.stays_quiet();
    let foreign = a.register(8, Access::REMOTE_READ);
    let read = SendOp::Read { from: at(&foreign, 0) };
    let failing =
        SendRequest { signaled: false, ..SendRequest::new(4, read, OwnedBuf::zeroed(8).into()) };
    a.qp.post_send(failing).expect("room");
    assert_eq!(ends(&a.take(1)), [(4, Status::RemoteAccess)]);

    let all = Side::with(|config| config.signal_all = true);
    let b = Side::new();
    connect(&all, &b);
    b.receive(1, 8);
    all.qp.post_send(unsignaled(5)).expect("room");
    assert_eq!(ends(&all.take(1)), [(5, Status::Success)]);
}

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    const LARGE: usize = 32 << 20;
    let (a, b) = pair();
    let mr = b.register(LARGE, Access::REMOTE);
    let last = at(&mr, LARGE as u64 - 8);
    let read =
        SendRequest::new(1, SendOp::Read { from: at(&mr, 0) }, OwnedBuf::zeroed(LARGE).into());
    let write = SendRequest {
        fence: true,
        ..SendRequest::new(2, SendOp::Write { to: last }, SgList::copied(&[0xEE; 8]))
    };
    a.qp.post_send_batch(&mut vec![read, write]).expect("room");
    let mut done = a.take(2);
    assert_eq!(ends(&done), [(1, Status::Success), (2, Status::Success)]);
    let data = bytes(done.remove(0));
    assert_eq!(data[LARGE - 8..], [0; 8], "the Write overtook the Read's response");
}

#[test]
fn copied_data_may_change_after_posting() {
    let (a, b) = pair();
    b.receive(1, 100);
    let mut data = pattern(1, 100);
    a.send(1, &data);
    data.fill(0);
    assert_eq!(bytes(b.success()), pattern(1, 100));
    a.success();
}

#[test]
fn unfinished_requests_are_flushed_in_order_at_the_end() {
    let (a, b) = pair();
    (0..5).for_each(|i| b.receive(i, 64));
    a.send(1, b"x");
    assert_eq!(ends(&a.take(1)), [(1, Status::Success)]);
    assert_eq!(ends(&b.take(1)), [(0, Status::Success)]);
    // The peer has no receive for what comes now: it stays unfinished.
    (0..5).for_each(|i| a.receive(10 + i, 64));
    a.qp.disconnect();
    let flushed: Vec<_> = (10..15).map(|i| (i, Status::Flushed)).collect();
    assert_eq!(ends(&a.take(5)), flushed);
    let flushed: Vec<_> = (1..5).map(|i| (i, Status::Flushed)).collect();
    assert_eq!(ends(&b.take(4)), flushed);
    let Refused { error, .. } =
        a.qp.post_send(SendRequest::new(1, SEND, SgList::new())).expect_err("over");
    assert_eq!(error, PostError::NotConnected);
    a.receive(20, 64);
    assert_eq!(ends(&a.take(1)), [(20, Status::Flushed)], "a late receive is flushed at once");
}

#[test]
fn requests_that_wait_for_a_response_are_flushed_when_the_peer_goes() {
    let (a, b) = (Side::new(), Side::new());
    let one = ConnectParams { ord: 1, ..ConnectParams::default() };
    connect_with(&a, &b, &one, &one);
    let mr = b.register(64 << 20, Access::REMOTE_READ);
    for i in 0..4 {
        a.post(i, SendOp::Read { from: at(&mr, 0) }, OwnedBuf::zeroed(64 << 20));
    }
    drop(b.qp);
    let done = a.take(4);
    assert_eq!(done[3].status, Status::Flushed);
    assert_eq!(done[3].local.len(), 64 << 20, "the buffer comes back");
}

#[test]
fn a_queue_pair_is_reset_and_connected_again() {
    let a = Side::new();
    let params = ConnectParams::default();
    for round in 0..3 {
        let b = Side::new();
        connect_with(&a, &b, &params, &params);
        b.receive(1, 64);
        a.receive(2, 64);
        a.send(3, &pattern(round, 64));
        assert_eq!(bytes(b.success()), pattern(round, 64));
        a.success();
        a.qp.reset();
        assert_eq!(a.qp.state(), QpState::Idle);
        assert_eq!(ends(&a.take(1)), [(2, Status::Flushed)]);
        eventually("the peer sees the end", || b.qp.state() == QpState::Error);
    }
}

#[test]
fn after_deregistration_a_writing_peer_changes_nothing() {
    for (round, crc) in [true, false, true, false].into_iter().enumerate() {
        let (a, b) = (Side::new(), Side::new());
        let params = ConnectParams { crc, ..ConnectParams::default() };
        connect_with(&a, &b, &params, &params);
        let mr = b.register(1 << 20, Access::REMOTE_WRITE);
        let (region, to) = (mr.memory().clone(), at(&mr, 0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_until_refused(&a, to, &over));
            let busy = || region.snapshot(0..1).is_ok_and(|byte| byte != [0]);
            assert!(b.context.wait_until(Some(PATIENCE), busy), "the peer writes");
            std::thread::sleep(Duration::from_micros(700 * round as u64));
            mr.deregister().expect("registered");
            let before = region.snapshot(0..region.len()).expect("inside");
            eventually("the writer is refused", || over.load(Ordering::SeqCst));
            assert!(region.snapshot(0..region.len()).expect("inside") == before, "crc {crc}");
        });
        let fault =
            AsyncEvent::PeerFault { qp: b.qp.number(), code: TerminateCode::TAGGED_INVALID_STAG };
        assert_eq!(async_event(&b.context), fault);
    }
}

/// Writes ever changing data until the connection is over, or the test has failed.
fn write_until_refused(a: &Side, to: outboard_verbs::Remote, over: &AtomicBool) {
    let deadline = Instant::now() + PATIENCE;
    for fill in (1..=255).cycle().take_while(|_| Instant::now() < deadline) {
        let write =
            SendRequest::new(1, SendOp::Write { to }, OwnedBuf::from(vec![fill; 1 << 20]).into());
        if a.qp.post_send(write).is_err() || a.take(1)[0].status != Status::Success {
            return over.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_send_with_invalidate_takes_the_stag_from_the_peer() {
    let (a, b) = pair();
    let mr = b.register(64, Access::REMOTE_WRITE | Access::REMOTE_INVALIDATE);
    let to = at(&mr, 0);
    a.carry_out(SendOp::Write { to }, SgList::copied(b"before"));
    b.receive(1, 8);
    a.carry_out(SendOp::Send { invalidate: Some(mr.stag()) }, SgList::copied(b"done"));
    let done = b.success();
    assert_eq!(done.invalidated, Some(mr.stag()));
    assert_eq!(mr.memory().snapshot(0..6).expect("inside"), b"before");
    a.post(2, SendOp::Write { to }, SgList::copied(b"after!"));
    let code = TerminateCode::TAGGED_INVALID_STAG;
    assert_eq!(async_event(&b.context), AsyncEvent::PeerFault { qp: b.qp.number(), code });
    assert_eq!(mr.memory().snapshot(0..6).expect("inside"), b"before");
    mr.deregister().expect("still ours to deregister");
}

#[test]
fn a_peer_cannot_invalidate_memory_of_another_domain() {
    let (a, b) = pair();
    let other = Side::in_domain(b.context.clone(), b.context.alloc_pd(), |_| {});
    let mr = other.register(64, Access::REMOTE_WRITE);
    b.receive(1, 8);
    a.post(2, SendOp::Send { invalidate: Some(mr.stag()) }, SgList::copied(b"x"));
    let AsyncEvent::PeerFault { qp, code } = async_event(&b.context) else { panic!("no fault") };
    assert_eq!((qp, code.layer, code.etype), (b.qp.number(), 0, 1), "{code}");
    assert_ne!(b.take(1)[0].status, Status::Success);
    let writer = Side::new();
    connect(&writer, &other);
    writer.carry_out(SendOp::Write { to: at(&mr, 0) }, SgList::copied(b"works"));
    other.receive(1, 1);
    writer.send(1, b"");
    other.success();
    assert_eq!(mr.memory().snapshot(0..5).expect("inside"), b"works");
}

#[test]
fn a_message_without_a_receive_waits_or_ends_the_connection_as_configured() {
    let a = Side::new();
    let waits = Side::with(|config| {
        config.rnr_policy = RnrPolicy::Stall(Duration::from_millis(200));
    });
    connect(&a, &waits);
    a.send(1, b"early");
    waits.stays_quiet();
    waits.receive(1, 8);
    assert_eq!(bytes(waits.success()), b"early");
    a.send(2, b"never");
    let code = TerminateCode::UNTAGGED_NO_BUFFER;
    assert_eq!(async_event(&waits.context), AsyncEvent::PeerFault { qp: waits.qp.number(), code });

    let (a, strict) = (Side::new(), Side::with(|c| c.rnr_policy = RnrPolicy::Terminate));
    connect(&a, &strict);
    a.send(1, b"early");
    assert_eq!(
        async_event(&strict.context),
        AsyncEvent::PeerFault { qp: strict.qp.number(), code }
    );
    assert_eq!(async_event(&a.context), AsyncEvent::PeerTerminated { qp: a.qp.number(), code });
}

#[test]
fn a_message_longer_than_its_receive_fails_the_receive() {
    let (a, b) = pair();
    b.receive(1, 8);
    a.send(1, b"nine here");
    assert_eq!(ends(&b.take(1)), [(1, Status::LocalLength)]);
    let code = TerminateCode::UNTAGGED_TOO_LONG;
    assert_eq!(async_event(&b.context), AsyncEvent::PeerFault { qp: b.qp.number(), code });
}

#[test]
fn a_reset_hands_back_everything_that_was_posted() {
    let (a, _b) = pair();
    for wr_id in 0..20 {
        a.post(wr_id, SendOp::Send { invalidate: None }, OwnedBuf::zeroed(4 << 20));
    }
    a.qp.reset();
    assert_eq!(a.qp.state(), QpState::Idle);
    let ended = a.take(20);
    let names: Vec<u64> = ended.iter().map(|completion| completion.wr_id).collect();
    assert_eq!(names, (0..20).collect::<Vec<_>>());
    assert!(ended.iter().all(|completion| completion.local.len() == 4 << 20));
}

#[test]
fn a_receive_for_a_queue_pair_with_a_shared_queue_is_refused() {
    let context = Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(4));
    let config = QpConfig { srq: Some(pd.create_srq(1, 1)), ..QpConfig::new(&cq) };
    let qp = pd.create_qp(config).expect("a queue pair");
    let request = RecvRequest { wr_id: 1, local: SgList::new() };
    let Refused { error, request } = qp.post_recv(request).expect_err("no queue of its own");
    assert_eq!((error, request.wr_id), (PostError::SharedReceives, 1));
}

#[test]
fn a_receive_of_a_thousand_pieces_takes_a_message_in_place() {
    let (a, b) = (Side::new(), Side::with(|config| config.max_sge = 2000));
    let plain = ConnectParams { crc: false, ..ConnectParams::default() };
    connect_with(&a, &b, &plain, &plain);
    let pieces: Vec<Segment> = (0..1000).map(|_| Segment::Owned(OwnedBuf::zeroed(64))).collect();
    let request = RecvRequest { wr_id: 7, local: pieces.into() };
    b.qp.post_recv(request).expect("room");
    let bytes = pattern(3, 64_000);
    a.post(1, SendOp::Send { invalidate: None }, SgList::copied(&bytes));
    let done = b.success();
    let mut got = Vec::new();
    done.local.gather(0, bytes.len(), &mut got).expect("inside");
    assert_eq!(got, bytes);
}

/// Events of one context's engine wake no thread that sleeps in another context's.
#[test]
fn channels_of_another_context_are_refused() {
    let (a, b) = (Side::new(), Side::new());
    let (completions, events) = (b.context.create_comp_channel(), b.context.create_cm_channel());
    let (completions, events) = (completions.expect("a channel"), events.expect("a channel"));
    let foreign = |error: &VerbsError| matches!(error, VerbsError::OtherContext { .. });
    assert!(a.context.create_cq_on(1, &completions).is_err_and(|error| foreign(&error)));
    let listening = a.context.listen_on(address(common::ANY), 4, &events);
    assert!(listening.is_err_and(|error| foreign(&error)));
    let (plain, listener) = (ConnectParams::default(), b.listen());
    let wrong = a.qp.start_connect(listener.local_addr(), &plain, &events).expect_err("foreign");
    assert!(matches!(wrong, ConnectError::Verbs(error) if foreign(&error)));
    assert_eq!(a.qp.state(), QpState::Idle);
}
