//! Counters of 32 bits that come round: message sequence numbers on every queue (RFC 5041 §4.3) and
//! the identifiers of atomics (RFC 7306 §5.2.1). No test from outside lives long enough to get
//! there, so the connections begin close to the end.

use crate::startup::{Negotiated, Role};
use crate::work::{Completion, Receives, RecvRequest, Remote, SendOp, SendRequest, Status};
use crate::{Connection, Env, Event, Params, RnrPolicy};
use outboard_mem::{Access, OwnedBuf, PdId, SgList, SharedRegion, StagTable};
use outboard_wire::ddp::{Stag, queue};
use outboard_wire::terminate::{Terminate, TerminateCode};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const PD: PdId = PdId(1);
/// Messages on each queue: three before the wrap, the number 0, and some behind it.
const MESSAGES: u64 = 8;
/// The last number given before the first message.
const LAST: u32 = u32::MAX - 3;

#[derive(Default)]
struct Queue(VecDeque<RecvRequest>);

impl Receives for Queue {
    fn pop(&mut self) -> Option<RecvRequest> {
        self.0.pop_front()
    }
}

struct End {
    connection: Connection,
    stags: StagTable,
    receives: Queue,
    completions: Vec<Completion>,
}

impl End {
    fn new(role: Role, crc: bool, now: Instant) -> Self {
        let negotiated = Negotiated { crc, ird: 4, ord: 4, ..Negotiated::bare(role) };
        let rnr_policy = RnrPolicy::Stall(Duration::from_secs(1));
        let params =
            Params { qp: 1, pd: PD, negotiated, max_ulpdu: 128, send_depth: 32, rnr_policy };
        let mut connection = Connection::new(params, now);
        connection.tx.msn = [LAST; 4];
        connection.rx.msn = [LAST; 4];
        connection.sends.begin_at(u64::from(LAST));
        Self {
            connection,
            stags: StagTable::new(16),
            receives: Queue::default(),
            completions: Vec::new(),
        }
    }

    fn with_env<T>(&mut self, work: impl FnOnce(&mut Connection, &mut Env<'_>) -> T) -> T {
        let Self { connection, stags, receives, completions } = self;
        work(connection, &mut Env { stags, receives, completions })
    }

    fn post(&mut self, wr_id: u64, op: SendOp, local: SgList) {
        self.connection.post(SendRequest::new(wr_id, op, local)).expect("room");
    }

    fn statuses(&self) -> Vec<(u64, Status)> {
        self.completions.iter().map(|done| (done.wr_id, done.status)).collect()
    }
}

/// Hands everything that one end has to say to the other; false when that is nothing.
fn carry(from: &mut End, to: &mut End, now: Instant) -> bool {
    let mut bytes = Vec::new();
    let count = from.with_env(|connection, env| {
        let count = connection.poll_transmit_copy(now, 1 << 16, env, &mut bytes);
        connection.handle_transmitted(count, env.completions);
        count
    });
    let taken = to.with_env(|connection, env| connection.handle_bytes(now, &bytes, env));
    assert_eq!(taken, count, "a whole number of FPDUs, and receives for all");
    count > 0
}

fn drive(a: &mut End, b: &mut End) {
    let now = Instant::now();
    while carry(a, b, now) | carry(b, a, now) {}
}

fn pair(crc: bool) -> (End, End, Remote) {
    let now = Instant::now();
    let (a, b) = (End::new(Role::Initiator, crc, now), End::new(Role::Responder, crc, now));
    let region = SharedRegion::zeroed(64).expect("memory");
    let slice = region.slice(0..64).expect("all of it");
    let stag = b.stags.register(PD, slice, 0, Access::REMOTE).expect("an STag");
    (a, b, Remote { stag: Stag(stag), offset: 0 })
}

#[test]
fn every_queue_comes_round() {
    for crc in [true, false] {
        let (mut a, mut b, there) = pair(crc);
        for wr_id in 0..MESSAGES {
            // Three segments that share a number.
            let local = OwnedBuf::zeroed(300).into();
            b.receives.0.push_back(RecvRequest { wr_id, local });
            a.post(wr_id, SendOp::Send { invalidate: None }, SgList::copied(&[7; 300]));
            a.post(100 + wr_id, SendOp::Read { from: there }, OwnedBuf::zeroed(8).into());
            a.post(200 + wr_id, SendOp::fetch_add(there, 1), OwnedBuf::zeroed(8).into());
            drive(&mut a, &mut b);
        }
        let all = |of: &[u64]| -> Vec<(u64, Status)> {
            let ids = (0..MESSAGES).flat_map(|id| of.iter().map(move |base| base + id));
            ids.map(|id| (id, Status::Success)).collect()
        };
        assert_eq!(a.statuses(), all(&[0, 100, 200]));
        assert_eq!(b.statuses(), all(&[0]));
        let round = LAST.wrapping_add(8);
        assert_eq!(b.connection.rx.msn[queue::SEND as usize], round);
        assert_eq!(b.connection.rx.msn[queue::READ_REQUEST as usize], round.wrapping_add(8));
        assert_eq!(a.connection.rx.msn[queue::ATOMIC_RESPONSE as usize], round);
    }
}

#[test]
fn a_number_that_was_given_before_the_wrap_is_refused_behind_it() {
    let (mut a, mut b, _) = pair(true);
    for wr_id in 0..4 {
        b.receives.0.push_back(RecvRequest { wr_id, local: OwnedBuf::zeroed(8).into() });
        a.post(wr_id, SendOp::Send { invalidate: None }, SgList::copied(&[7; 8]));
    }
    drive(&mut a, &mut b);
    assert_eq!(a.connection.tx.msn[queue::SEND as usize], 0);
    a.connection.tx.msn[queue::SEND as usize] = LAST;
    a.post(9, SendOp::Send { invalidate: None }, SgList::copied(&[7; 8]));
    drive(&mut a, &mut b);
    let faulted = |event| match event {
        Event::Faulted(fault) => Some(fault.code),
        _ => None,
    };
    let told = std::iter::from_fn(|| b.connection.poll_event()).find_map(faulted);
    assert_eq!(told, Some(TerminateCode::UNTAGGED_INVALID_MSN));
}

/// A Terminate quotes a number before the wrap, and newer requests have numbers behind it.
#[test]
fn blame_reaches_back_over_the_wrap() {
    let (mut a, mut b, there) = pair(true);
    a.connection.tx.msn[queue::READ_REQUEST as usize] = u32::MAX - 1;
    b.connection.rx.msn[queue::READ_REQUEST as usize] = u32::MAX - 1;
    for wr_id in 0..3 {
        a.post(wr_id, SendOp::Read { from: there }, OwnedBuf::zeroed(8).into());
    }
    let now = Instant::now();
    let mut requests = Vec::new();
    a.with_env(|connection, env| {
        let count = connection.poll_transmit_copy(now, 1 << 16, env, &mut requests);
        connection.handle_transmitted(count, env.completions);
    });
    // The first has the highest number, the second 0, the third 1.
    let quoted = |at: usize| {
        let len = requests.len() / 3;
        let ulpdu = &requests[at * len + 2..];
        outboard_wire::ddp::Header::parse(ulpdu).expect("a header").0
    };
    let blame = |at| Terminate {
        code: TerminateCode::PROTECTION_BOUNDS,
        segment_len: Some(46),
        ddp: Some(quoted(at).into()),
        read_request: None,
    };
    for at in 0..3 {
        assert_eq!(a.connection.blamed(&blame(at)), at);
    }
}
