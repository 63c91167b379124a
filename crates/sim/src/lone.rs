//! One connection against bytes written by hand: for peers that break the rules.
//!
//! The connection is a responder without RTR unless told otherwise, so that it may speak once the
//! peer has; there is no real peer, so the test chooses MSNs, lengths and CRCs.

use crate::side::{PD, Side};
use crate::trace::{self, Decoder, Segment};
use outboard_iwarp::startup::{Negotiated, Role};
use outboard_iwarp::{Params, RnrPolicy};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged};
use outboard_wire::fpdu;
use outboard_wire::marker::MarkerInserter;
use outboard_wire::rdmap::Opcode;
use std::time::{Duration, Instant};

/// A connection, and the means to write the peer's bytes by hand.
#[derive(Debug)]
pub struct Lone {
    /// The connection.
    pub side: Side,
    now: Instant,
    crc: bool,
    markers: Option<MarkerInserter>,
    decoder: Decoder,
}

/// What both sides would have agreed on: no CRC, no markers, a responder, depths of 4.
pub fn agreed() -> Negotiated {
    Negotiated { ird: 4, ord: 4, ..Negotiated::bare(Role::Responder) }
}

impl Lone {
    /// A connection that stalls for a second without receives.
    pub fn new(negotiated: Negotiated) -> Self {
        Self::with(negotiated, RnrPolicy::Stall(Duration::from_secs(1)))
    }

    /// A connection.
    pub fn with(negotiated: Negotiated, rnr_policy: RnrPolicy) -> Self {
        let now = Instant::now();
        let crc = negotiated.crc;
        let markers = negotiated.rx_markers.then(MarkerInserter::new);
        let decoder = Decoder::new(crc, negotiated.tx_markers);
        let params =
            Params { qp: 3, pd: PD, negotiated, max_ulpdu: 1024, send_depth: 16, rnr_policy };
        Self { side: Side::new(params, now), now, crc, markers, decoder }
    }

    /// Delivers bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.side.deliver(self.now, bytes);
    }

    /// Delivers bytes `size` at a time.
    pub fn raw_pieces(&mut self, bytes: &[u8], size: usize) {
        for piece in bytes.chunks(size) {
            self.raw(piece);
        }
    }

    /// The FPDU around `ulpdu`, as the connection expects its next.
    pub fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &mut self.markers {
            None => fpdu::emit(ulpdu, self.crc, &mut bytes),
            Some(markers) => {
                let mut body = Vec::new();
                fpdu::emit_body(ulpdu, &mut body);
                markers.insert(&body, self.crc, &mut bytes);
            }
        }
        bytes
    }

    /// Delivers a well-framed ULPDU.
    pub fn ulpdu(&mut self, ulpdu: &[u8]) {
        let bytes = self.frame(ulpdu);
        self.raw(&bytes);
    }

    /// Delivers a segment.
    pub fn segment(&mut self, header: Header, payload: &[u8]) {
        self.ulpdu(&ulpdu(header, payload));
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.side.tick(self.now);
    }

    /// The peer's FIN.
    pub fn eof(&mut self) {
        self.side.deliver_eof(self.now);
    }

    /// TCP breaks.
    pub fn lose(&mut self) {
        self.side.lose(self.now);
    }

    /// TCP takes everything; the segments in it.
    pub fn segments(&mut self) -> Vec<Segment> {
        let mut segments = Vec::new();
        loop {
            let bytes = self.side.transmit(self.now, 1 << 20);
            segments.extend(self.decoder.push(&bytes));
            if bytes.is_empty() {
                return segments;
            }
        }
    }

    /// TCP takes everything; the segments as lines, STags by the connection's own names.
    pub fn lines(&mut self) -> Vec<String> {
        let segments = self.segments();
        segments.iter().map(|segment| trace::line(segment, &self.side.names)).collect()
    }
}

/// Header and payload in one.
pub fn ulpdu(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// The header of a message's only segment, on the queue where it belongs.
pub fn untagged(opcode: Opcode, msn: u32) -> Untagged {
    let queue = opcode.queue().unwrap_or(0);
    Untagged { opcode, last: true, invalidate: Stag(0), queue, msn, offset: 0 }
}

/// The header of a Write's only segment.
pub fn write(stag: Stag, offset: u64) -> Tagged {
    Tagged { opcode: Opcode::Write, last: true, stag, offset }
}

/// The header of a Read Response's only segment.
pub fn response(stag: Stag, offset: u64) -> Tagged {
    Tagged { opcode: Opcode::ReadResponse, last: true, stag, offset }
}
