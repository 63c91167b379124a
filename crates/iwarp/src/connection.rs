//! One iWARP connection after start-up, as a plain value: no socket, no thread, no clock.
//!
//! Four kinds of methods:
//! * getters;
//! * commands: [`Connection::post`], [`Connection::disconnect`];
//! * inputs: [`Connection::handle_bytes`] and [`Connection::handle_direct`],
//!   [`Connection::handle_eof`], [`Connection::handle_lost`], [`Connection::handle_transmitted`],
//!   [`Connection::handle_timeout`];
//! * outputs, to be drained after any of these: [`Connection::poll_transmit`],
//!   [`Connection::poll_event`], [`Connection::poll_timeout`]; completions appear in [`Env`].
//!   A driver that neither transmits nor waits calls [`Connection::settle`] instead.

use crate::batch::{Gone, Readable, TxBatch};
use crate::fault::Fault;
use crate::inbound::InboundQueue;
use crate::nudge::Nudge;
use crate::phase::{Move, Phase};
use crate::rx::Rx;
use crate::send_queue::SendQueue;
use crate::startup::{Negotiated, Role};
use crate::tx::Tx;
use crate::work::{Completion, Operation, Receives, RecvRequest, SendOp, SendRequest, Status};
use outboard_mem::{Access, AccessError, PdId, Placement, SharedRegion, Span, StagTable};
use outboard_wire::ddp::Stag;
use outboard_wire::fpdu::MAX_ULPDU;
use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::{Layout, Terminate};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Smallest ULPDU that still moves payload behind every header.
const MIN_ULPDU: usize = 128;
/// How long a responder of an initiator that promised no first message stays silent
/// (RFC 5044 §7.1.2 rule 4 would have it wait for ever).
const HELD_GRACE: Duration = Duration::from_millis(20);
/// How long a closed half waits for the other.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The last four octets of Immediate Data that belongs to the Send behind it.
pub const OF_NEXT_SEND: u32 = 1;

/// How a connection is set up.
#[derive(Clone, Debug)]
pub struct Params {
    /// Number of the queue pair, for completions.
    pub qp: u32,
    /// The protection domain whose STags the peer may use.
    pub pd: PdId,
    /// What MPA start-up agreed on.
    pub negotiated: Negotiated,
    /// Largest ULPDU to send, in octets; 128 to 64,768.
    pub max_ulpdu: usize,
    /// Send requests that may be unfinished at a time.
    pub send_depth: usize,
    /// What happens to a message that finds no posted receive.
    pub missing_receive: MissingReceive,
}

/// What happens to a message that finds no posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingReceive {
    /// The stream waits this long, then the connection is terminated.
    Stall(Duration),
    /// The connection is terminated at once, as hardware does.
    Terminate,
}

/// How much [`Connection::poll_transmit`] offers at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Octets, roughly: an FPDU is never cut.
    pub octets: usize,
    /// Spans, roughly: the pieces of one local list are never cut.
    pub spans: usize,
}

/// What a connection works on that is not its own.
pub struct Env<'a> {
    /// Registered memory.
    pub stags: &'a StagTable,
    /// Posted receives.
    pub receives: &'a mut dyn Receives,
    /// Completions go here, in order.
    pub completions: &'a mut Vec<Completion>,
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("completions", &self.completions.len()).finish_non_exhaustive()
    }
}

/// What the driver should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A responder may transmit now.
    Established,
    /// The peer broke a rule, or local memory has gone; a Terminate with this content is being
    /// sent.
    Faulted(Fault),
    /// The peer's Terminate arrived.
    PeerTerminated {
        /// What it says.
        terminate: Terminate,
        /// In which layout.
        layout: Layout,
    },
    /// No more messages will be exchanged; unfinished requests have been flushed.
    Over,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many requests are unfinished as the queue pair was created for.
    #[error("the send queue is full: {depth} requests are unfinished; poll completions first")]
    QueueFull {
        /// The queue's depth.
        depth: usize,
    },
    /// There is no connection yet, or no longer.
    #[error("the queue pair is not connected: nothing can be sent")]
    NotConnected,
    /// The queue pair has no receive queue of its own.
    #[error("the queue pair takes its receives from a shared queue: post there")]
    SharedReceives,
    /// Reads and atomics were negotiated away.
    #[error("the connection was set up without Reads and atomics (ORD 0)")]
    NoReads,
    /// A message or list that no queue pair takes.
    #[error("{what} is {found}; at most {limit} is possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: usize,
        /// What is possible.
        limit: usize,
    },
    /// The ends have not agreed on what Sends with immediate data look like.
    #[error("immediate data with a Send is not agreed on with this peer; use a Write with it")]
    NotPaired,
    /// An atomic's result needs eight octets.
    #[error("an atomic needs a local list of 8 octets; this one has {found}")]
    AtomicResult {
        /// Octets given.
        found: usize,
    },
}

/// A receive that a message is filling.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) request: RecvRequest,
    /// Opcode of the first segment, which all share.
    pub(crate) opcode: Opcode,
    pub(crate) placed: usize,
}

impl Receiving {
    pub(crate) fn complete(self, qp: u32, status: Status) -> Completion {
        let RecvRequest { wr_id, local } = self.request;
        let mut completion = Completion::new(wr_id, qp, Operation::Receive, status, local);
        completion.bytes = u32::try_from(self.placed).unwrap_or(u32::MAX);
        completion
    }
}

/// A connection in full operation. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    pub(crate) qp: u32,
    pub(crate) pd: PdId,
    pub(crate) phase: Phase,
    pub(crate) crc: bool,
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    /// What the peer may do here at all, whatever STags it has.
    allowed: Access,
    /// Immediate Data may belong to the Send behind it.
    pub(crate) pairs: bool,
    pub(crate) max_ulpdu: usize,
    pub(crate) accepts_rtr_send: bool,
    /// Responder of a peer that promised a first message: never speaks before it.
    waits_for_rtr: bool,
    send_depth: usize,
    missing_receive: MissingReceive,
    pub(crate) rx: Rx,
    pub(crate) tx: Tx,
    pub(crate) batch: TxBatch,
    pub(crate) sends: SendQueue,
    pub(crate) inbound: InboundQueue,
    pub(crate) read_sinks: VecDeque<Stag>,
    pub(crate) receiving: Option<Receiving>,
    /// Octets of the last Write, if nothing else came after it.
    pub(crate) written: Option<u32>,
    pub(crate) write_open: bool,
    /// Immediate data of the Send that comes next, or is coming.
    pub(crate) immediate: Option<u32>,
    /// Which owed response a peer's Terminate speaks of, and what it says.
    pub(crate) blame: Option<(usize, Status)>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) nudge: Nudge,
    flushed: bool,
    deadline: Option<Instant>,
}

impl Connection {
    /// A connection right after start-up.
    pub fn new(params: Params, now: Instant) -> Self {
        let agreed = params.negotiated;
        let responder = agreed.role == Role::Responder;
        let phase = if responder { Phase::Held } else { Phase::Open };
        let rtr = if responder { None } else { agreed.rtr };
        let waits_for_rtr = responder && agreed.rtr.is_some();
        let mut connection = Self {
            qp: params.qp,
            pd: params.pd,
            phase,
            crc: agreed.crc,
            ird: agreed.ird,
            ord: agreed.ord,
            allowed: Access::REMOTE,
            pairs: false,
            max_ulpdu: params.max_ulpdu.clamp(MIN_ULPDU, MAX_ULPDU),
            accepts_rtr_send: responder && agreed.rtr.is_some() && agreed.rtr_offered.send,
            waits_for_rtr,
            send_depth: params.send_depth,
            missing_receive: params.missing_receive,
            rx: Rx::new(agreed.rx_markers),
            tx: Tx::new(agreed.tx_markers, rtr),
            batch: TxBatch::default(),
            sends: SendQueue::default(),
            inbound: InboundQueue::default(),
            read_sinks: VecDeque::new(),
            receiving: None,
            written: None,
            write_open: false,
            immediate: None,
            blame: None,
            events: VecDeque::new(),
            nudge: if responder { Nudge::Over } else { Nudge::Waiting },
            flushed: false,
            deadline: (responder && !waits_for_rtr).then(|| now + HELD_GRACE),
        };
        if let Some(code) = agreed.refuse {
            connection.fail(Fault::bare(code));
        }
        connection
    }

    /// Where the connection is in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True while the stream waits for a posted receive: reading on is of no use.
    pub fn is_stalled(&self) -> bool {
        self.rx.stalled.is_some()
    }

    /// Payload octets that may be received in place now ([`Connection::direct`]).
    pub fn direct_len(&self) -> usize {
        self.rx.direct_len()
    }

    /// True when [`Connection::poll_event`] has something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// True when [`Connection::poll_transmit`] may have something to offer or to settle.
    pub fn has_output(&self) -> bool {
        !self.batch.is_empty()
            || !self.inbound.is_empty()
            || self.sends.has_unsent()
            || self.tx.has_first_words()
            || self.phase.is_over()
    }

    /// Whether FPDUs carry CRCs that mean something.
    pub fn checks_crc(&self) -> bool {
        self.crc
    }

    /// Reads and atomics that may be under way towards the peer.
    pub fn ord(&self) -> u16 {
        self.ord
    }

    /// Limits what the peer may do here, whatever STags it has: Writes, Reads and atomics without
    /// their right in `access` are refused from now on.
    pub fn allow(&mut self, access: Access) {
        self.allowed = access;
    }

    /// Whether both ends have agreed, by means of their own, that immediate data has four octets,
    /// and that the other four of the message (RFC 7306 §6.2 leaves all eight to the ULP) say to
    /// what it belongs: 0 as ever, [`OF_NEXT_SEND`] to the Send behind it, which takes the only
    /// receive and completes it with both.
    pub fn pair_immediates(&mut self, agreed: bool) {
        self.pairs = agreed;
    }

    pub(crate) fn permit(&self, need: Access) -> Result<(), AccessError> {
        if self.allowed.contains(need) { Ok(()) } else { Err(AccessError::NoRight) }
    }

    /// How many of the peer's Reads and atomics wait for their answers.
    pub fn requests_waiting(&self) -> usize {
        self.inbound.len()
    }

    /// True when nothing is unfinished on our side.
    pub fn is_idle(&self) -> bool {
        self.sends.len() == 0 && self.batch.is_empty() && self.inbound.is_empty()
    }

    /// True when the driver should send FIN and has not: everything before it is in TCP.
    pub fn wants_fin(&self) -> bool {
        matches!(self.phase, Phase::HalfClosed | Phase::Closed)
    }

    /// Send requests that can be posted before the queue is full.
    pub fn send_room(&self) -> usize {
        self.send_depth.saturating_sub(self.sends.len())
    }

    /// Queues a request.
    ///
    /// # Errors
    /// The caller's: see [`PostError`]. The request comes back untouched.
    pub fn post(&mut self, request: SendRequest) -> Result<(), (PostError, SendRequest)> {
        match self.check_post(&request) {
            Ok(()) => {
                self.sends.push(request);
                Ok(())
            }
            Err(error) => Err((error, request)),
        }
    }

    fn check_post(&self, request: &SendRequest) -> Result<(), PostError> {
        if !self.phase.receives() {
            return Err(PostError::NotConnected);
        }
        if self.send_room() == 0 {
            return Err(PostError::QueueFull { depth: self.send_depth });
        }
        check_pairing(&request.op, self.pairs)?;
        check_request(request, self.ord)
    }

    /// Takes `region` away from every request: from now on nothing of it is touched. A request that
    /// needs it later ends the connection, and completes with [`Status::LocalProtection`]. The
    /// rest of an FPDU that may be half out cannot be sent any more: then the connection is lost
    /// at once. The driver settles it.
    pub fn revoke(&mut self, region: &SharedRegion) {
        if let Some(receiving) = &mut self.receiving {
            receiving.request.local.revoke(region);
        }
        if self.sends.revoke(region)
            && let Some(seq) = self.batch.revoked(&self.sends)
        {
            self.sends.refuse(seq);
            self.step_phase(Move::Lost);
        }
    }

    /// Leaves gracefully: what TCP has half of is sent, unfinished requests are flushed.
    pub fn disconnect(&mut self) {
        self.step_phase(Move::Disconnect);
    }

    /// The peer sent FIN. In the middle of an FPDU that means the connection is lost.
    pub fn handle_eof(&mut self) {
        let broken = self.rx.mid_fpdu() || self.phase == Phase::HalfClosed;
        self.step_phase(if broken { Move::Lost } else { Move::PeerFin });
    }

    /// TCP lost the connection.
    pub fn handle_lost(&mut self) {
        self.step_phase(Move::Lost);
    }

    /// TCP took `count` octets of what [`Connection::poll_transmit`] offered.
    pub fn handle_transmitted(&mut self, count: usize, completions: &mut Vec<Completion>) {
        self.batch.advance(count);
        self.tx.sent += count as u64;
        self.sends.retire(self.tx.sent, self.qp, completions);
    }

    /// The time that [`Connection::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.stall_deadline().is_some_and(|at| at <= now)
            && let Some(stalled) = self.rx.stalled.take()
        {
            self.fail(stalled.fault);
        }
        self.tx.nudge |= self.nudge.fires(now);
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            let held = self.phase == Phase::Held;
            self.step_phase(if held { Move::GraceOver } else { Move::Expired });
        }
    }

    /// When [`Connection::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.stall_deadline(), self.deadline, self.nudge.deadline()].into_iter().flatten().min()
    }

    fn stall_deadline(&self) -> Option<Instant> {
        let since = self.rx.stalled.as_ref()?.since;
        match self.missing_receive {
            // Beyond all clocks is never.
            MissingReceive::Stall(limit) => since.checked_add(limit),
            MissingReceive::Terminate => Some(since),
        }
    }

    /// What the driver should know of, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Offers octets as spans, within `limits`. `pins` must live until the
    /// system call is over. Returns the octets offered; 0 when there is nothing to send.
    pub fn poll_transmit<'t>(
        &mut self,
        now: Instant,
        limits: Limits,
        env: &mut Env<'t>,
        spans: &mut Vec<Span>,
        pins: &mut Vec<Placement<'t>>,
    ) -> usize {
        let memory = Readable { stags: env.stags, pd: self.pd };
        self.prepare(now, limits.octets, env);
        let offered = self.batch.spans(&self.sends, memory, limits.spans, spans, pins);
        if let Err(Gone) = offered {
            spans.clear();
            pins.clear();
            self.lose_half_sent(now, env);
        }
        spans.iter().map(|span| span.len).sum()
    }

    /// As [`Connection::poll_transmit`], for a driver that must see the octets, as a simulator
    /// does: appends a copy of all that is offered to `out` and returns how many they are.
    pub fn poll_transmit_copy(
        &mut self,
        now: Instant,
        budget: usize,
        env: &mut Env<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        self.prepare(now, budget, env);
        let start = out.len();
        let memory = Readable { stags: env.stags, pd: self.pd };
        if let Err(Gone) = self.batch.copy(&self.sends, memory, out) {
            out.truncate(start);
            self.lose_half_sent(now, env);
        }
        out.len() - start
    }

    fn prepare(&mut self, now: Instant, budget: usize, env: &mut Env<'_>) {
        self.settle(now, env);
        self.fill(budget, env.stags);
        if self.tx.queued > 0 {
            self.nudge.start(now);
        }
        self.settle(now, env);
    }

    /// Half an FPDU is out and its rest no longer exists: only TCP can say so.
    fn lose_half_sent(&mut self, now: Instant, env: &mut Env<'_>) {
        self.step_phase(Move::Lost);
        self.settle(now, env);
    }

    /// Carries out what a change of phase asks for: flushing, deadlines, the final event.
    pub fn settle(&mut self, now: Instant, env: &mut Env<'_>) {
        if self.phase.is_over() && !self.flushed {
            self.flush(env);
            self.deadline = Some(now + CLOSE_LIMIT);
        }
        if self.phase.is_over() && self.batch.is_empty() && self.tx.terminate.is_none() {
            self.step_phase(Move::Drained);
        }
        if self.phase == Phase::Closed {
            self.deadline = None;
            self.batch.reset();
            self.tx.terminate = None;
        }
    }

    fn flush(&mut self, env: &mut Env<'_>) {
        self.flushed = true;
        let closed = self.phase == Phase::Closed;
        if !closed
            && self.batch.freeze(&self.sends, Readable { stags: env.stags, pd: self.pd }).is_err()
        {
            self.step_phase(Move::Lost);
        }
        self.inbound.clear();
        self.read_sinks.clear();
        let blame = self.blame.take();
        self.sends.flush(self.tx.sent, self.qp, blame, env.completions);
        if let Some(receiving) = self.receiving.take() {
            env.completions.push(receiving.complete(self.qp, Status::Flushed));
        }
        self.events.push_back(Event::Over);
    }

    /// Notes a fault of the peer's; the Terminate goes out next.
    pub(crate) fn fail(&mut self, fault: Fault) {
        if self.phase.receives() {
            self.tx.terminate = Some(fault.clone());
            self.events.push_back(Event::Faulted(fault));
            self.step_phase(Move::Fault);
        }
    }

    pub(crate) fn step_phase(&mut self, event: Move) {
        let before = self.phase;
        self.phase = before.after(event);
        if before == Phase::Held && self.phase != Phase::Held {
            // The grace, if there was one.
            self.deadline = None;
        }
        if before == Phase::Held && self.phase == Phase::Open {
            self.events.push_back(Event::Established);
        }
        if self.phase.is_over() {
            self.nudge.stop();
            self.rx.abandon();
        }
    }

    /// A held responder is silent; so is one that is leaving, but for its Terminate.
    pub(crate) fn may_transmit(&self) -> bool {
        self.phase == Phase::Open
    }

    /// True for a responder that will not speak before the peer has.
    pub fn waits_for_rtr(&self) -> bool {
        self.waits_for_rtr && self.phase == Phase::Held
    }

    /// Moves finished send requests to the completions.
    pub(crate) fn retire(&mut self, env: &mut Env<'_>) {
        self.sends.retire(self.tx.sent, self.qp, env.completions);
    }

    /// Gives back buffers that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.batch.shrink();
        self.sends.shrink();
    }
}

/// What is agreed on decides which immediate data can be told from which.
fn check_pairing(op: &SendOp, pairs: bool) -> Result<(), PostError> {
    match *op {
        SendOp::SendImmediate { .. } if !pairs => Err(PostError::NotPaired),
        SendOp::WriteImmediate { immediate, .. } | SendOp::Immediate { immediate }
            if pairs && immediate & 0xFFFF_FFFF != 0 =>
        {
            Err(PostError::TooLarge { what: "the immediate data, in octets,", found: 8, limit: 4 })
        }
        _ => Ok(()),
    }
}

fn check_request(request: &SendRequest, ord: u16) -> Result<(), PostError> {
    let len = request.local.len();
    let limit = u32::MAX as usize;
    if len > limit {
        return Err(PostError::TooLarge { what: "the message", found: len, limit });
    }
    if !request.op.awaits_response() {
        return Ok(());
    }
    if ord == 0 {
        return Err(PostError::NoReads);
    }
    let atomic = !matches!(request.op, SendOp::Read { .. });
    if atomic && len < 8 {
        return Err(PostError::AtomicResult { found: len });
    }
    Ok(())
}
