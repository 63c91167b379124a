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

/// The last four bytes of Immediate Data that belongs to the Send behind it.
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
    /// Largest ULPDU to send, in bytes; 128 to 64,768.
    pub max_ulpdu: usize,
    /// Send requests that may be unfinished at a time.
    pub send_depth: usize,
    /// What happens to a message that finds no posted receive.
    pub rnr_policy: RnrPolicy,
}

/// What happens to a message that finds no posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnrPolicy {
    /// The stream waits this long, then the connection is terminated.
    Stall(Duration),
    /// The connection is terminated at once, as hardware does.
    Terminate,
}

/// How much [`Connection::poll_transmit`] offers at a time.
#[derive(Clone, Copy, Debug)]
pub struct TransmitLimits {
    /// Bytes, roughly: an FPDU is never cut.
    pub bytes: usize,
    /// Spans, roughly: the pieces of one local list are never cut.
    pub spans: usize,
}

/// The caller's objects that a connection works on.
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

/// An event that the driver should know of.
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
    /// The connection was negotiated without Reads and atomics.
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
    /// The ends have not agreed on Sends with immediate data.
    #[error("this connection has no Sends with immediate data; use a Write with immediate data")]
    NoSendWithImm,
    /// An atomic's result needs eight bytes.
    #[error("an atomic needs a local list of 8 bytes; this one has {found}")]
    AtomicResult {
        /// Bytes given.
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
    /// What the peer may do on this connection, whatever rights its STags have.
    allowed: Access,
    /// Sends with immediate data are allowed: Immediate Data may belong to the Send behind it.
    pub(crate) send_with_imm: bool,
    pub(crate) max_ulpdu: usize,
    pub(crate) accepts_rtr_send: bool,
    /// Responder of a peer that promised a first message: never speaks before it.
    waits_for_rtr: bool,
    send_depth: usize,
    pub(crate) rnr_policy: RnrPolicy,
    pub(crate) rx: Rx,
    pub(crate) tx: Tx,
    pub(crate) batch: TxBatch,
    pub(crate) sends: SendQueue,
    pub(crate) inbound: InboundQueue,
    pub(crate) read_sinks: VecDeque<Stag>,
    pub(crate) receiving: Option<Receiving>,
    /// Bytes of the last Write, if nothing else came after it.
    pub(crate) written: Option<u32>,
    pub(crate) write_open: bool,
    /// Immediate data of the Send that comes next, or is coming.
    pub(crate) immediate: Option<u32>,
    /// The owed response that a peer's Terminate is about, and its code.
    pub(crate) blame: Option<(usize, Status)>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) nudge: Nudge,
    pub(crate) flushed: bool,
    pub(crate) deadline: Option<Instant>,
    /// Since when the peer is known to have closed, behind bytes that are still to be read.
    pub(crate) peer_left: Option<Instant>,
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
            send_with_imm: false,
            max_ulpdu: params.max_ulpdu.clamp(MIN_ULPDU, MAX_ULPDU),
            accepts_rtr_send: responder && agreed.rtr.is_some() && agreed.rtr_offered.send,
            waits_for_rtr,
            send_depth: params.send_depth,
            rnr_policy: params.rnr_policy,
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
            peer_left: None,
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

    /// True while a message waits for a posted receive. Until there is one only answers to our own
    /// requests are delivered; the driver offers them as ever, and withholds the stream's end.
    pub fn is_stalled(&self) -> bool {
        self.rx.stalled.is_some()
    }

    /// True while the segments that wait for a posted receive leave no room for more.
    pub fn is_full(&self) -> bool {
        self.rx.full
    }

    /// Payload bytes that may be received in place now ([`Connection::direct`]).
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

    /// Reads and atomics that the peer may have under way towards us.
    pub fn ird(&self) -> u16 {
        self.ird
    }

    /// Limits what the peer may do on this connection, whatever rights its STags have: Writes,
    /// Reads, atomics and invalidations without their right in `access` are refused from now on.
    pub fn set_access(&mut self, access: Access) {
        self.allowed = access;
    }

    /// Allows Sends with immediate data: `agreed` says whether both ends have agreed on them, by
    /// means of their own. Then immediate data has four bytes, and the other four of the Immediate
    /// Data message (RFC 7306 §6.2 leaves all eight to the ULP) say what it belongs to: 0 means
    /// what it means without the agreement; [`OF_NEXT_SEND`] means the Send behind it, and one
    /// receive completes with both.
    pub fn allow_send_with_imm(&mut self, agreed: bool) {
        self.send_with_imm = agreed;
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
        check_immediates(&request.op, self.send_with_imm)?;
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

    /// TCP took `count` bytes of what [`Connection::poll_transmit`] offered.
    pub fn handle_transmitted(&mut self, count: usize, completions: &mut Vec<Completion>) {
        self.batch.advance(count);
        self.tx.sent += count as u64;
        self.sends.retire(self.tx.sent, self.qp, completions);
    }

    /// The oldest event that the driver should know of.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Lends the connection a buffer for what it offers next, so that a driver needs one for all
    /// its connections. What waits in the connection's own stays there.
    pub fn lend_buffer(&mut self, spare: &mut Vec<u8>) {
        self.batch.borrow(spare);
    }

    /// Takes back what was lent, once everything that was offered has gone out.
    pub fn take_buffer_back(&mut self, spare: &mut Vec<u8>) {
        self.batch.give_back(spare);
    }

    /// Bytes that were offered and that TCP has not taken.
    pub fn untransmitted(&self) -> usize {
        self.batch.len()
    }

    /// Offers bytes as spans, within `limits`. `pins` must live until the
    /// system call is over. Returns the bytes offered; 0 when there is nothing to send.
    pub fn poll_transmit<'t>(
        &mut self,
        now: Instant,
        limits: TransmitLimits,
        env: &mut Env<'t>,
        spans: &mut Vec<Span>,
        pins: &mut Vec<Placement<'t>>,
    ) -> usize {
        let memory = Readable { stags: env.stags, pd: self.pd };
        self.prepare(now, limits.bytes, env);
        let offered = self.batch.spans(&self.sends, memory, limits.spans, spans, pins);
        if let Err(Gone) = offered {
            spans.clear();
            pins.clear();
            self.lose_half_sent(now, env);
        }
        spans.iter().map(|span| span.len).sum()
    }

    /// As [`Connection::poll_transmit`], for a driver that must see the bytes, as a simulator
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

    /// A held responder sends nothing; a responder that is leaving sends only its Terminate.
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
}

/// Refuses immediate data that the peer could not tell from that of another kind of message.
fn check_immediates(op: &SendOp, send_with_imm: bool) -> Result<(), PostError> {
    match *op {
        SendOp::SendWithImm { .. } if !send_with_imm => Err(PostError::NoSendWithImm),
        SendOp::WriteWithImm { immediate, .. } | SendOp::Immediate { immediate }
            if send_with_imm && immediate & 0xFFFF_FFFF != 0 =>
        {
            Err(PostError::TooLarge { what: "the immediate data, in bytes,", found: 8, limit: 4 })
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
