//! Bytes on their way to the socket: headers, trailers and small payloads in one buffer, large
//! payloads by reference. A batch knows nothing of sockets; it yields spans and is told how many
//! bytes were taken.

use crate::send_queue::SendQueue;
use outboard_mem::{Access, PdId, Placement, Span, StagTable};
use outboard_wire::ddp::Stag;
use std::collections::VecDeque;
use std::ops::Range;

/// Above this many buffered bytes a batch takes nothing until it is empty again.
const MAX_BUFFERED: usize = 1 << 20;

/// A run of bytes of one origin.
#[derive(Clone, Debug)]
enum Run {
    /// In the batch's own buffer.
    Bytes(Range<usize>),
    /// In the local list of a send queue entry, named by its sequence number.
    Local { seq: u64, range: Range<usize> },
    /// In registered memory that the peer reads.
    Response { stag: Stag, offset: u64, len: usize },
}

impl Run {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(range) | Self::Local { range, .. } => range.len(),
            Self::Response { len, .. } => *len,
        }
    }

    fn skip(&mut self, count: usize) {
        match self {
            Self::Bytes(range) | Self::Local { range, .. } => range.start += count,
            Self::Response { offset, len, .. } => {
                *offset += count as u64;
                *len -= count;
            }
        }
    }
}

/// Memory that the peer reads is no longer registered: the stream cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Registered memory as the peer of one protection domain may read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readable<'t> {
    pub(crate) stags: &'t StagTable,
    pub(crate) pd: PdId,
}

impl<'t> Readable<'t> {
    fn resolve(self, stag: Stag, offset: u64, len: usize) -> Result<Placement<'t>, Gone> {
        self.stags
            .resolve(stag.0, self.pd, Access::REMOTE_READ, offset, len as u64)
            .map_err(|_| Gone)
    }
}

/// The bytes between a connection and its socket.
#[derive(Debug, Default)]
pub(crate) struct TxBatch {
    pub(crate) bytes: Vec<u8>,
    pieces: VecDeque<Run>,
    len: usize,
}

impl TxBatch {
    /// Bytes not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// True when everything was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when more may be appended under this budget of bytes.
    pub(crate) fn has_room(&self, budget: usize) -> bool {
        self.len < budget && self.bytes.len() < MAX_BUFFERED
    }

    /// Declares the buffer's bytes from `start` on as queued.
    pub(crate) fn push_bytes(&mut self, start: usize) {
        let end = self.bytes.len();
        self.len += end - start;
        if let Some(Run::Bytes(last)) = self.pieces.back_mut()
            && last.end == start
        {
            last.end = end;
        } else if end > start {
            self.pieces.push_back(Run::Bytes(start..end));
        }
    }

    pub(crate) fn push_local(&mut self, seq: u64, range: Range<usize>) {
        self.len += range.len();
        self.pieces.push_back(Run::Local { seq, range });
    }

    pub(crate) fn push_response(&mut self, stag: Stag, offset: u64, len: usize) {
        self.len += len;
        self.pieces.push_back(Run::Response { stag, offset, len });
    }

    /// Lists what to send as raw spans, at most `max` of them; `pins` keeps registered memory in
    /// place until the system call is over.
    pub(crate) fn spans<'t>(
        &mut self,
        sends: &SendQueue,
        memory: Readable<'t>,
        max: usize,
        spans: &mut Vec<Span>,
        pins: &mut Vec<Placement<'t>>,
    ) -> Result<(), Gone> {
        for piece in &self.pieces {
            if spans.len() >= max {
                break;
            }
            match piece {
                Run::Bytes(range) => {
                    let bytes = &self.bytes[range.clone()];
                    spans.push(Span { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() });
                }
                Run::Local { seq, range } => {
                    let list = sends.local(*seq).ok_or(Gone)?;
                    list.spans(range.start, range.len(), spans).map_err(|_| Gone)?;
                }
                Run::Response { stag, offset, len } => {
                    let placement = memory.resolve(*stag, *offset, *len)?;
                    spans.push(placement.span(0..*len).map_err(|_| Gone)?);
                    pins.push(placement);
                }
            }
        }
        // A local list may have brought many at once.
        spans.truncate(max);
        Ok(())
    }

    /// Appends a copy of everything to `out`.
    pub(crate) fn copy(
        &self,
        sends: &SendQueue,
        memory: Readable<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Gone> {
        out.reserve(self.len);
        for piece in &self.pieces {
            match piece {
                Run::Bytes(range) => out.extend_from_slice(&self.bytes[range.clone()]),
                Run::Local { seq, range } => {
                    let list = sends.local(*seq).ok_or(Gone)?;
                    list.gather(range.start, range.len(), out).map_err(|_| Gone)?;
                }
                Run::Response { stag, offset, len } => {
                    let placement = memory.resolve(*stag, *offset, *len)?;
                    placement.append_to(0..*len, out).map_err(|_| Gone)?;
                }
            }
        }
        Ok(())
    }

    /// True while a Read Response lies in registered memory only.
    pub(crate) fn refers_to_responses(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Run::Response { .. }))
    }

    /// The first request of which bytes are still to be sent from memory that has been revoked:
    /// the rest of an FPDU that may be half out.
    pub(crate) fn revoked(&self, sends: &SendQueue) -> Option<u64> {
        self.pieces.iter().find_map(|piece| match piece {
            Run::Local { seq, range } => {
                let list = sends.local(*seq)?;
                (!list.is_usable(range.start, range.len())).then_some(*seq)
            }
            _ => None,
        })
    }

    /// Copies what still lies in other memory, so that the send queue may be flushed.
    pub(crate) fn freeze(&mut self, sends: &SendQueue, memory: Readable<'_>) -> Result<(), Gone> {
        let mut bytes = Vec::new();
        self.copy(sends, memory, &mut bytes)?;
        self.reset();
        self.bytes = bytes;
        self.push_bytes(0);
        Ok(())
    }

    /// The socket took this many bytes.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.len -= count;
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                break;
            };
            let step = count.min(piece.len());
            count -= step;
            if step == piece.len() {
                self.pieces.pop_front();
            } else {
                piece.skip(step);
            }
        }
        if self.len == 0 {
            self.reset();
        }
    }

    /// Forgets everything, as when the connection is lost.
    pub(crate) fn reset(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
        self.len = 0;
    }

    /// Works in `spare` from now on, unless bytes wait in the present buffer.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<u8>) {
        if self.is_empty() {
            spare.clear();
            std::mem::swap(&mut self.bytes, spare);
        }
    }

    /// Leaves its buffer in `spare` if it is the larger one, unless something waits in it.
    pub(crate) fn give_back(&mut self, spare: &mut Vec<u8>) {
        if self.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            if bytes.capacity() > spare.capacity() {
                *spare = bytes;
            }
        }
    }
}
