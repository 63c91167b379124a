//! Our own messages, from the send queue (RFC 5040 §5).

use super::frame::{Payload, cut};
use super::{Current, RTR_STAG};
use crate::Connection;
use crate::connection::OF_NEXT_SEND;
use crate::fault::Fault;
use crate::startup::Rtr;
use crate::work::{Remote, SendOp};
use outboard_mem::StagTable;
use outboard_wire::ddp::{Header, Stag, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, queue};
use outboard_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};

/// The next segment of a request's payload.
#[derive(Clone, Copy)]
struct Segment {
    seq: u64,
    offset: usize,
    len: usize,
    last: bool,
}

impl Segment {
    fn next(seq: u64, done: usize, total: usize, max: usize) -> Self {
        let len = cut(total - done, max);
        Self { seq, offset: done, len, last: done + len == total }
    }

    fn payload(self) -> Payload {
        Payload::Local { seq: self.seq, offset: self.offset, len: self.len }
    }
}

impl Connection {
    /// Appends the next FPDU of a request of which `done` bytes are out.
    pub(super) fn push_request(
        &mut self,
        seq: u64,
        done: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let Some(entry) = self.sends.entry(seq) else { return Ok(()) };
        if !entry.request.local.is_intact() {
            self.sends.refuse(seq);
            return Err(Fault::local());
        }
        let (op, total) = (entry.request.op, entry.request.local.len());
        let untagged = Segment::next(seq, done, total, self.max_ulpdu - UNTAGGED_LEN);
        let tagged = Segment::next(seq, done, total, self.max_ulpdu - TAGGED_LEN);
        match op {
            SendOp::Send { invalidate } => self.push_send(untagged, invalidate, stags),
            SendOp::SendWithImm { immediate } => {
                if done == 0 {
                    self.push_paired(immediate, stags)?;
                }
                self.push_send(untagged, None, stags)
            }
            SendOp::Write { to } => self.push_write(tagged, to, None, stags),
            SendOp::WriteWithImm { to, immediate } => {
                self.push_write(tagged, to, Some(immediate), stags)
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
        segment: Segment,
        invalidate: Option<Stag>,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        if segment.offset == 0 {
            self.tx.next_msn(queue::SEND);
        }
        let header = Untagged {
            opcode: send_opcode(invalidate.is_some(), self.is_solicited(segment.seq)),
            last: segment.last,
            invalidate: invalidate.unwrap_or(Stag(0)),
            queue: queue::SEND,
            msn: self.tx.last_msn(queue::SEND),
            offset: u32::try_from(segment.offset).unwrap_or(u32::MAX),
        };
        self.push_fpdu(Header::Untagged(header), &[], segment.payload(), stags)?;
        self.after_segment(segment, None);
        Ok(())
    }

    fn push_write(
        &mut self,
        segment: Segment,
        to: Remote,
        immediate: Option<u64>,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let header = Tagged {
            opcode: Opcode::Write,
            last: segment.last,
            stag: to.stag,
            offset: to.offset.wrapping_add(segment.offset as u64),
        };
        self.push_fpdu(Header::Tagged(header), &[], segment.payload(), stags)?;
        self.after_segment(segment, immediate);
        Ok(())
    }

    fn after_segment(&mut self, segment: Segment, immediate: Option<u64>) {
        let seq = segment.seq;
        self.tx.current = match (segment.last, immediate) {
            (false, _) => Some(Current::Request { seq, done: segment.offset + segment.len }),
            (true, Some(immediate)) => Some(Current::Immediate { seq, immediate }),
            (true, None) => {
                self.sends.finish(seq, self.tx.queued);
                None
            }
        };
    }

    /// Immediate Data, alone or behind its Write (RFC 7306 §6).
    pub(super) fn push_immediate(
        &mut self,
        seq: u64,
        immediate: u64,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let solicited = self.is_solicited(seq);
        let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
        let header = self.untagged(opcode, queue::SEND);
        self.push_fpdu(header, &immediate.to_be_bytes(), Payload::None, stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    /// Immediate Data of the Send behind it, which is posted and so always follows.
    fn push_paired(&mut self, immediate: u32, stags: &StagTable) -> Result<(), Fault> {
        let bytes = u64::from(immediate) << 32 | u64::from(OF_NEXT_SEND);
        let header = self.untagged(Opcode::Immediate, queue::SEND);
        self.push_fpdu(header, &bytes.to_be_bytes(), Payload::None, stags)
    }

    fn is_solicited(&self, seq: u64) -> bool {
        self.sends.entry(seq).is_some_and(|entry| entry.request.solicited)
    }

    fn push_read(
        &mut self,
        seq: u64,
        from: Remote,
        total: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let size = u32::try_from(total).unwrap_or(u32::MAX);
        self.push_read_request(from, size, stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    fn push_read_request(
        &mut self,
        from: Remote,
        size: u32,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let sink_stag = self.tx.next_sink();
        self.read_sinks.push_back(sink_stag);
        let request = ReadRequest {
            sink_stag,
            sink_offset: 0,
            size,
            source_stag: from.stag,
            source_offset: from.offset,
        };
        self.push_control(Opcode::ReadRequest, |out| request.emit(out), stags)
    }

    fn push_atomic(&mut self, seq: u64, op: &SendOp, stags: &StagTable) -> Result<(), Fault> {
        let request = atomic_request(op, u32::try_from(seq & 0xFFFF_FFFF).unwrap_or(0));
        self.push_control(Opcode::AtomicRequest, |out| request.emit(out), stags)?;
        self.sends.finish(seq, self.tx.queued);
        Ok(())
    }

    /// RFC 6581 §9.2: the zero-length message that opens a peer-to-peer connection.
    pub(super) fn push_rtr(&mut self, rtr: Rtr, stags: &StagTable) -> Result<(), Fault> {
        match rtr {
            Rtr::Send => {
                let header = self.untagged(Opcode::Send, queue::SEND);
                self.push_fpdu(header, &[], Payload::None, stags)
            }
            Rtr::Write => {
                let header =
                    Tagged { opcode: Opcode::Write, last: true, stag: RTR_STAG, offset: 0 };
                self.push_fpdu(Header::Tagged(header), &[], Payload::None, stags)
            }
            Rtr::Read => {
                self.sends.owe_rtr();
                self.push_read_request(Remote { stag: RTR_STAG, offset: 0 }, 0, stags)
            }
        }
    }
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
        SendOp::CompareSwap { at, swap, swap_mask, compare, compare_mask } => AtomicRequest {
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
