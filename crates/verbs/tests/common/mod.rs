//! What the tests of this crate share: two NICs in one process, connected over loopback TCP, and
//! short names for what tests do all the time. Each test program uses its own part of it.
#![allow(dead_code, reason = "each test program uses its own part")]

use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, CmChannel, CmEventKind, Completion, ConnectParams, Connected, Context, Cq, Listener,
    Mr, OwnedBuf, Pd, Qp, QpConfig, RecvRequest, Remote, SendOp, SendRequest, SgList, SharedRegion,
    Status,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Any free port.
pub(crate) const ANY: &str = "127.0.0.1:0";

/// Everything one end of a connection has.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
}

impl Side {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A side whose queue pair is set up differently.
    pub(crate) fn with(change: impl FnOnce(&mut QpConfig)) -> Self {
        let context = Context::open().expect("a context");
        let pd = context.alloc_pd();
        Self::in_domain(context, pd, change)
    }

    /// One more queue pair of a context and domain that are there.
    pub(crate) fn in_domain(context: Context, pd: Pd, change: impl FnOnce(&mut QpConfig)) -> Self {
        let cq = context.create_cq(4096);
        let mut config = QpConfig::new(&cq);
        change(&mut config);
        let qp = pd.create_qp(config).expect("a queue pair");
        Self { context, pd, cq, qp }
    }

    pub(crate) fn listen(&self) -> Listener {
        self.context.listen(address(ANY), 16).expect("a listener")
    }

    pub(crate) fn register(&self, len: usize, access: Access) -> Mr {
        let region = SharedRegion::zeroed(len).expect("memory");
        self.pd.register(region, access).expect("an STag")
    }

    /// Posts a receive of this many bytes.
    pub(crate) fn receive(&self, wr_id: u64, len: usize) {
        let local = OwnedBuf::zeroed(len).into();
        let posted = self.qp.post_recv(RecvRequest { wr_id, local });
        posted.expect("room for a receive");
    }

    pub(crate) fn post(&self, wr_id: u64, op: SendOp, local: impl Into<SgList>) {
        let posted = self.qp.post_send(SendRequest::new(wr_id, op, local.into()));
        posted.expect("room for a request");
    }

    pub(crate) fn send(&self, wr_id: u64, bytes: &[u8]) {
        self.post(wr_id, SEND, SgList::copied(bytes));
    }

    /// The next `count` completions, in order.
    pub(crate) fn take(&self, count: usize) -> Vec<Completion> {
        take(&self.cq, count)
    }

    /// The next completion, which must be a success.
    pub(crate) fn success(&self) -> Completion {
        let done = self.take(1).remove(0);
        assert_eq!(done.status, Status::Success, "{:?} {}", done.operation, done.wr_id);
        done
    }

    /// Posts a request that must succeed, and waits for it.
    pub(crate) fn carry_out(&self, op: SendOp, local: impl Into<SgList>) -> Completion {
        self.post(77, op, local);
        let done = self.success();
        assert_eq!((done.wr_id, done.operation), (77, op.operation()));
        done
    }

    /// Checks for a while that nothing completes on this side's CQ.
    pub(crate) fn stays_quiet(&self) {
        let mut done = Vec::new();
        let count =
            self.cq.wait(&mut done, 1, Some(Duration::from_millis(50))).expect("no overflow");
        assert_eq!(count, 0, "{:?}", ends(&done));
    }
}

/// A plain Send.
pub(crate) const SEND: SendOp = SendOp::Send { invalidate: None };

/// The next `count` completions of a queue.
pub(crate) fn take(cq: &Cq, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while done.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        let missing = count - done.len();
        cq.wait(&mut done, missing, Some(left)).expect("no overflow");
        assert!(Instant::now() < deadline, "waited for {count} completions, got {:?}", ends(&done));
    }
    done
}

/// The statuses of completions with their names, for comparing.
pub(crate) fn ends(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

/// The bytes of a finished receive or Read.
pub(crate) fn bytes(done: Completion) -> Vec<u8> {
    let count = done.bytes as usize;
    let mut bytes = done.local.into_owned().expect("a buffer").into_vec();
    bytes.truncate(count);
    bytes
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Where an MR's bytes are for the peer.
pub(crate) fn at(mr: &Mr, offset: u64) -> Remote {
    Remote { stag: mr.stag(), offset: mr.base() + offset }
}

/// `len` bytes in a pattern whose period is no power of two.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 7 + seed) % 251).expect("small")).collect()
}

/// Connects `a` to `b` and returns what each knows.
pub(crate) fn connect_with(
    a: &Side,
    b: &Side,
    ours: &ConnectParams,
    theirs: &ConnectParams,
) -> (Connected, Connected) {
    let listener = b.listen();
    let events = a.context.create_cm_channel().expect("a channel");
    a.qp.start_connect(listener.local_addr(), ours, &events).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    let accepted = request.accept(&b.qp, theirs).expect("a connection");
    (connected(&events), accepted)
}

/// Connects two sides with default parameters.
pub(crate) fn connect(a: &Side, b: &Side) {
    connect_with(a, b, &ConnectParams::default(), &ConnectParams::default());
}

/// Two connected sides.
pub(crate) fn pair() -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    (a, b)
}

/// The next event, which must be a finished start-up.
pub(crate) fn connected(events: &CmChannel) -> Connected {
    match events.next(Some(PATIENCE)).expect("an event").kind {
        CmEventKind::Connected(connected) => connected,
        other => panic!("not connected: {other:?}"),
    }
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("procfs").count()
}

/// Memory of this process that is in use, in KiB.
pub(crate) fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// What the kernel says of one end of a TCP connection, in columns of proc(5).
#[derive(Debug)]
pub(crate) struct TcpEnd {
    /// Bytes that the peer's TCP has not acknowledged.
    pub(crate) unacknowledged: u64,
    /// Bytes that have arrived and that no program has read.
    pub(crate) unread: u64,
    /// The peer's TCP has no room, and is asked now and then whether it has some.
    pub(crate) asks_for_room: bool,
}

/// The end at this port of this machine, of a connection to that one.
pub(crate) fn tcp_end(ours: u16, theirs: u16) -> Option<TcpEnd> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("procfs");
    let mut rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ports = [ours, theirs].map(|port| format!(":{port:04X}"));
    let row = rows.find(|row| (0..2).all(|at| row[at + 1].ends_with(&ports[at])))?;
    let pair = |text: &str| {
        let (one, other) = text.split_once(':').expect("two parts");
        [one, other].map(|number| u64::from_str_radix(number, 16).expect("hexadecimal"))
    };
    let ([unacknowledged, unread], [timer, _due]) = (pair(row[4]), pair(row[5]));
    Some(TcpEnd { unacknowledged, unread, asks_for_room: timer == 4 })
}

/// Waits until a thread sleeps.
pub(crate) fn falls_asleep(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    eventually("a thread falls asleep", || {
        // Behind the name, which may have any characters. One that has ended has slept.
        let stat = std::fs::read_to_string(&path).ok();
        stat.is_none_or(|stat| stat.rsplit_once(") ").is_some_and(|(_, is)| is.starts_with('S')))
    });
}
