//! The transmit half of [`crate::Connection`]: cuts messages into DDP segments and FPDUs
//! (RFC 5044 §4, RFC 5041 §5). Messages are never interleaved. Between messages the peer's
//! requests and our own take turns; a Terminate goes before both.

use crate::Connection;
use crate::batch::Readable;
use crate::fault::{Fault, protection_code};
use crate::inbound::Inbound;
use crate::startup::Rtr;
use crate::work::{Remote, SendOp};
use outboard_mem::{Access, StagTable};
use outboard_wire::crc::crc32c;
use outboard_wire::ddp::{Header, Stag, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, queue};
use outboard_wire::fpdu::{CRC_LEN, LENGTH_LEN, pad_len};
use outboard_wire::marker::MarkerInserter;
use outboard_wire::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use outboard_wire::terminate::TerminateCode;

/// Payloads up to this many octets are copied next to their header: one span is cheaper to send
/// than three.
const COPY_MAX: usize = 2048;
/// STags of Read sinks: below every STag that a table gives out, so none can be written through.
const SINK_STAGS: u32 = 4095;

/// The STag in messages that only say that somebody is there: never one that a table gives out.
/// Some hardware treats 0 as special, so this is 1, as siw's is.
pub(crate) const RTR_STAG: Stag = Stag(1);

/// Transmit state.
#[derive(Debug)]
pub(crate) struct Tx {
    /// What is being transmitted, if a message is half out.
    current: Option<Current>,
    /// Whose turn it is between messages.
    response_turn: bool,
    /// MSN last used per queue.
    msn: [u32; 4],
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
    /// Octets queued and octets taken by TCP, since start-up.
    pub(crate) queued: u64,
    pub(crate) sent: u64,
}

#[derive(Clone, Copy, Debug)]
enum Current {
    /// Payload of a Send, Write or WriteImmediate.
    Local { seq: u64, done: usize },
    /// The Immediate Data behind a Write.
    Immediate { seq: u64, immediate: u64 },
    /// The response to the oldest inbound request.
    Response,
}

/// Where an FPDU's payload comes from.
#[derive(Clone, Copy)]
enum Payload {
    None,
    Local { seq: u64, offset: usize, len: usize },
    Response { stag: Stag, offset: u64, len: usize },
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
    /// Cuts as much as fits `budget` octets into FPDUs.
    pub(crate) fn fill(&mut self, budget: usize, stags: &StagTable) {
        while self.batch.has_room(budget) {
            match self.push_next(stags) {
                Ok(true) => {}
                Ok(false) => break,
                // The peer's request cannot be answered: it hears why before anything else.
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
            Current::Local { seq, done } => self.push_request(seq, done, stags)?,
            Current::Immediate { seq, immediate } => self.push_immediate(seq, immediate, stags)?,
            Current::Response => self.push_response(stags)?,
        }
        Ok(true)
    }

    /// Chooses the next message: responses and requests take turns.
    fn pick(&mut self) -> Option<Current> {
        let request = self.sends.next_eligible(usize::from(self.ord));
        let respond = !self.inbound.is_empty() && (self.tx.response_turn || request.is_none());
        self.tx.response_turn = !respond;
        if respond {
            return Some(Current::Response);
        }
        let seq = request?;
        self.sends.start(seq);
        Some(Current::Local { seq, done: 0 })
    }

    fn push_request(&mut self, seq: u64, done: usize, stags: &StagTable) -> Result<(), Fault> {
        let Some(entry) = self.sends.entry(seq) else {
            return Ok(());
        };
        let (op, total) = (entry.request.op, entry.request.local.len());
        let solicited = entry.request.solicited;
        match op {
            SendOp::Send { invalidate } => {
                let opcode = send_opcode(invalidate.is_some(), solicited);
                self.push_send(seq, opcode, invalidate, done, total, stags)
            }
            SendOp::Write { to } => self.push_write(seq, to, None, done, total, stags),
            SendOp::WriteImmediate { to, immediate } => {
                self.push_write(seq, to, Some(immediate), done, total, stags)
            }
            SendOp::Immediate { immediate } => self.push_immediate(seq, immediate, stags),
            SendOp::Read { from } => self.push_read(seq, from, total, stags),
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => {
                self.push_atomic(seq, &op, stags)
            }
        }
    }

    fn push_send(
        &mut self,
        seq: u64,
        opcode: Opcode,
        invalidate: Option<Stag>,
        done: usize,
        total: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let len = cut(total - done, self.max_ulpdu - UNTAGGED_LEN);
        let last = done + len == total;
        if done == 0 {
            self.tx.next_msn(queue::SEND);
        }
        let header = Header::Untagged(Untagged {
            opcode,
            last,
            invalidate: invalidate.unwrap_or(Stag(0)),
            queue: queue::SEND,
            msn: self.tx.msn[queue::SEND as usize],
            offset: u32::try_from(done).unwrap_or(u32::MAX),
        });
        self.push_fpdu(
            header,
            &[],
            Payload::Local {
                seq,
                offset: done,
                len,
            },
            stags,
        )?;
        self.after_segment(seq, done + len, last, None);
        Ok(())
    }

    fn push_write(
        &mut self,
        seq: u64,
        to: Remote,
        immediate: Option<u64>,
        done: usize,
        total: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let len = cut(total - done, self.max_ulpdu - TAGGED_LEN);
        let last = done + len == total;
        let header = Header::Tagged(Tagged {
            opcode: Opcode::Write,
            last,
            stag: to.stag,
            offset: to.offset.wrapping_add(done as u64),
        });
        self.push_fpdu(
            header,
            &[],
            Payload::Local {
                seq,
                offset: done,
                len,
            },
            stags,
        )?;
        self.after_segment(seq, done + len, last, immediate);
        Ok(())
    }

    fn after_segment(&mut self, seq: u64, done: usize, last: bool, immediate: Option<u64>) {
        self.tx.current = match (last, immediate) {
            (false, _) => Some(Current::Local { seq, done }),
            (true, Some(immediate)) => Some(Current::Immediate { seq, immediate }),
            (true, None) => {
                self.sends.finish(seq, self.tx.queued);
                None
            }
        };
    }

    fn push_immediate(&mut self, seq: u64, immediate: u64, stags: &StagTable) -> Result<(), Fault> {
        let solicited = self
            .sends
            .entry(seq)
            .is_some_and(|entry| entry.request.solicited);
        let opcode = if solicited {
            Opcode::ImmediateSolicited
        } else {
            Opcode::Immediate
        };
        let header = self.untagged(opcode, queue::SEND);
        self.push_fpdu(header, &immediate.to_be_bytes(), Payload::None, stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    fn push_read(
        &mut self,
        seq: u64,
        from: Remote,
        total: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let sink = self.tx.next_sink();
        self.read_sinks.push_back(sink);
        let request = ReadRequest {
            sink_stag: sink,
            sink_offset: 0,
            size: u32::try_from(total).unwrap_or(u32::MAX),
            source_stag: from.stag,
            source_offset: from.offset,
        };
        self.push_control(Opcode::ReadRequest, |out| request.emit(out), stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    fn push_atomic(&mut self, seq: u64, op: &SendOp, stags: &StagTable) -> Result<(), Fault> {
        let request = atomic_request(op, u32::try_from(seq & 0xFFFF_FFFF).unwrap_or(0));
        self.push_control(Opcode::AtomicRequest, |out| request.emit(out), stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    /// RFC 6581 §9.2: the zero-length message that opens a peer-to-peer connection.
    fn push_rtr(&mut self, rtr: Rtr, stags: &StagTable) -> Result<(), Fault> {
        match rtr {
            Rtr::Send => {
                let header = self.untagged(Opcode::Send, queue::SEND);
                self.push_fpdu(header, &[], Payload::None, stags)
            }
            Rtr::Write => {
                let header = Tagged {
                    opcode: Opcode::Write,
                    last: true,
                    stag: RTR_STAG,
                    offset: 0,
                };
                self.push_fpdu(Header::Tagged(header), &[], Payload::None, stags)
            }
            Rtr::Read => {
                self.sends.owe_rtr();
                let sink = self.tx.next_sink();
                self.read_sinks.push_back(sink);
                let request = ReadRequest {
                    sink_stag: sink,
                    sink_offset: 0,
                    size: 0,
                    source_stag: RTR_STAG,
                    source_offset: 0,
                };
                self.push_control(Opcode::ReadRequest, |out| request.emit(out), stags)
            }
        }
    }

    fn push_response(&mut self, stags: &StagTable) -> Result<(), Fault> {
        match self.inbound.front_mut() {
            Some(Inbound::Read { request }) => {
                let request = *request;
                self.push_read_response(request, stags)
            }
            Some(Inbound::Atomic(request)) => {
                let request = *request;
                self.push_atomic_response(&request, stags)
            }
            None => Ok(()),
        }
    }

    fn push_read_response(&mut self, request: ReadRequest, stags: &StagTable) -> Result<(), Fault> {
        let remaining = request.size as usize;
        let len = cut(remaining, self.max_ulpdu - TAGGED_LEN);
        let last = len == remaining;
        let header = Header::Tagged(Tagged {
            opcode: Opcode::ReadResponse,
            last,
            stag: request.sink_stag,
            offset: request.sink_offset,
        });
        let payload = Payload::Response {
            stag: request.source_stag,
            offset: request.source_offset,
            len,
        };
        self.push_fpdu(header, &[], payload, stags)
            .map_err(|fault| fault.with_read_request(request))?;
        if last {
            self.inbound.pop();
        } else if let Some(Inbound::Read { request }) = self.inbound.front_mut() {
            request.size -= u32::try_from(len).unwrap_or(0);
            request.sink_offset = request.sink_offset.wrapping_add(len as u64);
            request.source_offset = request.source_offset.wrapping_add(len as u64);
            self.tx.current = Some(Current::Response);
        }
        Ok(())
    }

    fn push_atomic_response(
        &mut self,
        request: &AtomicRequest,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        if self.batch.refers_to_responses() {
            // A Read before it must not see its effect. Memory that has gone shows when it is
            // sent.
            let memory = Readable { stags, pd: self.pd };
            let _gone = self.batch.freeze(&self.sends, memory);
        }
        let original = stags
            .resolve(
                request.stag.0,
                self.pd,
                Access::REMOTE_ATOMIC,
                request.offset,
                8,
            )
            .map_err(|error| Fault::bare(protection_code(error)))?
            .fetch_update_u64(0, |value| request.apply(value))
            .map_err(|_| Fault::bare(TerminateCode::OPERATION_STREAM))?;
        self.inbound.pop();
        let response = AtomicResponse {
            request_id: request.request_id,
            original,
        };
        self.push_control(Opcode::AtomicResponse, |out| response.emit(out), stags)
    }

    fn push_terminate(&mut self, fault: &Fault, stags: &StagTable) {
        self.tx.current = None;
        let terminate = fault.to_terminate();
        // Its payload is ours, so nothing can fail here.
        let _infallible = self.push_control(Opcode::Terminate, |out| terminate.emit(out), stags);
    }

    fn push_control(
        &mut self,
        opcode: Opcode,
        emit: impl FnOnce(&mut Vec<u8>),
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let header = self.untagged(opcode, opcode.queue().unwrap_or(queue::SEND));
        let mut fixed = std::mem::take(&mut self.tx.scratch);
        fixed.clear();
        emit(&mut fixed);
        let result = self.push_fpdu(header, &fixed, Payload::None, stags);
        self.tx.scratch = fixed;
        result
    }

    fn untagged(&mut self, opcode: Opcode, queue: u32) -> Header {
        let msn = self.tx.next_msn(queue);
        Header::Untagged(Untagged {
            opcode,
            last: true,
            invalidate: Stag(0),
            queue,
            msn,
            offset: 0,
        })
    }

    /// Appends one FPDU: length, header, `fixed` octets, payload, pad and CRC.
    fn push_fpdu(
        &mut self,
        header: Header,
        fixed: &[u8],
        payload: Payload,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let start = self.batch.bytes.len();
        let ulpdu_len = header.len() + fixed.len() + payload.len();
        let length = u16::try_from(ulpdu_len).unwrap_or(u16::MAX);
        self.batch.bytes.extend_from_slice(&length.to_be_bytes());
        header.emit(&mut self.batch.bytes);
        self.batch.bytes.extend_from_slice(fixed);
        let before = self.batch.len();
        let result = match payload {
            Payload::None => self.seal(start, ulpdu_len),
            Payload::Local { seq, offset, len } => {
                self.push_local(start, ulpdu_len, seq, offset, len)
            }
            Payload::Response { stag, offset, len } => {
                self.push_remote_read(start, ulpdu_len, stag, offset, len, stags)
            }
        };
        if result.is_err() {
            self.batch.bytes.truncate(start);
        }
        self.tx.queued += (self.batch.len() - before) as u64;
        result
    }

    fn push_local(
        &mut self,
        start: usize,
        ulpdu_len: usize,
        seq: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let Some(list) = self.sends.local(seq) else {
            return Ok(());
        };
        let in_place = len > COPY_MAX && self.tx.markers.is_none();
        if in_place && !self.crc {
            self.batch.push_bytes(start);
            self.batch.push_local(seq, offset..offset + len);
            return self.seal_trailer(ulpdu_len, 0);
        }
        if in_place && let Some(bytes) = list.owned_slice(offset, len) {
            let mut crc = outboard_wire::crc::Crc32c::new();
            crc.update(&self.batch.bytes[start..]);
            crc.update(bytes);
            crc.update(&[0; 3][..pad_len(ulpdu_len)]);
            self.batch.push_bytes(start);
            self.batch.push_local(seq, offset..offset + len);
            return self.seal_trailer(ulpdu_len, crc.finish());
        }
        list.gather(offset, len, &mut self.batch.bytes, |_| ())
            .map_err(|_| Fault::bare(TerminateCode::OPERATION_STREAM))?;
        self.seal(start, ulpdu_len)
    }

    fn push_remote_read(
        &mut self,
        start: usize,
        ulpdu_len: usize,
        stag: Stag,
        offset: u64,
        len: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        // RFC 5040 §7.2: a zero-length Read is not checked.
        if len == 0 {
            return self.seal(start, ulpdu_len);
        }
        let placement = stags
            .resolve(stag.0, self.pd, Access::REMOTE_READ, offset, len as u64)
            .map_err(|error| Fault::bare(protection_code(error)))?;
        if !self.crc && self.tx.markers.is_none() && len > COPY_MAX {
            self.batch.push_bytes(start);
            self.batch.push_response(stag, offset, len);
            return self.seal_trailer(ulpdu_len, 0);
        }
        placement
            .append_to(0..len, &mut self.batch.bytes, |_| ())
            .map_err(|_| Fault::bare(TerminateCode::OPERATION_STREAM))?;
        self.seal(start, ulpdu_len)
    }

    /// Ends an FPDU that lies in the buffer from `start` on.
    fn seal(&mut self, start: usize, ulpdu_len: usize) -> Result<(), Fault> {
        let bytes = &mut self.batch.bytes;
        bytes.resize(bytes.len() + pad_len(ulpdu_len), 0);
        if let Some(markers) = &mut self.tx.markers {
            let body = bytes.split_off(start);
            markers.insert(&body, self.crc, bytes);
        } else {
            let crc = if self.crc { crc32c(&bytes[start..]) } else { 0 };
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        self.batch.push_bytes(start);
        Ok(())
    }

    /// Ends an FPDU whose payload is sent by reference.
    fn seal_trailer(&mut self, ulpdu_len: usize, crc: u32) -> Result<(), Fault> {
        let bytes = &mut self.batch.bytes;
        let start = bytes.len();
        bytes.resize(start + pad_len(ulpdu_len), 0);
        bytes.extend_from_slice(&crc.to_le_bytes());
        self.batch.push_bytes(start);
        Ok(())
    }
}

impl Payload {
    fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Local { len, .. } | Self::Response { len, .. } => len,
        }
    }
}

/// Payload of the next segment: a message is cut into as few as possible, all of about the same
/// length, so that no short one costs the receiver a system call of its own.
fn cut(remaining: usize, max: usize) -> usize {
    let segments = remaining.div_ceil(max).max(1);
    remaining.div_ceil(segments).next_multiple_of(8).min(max).min(remaining)
}

/// RFC 5040 §4.1: one opcode for each combination.
fn send_opcode(invalidate: bool, solicited: bool) -> Opcode {
    match (invalidate, solicited) {
        (false, false) => Opcode::Send,
        (true, false) => Opcode::SendInvalidate,
        (false, true) => Opcode::SendSolicited,
        (true, true) => Opcode::SendSolicitedInvalidate,
    }
}

/// RFC 7306 §5.2.1 figure 4; unused fields as the RFC wants them on transmit.
fn atomic_request(op: &SendOp, request_id: u32) -> AtomicRequest {
    let plain = AtomicRequest {
        op: AtomicOp::FetchAdd,
        request_id,
        stag: Stag(0),
        offset: 0,
        add_swap: 0,
        add_swap_mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    match *op {
        SendOp::FetchAdd { at, add, mask } => AtomicRequest {
            stag: at.stag,
            offset: at.offset,
            add_swap: add,
            add_swap_mask: mask,
            ..plain
        },
        SendOp::CompareSwap {
            at,
            swap,
            swap_mask,
            compare,
            compare_mask,
        } => AtomicRequest {
            op: AtomicOp::CompareSwap,
            stag: at.stag,
            offset: at.offset,
            add_swap: swap,
            add_swap_mask: swap_mask,
            compare,
            compare_mask,
            ..plain
        },
        _ => plain,
    }
}

/// Octets that framing adds to a ULPDU at most, for sizing buffers.
pub const FPDU_OVERHEAD: usize = LENGTH_LEN + 3 + CRC_LEN;
