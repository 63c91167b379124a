//! Threads that sleep on a completion queue and on descriptors of their own at once.

mod common;

use common::{Side, at, connect, falls_asleep, pair};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{Access, CompChannel, Context, QpConfig, SendOp, SgList};
use rustix::thread::gettid;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
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

/// Waits in a thread of its own, and does something else once that thread sleeps.
fn beside<T: Send>(wait: impl FnOnce() -> T + Send, act: impl FnOnce()) -> T {
    let (own, thread) = channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            own.send(gettid()).expect("it is waited for");
            wait()
        });
        falls_asleep(thread.recv().expect("a thread"));
        act();
        waiting.join().expect("no panic")
    })
}

/// On a busy machine the engine's own thread may not stand down in time, and receives it: then
/// there is an event. Not each time, though.
#[test]
fn what_the_waiting_thread_receives_makes_no_event() {
    let (a, b, channel) = with_channel();
    let has_event = || {
        a.receive(1, 16);
        let wait = || a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]);
        assert!(beside(wait, || b.send(1, b"a message")));
        let told = channel.try_next();
        assert!(told.is_none_or(|queue| queue == a.cq.number()));
        assert_eq!(a.success().wr_id, 1);
        b.success();
        told.is_some()
    };
    eventually("a message without an event", || !has_event());
}

/// A receive that is flushed by the thread that posts it.
#[test]
fn what_another_thread_brings_makes_an_event() {
    let (a, b, channel) = with_channel();
    b.qp.disconnect();
    eventually("the end", || a.qp.state().is_over());
    let wait = || a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]);
    assert!(beside(wait, || a.receive(5, 8)));
    assert_eq!(channel.try_next(), Some(a.cq.number()));
    assert_eq!(a.take(1)[0].wr_id, 5);
}

/// Another thread waits in the engine and receives for both.
#[test]
fn beside_another_driver_completions_make_events() {
    let (a, b, channel) = with_channel();
    let (c, d) = (Side::new(), Side::in_domain(a.context.clone(), a.pd.clone(), |_| {}));
    connect(&c, &d);
    a.receive(1, 16);
    d.receive(2, 16);
    let over = AtomicBool::new(false);
    let drive = || {
        assert_eq!(d.success().wr_id, 2);
        over.store(true, Ordering::SeqCst);
    };
    beside(drive, || {
        let wait = || a.cq.wait_readable(Some(PATIENCE), &[channel.as_fd()]);
        assert!(beside(wait, || b.send(1, b"a message")));
        assert!(!over.load(Ordering::SeqCst), "it waited for the other thread");
        c.send(1, b"the end");
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
        b.carry_out(SendOp::Write { to: at(&target, 0) }, SgList::copied(b"written"));
    };
    let limit = Some(Duration::from_millis(500));
    // The engine's own thread may be the one that receives: not each time, though.
    eventually("a write is heard of", || beside(|| a.cq.wait_traffic(limit, &[]), write));
    let readable = beside(|| a.cq.wait_readable(limit, &[]), write);
    assert!(!readable, "there are no completions");
}
