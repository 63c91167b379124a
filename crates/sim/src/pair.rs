//! Two connections, the network between them and the clock. Nothing happens by itself: a test
//! steps, drives until all is quiet, or lets time pass.
//!
//! `>` in a trace marks what A, the initiator, sends; `<` what B sends.

use crate::chunk::Chunks;
use crate::side::{PD, Side};
use crate::trace::{self, Decoder};
use outboard_iwarp::startup::{Initiator, LocalParams, Negotiated, ReplyOutcome, Responder};
use outboard_iwarp::{Params, RnrPolicy};
use outboard_wire::startup::{RtrModes, StartupFrame};
use std::time::{Duration, Instant};

/// Steps after which a network that should be quiet is taken for a live-lock.
const MAX_STEPS: usize = 10_000_000;

/// Names a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The initiator.
    A,
    /// The responder.
    B,
}

/// How one side is set up.
#[derive(Clone, Debug)]
pub struct SideSetup {
    /// What it brings to the start-up.
    pub local: LocalParams,
    /// Largest ULPDU it sends, in bytes.
    pub max_ulpdu: usize,
    /// Depth of its send queue.
    pub send_depth: usize,
    /// What it does without receives.
    pub rnr_policy: RnrPolicy,
}

impl Default for SideSetup {
    fn default() -> Self {
        Self {
            local: LocalParams { crc: false, ..LocalParams::default() },
            max_ulpdu: 1442,
            send_depth: 256,
            rnr_policy: RnrPolicy::Stall(Duration::from_secs(1)),
        }
    }
}

/// How a pair is set up. The default has neither CRCs nor markers and moves everything at once.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The initiator.
    pub a: SideSetup,
    /// The responder.
    pub b: SideSetup,
    /// How much the network moves at a time.
    pub chunks: Chunks,
    /// Kinds of RTR that A offers, where not all: as other implementations do.
    pub rtr: Option<RtrModes>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { a: SideSetup::default(), b: SideSetup::default(), chunks: Chunks::Whole, rtr: None }
    }
}

impl Setup {
    /// Changes the initiator's and the responder's part alike.
    pub fn both(mut self, change: impl Fn(&mut SideSetup)) -> Self {
        change(&mut self.a);
        change(&mut self.b);
        self
    }
}

/// One direction of the network.
#[derive(Debug)]
struct Lane {
    chunks: Chunks,
    decoder: Decoder,
    in_flight: Vec<u8>,
    fin: bool,
    mark: char,
    max_ulpdu: usize,
}

/// Two connected sides.
#[derive(Debug)]
pub struct Pair {
    /// The initiator.
    pub a: Side,
    /// The responder.
    pub b: Side,
    now: Instant,
    to_b: Lane,
    to_a: Lane,
    trace: Vec<String>,
}

impl Pair {
    /// Goes through the start-up; nothing else has been sent when it returns.
    ///
    /// # Panics
    /// When the two cannot agree.
    pub fn connect(setup: Setup) -> Self {
        let now = Instant::now();
        let mut trace = Vec::new();
        let (ours, theirs) = start_up(&setup, &mut trace);
        let to_b = Lane::new('>', setup.chunks, &theirs, setup.a.max_ulpdu);
        let to_a = Lane::new('<', setup.chunks, &ours, setup.b.max_ulpdu);
        let a = Side::new(params(1, setup.a, ours), now);
        let b = Side::new(params(2, setup.b, theirs), now);
        Self { a, b, now, to_b, to_a, trace }
    }

    /// Connects, exchanges the RTR and forgets the trace so far.
    ///
    /// # Panics
    /// When the two cannot agree.
    pub fn open(setup: Setup) -> Self {
        let mut pair = Self::connect(setup);
        pair.drive();
        pair.trace.clear();
        pair.a.events.clear();
        pair.b.events.clear();
        pair
    }

    /// What the clock shows.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A side by name.
    pub fn side(&mut self, end: End) -> &mut Side {
        match end {
            End::A => &mut self.a,
            End::B => &mut self.b,
        }
    }

    /// Moves one piece each way; false when there was nothing to move.
    pub fn step(&mut self) -> bool {
        let now = self.now;
        let right = self.to_b.step(&mut self.a, &mut self.b, now, &mut self.trace);
        let left = self.to_a.step(&mut self.b, &mut self.a, now, &mut self.trace);
        right || left
    }

    /// Steps until nothing moves.
    ///
    /// # Panics
    /// When that takes for ever.
    pub fn drive(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        panic!("the two never come to rest");
    }

    /// Lets time pass, then drives.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.a.tick(self.now);
        self.b.tick(self.now);
        self.drive();
    }

    /// Lets `end`'s TCP take at most `count` bytes, and delivers them at once.
    pub fn carry(&mut self, end: End, count: usize) {
        let (lane, from, to) = match end {
            End::A => (&mut self.to_b, &mut self.a, &mut self.b),
            End::B => (&mut self.to_a, &mut self.b, &mut self.a),
        };
        lane.send(from, to, self.now, count, &mut self.trace);
        to.deliver(self.now, &std::mem::take(&mut lane.in_flight));
    }

    /// The trace since the last call.
    pub fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }

    /// Drives, then compares what crossed since the last call with the lines of `expected`.
    ///
    /// # Panics
    /// When they differ.
    #[track_caller]
    pub fn expect(&mut self, expected: &str) {
        self.drive();
        let expected: Vec<&str> =
            expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let found = self.take_trace();
        assert_eq!(found, expected, "\nfound:\n{}\n", found.join("\n"));
    }

    /// True when both connections are over and both FINs arrived.
    pub fn is_closed(&self) -> bool {
        self.a.saw_eof() && self.b.saw_eof()
    }
}

impl Lane {
    fn new(mark: char, chunks: Chunks, receiver: &Negotiated, max_ulpdu: usize) -> Self {
        let decoder = Decoder::for_receiver(receiver);
        Self { chunks, decoder, in_flight: Vec::new(), fin: false, mark, max_ulpdu }
    }

    fn step(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        now: Instant,
        trace: &mut Vec<String>,
    ) -> bool {
        let budget = self.chunks.next_len().min(1 << 20);
        let sent = self.send(from, to, now, budget, trace);
        let moved = self.arrive(to, now);
        sent || moved
    }

    fn send(
        &mut self,
        from: &mut Side,
        to: &Side,
        now: Instant,
        budget: usize,
        trace: &mut Vec<String>,
    ) -> bool {
        if self.fin {
            return false;
        }
        let bytes = from.transmit(now, budget);
        for segment in self.decoder.push(&bytes) {
            let len = segment.header.len() + segment.payload.len();
            assert!(len <= self.max_ulpdu, "a ULPDU of {len} bytes");
            trace.push(format!("{} {}", self.mark, trace::line(&segment, &to.names)));
        }
        self.in_flight.extend_from_slice(&bytes);
        if bytes.is_empty() && from.connection.wants_fin() {
            assert!(self.decoder.is_between(), "FIN in the middle of an FPDU");
            self.fin = true;
            trace.push(format!("{} FIN", self.mark));
        }
        !bytes.is_empty() || self.fin
    }

    fn arrive(&mut self, to: &mut Side, now: Instant) -> bool {
        if self.in_flight.is_empty() && self.fin && !to.connection.is_stalled() && !to.saw_eof() {
            to.deliver_eof(now);
            return true;
        }
        let count = self.chunks.next_len().min(self.in_flight.len());
        if count == 0 {
            return to.can_resume() && to.deliver(now, &[]);
        }
        if to.connection.is_full() && !to.can_resume() {
            return false;
        }
        to.deliver(now, &self.in_flight[..count]);
        self.in_flight.drain(..count);
        true
    }
}

fn params(qp: u32, setup: SideSetup, negotiated: Negotiated) -> Params {
    Params {
        qp,
        pd: PD,
        negotiated,
        max_ulpdu: setup.max_ulpdu,
        send_depth: setup.send_depth,
        rnr_policy: setup.rnr_policy,
    }
}

fn start_up(setup: &Setup, trace: &mut Vec<String>) -> (Negotiated, Negotiated) {
    let (mut initiator, request) = Initiator::new(setup.a.local.clone()).expect("a Request");
    let request = with_rtr(request, setup.rtr);
    trace.push(format!("> {}", trace::startup_line(&request)));
    let mut responder = Responder::default();
    feed(&request, setup.chunks, |bytes| responder.handle_bytes(bytes).expect("our own"));
    let (reply, theirs) =
        responder.accept(&setup.b.local).expect("a Reply").expect("after the Request");
    trace.push(format!("< {}", trace::startup_line(&reply)));
    let (outcome, used) =
        feed(&reply, setup.chunks, |bytes| initiator.handle_bytes(bytes).expect("our own"));
    assert_eq!(used, reply.len());
    match outcome {
        ReplyOutcome::Accepted(ours) => (ours, theirs),
        ReplyOutcome::Rejected(_) => panic!("the ULP did not reject"),
    }
}

/// Offers longer and longer prefixes, as a driver does, until there is a result.
fn feed<R>(bytes: &[u8], mut chunks: Chunks, mut offer: impl FnMut(&[u8]) -> Option<R>) -> R {
    let mut len = 0;
    loop {
        len = chunks.next_len().min(bytes.len() - len) + len;
        if let Some(result) = offer(&bytes[..len]) {
            return result;
        }
        assert!(len < bytes.len(), "a whole frame was not understood");
    }
}

fn with_rtr(request: Vec<u8>, rtr: Option<RtrModes>) -> Vec<u8> {
    let Some(rtr) = rtr else { return request };
    let (mut frame, _) = StartupFrame::parse(&request).expect("our own").expect("whole");
    if let Some(enhanced) = &mut frame.enhanced {
        enhanced.rtr = rtr;
    }
    let mut changed = Vec::new();
    frame.emit(&mut changed).expect("it fitted before");
    changed
}
