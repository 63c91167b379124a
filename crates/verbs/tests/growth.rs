//! The cost of one more object does not depend on how many objects exist.

use outboard_verbs::{Context, Cq, OwnedBuf, Pd, Qp, QpConfig, RecvRequest};
use std::time::{Duration, Instant};

const FEW: usize = 10;
const MANY: usize = 8000;
/// The bound on the cost with many objects, as a multiple of the cost with few: scanning all of
/// them would cost hundreds of times as much.
const MOST: u32 = 8;

/// The least that `work` takes: the machine does other things as well.
fn least(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..200).map(time).min().expect("some")
}

/// Queue pairs on one completion queue.
fn queue_pairs(pd: &Pd, cq: &Cq, count: usize) -> Vec<Qp> {
    (0..count).map(|_| pd.create_qp(QpConfig::new(cq)).expect("a queue pair")).collect()
}

fn compare(what: &str, cost: impl Fn(usize) -> Duration) {
    let (few, many) = (cost(FEW), cost(MANY));
    assert!(many <= few * MOST, "{what}: {few:?} with {FEW}, {many:?} with {MANY}");
}

#[test]
fn making_and_dropping_a_queue_pair() {
    compare("a queue pair", |count| {
        let context = Context::open().expect("a context");
        let (pd, cq) = (context.alloc_pd(), context.create_cq(16));
        let _others = queue_pairs(&pd, &cq, count);
        least(|| drop(queue_pairs(&pd, &cq, 1)))
    });
}

/// Whether anything is under way on a queue is asked after every successful poll of a C program.
#[test]
fn asking_whether_a_queue_is_idle() {
    compare("a look", |count| {
        let context = Context::open().expect("a context");
        let (pd, cq) = (context.alloc_pd(), context.create_cq(16));
        let qps = queue_pairs(&pd, &cq, count);
        // The last has something under way, so that nothing is handed to the background thread.
        let local = OwnedBuf::zeroed(8).into();
        qps[count - 1].post_recv(RecvRequest { wr_id: 1, local }).expect("room");
        least(|| {
            context.turn();
            cq.rest_if_idle();
        })
    });
}
