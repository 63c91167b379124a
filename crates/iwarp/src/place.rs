//! What an incoming segment means, opcode by opcode (RFC 5040 §5, RFC 5041 §7.1, RFC 7306).
//! `begin` checks a segment before any of its payload is used, `place` puts payload where it
//! belongs, `end` delivers. A segment is refused as a whole or placed as a whole, except for
//! what was placed before memory went away under it.

use crate::Connection;
use crate::connection::{Env, Event, OF_NEXT_SEND, Receiving};
use crate::fault::{Fault, protection_code, tagged_code};
use crate::inbound::Inbound;
use crate::phase::Move;
use crate::rx::Body;
use crate::send_queue::Owed;
use crate::tx::RTR_STAG;
use crate::work::{Completion, Operation, SendOp, Status};
use outboard_mem::{Access, AccessError};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged, queue};
use outboard_wire::rdmap::{AtomicRequest, AtomicResponse, IMMEDIATE_LEN, Opcode, ReadRequest};
use outboard_wire::terminate::{Layout, Terminate, TerminateCode};

/// Where a segment's payload goes.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// Registered memory, from this tagged offset on.
    Write { stag: Stag, offset: u64 },
    /// The receive in progress, from this offset on.
    Receive { offset: usize },
    /// The local list of the Read with this sequence number, from this offset on.
    Response { seq: u64, offset: usize },
    /// Nowhere: it was acted on already.
    Nothing,
}

impl Connection {
    /// Checks a segment. `payload` is empty when it has not arrived yet, which is only so for
    /// messages that carry ULP payload. `None`: a Send found no posted receive.
    pub(crate) fn begin(
        &mut self,
        header: &Header,
        payload: &[u8],
        payload_len: usize,
        env: &mut Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        match header {
            Header::Tagged(tagged) if tagged.opcode == Opcode::Write => {
                self.begin_write(tagged, header, payload_len, env).map(Some)
            }
            Header::Tagged(tagged) => {
                self.begin_read_response(tagged, header, payload_len).map(Some)
            }
            Header::Untagged(untagged) => {
                self.check_queue(untagged, header, payload_len)?;
                self.begin_untagged(untagged, header, payload, payload_len, env)
            }
        }
    }

    fn begin_untagged(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        payload: &[u8],
        payload_len: usize,
        env: &mut Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        match untagged.opcode {
            Opcode::ReadRequest => self.take_read_request(untagged, header, payload, env),
            Opcode::AtomicRequest => self.take_atomic_request(untagged, header, payload, env),
            Opcode::AtomicResponse => self.take_atomic_response(untagged, header, payload),
            Opcode::Terminate => self.take_terminate(payload),
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                self.take_immediate(untagged, header, payload, env)
            }
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate => {
                self.begin_send(untagged, header, payload_len, env)
            }
            // `check_queue` has refused them: tagged messages have no queue.
            Opcode::Write | Opcode::ReadResponse => {
                let len = header.len() + payload_len;
                Err(Fault::of(TerminateCode::OPERATION_OPCODE, *header, len))
            }
        }
    }

    /// RFC 5041 §7.1: queue, message sequence number and message offset.
    fn check_queue(&self, h: &Untagged, header: &Header, payload_len: usize) -> Result<(), Fault> {
        let fault = |code| Err(Fault::of(code, *header, header.len() + payload_len));
        if Some(h.queue) != h.opcode.queue() {
            return fault(TerminateCode::UNTAGGED_INVALID_QUEUE);
        }
        let in_progress = h.queue == queue::SEND && self.receiving.is_some();
        let last = self.rx.msn[h.queue as usize & 3];
        let expected = if in_progress { last } else { last.wrapping_add(1) };
        if h.msn != expected {
            return fault(TerminateCode::UNTAGGED_INVALID_MSN);
        }
        let offset = match &self.receiving {
            Some(receiving) if h.queue == queue::SEND => receiving.placed,
            _ => 0,
        };
        if h.offset as usize != offset {
            return fault(TerminateCode::UNTAGGED_INVALID_OFFSET);
        }
        Ok(())
    }

    /// RFC 5040 §5.1; a zero-length Write names no memory (RFC 5041 §7.1).
    fn begin_write(
        &mut self,
        tagged: &Tagged,
        header: &Header,
        len: usize,
        env: &Env<'_>,
    ) -> Result<Sink, Fault> {
        if len == 0 {
            return Ok(Sink::Nothing);
        }
        let (stag, offset) = (tagged.stag, tagged.offset);
        self.permit(Access::REMOTE_WRITE)
            .and_then(|()| {
                env.stags.resolve(stag.0, self.pd, Access::REMOTE_WRITE, offset, len as u64)
            })
            .map_err(|error| Fault::of(tagged_code(error), *header, header.len() + len))?;
        Ok(Sink::Write { stag, offset })
    }

    /// RFC 5040 §5.2.2: responses come in order and go where their request said.
    fn begin_read_response(
        &mut self,
        tagged: &Tagged,
        header: &Header,
        len: usize,
    ) -> Result<Sink, Fault> {
        let fault = |code| Err(Fault::of(code, *header, header.len() + len));
        let owed = self.sends.oldest_owed();
        if owed.is_none() || self.read_sinks.front() != Some(&tagged.stag) {
            return fault(TerminateCode::TAGGED_INVALID_STAG);
        }
        let Some((placed, size)) = owed.and_then(|owed| self.owed_read(owed)) else {
            return fault(TerminateCode::OPERATION_OPCODE);
        };
        let fits = len <= size - placed && (!tagged.last || placed + len == size);
        if tagged.offset != placed as u64 || !fits {
            return fault(TerminateCode::TAGGED_BOUNDS);
        }
        Ok(match owed {
            Some(Owed::QueuedSend(seq)) => Sink::Response { seq, offset: placed },
            _ => Sink::Nothing,
        })
    }

    /// Bytes placed and bytes asked for, when the oldest owed response is a Read's.
    fn owed_read(&self, owed: Owed) -> Option<(usize, usize)> {
        match owed {
            Owed::Rtr => Some((0, 0)),
            Owed::QueuedSend(seq) => {
                let entry = self.sends.entry(seq)?;
                matches!(entry.request.op, SendOp::Read { .. })
                    .then(|| (entry.received as usize, entry.request.local.len()))
            }
        }
    }

    /// RFC 5040 §5.3. The first segment takes a posted receive.
    fn begin_send(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        len: usize,
        env: &mut Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        let fault = |code| Fault::of(code, *header, header.len() + len);
        if self.absorbs_rtr(untagged, len) {
            self.rx.msn[queue::SEND as usize] = untagged.msn;
            return Ok(Some(Sink::Nothing));
        }
        if self.receiving.is_none() {
            let Some(request) = env.receives.pop() else {
                return Ok(None);
            };
            let opcode = untagged.opcode;
            self.receiving = Some(Receiving { request, opcode, placed: 0 });
            self.rx.msn[queue::SEND as usize] = untagged.msn;
        }
        let Some(receiving) = &self.receiving else {
            return Ok(None);
        };
        if receiving.opcode != untagged.opcode {
            return Err(fault(TerminateCode::OPERATION_OPCODE));
        }
        if receiving.placed + len > receiving.request.local.len() {
            self.fail_receive(Status::LocalLength, env);
            return Err(fault(TerminateCode::UNTAGGED_TOO_LONG));
        }
        let offset = receiving.placed;
        Ok(Some(Sink::Receive { offset }))
    }

    /// RFC 6581 §9.2: a zero-length Send that only opens the connection takes no receive.
    fn absorbs_rtr(&self, untagged: &Untagged, len: usize) -> bool {
        self.rx.first
            && self.accepts_rtr_send
            && len == 0
            && untagged.opcode == Opcode::Send
            && untagged.last
    }

    fn take_read_request(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        payload: &[u8],
        env: &Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        self.check_inbound_room(header, payload.len())?;
        check_fixed(untagged, header, payload, ReadRequest::LEN)?;
        let request = ReadRequest::parse(payload)?;
        if request.size > 0 {
            let (offset, size) = (request.source_offset, u64::from(request.size));
            let stag = request.source_stag.0;
            self.permit(Access::REMOTE_READ)
                .and_then(|()| env.stags.resolve(stag, self.pd, Access::REMOTE_READ, offset, size))
                .map_err(|error| {
                    Fault::of(protection_code(error), *header, header.len() + payload.len())
                        .with_read_request(request)
                })?;
        }
        self.rx.msn[queue::READ_REQUEST as usize] = untagged.msn;
        self.inbound.push(Inbound::Read { request });
        Ok(Some(Sink::Nothing))
    }

    fn take_atomic_request(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        payload: &[u8],
        env: &Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        self.check_inbound_room(header, payload.len())?;
        let fault = |code| Fault::of(code, *header, header.len() + payload.len());
        check_fixed(untagged, header, payload, AtomicRequest::LEN)?;
        let request =
            AtomicRequest::parse(payload).map_err(|error| fault(error.terminate_code()))?;
        let (stag, need) = (request.stag.0, Access::REMOTE_ATOMIC);
        let placement = self
            .permit(need)
            .and_then(|()| env.stags.resolve(stag, self.pd, need, request.offset, 8))
            .map_err(|error| fault(protection_code(error)))?;
        // RFC 7306 §8.2: an unaligned atomic is refused and changes nothing.
        let aligned = placement.span(0..8).is_ok_and(|span| span.ptr.addr() % 8 == 0);
        if !aligned {
            return Err(fault(TerminateCode::OPERATION_STREAM));
        }
        self.rx.msn[queue::READ_REQUEST as usize] = untagged.msn;
        self.inbound.push(Inbound::Atomic(request));
        Ok(Some(Sink::Nothing))
    }

    /// No more requests than the negotiated IRD (RFC 5041 §7.1 rule 2).
    fn check_inbound_room(&self, header: &Header, payload_len: usize) -> Result<(), Fault> {
        if self.inbound.len() < usize::from(self.ird) {
            return Ok(());
        }
        let len = header.len() + payload_len;
        Err(Fault::of(TerminateCode::UNTAGGED_NO_BUFFER, *header, len))
    }

    fn take_atomic_response(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        payload: &[u8],
    ) -> Result<Option<Sink>, Fault> {
        let fault = |code| Fault::of(code, *header, header.len() + payload.len());
        check_fixed(untagged, header, payload, AtomicResponse::LEN)?;
        let response = AtomicResponse::parse(payload)?;
        let Some(Owed::QueuedSend(seq)) = self.sends.oldest_owed() else {
            return Err(fault(TerminateCode::OPERATION_OPCODE));
        };
        let Some(entry) = self.sends.entry_mut(seq) else {
            return Err(fault(TerminateCode::OPERATION_OPCODE));
        };
        let atomic =
            matches!(entry.request.op, SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. });
        if !atomic || u64::from(response.request_id) != seq & 0xFFFF_FFFF {
            return Err(fault(TerminateCode::OPERATION_OPCODE));
        }
        let stored = entry.request.local.scatter(0, &response.original.to_ne_bytes());
        self.rx.msn[queue::ATOMIC_RESPONSE as usize] = untagged.msn;
        stored.map_err(|_| self.refuse_sink(seq))?;
        self.sends.settle_oldest(Status::Success);
        Ok(Some(Sink::Nothing))
    }

    /// RFC 7306 §6: eight bytes that complete a receive; after a Write they announce it.
    fn take_immediate(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<Option<Sink>, Fault> {
        let fault = |code| Fault::of(code, *header, header.len() + payload.len());
        check_fixed(untagged, header, payload, IMMEDIATE_LEN)?;
        let bytes = <[u8; IMMEDIATE_LEN]>::try_from(payload).unwrap_or_default();
        let immediate = u64::from_be_bytes(bytes);
        if self.receiving.is_some() {
            return Err(fault(TerminateCode::UNTAGGED_INVALID_MSN));
        }
        if self.immediate.is_some() {
            return Err(fault(TerminateCode::OPERATION_OPCODE));
        }
        if self.send_with_imm && immediate & 0xFFFF_FFFF == u64::from(OF_NEXT_SEND) {
            self.immediate = u32::try_from(immediate >> 32).ok();
            self.rx.msn[queue::SEND as usize] = untagged.msn;
            return Ok(Some(Sink::Nothing));
        }
        let Some(request) = env.receives.pop() else {
            return Ok(None);
        };
        self.rx.msn[queue::SEND as usize] = untagged.msn;
        let mut completion = Completion::new(
            request.wr_id,
            self.qp,
            Operation::ReceiveImmediate,
            Status::Success,
            request.local,
        );
        completion.immediate = Some(immediate);
        completion.solicited = untagged.opcode.is_solicited();
        completion.bytes = self.written.take().unwrap_or(0);
        env.completions.push(completion);
        Ok(Some(Sink::Nothing))
    }

    fn take_terminate(&mut self, payload: &[u8]) -> Result<Option<Sink>, Fault> {
        let (terminate, layout) = Terminate::parse(payload)?;
        self.handle_peer_terminate(terminate, layout);
        Ok(Some(Sink::Nothing))
    }

    /// Puts the next payload bytes of a segment where they belong.
    pub(crate) fn place(
        &mut self,
        body: &Body,
        bytes: &[u8],
        env: &mut Env<'_>,
    ) -> Result<(), Fault> {
        match body.sink {
            Sink::Write { stag, offset } if !bytes.is_empty() => {
                let (at, len) = (offset.wrapping_add(body.done as u64), bytes.len() as u64);
                let refused = |error| Fault::of(tagged_code(error), body.header, body.segment_len);
                env.stags
                    .resolve(stag.0, self.pd, Access::REMOTE_WRITE, at, len)
                    .map_err(refused)?
                    .copy_in(0, bytes)
                    // Registered memory that is missing counts as not registered.
                    .map_err(|_| refused(AccessError::InvalidStag))
            }
            Sink::Receive { offset } => {
                let receiving = self.receiving.as_mut().ok_or_else(Fault::local)?;
                let local = &mut receiving.request.local;
                local.scatter(offset + body.done, bytes).map_err(|_| {
                    self.fail_receive(Status::LocalProtection, env);
                    Fault::local()
                })
            }
            Sink::Response { seq, offset } => {
                let local = &mut self.sends.entry_mut(seq).ok_or_else(Fault::local)?.request.local;
                local.scatter(offset + body.done, bytes).map_err(|_| self.refuse_sink(seq))
            }
            Sink::Write { .. } | Sink::Nothing => Ok(()),
        }
    }

    /// The segment is placed: delivers what it completes.
    pub(crate) fn end(&mut self, body: &Body, env: &mut Env<'_>) -> Result<(), Fault> {
        self.note_first();
        match &body.header {
            Header::Tagged(tagged) if tagged.opcode == Opcode::Write => {
                self.note_write(tagged, body.payload_len);
            }
            Header::Tagged(tagged) => {
                self.end_read_response(tagged, &body.sink, body.payload_len, env);
            }
            Header::Untagged(untagged) => match body.sink {
                Sink::Receive { .. } => {
                    return self.end_send(untagged, &body.header, body.payload_len, env);
                }
                _ => self.retire(env),
            },
        }
        Ok(())
    }

    /// The first valid FPDU lets a responder transmit (RFC 5044 §7.1.2 rule 4).
    pub(crate) fn note_first(&mut self) {
        if std::mem::take(&mut self.rx.first) {
            self.nudge.stop();
            self.step_phase(Move::FirstFpdu);
        }
    }

    /// Counts the bytes of a Write, for Immediate Data behind it. An RTR or nudge is none.
    fn note_write(&mut self, tagged: &Tagged, len: usize) {
        if len == 0 && tagged.stag == RTR_STAG {
            return;
        }
        let before = if std::mem::take(&mut self.write_open) { self.written } else { None };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.written = Some(before.unwrap_or(0).saturating_add(len));
        self.write_open = !tagged.last;
    }

    fn end_read_response(&mut self, tagged: &Tagged, sink: &Sink, len: usize, env: &mut Env<'_>) {
        if let Sink::Response { seq, .. } = *sink
            && let Some(entry) = self.sends.entry_mut(seq)
        {
            entry.received += u32::try_from(len).unwrap_or(0);
        }
        if tagged.last {
            self.read_sinks.pop_front();
            self.sends.settle_oldest(Status::Success);
            self.retire(env);
        }
    }

    fn end_send(
        &mut self,
        untagged: &Untagged,
        header: &Header,
        len: usize,
        env: &mut Env<'_>,
    ) -> Result<(), Fault> {
        let Some(mut receiving) = self.receiving.take() else {
            return Ok(());
        };
        receiving.placed += len;
        if !untagged.last {
            self.receiving = Some(receiving);
            return Ok(());
        }
        self.written = None;
        let invalidated = self.invalidate_for(untagged, header, len, env);
        let mut completion = receiving.complete(self.qp, Status::Success);
        completion.immediate = self.immediate.take().map(|immediate| u64::from(immediate) << 32);
        completion.solicited = untagged.opcode.is_solicited();
        match invalidated {
            Ok(stag) => {
                completion.invalidated = stag;
                env.completions.push(completion);
                Ok(())
            }
            Err(fault) => {
                completion.status = Status::Flushed;
                env.completions.push(completion);
                Err(fault)
            }
        }
    }

    /// RFC 5040 §5.3: the STag must be one of this stream's.
    fn invalidate_for(
        &self,
        untagged: &Untagged,
        header: &Header,
        len: usize,
        env: &Env<'_>,
    ) -> Result<Option<Stag>, Fault> {
        if !untagged.opcode.invalidates() {
            return Ok(None);
        }
        let stag = untagged.invalidate;
        let fault = |code| Err(Fault::of(code, *header, header.len() + len));
        let right = self.permit(Access::REMOTE_INVALIDATE);
        match right.and_then(|()| env.stags.invalidate(stag.0, self.pd)) {
            Ok(()) => Ok(Some(stag)),
            Err(AccessError::NoRight) => fault(TerminateCode::PROTECTION_CANNOT_INVALIDATE),
            Err(error) => fault(protection_code(error)),
        }
    }

    /// The response to a request of this side has no place to go.
    fn refuse_sink(&mut self, seq: u64) -> Fault {
        self.sends.refuse(seq);
        Fault::local()
    }

    fn fail_receive(&mut self, status: Status, env: &mut Env<'_>) {
        if let Some(receiving) = self.receiving.take() {
            env.completions.push(receiving.complete(self.qp, status));
        }
    }

    /// Which owed response a Terminate speaks of, counted from the oldest: Reads and atomics are
    /// numbered on one queue. Without a number it is the one being answered.
    pub(crate) fn blamed(&self, terminate: &Terminate) -> usize {
        let quoted = terminate.ddp.and_then(|quoted| quoted.header());
        let Some(Header::Untagged(quoted)) = quoted else { return 0 };
        let newest = self.tx.last_msn(queue::READ_REQUEST);
        let behind = newest.wrapping_sub(quoted.msn) as usize;
        self.sends.owed_len().checked_sub(behind + 1).unwrap_or(usize::MAX)
    }

    fn handle_peer_terminate(&mut self, terminate: Terminate, layout: Layout) {
        self.blame = blame(&terminate).map(|status| (self.blamed(&terminate), status));
        self.events.push_back(Event::PeerTerminated { terminate, layout });
        self.step_phase(Move::PeerTerminate);
    }
}

/// RFC 5041 §7.1 rule 4 for messages of one segment and one length: their buffers hold no more.
fn check_fixed(h: &Untagged, header: &Header, payload: &[u8], len: usize) -> Result<(), Fault> {
    let fault = |code| Err(Fault::of(code, *header, header.len() + payload.len()));
    if payload.len() > len || !h.last {
        return fault(TerminateCode::UNTAGGED_TOO_LONG);
    }
    if payload.len() < len {
        return fault(TerminateCode::OPERATION_UNSPECIFIED);
    }
    Ok(())
}

/// What a peer's Terminate says of our oldest unanswered request: something only when it quotes
/// such a request.
fn blame(terminate: &Terminate) -> Option<Status> {
    let quoted = terminate.ddp.and_then(|quoted| quoted.header()).map(|header| header.opcode());
    let ours = matches!(quoted, Some(Opcode::ReadRequest | Opcode::AtomicRequest));
    if !ours && terminate.read_request.is_none() {
        return None;
    }
    let protection = matches!(terminate.code, TerminateCode { layer: 0 | 1, etype: 1, .. });
    Some(if protection { Status::RemoteAccess } else { Status::RemoteOperation })
}
