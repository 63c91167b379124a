//! The transmit half of [`crate::Connection`]: decides what goes out next. Messages are never
//! interleaved. Between messages the peer's requests and our own take turns; a Terminate goes
//! before both.
//!
//! Modules: `request` (our own messages), `response` (answers to the peer's requests, and
//! Terminates),
//! `frame` (segments into FPDUs).

mod frame;
mod request;
mod response;

use crate::Connection;
use crate::fault::Fault;
use crate::startup::Rtr;
use outboard_mem::StagTable;
use outboard_wire::ddp::Stag;
use outboard_wire::fpdu::{CRC_LEN, LENGTH_LEN};
use outboard_wire::marker::MarkerInserter;

/// Bytes that framing adds to a ULPDU at most, for sizing buffers.
pub const FPDU_OVERHEAD: usize = LENGTH_LEN + 3 + CRC_LEN;

/// STags of Read sinks: below every STag that a table gives out, so none can be written through.
const SINK_STAGS: u32 = 4095;

/// The STag in messages that only show that this side is alive: never an STag that a table gives
/// out. Some hardware treats 0 as special, so this is 1, as siw's is.
pub(crate) const RTR_STAG: Stag = Stag(1);

/// Transmit state.
#[derive(Debug)]
pub(crate) struct Tx {
    /// What is being transmitted, if a message is half out.
    current: Option<Current>,
    /// Whose turn it is between messages.
    response_turn: bool,
    /// MSN last used per queue.
    pub(crate) msn: [u32; 4],
    /// Read sinks named so far.
    sinks: u32,
    markers: Option<MarkerInserter>,
    scratch: Vec<u8>,
    /// The Terminate to send, once.
    pub(crate) terminate: Option<Fault>,
    /// The RTR to send first, once.
    pub(crate) rtr: Option<Rtr>,
    /// A zero-length Write is due between messages; see [`crate::nudge`].
    pub(crate) nudge: bool,
    /// Bytes queued and bytes taken by TCP, since start-up.
    pub(crate) queued: u64,
    pub(crate) sent: u64,
}

#[derive(Clone, Copy, Debug)]
enum Current {
    /// The request with this sequence number, of which `done` bytes are out.
    Request { seq: u64, done: usize },
    /// The Immediate Data behind a Write.
    Immediate { seq: u64, immediate: u64 },
    /// The response to the oldest inbound request.
    Response,
}

impl Tx {
    pub(crate) fn new(markers: bool, rtr: Option<Rtr>) -> Self {
        Self {
            current: None,
            response_turn: false,
            msn: [0; 4],
            sinks: 0,
            markers: markers.then(MarkerInserter::new),
            scratch: Vec::new(),
            terminate: None,
            rtr,
            nudge: false,
            queued: 0,
            sent: 0,
        }
    }

    fn next_msn(&mut self, queue: u32) -> u32 {
        let slot = &mut self.msn[queue as usize & 3];
        *slot = slot.wrapping_add(1);
        *slot
    }

    fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// MSN of the last message on this queue.
    pub(crate) fn last_msn(&self, queue: u32) -> u32 {
        self.msn[queue as usize & 3]
    }

    /// True when a Terminate, an RTR or the rest of a message is to be sent.
    pub(crate) fn has_first_words(&self) -> bool {
        self.terminate.is_some() || self.rtr.is_some() || self.nudge || self.current.is_some()
    }

    fn next_sink(&mut self) -> Stag {
        self.sinks = self.sinks % SINK_STAGS + 1;
        Stag(self.sinks)
    }
}

impl Connection {
    /// Cuts as much as fits `budget` bytes into FPDUs.
    pub(crate) fn fill(&mut self, budget: usize, stags: &StagTable) {
        while self.batch.has_room(budget) {
            match self.push_next(stags) {
                Ok(true) => {}
                Ok(false) => break,
                // The peer's request cannot be answered: the Terminate that says why goes out
                // before anything else.
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// Appends one FPDU; false when there is nothing to send.
    fn push_next(&mut self, stags: &StagTable) -> Result<bool, Fault> {
        if let Some(fault) = self.tx.terminate.take() {
            self.push_terminate(&fault, stags);
            return Ok(true);
        }
        if !self.may_transmit() {
            return Ok(false);
        }
        if let Some(rtr) = self.tx.rtr.take() {
            self.push_rtr(rtr, stags)?;
            return Ok(true);
        }
        if self.tx.current.is_none() && std::mem::take(&mut self.tx.nudge) {
            self.push_rtr(Rtr::Write, stags)?;
            return Ok(true);
        }
        let Some(current) = self.tx.current.take().or_else(|| self.pick()) else {
            return Ok(false);
        };
        match current {
            Current::Request { seq, done } => self.push_request(seq, done, stags)?,
            Current::Immediate { seq, immediate } => self.push_immediate(seq, immediate, stags)?,
            Current::Response => self.push_response(stags)?,
        }
        Ok(true)
    }

    /// Everything before the next request has completed. If the next request cannot be carried out,
    /// it ends the connection, and waits for that end.
    fn is_settled(&self) -> bool {
        self.batch.is_empty() && self.sends.owed_len() == 0
    }

    /// Chooses the next message: responses and requests take turns.
    fn pick(&mut self) -> Option<Current> {
        let request = self.sends.next_eligible(usize::from(self.ord));
        let request = request.filter(|seq| self.sends.is_intact(*seq) || self.is_settled());
        let respond = !self.inbound.is_empty() && (self.tx.response_turn || request.is_none());
        self.tx.response_turn = !respond;
        if respond {
            return Some(Current::Response);
        }
        let seq = request?;
        self.sends.start(seq);
        Some(Current::Request { seq, done: 0 })
    }
}
