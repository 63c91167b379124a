//! Reads and atomics that the peer asked of us, answered in order (RFC 5040 §5.5 rule 20,
//! RFC 7306 §5.2.2 rule 8). The queue's bound is the negotiated IRD.

use outboard_wire::rdmap::{AtomicRequest, ReadRequest};
use std::collections::VecDeque;

/// A request that awaits our answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// A Read; `request` moves on as its response is produced.
    Read { request: ReadRequest },
    /// An atomic, executed when its turn comes.
    Atomic(AtomicRequest),
}

/// The inbound request queue.
#[derive(Debug, Default)]
pub(crate) struct InboundQueue {
    requests: VecDeque<Inbound>,
}

impl InboundQueue {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn push(&mut self, request: Inbound) {
        self.requests.push_back(request);
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Inbound> {
        self.requests.front_mut()
    }

    pub(crate) fn pop(&mut self) {
        self.requests.pop_front();
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
    }
}
