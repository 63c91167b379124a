//! Segments that wait for a posted receive, oldest first: a message that found none, and what
//! arrived behind it. Without them the stream would stand still, and the answers to our own
//! requests with it, although they need no receive; two sides that each lack a receive would wait
//! for each other.
//!
//! Only Read Responses and Atomic Responses pass them (see [`passes`]). Never larger than
//! [`PARKED_MAX`]: a stream with more is not read on.

use outboard_wire::rdmap::Opcode;

/// Bytes kept for one connection at most, with two for each segment; any one segment fits.
const PARKED_MAX: usize = 128 << 10;
/// Bytes in front of each segment, which say its length.
const LENGTH_LEN: usize = 2;

/// A queue of whole ULPDUs.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    bytes: Vec<u8>,
    /// Where the oldest begins.
    start: usize,
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// True when a segment of this length can be kept.
    pub(crate) fn has_room(&self, ulpdu_len: usize) -> bool {
        self.bytes.len() - self.start + LENGTH_LEN + ulpdu_len <= PARKED_MAX
    }

    /// Keeps a segment behind the others; false when there is no room.
    pub(crate) fn push(&mut self, ulpdu: &[u8]) -> bool {
        let Ok(len) = u16::try_from(ulpdu.len()) else { return false };
        if !self.has_room(ulpdu.len()) {
            return false;
        }
        if self.start > PARKED_MAX / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(&len.to_be_bytes());
        self.bytes.extend_from_slice(ulpdu);
        true
    }

    /// The oldest segment.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        let (len, rest) = self.bytes.get(self.start..)?.split_first_chunk::<LENGTH_LEN>()?;
        rest.get(..usize::from(u16::from_be_bytes(*len)))
    }

    /// Removes the oldest segment; an empty queue has no memory.
    pub(crate) fn pop(&mut self) {
        self.start += LENGTH_LEN + self.front().map_or(0, <[u8]>::len);
        if self.start >= self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// True for a message that may be delivered before others that were sent earlier and wait for a
/// receive. RFC 5041 §5.3 delivers in order, and hardware ends the connection instead of waiting.
/// While a message waits here, only answers pass: they complete this side's requests, so that no
/// receive's completion, and nothing that the peer does to our memory, is seen out of order.
/// Everything else keeps its place. A Write does, because a program may not expect to find it
/// placed before the Send in front of it. A request does, because its answer tells the peer that
/// what it sent before has been delivered (the personality roce completes Sends by that).
pub(crate) fn passes(opcode: Opcode) -> bool {
    match opcode {
        Opcode::ReadResponse | Opcode::AtomicResponse => true,
        Opcode::Write
        | Opcode::ReadRequest
        | Opcode::Send
        | Opcode::SendInvalidate
        | Opcode::SendSolicited
        | Opcode::SendSolicitedInvalidate
        | Opcode::Terminate
        | Opcode::Immediate
        | Opcode::ImmediateSolicited
        | Opcode::AtomicRequest => false,
    }
}
