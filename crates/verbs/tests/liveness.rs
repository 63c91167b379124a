//! No program waits for ever, whatever a peer, a busy application or a panic in the engine does.
//! Each case here once hung.

mod common;

use common::{ANY, SEND, Side, address, connect, connect_with, pair};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, ConnectError, ConnectParams, OwnedBuf, QpConfig, RecvRequest, RnrPolicy, SendOp,
    SendRequest, SgList, Status, VerbsError,
};
use std::cell::RefCell;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The FIN's event comes while the stream is stalled: right behind what the connection keeps, or
/// with more in front of it than that, and than one read takes.
#[test]
fn a_fin_behind_stalled_messages_is_seen() {
    for (crc, messages) in [(true, 100), (true, 300), (false, 100), (false, 300)] {
        let deep = |config: &mut QpConfig| (config.send_depth, config.recv_depth) = (512, 512);
        let (a, b) = (Side::with(deep), Side::with(deep));
        let params = ConnectParams { crc, ..ConnectParams::default() };
        connect_with(&a, &b, &params, &params);
        for wr_id in (0..).take(messages) {
            a.post(wr_id, SEND, OwnedBuf::zeroed(1000));
        }
        a.take(messages);
        a.qp.disconnect();
        std::thread::sleep(Duration::from_millis(50));
        let receive = |wr_id| RecvRequest { wr_id, local: OwnedBuf::zeroed(1000).into() };
        b.qp.post_recv_batch(&mut (0..).take(messages).map(receive).collect()).expect("room");
        b.take(messages);
        eventually("the end of the connection", || b.qp.state().is_over());
    }
}

/// Tells this program that it runs one test only.
const ALONE: &str = "OUTBOARD_LIVENESS_ALONE";

/// Runs a test in a process of its own, because it measures the whole process: other tests of this
/// program run in it at the same time.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
    assert!(command.status().expect("this program again").success());
}

#[test]
fn a_stalled_stream_costs_a_shared_queue_one_note() {
    alone("a_stalled_stream_costs_a_shared_queue_one_note", stall_on_a_shared_queue);
}

fn stall_on_a_shared_queue() {
    let server = Side::new();
    let srq = server.pd.create_srq(64, 1);
    let (context, pd) = (server.context.clone(), server.pd.clone());
    let b = Side::in_domain(context, pd, |config| config.srq = Some(srq.clone()));
    let a = Side::new();
    connect(&a, &b);
    a.send(1, b"one");
    a.send(2, b"two");
    let before = common::resident_kib();
    for _ in 0..1_000_000 {
        b.cq.poll(&mut Vec::new(), 1).expect("no overflow");
    }
    let grown = common::resident_kib().saturating_sub(before);
    assert!(grown < 4096, "grew by {grown} KiB");
    for wr_id in 0..2 {
        let request = RecvRequest { wr_id, local: OwnedBuf::zeroed(8).into() };
        srq.post_recv(request).expect("room");
    }
    b.take(2);
}

#[test]
fn completions_that_are_always_there_do_not_starve_other_peers() {
    let (a, b) = pair();
    let (c, d) = (Side::new(), Side::in_domain(a.context.clone(), a.pd.clone(), |_| {}));
    connect(&c, &d);
    let mr = d.register(64, Access::REMOTE_READ);
    let (to, mut done) = (b.register(8, Access::REMOTE_WRITE), Vec::new());
    let mut write_and_poll = || {
        let write = SendOp::Write { to: to.remote(0) };
        // A full queue has completions, too.
        let _full = a.qp.post_send(SendRequest::new(1, write, SgList::copied(&[1; 8])));
        a.cq.poll(&mut done, 16).expect("no overflow");
        done.clear();
    };
    (0..1000).for_each(|_| write_and_poll());
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            for _ in 0..10 {
                c.carry_out(SendOp::Read { from: mr.remote(0) }, OwnedBuf::zeroed(64));
            }
        });
        while !reading.is_finished() {
            write_and_poll();
        }
        reading.join().expect("ten Reads");
    });
}

#[test]
fn a_panic_in_a_condition_leaves_the_engine_working() {
    let (a, b) = pair();
    let context = b.context.clone();
    let waiting = std::thread::spawn(move || {
        let mut calls = 0;
        context.wait_until(Some(PATIENCE), || {
            calls += 1;
            assert!(calls < 2, "on purpose");
            false
        })
    });
    assert!(waiting.join().is_err(), "it panicked");
    let mr = b.register(64, Access::REMOTE_READ);
    for _ in 0..3 {
        a.carry_out(SendOp::Read { from: mr.remote(0) }, OwnedBuf::zeroed(64));
    }
}

#[test]
fn a_stall_without_end_is_no_fault() {
    let (a, b) =
        (Side::new(), Side::with(|config| config.rnr_policy = RnrPolicy::Stall(Duration::MAX)));
    connect(&a, &b);
    a.send(1, b"waits");
    std::thread::sleep(Duration::from_millis(100));
    // The thread that met the stall still serves others.
    let (c, d) = (Side::new(), Side::in_domain(b.context.clone(), b.pd.clone(), |_| {}));
    connect(&c, &d);
    let mr = d.register(64, Access::REMOTE_READ);
    std::thread::sleep(Duration::from_millis(50));
    c.carry_out(SendOp::Read { from: mr.remote(0) }, OwnedBuf::zeroed(64));
    b.receive(2, 8);
    assert_eq!(b.success().wr_id, 2);
}

#[test]
fn objects_of_two_contexts_are_kept_apart() {
    let (a, b, c) = (Side::new(), Side::new(), Side::new());
    let foreign = a.pd.create_qp(QpConfig::new(&b.cq));
    assert!(matches!(foreign, Err(VerbsError::OtherContext { .. })));
    let listener = b.context.listen(address(common::ANY), 4).expect("a port");
    let events = a.context.create_cm_channel().expect("a channel");
    let params = ConnectParams::default();
    a.qp.start_connect(listener.local_addr(), &params, &events).expect("begun");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    let refused = request.accept(&c.qp, &params).expect_err("another's");
    let foreign = |error: &ConnectError| {
        matches!(error, ConnectError::Verbs(VerbsError::OtherContext { .. }))
    };
    assert!(foreign(&refused.error), "{refused}");
    let request = refused.into_request().expect("the peer is there");
    let later = a.context.create_cm_channel().expect("a channel");
    let refused = request.accept_on(&b.qp, &params, &later).expect_err("another's");
    assert!(foreign(&refused.error), "{refused}");
    // A caller's mistake does not affect the peer.
    refused.into_request().expect("the peer is there").accept(&b.qp, &params).expect("accepted");
    common::connected(&events);
}

/// The mask of signals that a thread blocks, unless it has ended: signal n is bit n - 1.
fn blocked_signals(task: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a line");
    Some(u64::from_str_radix(mask.trim(), 16).expect("hexadecimal"))
}

/// A program may wait for its signals with sigwait(3) or signalfd(2) in one thread: one that our
/// thread took would end it, or run its handler where no verb may be called.
#[test]
fn signals_are_left_to_the_threads_of_the_program() {
    const FOR_THE_PROGRAM: u64 = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGINT - 1);
    const OF_THE_THREAD: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    let this = Path::new("/proc/thread-self");
    let before = blocked_signals(this);
    let _side = Side::new();
    assert_eq!(blocked_signals(this), before, "the caller's mask is as before");
    let engines = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
        let is_engine = |task: &PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "outboard-engine\n")
        };
        tasks.map(|task| task.path()).filter(is_engine).collect::<Vec<_>>()
    };
    eventually("an engine's thread", || !engines().is_empty());
    for blocked in engines().iter().filter_map(|engine| blocked_signals(engine)) {
        assert_eq!(blocked & (FOR_THE_PROGRAM | OF_THE_THREAD), FOR_THE_PROGRAM);
    }
}

thread_local! {
    /// Dropped when its thread ends, after thread-local values that were made later.
    static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// Two connected sides that exchange messages when their thread's local storage is gone.
struct AtTheEnd(Side, Side, Sender<thread::Result<()>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let talk = AssertUnwindSafe(|| converse(&self.0, &self.1));
        let _sent = self.2.send(catch_unwind(talk));
        self.0.qp.disconnect();
    }
}

fn converse(a: &Side, b: &Side) {
    b.receive(1, 8);
    a.send(2, b"hello");
    assert_eq!(common::bytes(b.success()), b"hello");
    assert_eq!(a.success().wr_id, 2);
}

/// Functions of atexit(3) and destructors of C++ run after the main thread's own storage is gone.
#[test]
fn verbs_work_while_a_thread_ends() {
    let (told, end) = channel();
    let ending = thread::spawn(move || {
        // First, so that it goes last.
        LAST.with_borrow(|none| assert!(none.is_none()));
        let (a, b) = pair();
        converse(&a, &b);
        LAST.set(Some(AtTheEnd(a, b, told)));
    });
    end.recv_timeout(PATIENCE).expect("the thread's last word").expect("no panic");
    ending.join().expect("no panic");
}

/// Posts receives until one is refused, and says how many were taken.
fn fill(side: &Side) -> usize {
    let receive = |wr_id| RecvRequest { wr_id, local: OwnedBuf::zeroed(8).into() };
    let refused = (0..1000).position(|wr_id| side.qp.post_recv(receive(wr_id)).is_err());
    refused.expect("a short queue becomes full")
}

/// A program that posts until its queue is full must come to an end, whenever the peer goes.
#[test]
fn a_queue_of_receives_is_full_some_time_after_the_end() {
    let (a, b) = (Side::new(), Side::with(|config| config.recv_depth = 4));
    connect(&a, &b);
    b.receive(1, 8);
    drop(a);
    eventually("the end of the connection", || b.qp.state().is_over());
    assert_eq!(fill(&b), 3);
    assert_eq!(b.take(2).len(), 2);
    assert_eq!(fill(&b), 2);
    assert_eq!(fill(&b), 0);
    assert_eq!(b.take(4).len(), 4);
    let receive = |wr_id| RecvRequest { wr_id, local: OwnedBuf::zeroed(8).into() };
    assert!(b.qp.post_recv_batch(&mut (0..5).map(receive).collect()).is_err());
    assert_eq!(b.take(4).len(), 4);
    b.qp.reset();
    assert_eq!(fill(&b), 4);
}

/// The same where completions have no room.
#[test]
fn a_lost_completion_leaves_no_room_for_more() {
    let context = outboard_verbs::Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(2));
    let b = Side::in_domain(context, pd, |config| config.recv_cq = cq);
    let a = Side::new();
    connect(&a, &b);
    drop(a);
    eventually("the end of the connection", || b.qp.state().is_over());
    fill(&b);
}

/// What the kernel has each end of a connection wait for: the columns "tr tm->when" of proc(5).
fn tcp_timers(port: u16) -> Vec<(u8, u64)> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("procfs");
    let ends = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let port = format!(":{port:04X}");
    let ours = |end: &Vec<&str>| end[3] == "01" && end[1..3].iter().any(|at| at.ends_with(&port));
    let timer = |end: Vec<&str>| {
        let (kind, due) = end[5].split_once(':').expect("two parts");
        let due = u64::from_str_radix(due, 16).expect("hexadecimal");
        (kind.parse().expect("a number"), due)
    };
    ends.filter(ours).map(timer).collect()
}

/// A machine that vanishes sends no FIN.
#[test]
fn silent_peers_are_asked_whether_they_are_there() {
    const KEEPALIVE: u8 = 2;
    /// In hundredths of a second, as proc(5) has them.
    const MINUTE: u64 = 6000;
    let (a, b) = (Side::new(), Side::new());
    let listener = b.listen();
    let (plain, port) = (ConnectParams::default(), listener.local_addr().port());
    let events = a.context.create_cm_channel().expect("a channel");
    a.qp.start_connect(listener.local_addr(), &plain, &events).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept(&b.qp, &plain).expect("accepted");
    common::connected(&events);
    let asked = |(kind, due): &(u8, u64)| *kind == KEEPALIVE && *due <= MINUTE;
    eventually("both ends ask", || tcp_timers(port).iter().filter(|end| asked(end)).count() == 2);
}

/// A service's loop: waits for a message, works on it until it may go on, waits for the next; the
/// message "over" ends it. Its work is to sleep: one that computes takes a processor from those
/// who are measured.
fn wait_and_work(side: &Side, begun: &Sender<()>, end: &Receiver<()>) {
    for piece in 1.. {
        side.receive(piece, 8);
        let message = side.take(1).remove(0);
        if message.status != Status::Success || common::bytes(message) == b"over" {
            return;
        }
        side.context.rest();
        if begun.send(()).is_err() || end.recv().is_err() {
            return;
        }
    }
}

/// Rounds of Reads: what else runs on a busy machine delays some of them, but not in each round.
const ROUNDS: usize = 5;
/// How many times longer than while the loop waits Reads may take: the median, which is shorter
/// usually, and the 90th percentile.
const LATENESS_MAX: [f64; 2] = [5.0, 10.0];

/// The loop drives the engine while it waits; while it works, the engine's own thread serves peers
/// that read its memory, and nearly as soon.
#[test]
fn reads_are_served_while_a_loop_works_between_messages() {
    let mut rounds = (0..ROUNDS).map(|_| lateness_while_working());
    let in_time = rounds.any(|[median, late]| median <= LATENESS_MAX[0] && late <= LATENESS_MAX[1]);
    assert!(in_time, "they are later than {LATENESS_MAX:?} times in every round");
}

/// Median and 90th percentile of Reads while a loop works, divided by those while it waits.
fn lateness_while_working() -> [f64; 2] {
    const PIECES: usize = 200;
    let (a, b) = pair();
    let (c, d) = (Side::new(), Side::in_domain(b.context.clone(), b.pd.clone(), |_| {}));
    connect(&c, &d);
    let mr = d.register(64, Access::REMOTE_READ);
    let read = || {
        let start = Instant::now();
        c.carry_out(SendOp::Read { from: mr.remote(0) }, OwnedBuf::zeroed(64));
        start.elapsed()
    };
    let (mut working, mut waiting) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let ((begun, begins), (go_on, end)) = (channel(), channel());
        let side = &b;
        scope.spawn(move || wait_and_work(side, &begun, &end));
        for _ in 0..PIECES {
            a.carry_out(SEND, SgList::copied(b"work"));
            begins.recv_timeout(PATIENCE).expect("it works");
            // The loop does not come back to wait before that, and so cannot serve it.
            working.push(read());
            go_on.send(()).expect("it works");
            thread::sleep(Duration::from_millis(1));
            waiting.push(read());
        }
        a.send(2, b"over");
    });
    let [working, waiting] = [working, waiting].map(|mut times| {
        times.sort();
        [times[PIECES / 2], times[PIECES * 9 / 10]]
    });
    println!("Reads, median and 90th percentile: it works {working:?}, it waits {waiting:?}");
    [0, 1].map(|at| working[at].as_secs_f64() / waiting[at].as_secs_f64())
}

/// Peers that connect and send nothing, such as port scanners, keep no other peer out.
#[test]
fn silent_peers_keep_no_other_peer_out() {
    /// Less than such a peer has for its Request.
    const IN_TIME: Duration = Duration::from_secs(4);
    for count in [20, 100] {
        // On a busy machine everything takes long, but not each time.
        assert!((0..3).any(|_| dial_behind(count) < IN_TIME), "late behind {count} strangers");
    }
}

/// How long a connection takes behind so many strangers.
fn dial_behind(count: usize) -> Duration {
    let (a, b) = (Side::new(), Side::new());
    let listener = b.context.listen(address(ANY), 1).expect("a listener");
    let dial = |_| TcpStream::connect(listener.local_addr()).expect("a connection");
    let _strangers: Vec<TcpStream> = (0..count).map(dial).collect();
    let events = a.context.create_cm_channel().expect("a channel");
    let (plain, start) = (ConnectParams::default(), Instant::now());
    a.qp.start_connect(listener.local_addr(), &plain, &events).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept(&b.qp, &plain).expect("accepted");
    start.elapsed()
}
