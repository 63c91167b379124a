//! Addresses that are taken first and used later, channels that leave out unwanted events, and
//! programs that sleep on descriptors of their own.

mod common;

use common::{ANY, Side, connect, connected};
use outboard_testkit::PATIENCE;
use outboard_verbs::{
    Bound, CmEventKind, CompChannel, ConnectParams, Context, NotifyOn, QpConfig, VerbsError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn take(address: SocketAddr) -> Result<Bound, VerbsError> {
    Bound::new(address)
}

#[test]
fn a_taken_address_is_where_connections_come_from_and_go_to() {
    let (a, b) = (Side::new(), Side::new());
    let any = ANY.parse().expect("an address");
    let at = take(any).expect("a port");
    let to = at.local_addr().expect("its address");
    let requests = b.context.create_cm_channel().expect("a channel");
    let listener = b.context.listen_at(at, 4, &requests).expect("a listener");
    assert_eq!(listener.local_addr(), to);
    let busy = take(to).expect_err("a program listens there").to_string();
    assert!(busy.contains("choose another port"), "{busy}");

    let from = take(any).expect("a port");
    let source = from.local_addr().expect("its address");
    from.set_type_of_service(32).expect("a value");
    let events = a.context.create_cm_channel().expect("a channel");
    let params = ConnectParams::default();
    a.qp.start_connect_from(from, to, &params, &events).expect("an attempt");
    let Some(CmEventKind::ConnectRequest(request)) = requests.next(Some(PATIENCE)).map(|e| e.kind)
    else {
        panic!("no request");
    };
    assert_eq!((request.peer_addr(), request.local_addr().expect("open")), (source, to));
    request.accept(&b.qp, &params).expect("accepted");
    connected(&events);

    drop(listener);
    take(to).expect("free again, though a connection uses it");
}

#[test]
fn a_channel_leaves_out_unwanted_events() {
    for wants in [true, false] {
        let (a, b) = (Side::new(), Side::new());
        let listener = b.listen();
        let events = a.context.create_cm_channel().expect("a channel");
        let told = if wants {
            b.context.create_cm_channel()
        } else {
            b.context.create_cm_channel_without_established()
        };
        let told = told.expect("a channel");
        let params = ConnectParams::default();
        a.qp.start_connect(listener.local_addr(), &params, &events).expect("an attempt");
        let request = listener.next_request(Some(PATIENCE)).expect("a request");
        request.accept_on(&b.qp, &params, &told).expect("accepted");
        connected(&events);
        if wants {
            let first = told.next(Some(PATIENCE)).map(|event| event.kind);
            assert!(matches!(first, Some(CmEventKind::Established)), "{first:?}");
        }
        a.qp.disconnect();
        let next = told.next(Some(PATIENCE)).map(|event| event.kind);
        assert!(matches!(next, Some(CmEventKind::Disconnected)), "{next:?}");
    }
}

/// How long a message takes to a thread that has polled, rests, and then sleeps on a descriptor.
fn latency_after_rest(a: &Side, b: &Side, events: &CompChannel) -> Duration {
    b.receive(1, 16);
    for _ in 0..500 {
        assert_eq!(b.cq.poll(&mut Vec::new(), 1).expect("no overflow"), 0);
    }
    b.cq.request_notify(NotifyOn::Any);
    b.context.rest();
    let started = Instant::now();
    a.send(2, b"hello");
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::new(events, PollFlags::IN)], Some(&limit)).expect("an event");
    let took = started.elapsed();
    assert_eq!(events.try_next(), Some(b.cq.number()));
    assert_eq!((a.take(1).len(), b.take(1).len()), (1, 1));
    took
}

#[test]
fn a_resting_application_is_served_at_once() {
    let (a, context) = (Side::new(), Context::open().expect("a context"));
    let events = context.create_comp_channel().expect("a channel");
    let (pd, cq) = (context.alloc_pd(), context.create_cq_on(16, &events).expect("a queue"));
    let qp = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
    let b = Side { context, pd, cq, qp };
    connect(&a, &b);
    let best = (0..30).map(|_| latency_after_rest(&a, &b, &events)).min();
    // Without the call, the engine's thread would need at least two of its periodic looks.
    assert!(best.is_some_and(|best| best < Duration::from_millis(1)), "{best:?}");
}
