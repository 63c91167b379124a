//! Polling threads that share a processor. Alone in its program: other tests would share it too.

mod common;

use common::{Side, pair};
use outboard_verbs::{Completion, Operation};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Answers every message until `over`, by polling only.
fn echo(side: &Side, over: &AtomicBool) {
    let mut done = Vec::new();
    while !over.load(Ordering::SeqCst) {
        side.cq.poll(&mut done, 16).expect("no overflow");
        for completion in done.drain(..).filter(|done| done.operation == Operation::Receive) {
            side.receive(completion.wr_id, 8);
            side.send(1, b"pong");
        }
    }
}

/// How long messages take there and back when their answers are polled for, the least first.
fn round_trips(side: &Side, count: usize) -> Vec<Duration> {
    let once = |_| {
        let sent = Instant::now();
        side.receive(2, 8);
        side.send(3, b"ping");
        let mut done = Vec::new();
        while !done.iter().any(|done: &Completion| done.operation == Operation::Receive) {
            side.cq.poll(&mut done, 16).expect("no overflow");
        }
        sent.elapsed()
    };
    let mut times: Vec<_> = (0..count).map(once).collect();
    times.sort();
    times
}

/// How long the fastest twentieth of some round trips takes. If other programs keep the processor
/// busy, most round trips take as long as their slices: then more are measured.
fn fastest_twentieth(side: &Side) -> Duration {
    let start = Instant::now();
    loop {
        let fast = round_trips(side, 500)[500 / 20];
        if fast < FAST || start.elapsed() > BUSY_MAX {
            return fast;
        }
    }
}

/// Less than two slices of other programs.
const FAST: Duration = Duration::from_millis(2);
/// How long to wait for other programs to leave the processor alone.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Polling threads share a processor: none of them uses up the time in which another would answer.
/// A whole time slice is a millisecond or more; other processes take time as well.
#[test]
fn two_polling_threads_on_one_processor_yield_to_each_other() {
    let (a, b) = pair();
    (0..8).for_each(|wr_id| b.receive(wr_id, 8));
    let over = AtomicBool::new(false);
    let pin = || {
        let mut set = sched_getaffinity(None).expect("a set");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)).expect("a processor");
        set.clear();
        set.set(first);
        sched_setaffinity(None, &set).expect("one of ours");
    };
    let fast = thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            echo(&b, &over);
        });
        let client = scope.spawn(|| {
            pin();
            fastest_twentieth(&a)
        });
        let fast = client.join().expect("no panic");
        over.store(true, Ordering::SeqCst);
        fast
    });
    assert!(fast < FAST, "the fastest twentieth takes up to {fast:?}");
}
