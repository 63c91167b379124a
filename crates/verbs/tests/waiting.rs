//! Threads that sleep on a completion queue and on descriptors of their own at once.

mod common;

use common::{Side, at, connect, pair};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{Access, CompChannel, Context, QpConfig, SendOp, SgList};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

/// Two connected sides; the first one's queue makes events on the channel.
fn with_channel() -> (Side, Side, CompChannel) {
    let context = Context::open().expect("a context");
    let channel = context.create_comp_channel().expect("a channel");
    let cq = context.create_cq_on(64, &channel).expect("a queue");
    let pd = context.alloc_pd();
    let qp = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
    let (a, b) = (Side { context, pd, cq, qp }, Side::new());
    connect(&b, &a);
    (a, b, channel)
}

/// On a busy machine the engine's own thread may not stand down in time, and receives it: then
/// there is an event. Not each time, though.
#[test]
fn what_the_waiting_thread_receives_makes_no_event() {
    const TRIES: usize = 5;
    let (a, b, channel) = with_channel();
    let has_event = || {
        a.receive(1, 16);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                b.send(1, b"a message");
            });
            assert!(a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]));
        });
        let told = channel.try_next();
        assert!(told.is_none_or(|queue| queue == a.cq.number()));
        assert_eq!(a.success().wr_id, 1);
        b.success();
        told.is_some()
    };
    assert!((0..TRIES).any(|_| !has_event()), "an event each time");
}

/// A receive that is flushed by the thread that posts it.
#[test]
fn what_another_thread_brings_makes_an_event() {
    let (a, b, channel) = with_channel();
    b.qp.disconnect();
    eventually("the end", || a.qp.state().is_over());
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            a.receive(5, 8);
        });
        assert!(a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]));
    });
    assert_eq!(channel.try_next(), Some(a.cq.number()));
    assert_eq!(a.take(1)[0].wr_id, 5);
}

/// Another thread waits in the engine and receives for both.
#[test]
fn beside_another_driver_completions_make_events() {
    let (a, b, channel) = with_channel();
    let other = a.context.create_cq(4);
    a.receive(1, 16);
    thread::scope(|scope| {
        let driving = scope.spawn(|| other.wait(&mut Vec::new(), 1, Some(Duration::from_secs(2))));
        thread::sleep(Duration::from_millis(50));
        let waiting = scope.spawn(|| a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]));
        thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        b.send(1, b"a message");
        assert!(waiting.join().expect("no panic"));
        assert!(begin.elapsed() < Duration::from_secs(1), "it waited for the other thread");
        assert_eq!(driving.join().expect("no panic").expect("no overflow"), 0);
    });
    assert_eq!(a.success().wr_id, 1);
}

#[test]
fn a_queue_without_completions_is_waited_for_until_the_deadline() {
    let (a, _b) = pair();
    let begin = Instant::now();
    assert!(!a.cq.wait_readable(Some(Duration::from_millis(30)), &[]));
    assert!(begin.elapsed() >= Duration::from_millis(30));
}

/// One-sided operations of a peer complete nothing here.
#[test]
fn a_peer_s_writes_are_traffic_and_no_completions() {
    let (a, b) = pair();
    let target = a.register(64, Access::REMOTE_WRITE);
    let write = || {
        thread::sleep(Duration::from_millis(50));
        b.carry_out(SendOp::Write { to: at(&target, 0) }, SgList::copied(b"written"));
    };
    let limit = Some(Duration::from_millis(500));
    // The engine's own thread may be the one that receives: not each time, though.
    let is_heard = || {
        thread::scope(|scope| {
            scope.spawn(write);
            a.cq.wait_traffic(limit, &[])
        })
    };
    assert!((0..5).any(|_| is_heard()), "never heard of");
    thread::scope(|scope| {
        scope.spawn(write);
        assert!(!a.cq.wait_readable(limit, &[]), "there are no completions");
    });
}
