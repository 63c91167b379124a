//! What the two sides of a script asked for, and what must come of it.

use crate::side::bytes_of;
use outboard_iwarp::work::{Completion, Operation, Remote, SendOp, Status};
use outboard_wire::ddp::Stag;
use outboard_wire::rdmap::{AtomicOp, AtomicRequest};
use std::collections::VecDeque;
use std::ops::Range;

/// What a completion must say.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) wr_id: u64,
    pub(super) operation: Operation,
    pub(super) bytes: usize,
    pub(super) content: Option<Vec<u8>>,
    pub(super) immediate: Option<u64>,
    pub(super) invalidated: Option<Stag>,
    pub(super) solicited: bool,
}

/// What one side asked of the other.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The other side's registered bytes after everything asked for so far.
    pub(super) there: Vec<u8>,
    pub(super) sends: VecDeque<Expected>,
    /// What the other side receives, in order; `wr_id` is not known.
    pub(super) messages: VecDeque<Expected>,
    /// Ranges of Reads and atomics since the last fence.
    unfenced: Vec<Range<usize>>,
    /// Bytes of the last Write, as Immediate Data tells of it.
    written: Option<usize>,
    pub(super) next_wr: u64,
    pub(super) receives: u64,
    pub(super) received: u64,
}

impl Model {
    /// Of `len` zero bytes on the other side.
    pub(super) fn new(len: usize) -> Self {
        Self { there: vec![0; len], ..Self::default() }
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.there[offset..offset + 8]);
        u64::from_ne_bytes(word)
    }

    pub(super) fn needs_fence(&self, op: &SendOp, len: usize) -> bool {
        let (SendOp::Write { to } | SendOp::WriteWithImm { to, .. }) = op else { return false };
        let range = range(to, len);
        self.unfenced.iter().any(|other| other.start < range.end && range.start < other.end)
    }

    /// Carries out a request.
    pub(super) fn note(&mut self, op: &SendOp, bytes: &[u8], fence: bool, solicited: bool) {
        if fence {
            self.unfenced.clear();
        }
        match op {
            SendOp::Send { invalidate } => {
                self.written = None;
                self.message(Operation::Receive, bytes.len(), solicited);
                if let Some(message) = self.messages.back_mut() {
                    message.content = Some(bytes.to_vec());
                    message.invalidated = *invalidate;
                }
            }
            // Only where both ends have agreed to that, which simulated ones have not.
            SendOp::SendWithImm { .. } => {}
            SendOp::Write { to } => self.note_write(to, bytes),
            SendOp::WriteWithImm { to, immediate } => {
                self.note_write(to, bytes);
                self.note_immediate(*immediate, solicited);
            }
            SendOp::Immediate { immediate } => self.note_immediate(*immediate, solicited),
            SendOp::Read { from } => self.unfenced.push(range(from, bytes.len())),
            SendOp::FetchAdd { at, .. } | SendOp::CompareSwap { at, .. } => {
                let range = range(at, 8);
                let changed = apply(op, self.word(range.start));
                self.there[range.clone()].copy_from_slice(&changed.to_ne_bytes());
                self.unfenced.push(range);
            }
        }
    }

    fn note_write(&mut self, to: &Remote, bytes: &[u8]) {
        self.there[range(to, bytes.len())].copy_from_slice(bytes);
        self.written = Some(bytes.len());
    }

    fn note_immediate(&mut self, immediate: u64, solicited: bool) {
        let bytes = self.written.take().unwrap_or(0);
        self.message(Operation::ReceiveImmediate, bytes, solicited);
        if let Some(message) = self.messages.back_mut() {
            message.immediate = Some(immediate);
        }
    }

    fn message(&mut self, operation: Operation, bytes: usize, solicited: bool) {
        self.messages.push_back(Expected {
            wr_id: 0,
            operation,
            bytes,
            content: None,
            immediate: None,
            invalidated: None,
            solicited,
        });
    }
}

fn range(at: &Remote, len: usize) -> Range<usize> {
    let start = usize::try_from(at.offset).unwrap_or(usize::MAX);
    start..start + len
}

fn apply(op: &SendOp, original: u64) -> u64 {
    let mut request = AtomicRequest {
        op: AtomicOp::FetchAdd,
        request_id: 0,
        stag: Stag(0),
        offset: 0,
        add_swap: 0,
        add_swap_mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    match *op {
        SendOp::FetchAdd { add, mask, .. } => {
            (request.add_swap, request.add_swap_mask) = (add, mask);
        }
        SendOp::CompareSwap { swap, swap_mask, compare, compare_mask, .. } => {
            request.op = AtomicOp::CompareSwap;
            (request.add_swap, request.add_swap_mask) = (swap, swap_mask);
            (request.compare, request.compare_mask) = (compare, compare_mask);
        }
        _ => {}
    }
    request.apply(original)
}

impl Expected {
    pub(super) fn check(&self, completion: &Completion) {
        assert_eq!(completion.status, Status::Success, "{self:?}");
        assert_eq!(completion.operation, self.operation);
        assert_eq!(completion.bytes as usize, self.bytes, "{:?}", self.operation);
        assert_eq!(completion.immediate, self.immediate);
        assert_eq!(completion.invalidated, self.invalidated);
        assert_eq!(completion.solicited, self.solicited);
        if let Some(content) = &self.content {
            assert!(bytes_of(completion) == *content, "bytes of {:?} differ", self.operation);
        }
    }
}
