//! Random operations on a connected pair, held against a model of memory.
//!
//! A script is a string of bytes, so that a property test and a fuzzer share it and shrink it.
//! The model knows what each side asked for and nothing of protocols: what the peer's memory, the
//! completions and the received messages must be follows from the requests alone.
//!
//! RDMA leaves open whether a Write behind an unanswered Read or atomic on the same bytes comes
//! before it (RFC 5040 §5.5); the script sets a fence there, so that there is one right answer.

mod model;

use self::model::{Expected, Model};
use crate::chunk::{Chunks, next_word};
use crate::pair::{End, Pair, Setup, SideSetup};
use crate::side::{Mr, PD, Side};
use outboard_iwarp::startup::LocalParams;
use outboard_iwarp::work::{Completion, Remote, SendOp, SendRequest, Status};
use outboard_iwarp::{PostError, RnrPolicy};
use outboard_mem::{Access, OwnedBuf, Segment, SgList, SharedRegion};
use outboard_wire::ddp::Stag;
use std::time::Duration;

/// Bytes that each side registers for the other.
const REGION: usize = 8 * 1024;
/// Bytes in front of them and behind them, which neither side may touch.
const CANARY: usize = 512;
const CANARY_BYTE: u8 = 0xc5;
/// Time after which a responder may speak that was promised nothing.
const GRACE: Duration = Duration::from_millis(20);
/// Longest message and length of every receive.
const MAX_LEN: usize = 4096;

/// Numbers drawn from a string of bytes; zeros when it is used up.
#[derive(Debug)]
struct Draw<'a> {
    bytes: &'a [u8],
}

impl Draw<'_> {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn word(&mut self) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()]))
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.byte()) % values.len()]
    }

    /// Short lengths more often than long ones.
    fn len(&mut self) -> usize {
        let limit = self.one_of(&[1, 9, 64, 600, 3000, MAX_LEN + 1]);
        self.word() % limit
    }
}

/// Runs the script in `bytes`.
///
/// # Panics
/// When a connection does something that the model does not foresee.
pub fn run(bytes: &[u8]) {
    Runner::new(&mut Draw { bytes }).run(&mut Draw { bytes: bytes.get(12..).unwrap_or(&[]) });
}

/// A pair with a model of either side.
#[derive(Debug)]
struct Runner {
    pair: Pair,
    mrs: [Mr; 2],
    models: [Model; 2],
    fill: u64,
    /// One side leaves at the end without waiting.
    leaves: Option<End>,
}

const fn index(end: End) -> usize {
    match end {
        End::A => 0,
        End::B => 1,
    }
}

const fn other(end: End) -> End {
    match end {
        End::A => End::B,
        End::B => End::A,
    }
}

fn side_setup(draw: &mut Draw<'_>, flags: u8) -> SideSetup {
    let depth = draw.one_of(&[1, 2, 3, 8, 0]);
    SideSetup {
        local: LocalParams {
            revision: if flags & 0x10 == 0 { 2 } else { 1 },
            crc: flags & 1 != 0,
            markers: flags & 2 != 0,
            peer_to_peer: flags & 0x20 == 0,
            ird: 8,
            ord: depth,
            private_data: Vec::new(),
        },
        max_ulpdu: draw.one_of(&[1442, 128, 131, 300, 577, 9000, 64_768]),
        send_depth: draw.one_of(&[64, 1, 5]),
        rnr_policy: RnrPolicy::Stall(Duration::from_secs(3600)),
    }
}

fn setup(draw: &mut Draw<'_>) -> Setup {
    let flags = draw.byte();
    let chunks = match draw.byte() {
        kind if kind % 4 == 0 => Chunks::Whole,
        kind if kind % 4 == 1 => Chunks::Every(usize::from(kind / 4) * 16 + 1),
        kind => Chunks::Random(u64::from(kind)),
    };
    let a = side_setup(draw, flags);
    let b = side_setup(draw, flags >> 2 & 3 | flags & 0x30);
    Setup { a, b, chunks, rtr: None }
}

/// Registers the middle of a region of canaries.
fn register(side: &mut Side, name: &str) -> Mr {
    let region = side.region(REGION + 2 * CANARY);
    region.copy_in(0, &[CANARY_BYTE; REGION + 2 * CANARY]).expect("the whole region");
    region.copy_in(CANARY, &[0; REGION]).expect("inside");
    let share = region.slice(CANARY..CANARY + REGION).expect("inside");
    let access = Access::REMOTE | Access::LOCAL_WRITE;
    let stag = Stag(side.stags.register(PD, share, 0, access).expect("room"));
    side.names.insert(stag, name.to_owned());
    Mr { stag, region }
}

impl Runner {
    fn new(draw: &mut Draw<'_>) -> Self {
        let mut pair = Pair::open(setup(draw));
        let ending = draw.byte();
        pair.a.direct = ending & 1 == 0;
        pair.b.direct = pair.a.direct;
        let leaves = match ending >> 1 & 3 {
            1 => Some(End::A),
            2 => Some(End::B),
            _ => None,
        };
        let mrs = [register(&mut pair.a, "a"), register(&mut pair.b, "b")];
        let model = || Model::new(REGION);
        Self { pair, mrs, models: [model(), model()], fill: 1, leaves }
    }

    fn run(mut self, draw: &mut Draw<'_>) {
        while !draw.is_empty() {
            self.operation(draw);
            self.check_completions(false);
        }
        match self.leaves {
            None => self.finish(),
            Some(end) => self.leave(end),
        }
        for mr in &self.mrs {
            let bytes = mr.bytes();
            let canaries = bytes[..CANARY].iter().chain(&bytes[CANARY + REGION..]);
            assert!(canaries.into_iter().all(|byte| *byte == CANARY_BYTE), "a canary died");
        }
    }

    fn operation(&mut self, draw: &mut Draw<'_>) {
        let kind = draw.byte();
        let end = if kind & 0x80 == 0 { End::A } else { End::B };
        match kind & 0x0f {
            0 | 1 => self.post_send(end, draw, false),
            2 => self.post_send(end, draw, true),
            3 | 4 => self.post_write(end, draw, None),
            5 => self.post_write(end, draw, Some(u64::from(kind) << 40 | 7)),
            6 => self.post_immediate(end, draw),
            7 | 8 => self.post_read(end, draw),
            9 | 10 => self.post_atomic(end, draw),
            11 | 12 => self.post_receives(end, draw.byte() % 4 + 1, draw.byte()),
            13 => self.pair.pass(Duration::from_millis(u64::from(draw.byte()))),
            _ => (0..draw.byte()).for_each(|_| {
                self.pair.step();
            }),
        }
    }

    /// Bytes that look like nothing else.
    fn fresh(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| next_word(&mut self.fill).to_le_bytes()[3]).collect()
    }

    /// A local list with these bytes, of one kind or another.
    fn local(&mut self, end: End, bytes: &[u8], shape: u8) -> SgList {
        let shared = |side: &mut Side, bytes: &[u8]| -> SharedRegion {
            let region = side.region(bytes.len());
            region.copy_in(0, bytes).expect("the whole region");
            region
        };
        let side = self.pair.side(end);
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let owned = |bytes: &[u8]| Segment::from(OwnedBuf::from(bytes));
        match shape % 4 {
            0 => SgList::copied(bytes),
            1 => Segment::Shared(shared(side, bytes).into()).into(),
            2 => vec![owned(head), Segment::Shared(shared(side, tail).into())].into(),
            _ => vec![owned(head), owned(&[]), owned(tail)].into(),
        }
    }

    /// Posts a request and notes what must come of it; `false` when the queue did not take it.
    fn post(
        &mut self,
        end: End,
        (op, bytes): (SendOp, &[u8]),
        draw: &mut Draw<'_>,
        content: Option<Vec<u8>>,
    ) -> bool {
        let flags = draw.byte();
        let local = self.local(end, bytes, draw.byte());
        let model = &mut self.models[index(end)];
        let mut request = SendRequest::new(model.next_wr, op, local);
        request.signaled = flags & 3 != 3;
        request.solicited = flags & 4 != 0;
        request.fence = flags & 0x18 == 0x18 || model.needs_fence(&op, bytes.len());
        let (signaled, fence) = (request.signaled, request.fence);
        match self.pair.side(end).post(request) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. } | PostError::NoReads) => return false,
            Err(error) => panic!("the script posted an invalid request: {error}"),
        }
        let model = &mut self.models[index(end)];
        model.note(&op, bytes, fence, flags & 4 != 0);
        let bytes = if matches!(op, SendOp::Immediate { .. }) { 0 } else { bytes.len() };
        if signaled {
            model.sends.push_back(Expected {
                wr_id: model.next_wr,
                operation: op.operation(),
                bytes,
                content,
                immediate: None,
                invalidated: None,
                solicited: false,
            });
        }
        model.next_wr += 1;
        true
    }

    fn post_send(&mut self, end: End, draw: &mut Draw<'_>, invalidate: bool) {
        let len = draw.len();
        let bytes = self.fresh(len);
        let peer = self.pair.side(other(end));
        let doomed = invalidate.then(|| peer.register("doomed", 8, Access::REMOTE).stag);
        let posted = self.post(end, (SendOp::Send { invalidate: doomed }, &bytes), draw, None);
        if let (Some(stag), false) = (doomed, posted) {
            self.pair.side(other(end)).stags.deregister(stag.0).expect("just registered");
        }
    }

    fn target(&self, end: End, offset: usize) -> Remote {
        Remote { stag: self.mrs[index(other(end))].stag, offset: offset as u64 }
    }

    fn post_write(&mut self, end: End, draw: &mut Draw<'_>, immediate: Option<u64>) {
        let len = draw.len();
        let to = self.target(end, draw.word() % (REGION - len + 1));
        let bytes = self.fresh(len);
        let op = match immediate {
            Some(immediate) => SendOp::WriteWithImm { to, immediate },
            None => SendOp::Write { to },
        };
        self.post(end, (op, &bytes), draw, None);
    }

    fn post_immediate(&mut self, end: End, draw: &mut Draw<'_>) {
        let immediate = u64::from(draw.byte()) << 56 | 1;
        self.post(end, (SendOp::Immediate { immediate }, &[]), draw, None);
    }

    fn post_read(&mut self, end: End, draw: &mut Draw<'_>) {
        let len = draw.len();
        let offset = draw.word() % (REGION - len + 1);
        let from = self.target(end, offset);
        let content = self.models[index(end)].there[offset..offset + len].to_vec();
        self.post(end, (SendOp::Read { from }, &vec![0xee; len]), draw, Some(content));
    }

    fn post_atomic(&mut self, end: End, draw: &mut Draw<'_>) {
        let offset = draw.word() % (REGION / 8) * 8;
        let at = self.target(end, offset);
        let original = self.models[index(end)].word(offset);
        let (add, mask) = (next_word(&mut self.fill), u64::from(draw.byte()) << 31);
        let op = match draw.byte() % 3 {
            0 => SendOp::FetchAdd { at, add, mask },
            kind => SendOp::CompareSwap {
                at,
                swap: add,
                swap_mask: !mask,
                compare: if kind == 1 { original } else { add },
                compare_mask: u64::MAX,
            },
        };
        let content = original.to_ne_bytes().to_vec();
        self.post(end, (op, &[0xee; 8]), draw, Some(content));
    }

    fn post_receives(&mut self, end: End, count: u8, shape: u8) {
        for _ in 0..count {
            let local = self.local(end, &[0xdd; MAX_LEN], shape);
            let model = &mut self.models[index(other(end))];
            let wr_id = model.receives;
            model.receives += 1;
            self.pair.side(end).receive_into(wr_id, local);
        }
    }

    /// Compares what completed with what had to.
    fn check_completions(&mut self, leaving: bool) {
        for end in [End::A, End::B] {
            for completion in std::mem::take(&mut self.pair.side(end).completions) {
                if leaving && completion.status == Status::Flushed {
                    self.check_flushed(end, &completion);
                } else if completion.operation.is_receive() {
                    self.check_message(end, &completion);
                } else {
                    let model = &mut self.models[index(end)];
                    let expected = model.sends.pop_front().expect("nothing else was signaled");
                    assert_eq!(completion.wr_id, expected.wr_id, "out of order");
                    expected.check(&completion);
                }
            }
        }
    }

    fn check_message(&mut self, end: End, completion: &Completion) {
        let model = &mut self.models[index(other(end))];
        let mut expected = model.messages.pop_front().expect("nothing was sent");
        expected.wr_id = model.received;
        model.received += 1;
        assert_eq!(completion.wr_id, expected.wr_id, "out of order");
        expected.check(completion);
        if let Some(stag) = expected.invalidated {
            let stags = &self.pair.side(end).stags;
            assert!(
                stags.resolve(stag.0, PD, Access::REMOTE_READ, 0, 1).is_err(),
                "not invalidated"
            );
            stags.deregister(stag.0).expect("still held");
        }
    }

    /// A flushed request was signaled or not, but never completed before, and stays in order.
    fn check_flushed(&mut self, end: End, completion: &Completion) {
        if completion.operation.is_receive() {
            let model = &mut self.models[index(other(end))];
            assert_eq!(completion.wr_id, model.received, "a receive came back twice");
            model.received += 1;
            return;
        }
        let model = &mut self.models[index(end)];
        assert!(completion.wr_id < model.next_wr);
        while model.sends.front().is_some_and(|next| next.wr_id <= completion.wr_id) {
            let next = model.sends.pop_front().map(|next| next.wr_id);
            assert_eq!(next, Some(completion.wr_id), "a signaled request never came back");
        }
    }

    /// Posts the receives that are missing, drives both sides until they are idle and compares
    /// everything.
    fn finish(&mut self) {
        for end in [End::A, End::B] {
            let model = &self.models[index(other(end))];
            let posted = model.receives - model.received;
            for _ in posted..model.messages.len() as u64 {
                self.post_receives(end, 1, 0);
            }
        }
        self.pair.drive();
        self.pair.pass(GRACE);
        self.check_completions(false);
        for end in [End::A, End::B] {
            assert!(self.pair.side(end).connection.is_idle());
            assert_eq!(self.pair.side(end).untaken(), 0);
            let model = &self.models[index(end)];
            assert!(model.sends.is_empty() && model.messages.is_empty(), "something is missing");
            let there = self.mrs[index(other(end))].bytes();
            assert!(there[CANARY..CANARY + REGION] == model.there, "memory differs");
        }
        self.leave(End::A);
    }

    /// One side leaves; everything comes back, and both connections close.
    fn leave(&mut self, end: End) {
        self.pair.side(end).connection.disconnect();
        self.pair.drive();
        self.check_completions(true);
        for end in [End::A, End::B] {
            // A stream that waits for a receive hides the FIN behind it.
            if self.pair.side(end).connection.is_stalled() {
                self.pair.side(end).connection.disconnect();
            }
        }
        self.pair.drive();
        self.check_completions(true);
        assert!(self.pair.is_closed(), "a side never closed");
        for model in &self.models {
            assert!(model.sends.is_empty(), "a request never came back");
        }
    }
}
