//! Bytes of one direction to FPDUs to lines of text. The decoder knows the wire format only, no
//! connection's state: what it makes of a stream is a second opinion.
//!
//! STags are shown by the name under which the receiver registered them, else as a number.

use outboard_iwarp::startup::{DEPTH_UNSPECIFIED, Negotiated};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged};
use outboard_wire::fpdu::{self, LENGTH_LEN};
use outboard_wire::marker::MarkerStripper;
use outboard_wire::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use outboard_wire::startup::{FrameKind, StartupFrame};
use outboard_wire::terminate::Terminate;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Names of STags.
pub type Names = BTreeMap<Stag, String>;

/// One segment as it crossed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its DDP header.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
}

/// Finds the FPDUs of one direction.
#[derive(Debug)]
pub struct Decoder {
    crc: bool,
    markers: Option<MarkerStripper>,
    pending: Vec<u8>,
}

impl Decoder {
    /// From the first byte after start-up on.
    pub fn new(crc: bool, markers: bool) -> Self {
        Self { crc, markers: markers.then(MarkerStripper::new), pending: Vec::new() }
    }

    /// For what the receiver `agreed` to get.
    pub fn for_receiver(agreed: &Negotiated) -> Self {
        Self::new(agreed.crc, agreed.rx_markers)
    }

    /// Takes the next bytes and returns the segments that are complete with them.
    ///
    /// # Panics
    /// When the bytes are no FPDUs or hold no DDP header.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Segment> {
        self.pending.extend_from_slice(bytes);
        let mut segments = Vec::new();
        let mut used = 0;
        while let Some((ulpdu, taken)) = self.next(used) {
            let (header, len) = Header::parse(&ulpdu).expect("a DDP header was sent");
            segments.push(Segment { header, payload: ulpdu[len..].to_vec() });
            used += taken;
        }
        self.pending.drain(..used);
        segments
    }

    /// True between FPDUs.
    pub fn is_between(&self) -> bool {
        self.pending.is_empty()
    }

    fn next(&mut self, from: usize) -> Option<(Vec<u8>, usize)> {
        let raw = &self.pending[from..];
        let Some(markers) = &mut self.markers else {
            let parsed = fpdu::parse(raw, self.crc).expect("an FPDU was sent");
            return parsed.map(|(ulpdu, taken)| (ulpdu.to_vec(), taken));
        };
        let mut body = Vec::new();
        let taken = markers.strip(raw, self.crc, &mut body).expect("an FPDU was sent")?;
        let len = usize::from(u16::from_be_bytes([body[0], body[1]]));
        Some((body[LENGTH_LEN..LENGTH_LEN + len].to_vec(), taken))
    }
}

/// One line for a start-up frame.
pub fn startup_line(bytes: &[u8]) -> String {
    let Ok(Some((frame, _))) = StartupFrame::parse(bytes) else {
        return "no start-up frame".to_owned();
    };
    let kind = match frame.kind {
        FrameKind::Request => "Request",
        FrameKind::Reply => "Reply",
    };
    let mut line = format!("{kind} rev={}", frame.revision);
    for (set, word) in [(frame.markers, " markers"), (frame.crc, " crc"), (frame.reject, " reject")]
    {
        line += if set { word } else { "" };
    }
    if let Some(enhanced) = frame.enhanced {
        let depth = |value| match value {
            DEPTH_UNSPECIFIED => "any".to_owned(),
            value => value.to_string(),
        };
        let _ = write!(line, " ird={} ord={}", depth(enhanced.ird), depth(enhanced.ord));
        let rtr = enhanced.rtr;
        for (set, word) in [
            (enhanced.peer_to_peer, " peer-to-peer"),
            (rtr.send, " rtr-send"),
            (rtr.write, " rtr-write"),
            (rtr.read, " rtr-read"),
        ] {
            line += if set { word } else { "" };
        }
    }
    line
}

/// One line for a segment; `names` are those of its receiver.
pub fn line(segment: &Segment, names: &Names) -> String {
    let mut line = header_line(&segment.header, names);
    line += &match segment.header.opcode() {
        Opcode::ReadRequest => read_request(&segment.payload, names),
        Opcode::AtomicRequest => atomic_request(&segment.payload, names),
        Opcode::AtomicResponse => AtomicResponse::parse(&segment.payload)
            .map_or_else(|_| " malformed".to_owned(), |r| format!(" original={:#x}", r.original)),
        Opcode::Terminate => terminate(&segment.payload, names),
        Opcode::Immediate | Opcode::ImmediateSolicited => immediate(&segment.payload),
        _ => format!(" len={}", segment.payload.len()),
    };
    line
}

fn name(stag: Stag, names: &Names) -> String {
    match names.get(&stag) {
        Some(name) => name.clone(),
        None if stag.0 < 4096 => stag.0.to_string(),
        None => "unknown".to_owned(),
    }
}

fn header_line(header: &Header, names: &Names) -> String {
    let mut line = format!("{:?}", header.opcode());
    if header.last() && matches!(header.opcode().queue(), None | Some(0)) {
        line += " last";
    }
    match header {
        Header::Tagged(Tagged { stag, offset, .. }) => {
            let _ = write!(line, " stag={} to={offset}", name(*stag, names));
        }
        Header::Untagged(Untagged { opcode, invalidate, msn, offset, .. }) => {
            if opcode.invalidates() {
                let _ = write!(line, " inv={}", name(*invalidate, names));
            }
            let _ = write!(line, " msn={msn}");
            if *offset > 0 {
                let _ = write!(line, " mo={offset}");
            }
        }
    }
    line
}

fn read_request(payload: &[u8], names: &Names) -> String {
    let Ok(r) = ReadRequest::parse(payload) else {
        return " malformed".to_owned();
    };
    let source = name(r.source_stag, names);
    format!(
        " sink={}+{} size={} source={source}+{}",
        r.sink_stag.0, r.sink_offset, r.size, r.source_offset
    )
}

fn atomic_request(payload: &[u8], names: &Names) -> String {
    let Ok(r) = AtomicRequest::parse(payload) else {
        return " malformed".to_owned();
    };
    let at = format!("at={}+{}", name(r.stag, names), r.offset);
    match r.op {
        AtomicOp::FetchAdd => {
            format!(" add {at} {:#x} mask={:#x}", r.add_swap, r.add_swap_mask)
        }
        AtomicOp::CompareSwap => format!(
            " swap {at} {:#x}/{:#x} if {:#x}/{:#x}",
            r.add_swap, r.add_swap_mask, r.compare, r.compare_mask
        ),
    }
}

fn immediate(payload: &[u8]) -> String {
    match <[u8; 8]>::try_from(payload) {
        Ok(bytes) => format!(" data={:#x}", u64::from_be_bytes(bytes)),
        Err(_) => " malformed".to_owned(),
    }
}

/// `CODE`, then what is quoted. A Terminate's receiver is the sender of what it quotes, so names
/// of the quoted STags are those of the Terminate's sender: numbers stand for all but the small.
fn terminate(payload: &[u8], names: &Names) -> String {
    let Ok((t, _)) = Terminate::parse(payload) else {
        return " malformed".to_owned();
    };
    let mut line = format!(" {:#x}/{:#x}/{:#04x}", t.code.layer, t.code.etype, t.code.code);
    match t.ddp.map(|quoted| (quoted.header(), quoted)) {
        Some((Some(header), _)) => {
            let _ = write!(line, " of [{}]", header_line(&header, names));
        }
        Some((None, quoted)) => {
            let _ = write!(line, " of [{quoted:?}]");
        }
        None => {}
    }
    if let Some(len) = t.segment_len {
        let _ = write!(line, " len={len}");
    }
    if let Some(r) = t.read_request {
        let _ = write!(
            line,
            " read [sink={}+{} size={} source={}+{}]",
            r.sink_stag.0,
            r.sink_offset,
            r.size,
            name(r.source_stag, names),
            r.source_offset
        );
    }
    line
}
