//! Queue pairs of several contexts in one process that find each other by number.

use super::*;
use outboard_verbs::{
    CmEventKind, ConnectError, ConnectParams, Cq, OwnedBuf, QpConfig, RecvRequest, SendOp,
    SendRequest, SgList, Status,
};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Weak};
use std::time::Instant;

/// No step takes this long unless it hangs.
const LIMIT: Duration = outboard_testkit::PATIENCE;
/// Far less than the time for which a waiting peer's connection is held.
const AT_ONCE: Duration = Duration::from_secs(5);
/// On a busy machine, what happens at once is seen late, but not each time.
const TRIES: usize = 3;
/// Long enough for any immediate event to have arrived.
const A_WHILE: Duration = Duration::from_millis(300);
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A device.
struct Nic {
    native: Native,
    roce: Roce,
}

/// A queue pair.
struct Pair {
    number: u32,
    state: Arc<State>,
}

struct State {
    qp: Qp,
    cq: Cq,
    has_sends: AtomicBool,
    patience: Duration,
    told: Mutex<Vec<&'static str>>,
    news: Condvar,
    thread: Mutex<Option<rustix::thread::Pid>>,
}

impl Nic {
    fn open() -> Self {
        Self { native: Native::open().expect("a context"), roce: Roce::default() }
    }

    fn pair(&self) -> Pair {
        self.pair_with(PATIENCE)
    }

    fn pair_with(&self, patience: Duration) -> Pair {
        let cq = self.native.create_cq(64);
        let qp = self.native.alloc_pd().create_qp(QpConfig::new(&cq)).expect("a queue pair");
        let state = State {
            qp,
            cq,
            has_sends: AtomicBool::new(false),
            patience,
            told: Mutex::default(),
            news: Condvar::new(),
            thread: Mutex::default(),
        };
        let number = self.roce.number(&self.native, HERE).expect("a number");
        Pair { number, state: Arc::new(state) }
    }

    fn aim(&self, ours: &Pair, theirs: u32) -> Outcome<()> {
        let theirs = QpName { address: HERE, number: theirs };
        self.roce.connect(ours.number, theirs, Arc::clone(&ours.state) as Arc<dyn Peer>)
    }

    fn release(&self, number: u32) {
        self.roce.with(|worker| worker.release(number));
    }

    fn reset(&self, pair: &Pair) {
        self.roce.with(|worker| worker.disconnect(pair.number));
        pair.state.qp.reset();
        pair.state.told.lock().expect("told").clear();
    }
}

impl Peer for State {
    fn native(&self) -> &Qp {
        &self.qp
    }
    fn has_sends(&self) -> bool {
        self.has_sends.load(Ordering::SeqCst)
    }
    fn patience(&self) -> Duration {
        self.patience
    }
    fn connected(&self) {
        *self.thread.lock().expect("thread") = Some(rustix::thread::gettid());
        self.tell("connected");
    }
    fn failed(&self) {
        self.tell("failed");
    }
    fn lost(&self) {
        self.tell("lost");
    }
}

#[test]
fn a_queue_pair_that_waits_is_looked_at_once_a_tick_however_many_others_come() {
    const COUNT: usize = 100;
    let nic = Nic::open();
    let channel = nic.native.create_cm_channel().expect("a channel");
    let (mut table, began) = (table::Table::new(HERE), Instant::now());
    // Lower than any number here: it would dial.
    let theirs = QpName { address: Ipv4Addr::UNSPECIFIED, number: 1 };
    for _ in 0..COUNT {
        let number = table.reserve(&nic.native, &channel).expect("a number");
        assert!(table.aim(number, theirs, nic.pair().state));
        assert!(table.next_task(Instant::now()).is_none());
    }
    let ticks = usize::try_from(began.elapsed().as_millis() / 250).expect("not long");
    let looked = table.looked;
    assert!((COUNT..=COUNT * (2 + ticks)).contains(&looked), "{looked} looks in {ticks} ticks");
    let quiet = table.quiet_for(Instant::now()).expect("a queue pair waits");
    assert!(quiet <= Duration::from_millis(250));
}

impl State {
    fn tell(&self, what: &'static str) {
        self.told.lock().expect("told").push(what);
        self.news.notify_all();
    }
}

impl Pair {
    /// Waits until this has been told, exactly.
    fn expect(&self, what: &[&str]) {
        let told = self.state.told.lock().expect("told");
        let wait = self.state.news.wait_timeout_while(told, LIMIT, |told| told.len() < what.len());
        assert_eq!(*wait.expect("told").0, what, "{:#x}", self.number);
    }

    fn expect_silence(&self) {
        std::thread::sleep(A_WHILE);
        self.expect(&[]);
    }

    fn receive(&self) {
        let request = RecvRequest { wr_id: 1, local: OwnedBuf::zeroed(16).into() };
        self.state.qp.post_recv(request).map_err(|refused| refused.error).expect("room");
    }

    fn send(&self) {
        let request = SendRequest::new(2, SendOp::Send { invalidate: None }, SgList::copied(b"hi"));
        self.state.qp.post_send(request).map_err(|refused| refused.error).expect("room");
    }

    fn statuses(&self, count: usize) -> Vec<Status> {
        let mut found = Vec::new();
        let end = Instant::now() + LIMIT;
        while found.len() < count && Instant::now() < end {
            self.state.cq.wait(&mut found, count, Some(LIMIT)).expect("completions");
        }
        found.into_iter().map(|completion| completion.status).collect()
    }
}

/// Both may send.
fn check_both_ways(a: &Pair, b: &Pair) {
    a.receive();
    b.receive();
    // The passive side first, which RFC 5044 alone would not allow.
    let (first, second) = if a.number > b.number { (a, b) } else { (b, a) };
    for (from, to) in [(first, second), (second, first)] {
        from.send();
        assert_eq!(from.statuses(1), [Status::Success]);
        assert_eq!(to.statuses(1), [Status::Success]);
    }
}

/// Two queue pairs of two devices, the one that dials first.
fn two() -> [(Nic, Pair); 2] {
    let [mut a, mut b] = [Nic::open(), Nic::open()].map(|nic| {
        let pair = nic.pair();
        (nic, pair)
    });
    if a.1.number > b.1.number {
        std::mem::swap(&mut a, &mut b);
    }
    [a, b]
}

#[test]
fn who_dials_first() {
    let [(nic, dialer), (other, waiter)] = two();
    nic.aim(&dialer, waiter.number).expect("aimed");
    dialer.expect_silence();
    other.aim(&waiter, dialer.number).expect("aimed");
    dialer.expect(&["connected"]);
    waiter.expect(&["connected"]);
    check_both_ways(&dialer, &waiter);
}

#[test]
fn who_waits_first() {
    let [(nic, dialer), (other, waiter)] = two();
    other.aim(&waiter, dialer.number).expect("aimed");
    waiter.expect_silence();
    nic.aim(&dialer, waiter.number).expect("aimed");
    dialer.expect(&["connected"]);
    waiter.expect(&["connected"]);
    check_both_ways(&dialer, &waiter);
}

#[test]
fn two_of_one_device() {
    let nic = Nic::open();
    let (a, b) = (nic.pair(), nic.pair());
    nic.aim(&a, b.number).expect("aimed");
    nic.aim(&b, a.number).expect("aimed");
    a.expect(&["connected"]);
    b.expect(&["connected"]);
    check_both_ways(&a, &b);
}

#[test]
fn more_than_one_port() {
    let (left, right) = (Nic::open(), Nic::open());
    let pairs: Vec<_> = (0..300).map(|_| (left.pair(), right.pair())).collect();
    for (a, b) in &pairs {
        left.aim(a, b.number).expect("aimed");
        right.aim(b, a.number).expect("aimed");
    }
    for (a, b) in &pairs {
        a.expect(&["connected"]);
        b.expect(&["connected"]);
    }
    let (a, b) = &pairs[299];
    check_both_ways(a, b);
    let numbers: HashSet<u32> = pairs.iter().map(|(a, _)| a.number).collect();
    let ports: HashSet<u32> = numbers.iter().map(|number| number >> 8).collect();
    assert_eq!((numbers.len(), ports.len()), (300, 2));
    assert!(numbers.iter().all(|number| *number < 1 << 24));
}

#[test]
fn numbers_are_used_again_late() {
    let nic = Nic::open();
    let first = nic.pair().number;
    nic.release(first);
    let later: Vec<u32> = (0..256).map(|_| nic.pair().number).collect();
    assert_eq!(later.iter().position(|number| *number == first), Some(255));
}

#[test]
fn a_number_that_is_gone() {
    let [(nic, dialer), (other, waiter)] = two();
    other.release(waiter.number);
    nic.aim(&dialer, waiter.number).expect("aimed");
    dialer.expect(&["failed"]);
}

#[test]
fn a_device_that_is_gone() {
    let [(nic, dialer), (other, waiter)] = two();
    drop(other);
    nic.aim(&dialer, waiter.number).expect("aimed");
    dialer.expect(&["failed"]);
}

#[test]
fn a_number_given_back_while_somebody_waits_for_it() {
    let takes = || {
        let [(nic, dialer), (other, waiter)] = two();
        nic.aim(&dialer, waiter.number).expect("aimed");
        dialer.expect_silence();
        let since = Instant::now();
        other.release(waiter.number);
        dialer.expect(&["failed"]);
        since.elapsed()
    };
    assert!((0..TRIES).any(|_| takes() < AT_ONCE), "late each time");
}

#[test]
fn somebody_else_is_expected() {
    let [(nic, stranger), (other, right)] = two();
    let waiter = other.pair();
    other.aim(&waiter, right.number).expect("aimed");
    nic.aim(&stranger, waiter.number).expect("aimed");
    stranger.expect_silence();
    other.aim(&right, waiter.number).expect("aimed");
    right.expect(&["connected"]);
    waiter.expect(&["connected"]);
    check_both_ways(&right, &waiter);
    stranger.expect_silence();
}

#[test]
fn somebody_else_came_before_anybody_was_expected() {
    let [(nic, stranger), (other, right)] = two();
    let waiter = other.pair();
    nic.aim(&stranger, waiter.number).expect("aimed");
    stranger.expect_silence();
    other.aim(&waiter, right.number).expect("aimed");
    other.aim(&right, waiter.number).expect("aimed");
    waiter.expect(&["connected"]);
    stranger.expect_silence();
}

#[test]
fn sends_wait_as_long_as_the_queue_pair_says() {
    let nic = Nic::open();
    let (quiet, sends) = (nic.pair_with(A_WHILE), nic.pair_with(A_WHILE));
    let nobody = nic.pair();
    for pair in [&quiet, &sends] {
        nic.aim(pair, nobody.number).expect("aimed");
    }
    sends.state.has_sends.store(true, Ordering::SeqCst);
    sends.expect(&["failed"]);
    quiet.expect_silence();
}

#[test]
fn the_peer_goes() {
    let [(nic, dialer), (other, waiter)] = two();
    nic.aim(&dialer, waiter.number).expect("aimed");
    other.aim(&waiter, dialer.number).expect("aimed");
    dialer.expect(&["connected"]);
    dialer.receive();
    other.release(waiter.number);
    drop(waiter);
    dialer.expect(&["connected", "lost"]);
    assert_eq!(dialer.statuses(1), [Status::Flushed]);
}

#[test]
fn sends_to_a_peer_that_has_gone_fail_when_patience_ends() {
    let nic = Nic::open();
    let (quiet, sends) = (nic.pair_with(A_WHILE), nic.pair_with(A_WHILE));
    for pair in [&quiet, &sends] {
        let peer = nic.pair();
        nic.aim(pair, peer.number).expect("aimed");
        nic.aim(&peer, pair.number).expect("aimed");
        pair.expect(&["connected"]);
        nic.release(peer.number);
        drop(peer);
        pair.expect(&["connected", "lost"]);
    }
    let since = Instant::now();
    sends.state.has_sends.store(true, Ordering::SeqCst);
    sends.expect(&["connected", "lost", "failed"]);
    assert!(since.elapsed() >= A_WHILE);
    quiet.expect(&["connected", "lost"]);
}

/// Sends waited for the connection, too: that was something else.
#[test]
fn patience_begins_anew_when_the_peer_goes() {
    let nic = Nic::open();
    let (sends, peer) = (nic.pair_with(A_WHILE), nic.pair());
    sends.state.has_sends.store(true, Ordering::SeqCst);
    nic.aim(&sends, peer.number).expect("aimed");
    nic.aim(&peer, sends.number).expect("aimed");
    sends.expect(&["connected"]);
    std::thread::sleep(2 * A_WHILE);
    let since = Instant::now();
    nic.release(peer.number);
    drop(peer);
    sends.expect(&["connected", "lost", "failed"]);
    assert!(since.elapsed() >= A_WHILE, "{:?}", since.elapsed());
}

#[test]
fn one_side_is_reset_sooner() {
    let [(nic, dialer), (other, waiter)] = two();
    for _ in 0..3 {
        nic.aim(&dialer, waiter.number).expect("aimed");
        std::thread::sleep(A_WHILE);
        other.reset(&waiter);
        other.aim(&waiter, dialer.number).expect("aimed");
        dialer.expect(&["connected"]);
        waiter.expect(&["connected"]);
        nic.reset(&dialer);
    }
}

#[test]
fn again_after_a_reset() {
    let [(nic, dialer), (other, waiter)] = two();
    for _ in 0..3 {
        nic.aim(&dialer, waiter.number).expect("aimed");
        other.aim(&waiter, dialer.number).expect("aimed");
        dialer.expect(&["connected"]);
        waiter.expect(&["connected"]);
        check_both_ways(&dialer, &waiter);
        nic.reset(&dialer);
        other.reset(&waiter);
        // Completions of sends and what was flushed.
        while dialer.state.cq.poll(&mut Vec::new(), 16).expect("completions") > 0 {}
        while waiter.state.cq.poll(&mut Vec::new(), 16).expect("completions") > 0 {}
    }
}

#[test]
fn what_cannot_be_connected() {
    let nic = Nic::open();
    let (a, b) = (nic.pair(), nic.pair());
    assert_eq!(nic.aim(&a, a.number), fail(libc::EOPNOTSUPP));
    nic.aim(&a, b.number).expect("aimed");
    assert_eq!(nic.aim(&a, b.number), fail(libc::EINVAL));
    nic.release(b.number);
    assert_eq!(nic.aim(&b, a.number), fail(libc::EINVAL));
    assert_eq!(Nic::open().aim(&b, a.number), fail(libc::EINVAL));
}

/// What a queue pair answers to this private data.
fn answer(nic: &Nic, pair: &Pair, private_data: Vec<u8>) -> Vec<u8> {
    let other = Nic::open();
    let caller = other.pair();
    let port = u16::try_from(pair.number >> 8).expect("a port");
    let params = ConnectParams { private_data, ..ConnectParams::default() };
    let channel = other.native.create_cm_channel().expect("a channel");
    caller.state.qp.start_connect((HERE, port).into(), &params, &channel).expect("begun");
    let event = channel.next(Some(LIMIT)).expect("an answer");
    let CmEventKind::Failed(ConnectError::Rejected { private_data, .. }) = event.kind else {
        panic!("{event:?}");
    };
    nic.release(pair.number);
    private_data
}

#[test]
fn a_caller_who_is_no_outboard() {
    let nic = Nic::open();
    assert_eq!(answer(&nic, &nic.pair(), b"hello".to_vec()), b"OBRC\x02\x01");
}

#[test]
fn a_caller_who_is_not_where_it_says() {
    let nic = Nic::open();
    let pair = nic.pair();
    let expected = QpName { address: Ipv4Addr::new(127, 0, 0, 0), number: 7 };
    let peer = Arc::clone(&pair.state) as Arc<dyn Peer>;
    nic.roce.connect(pair.number, expected, peer).expect("aimed");
    let hello = hello::Hello { wanted: pair.number, from: expected };
    assert_eq!(answer(&nic, &pair, hello.emit()), b"OBRC\x02\x01");
}

#[test]
fn closing_ends_the_thread_and_everything_it_had() {
    let [(nic, dialer), (other, waiter)] = two();
    nic.aim(&dialer, waiter.number).expect("aimed");
    other.aim(&waiter, dialer.number).expect("aimed");
    waiter.expect(&["connected"]);
    let thread = waiter.state.thread.lock().expect("thread").expect("a thread");
    let path = PathBuf::from(format!("/proc/self/task/{}", thread.as_raw_nonzero()));
    let name = std::fs::read_to_string(path.join("comm")).expect("a thread's name");
    assert_eq!(name.trim(), "outboard-roce");
    let state: Weak<State> = Arc::downgrade(&waiter.state);
    drop(waiter);
    assert!(state.upgrade().is_some());
    drop(other);
    assert!(state.upgrade().is_none());
    let end = Instant::now() + LIMIT;
    while path.exists() && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(!path.exists());
    dialer.expect(&["connected", "lost"]);
}
