//! The receive half of [`crate::Connection`]: finds FPDUs in the byte stream (RFC 5044 §4) and
//! hands segments to [`crate::place`].
//!
//! With CRCs or markers an FPDU is looked at only when it is here as a whole and right. Without
//! either, a payload may be placed while it arrives, and the engine may let the kernel put it
//! straight where it belongs ([`Connection::direct`]).

use crate::Connection;
use crate::connection::Env;
use crate::fault::Fault;
use crate::parked::{self, Parked};
use crate::place::Sink;
use outboard_mem::{Access, DirectWrite, Placement, Span, StagTable};
use outboard_wire::ddp::{Header, UNTAGGED_LEN};
use outboard_wire::fpdu::{self, CRC_LEN, LENGTH_LEN, pad_len};
use outboard_wire::marker::MarkerStripper;
use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::TerminateCode;
use std::time::Instant;

/// Receive state.
#[derive(Debug)]
pub(crate) struct Rx {
    /// A payload that is arriving piece by piece.
    body: Option<Body>,
    /// Bytes of pad and CRC still to skip behind a body.
    skip: usize,
    markers: Option<MarkerStripper>,
    scratch: Vec<u8>,
    /// MSN of the last message begun, per queue.
    pub(crate) msn: [u32; 4],
    /// Set while [`Rx::parked`] holds anything.
    pub(crate) stalled: Option<Stalled>,
    /// Segments that wait for a posted receive.
    parked: Parked,
    /// The segment that comes next has no room there.
    pub(crate) full: bool,
    /// The bytes offered last ended inside an FPDU of which nothing has been taken.
    partial: bool,
    /// Nothing has arrived yet.
    pub(crate) first: bool,
}

/// A segment that is being placed; its payload may be only partly here.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) header: Header,
    pub(crate) segment_len: usize,
    pub(crate) sink: Sink,
    /// Payload bytes placed.
    pub(crate) done: usize,
    pub(crate) payload_len: usize,
}

/// A message that found no posted receive.
#[derive(Debug)]
pub(crate) struct Stalled {
    pub(crate) since: Instant,
    /// The fault to report if no receive is posted.
    pub(crate) fault: Fault,
}

/// The result of one step over the stream.
enum Step {
    Took(usize),
    NeedMore,
    /// The segment cannot be delivered yet, and there is no room to keep it.
    Full,
}

/// Where the kernel may put the next bytes of the stream.
#[derive(Debug)]
pub struct Direct<'t> {
    /// Keeps registered memory in place during the system call.
    _pin: Option<Placement<'t>>,
    /// Keeps its gate open for as long.
    _write: Option<DirectWrite>,
    /// How many bytes of the stream go there.
    pub len: usize,
    /// How many bytes of pad and CRC follow them.
    pub trailer: usize,
}

impl Rx {
    pub(crate) fn new(markers: bool) -> Self {
        Self {
            body: None,
            skip: 0,
            markers: markers.then(MarkerStripper::new),
            scratch: Vec::new(),
            msn: [0; 4],
            stalled: None,
            parked: Parked::default(),
            full: false,
            partial: false,
            first: true,
        }
    }

    /// Payload bytes of the current segment that have not arrived.
    pub(crate) fn direct_len(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.payload_len - body.done)
    }

    /// True in the middle of an FPDU.
    pub(crate) fn mid_fpdu(&self) -> bool {
        self.body.is_some() || self.skip > 0 || self.partial
    }

    /// Nothing more is placed: the connection is over.
    pub(crate) fn abandon(&mut self) {
        self.body = None;
        self.skip = 0;
        self.partial = false;
        self.stalled = None;
        self.parked = Parked::default();
        self.full = false;
    }
}

impl Connection {
    /// Processes bytes of the stream and says how many it took; the rest must be offered again,
    /// followed by more. It takes everything once the connection is over. When a message waits for
    /// a receive and one was posted, this delivers it, even if there are no new bytes.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], env: &mut Env<'_>) -> usize {
        (self.rx.partial, self.rx.full) = (false, false);
        if self.deliver_parked(env) {
            self.rx.stalled = None;
        }
        let used = self.take_segments(bytes, env);
        self.note_stall(now);
        if self.phase.receives() { used } else { bytes.len() }
    }

    fn take_segments(&mut self, bytes: &[u8], env: &mut Env<'_>) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.phase.receives() {
            match self.step(&bytes[used..], env) {
                Ok(Step::Took(count)) => used += count,
                Ok(Step::NeedMore) => {
                    self.rx.partial = true;
                    break;
                }
                Ok(Step::Full) => {
                    self.rx.full = true;
                    break;
                }
                Err(fault) => self.fail(fault),
            }
        }
        used
    }

    /// Delivers what waits, as far as there are receives; true when that is anything.
    fn deliver_parked(&mut self, env: &mut Env<'_>) -> bool {
        let mut parked = std::mem::take(&mut self.rx.parked);
        let mut any = false;
        while let Some(ulpdu) = parked.front() {
            match self.deliver(ulpdu, env) {
                Ok(true) => parked.pop(),
                Ok(false) => break,
                Err(fault) => self.fail(fault),
            }
            any = true;
            // A fault or a Terminate ends it, and what is behind that is dropped.
            if !self.phase.receives() {
                return any;
            }
        }
        self.rx.parked = parked;
        any
    }

    /// Each message that waits has its own time. An attempt that fails does not restart it, nor
    /// does what arrives behind the message.
    fn note_stall(&mut self, now: Instant) {
        let front = self.rx.parked.front().map(|ulpdu| (read_header(ulpdu, ulpdu.len()), ulpdu));
        if let Some((Ok((header, _)), ulpdu)) = front
            && self.rx.stalled.is_none()
        {
            let fault = no_buffer(header, ulpdu.len());
            self.rx.stalled = Some(Stalled { since: now, fault });
        }
    }

    fn step(&mut self, bytes: &[u8], env: &mut Env<'_>) -> Result<Step, Fault> {
        if self.rx.skip > 0 {
            let count = self.rx.skip.min(bytes.len());
            self.rx.skip -= count;
            return Ok(Step::Took(count));
        }
        if let Some(body) = self.rx.body.take() {
            return self.continue_body(body, bytes, env).map(Step::Took);
        }
        if self.rx.markers.is_some() {
            return self.step_with_markers(bytes, env);
        }
        // RFC 5044 §4.4: nothing of an FPDU is used before its CRC is right.
        if let Some((ulpdu, taken)) = fpdu::parse(bytes, self.crc)? {
            return self.whole(ulpdu, taken, env);
        }
        match bytes.split_first_chunk::<LENGTH_LEN>() {
            Some((length, ulpdu)) if !self.crc && ulpdu.len() >= UNTAGGED_LEN => {
                self.begin_body(ulpdu, usize::from(u16::from_be_bytes(*length)), env)
            }
            _ => Ok(Step::NeedMore),
        }
    }

    fn step_with_markers(&mut self, raw: &[u8], env: &mut Env<'_>) -> Result<Step, Fault> {
        let Some(mut stripper) = self.rx.markers.take() else {
            return Ok(Step::NeedMore);
        };
        let mut fpdu = std::mem::take(&mut self.rx.scratch);
        let before = stripper.clone();
        let result = match stripper.strip(raw, self.crc, &mut fpdu) {
            Ok(None) => Ok(Step::NeedMore),
            Ok(Some(taken)) => {
                let ulpdu = fpdu.get(LENGTH_LEN..fpdu_ulpdu_end(&fpdu)).unwrap_or_default();
                self.whole(ulpdu, taken, env)
            }
            Err(error) => Err(error.into()),
        };
        // An FPDU without room is read again later, from the same place in the stream.
        let again = matches!(result, Ok(Step::Full));
        self.rx.markers = Some(if again { before } else { stripper });
        self.rx.scratch = fpdu;
        result
    }

    /// One segment that is here as a whole.
    fn whole(&mut self, ulpdu: &[u8], taken: usize, env: &mut Env<'_>) -> Result<Step, Fault> {
        let (header, _) = read_header(ulpdu, ulpdu.len())?;
        if self.may_begin(&header) && self.deliver(ulpdu, env)? {
            return Ok(Step::Took(taken));
        }
        if !self.rx.parked.push(ulpdu) {
            return Ok(Step::Full);
        }
        self.note_first();
        Ok(Step::Took(taken))
    }

    /// False while something in front of the segment waits for a receive.
    fn may_begin(&self, header: &Header) -> bool {
        self.rx.parked.is_empty() || parked::passes(header.opcode())
    }

    /// Delivers a whole segment; false when it found no posted receive.
    fn deliver(&mut self, ulpdu: &[u8], env: &mut Env<'_>) -> Result<bool, Fault> {
        let (header, header_len) = read_header(ulpdu, ulpdu.len())?;
        let payload = &ulpdu[header_len..];
        let Some(sink) = self.begin(&header, payload, payload.len(), env)? else {
            return Ok(false);
        };
        let body =
            Body { header, segment_len: ulpdu.len(), sink, done: 0, payload_len: payload.len() };
        self.place(&body, payload, env)?;
        self.end(&body, env)?;
        Ok(true)
    }

    /// The beginning of a segment whose payload is not all here. Only payloads of messages are
    /// taken so; requests and Terminates are small and waited for, as is the rest of a segment that
    /// has to wait for a receive.
    fn begin_body(
        &mut self,
        ulpdu: &[u8],
        ulpdu_len: usize,
        env: &mut Env<'_>,
    ) -> Result<Step, Fault> {
        let (header, header_len) = read_header(ulpdu, ulpdu_len)?;
        if ulpdu_len < header_len {
            return Err(Fault::bare(TerminateCode::OPERATION_UNSPECIFIED));
        }
        if !carries_ulp_payload(header.opcode()) {
            return Ok(Step::NeedMore);
        }
        let payload_len = ulpdu_len - header_len;
        let sink = if self.may_begin(&header) {
            self.begin(&header, &[], payload_len, env)?
        } else {
            None
        };
        let Some(sink) = sink else {
            let fits = self.rx.parked.has_room(ulpdu_len);
            return Ok(if fits { Step::NeedMore } else { Step::Full });
        };
        let body = Body { header, segment_len: ulpdu_len, sink, done: 0, payload_len };
        let here = &ulpdu[header_len..];
        let taken = self.continue_body(body, here, env)?;
        Ok(Step::Took(LENGTH_LEN + header_len + taken))
    }

    fn continue_body(
        &mut self,
        mut body: Body,
        bytes: &[u8],
        env: &mut Env<'_>,
    ) -> Result<usize, Fault> {
        let count = bytes.len().min(body.payload_len - body.done);
        let here = &bytes[..count];
        self.place(&body, here, env)?;
        body.done += count;
        self.keep_or_end(body, env)?;
        Ok(count)
    }

    fn keep_or_end(&mut self, body: Body, env: &mut Env<'_>) -> Result<(), Fault> {
        if body.done < body.payload_len {
            self.rx.body = Some(body);
            return Ok(());
        }
        self.rx.skip = pad_len(body.segment_len) + CRC_LEN;
        self.end(&body, env)
    }

    /// Where the next bytes of the stream may be received without a copy, if they are payload.
    /// `spans` gets the pieces in order. A segment whose memory has been deregistered since is left
    /// to [`Connection::handle_bytes`], which finds the fault.
    pub fn direct<'t>(
        &mut self,
        stags: &'t StagTable,
        spans: &mut Vec<Span>,
    ) -> Option<Direct<'t>> {
        let body = self.rx.body.as_ref()?;
        let len = body.payload_len - body.done;
        let trailer = pad_len(body.segment_len) + CRC_LEN;
        match body.sink {
            Sink::Write { stag, offset } => {
                let at = offset.wrapping_add(body.done as u64);
                let pin =
                    stags.resolve(stag.0, self.pd, Access::REMOTE_WRITE, at, len as u64).ok()?;
                spans.push(pin.span(0..len).ok()?);
                let write = Some(pin.write_directly());
                Some(Direct { _pin: Some(pin), _write: write, len, trailer })
            }
            Sink::Receive { offset } => {
                let at = offset + body.done;
                let local = &mut self.receiving.as_mut()?.request.local;
                local.spans_mut(at, len, spans).ok()?;
                Some(Direct { _pin: None, _write: None, len, trailer })
            }
            Sink::Response { seq, offset } => {
                let at = offset + body.done;
                self.sends.entry_mut(seq)?.request.local.spans_mut(at, len, spans).ok()?;
                Some(Direct { _pin: None, _write: None, len, trailer })
            }
            Sink::Nothing => None,
        }
    }

    /// The kernel put `count` bytes where [`Connection::direct`] said.
    pub fn handle_direct(&mut self, count: usize, env: &mut Env<'_>) {
        if let Some(mut body) = self.rx.body.take() {
            body.done += count.min(body.payload_len - body.done);
            if let Err(fault) = self.keep_or_end(body, env) {
                self.fail(fault);
            }
        }
    }
}

fn read_header(ulpdu: &[u8], ulpdu_len: usize) -> Result<(Header, usize), Fault> {
    Header::parse(ulpdu).map_err(|error| Fault::unreadable(error, ulpdu, ulpdu_len))
}

/// RFC 5041 §7.1 rule 2.
fn no_buffer(header: Header, segment_len: usize) -> Fault {
    Fault::of(TerminateCode::UNTAGGED_NO_BUFFER, header, segment_len)
}

/// RFC 5040 §4.2 figure 4: messages whose payload is the ULP's, of any length.
fn carries_ulp_payload(opcode: Opcode) -> bool {
    match opcode {
        Opcode::Write
        | Opcode::ReadResponse
        | Opcode::Send
        | Opcode::SendInvalidate
        | Opcode::SendSolicited
        | Opcode::SendSolicitedInvalidate => true,
        Opcode::ReadRequest
        | Opcode::Terminate
        | Opcode::Immediate
        | Opcode::ImmediateSolicited
        | Opcode::AtomicRequest
        | Opcode::AtomicResponse => false,
    }
}

/// Where the ULPDU ends in an FPDU without markers.
fn fpdu_ulpdu_end(fpdu: &[u8]) -> usize {
    fpdu.first_chunk::<LENGTH_LEN>()
        .map_or(0, |length| LENGTH_LEN + usize::from(u16::from_be_bytes(*length)))
}
