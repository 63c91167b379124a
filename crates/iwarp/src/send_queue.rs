//! The send queue's bookkeeping: requests in order, which of them await a response, and their
//! completions in posting order (RFC 5040 §5.5 rule 15). It produces no bytes; see [`crate::tx`].

use crate::work::{Completion, SendOp, SendRequest, Status};
use outboard_mem::{SgList, SharedRegion};
use std::collections::VecDeque;

/// A request with its progress.
#[derive(Debug)]
pub(crate) struct QueuedSend {
    pub(crate) request: SendRequest,
    /// Position in the transmit stream behind its last byte, once that is known.
    end: Option<u64>,
    /// Bytes of the Read Response placed so far.
    pub(crate) received: u32,
    /// Set when nothing more will happen to it.
    done: Option<Status>,
}

/// A request for which the peer owes us a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// The entry with this sequence number.
    QueuedSend(u64),
    /// The Read that opened a peer-to-peer connection.
    Rtr,
}

/// The send queue of one connection.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    entries: VecDeque<QueuedSend>,
    /// Sequence number of `entries[0]`.
    base: u64,
    /// Sequence number of the next request to transmit.
    next: u64,
    owed: VecDeque<Owed>,
}

impl SendQueue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Numbers the first request like this.
    #[cfg(test)]
    pub(crate) fn begin_at(&mut self, seq: u64) {
        (self.base, self.next) = (seq, seq);
    }

    /// True when a request has not been looked at for transmission.
    pub(crate) fn has_unsent(&self) -> bool {
        self.next < self.base + self.entries.len() as u64
    }

    pub(crate) fn push(&mut self, request: SendRequest) {
        self.entries.push_back(QueuedSend { request, end: None, received: 0, done: None });
    }

    /// The next request to transmit, if it may go now: fences wait for every earlier response,
    /// and no more than `ord` responses are ever owed.
    pub(crate) fn next_eligible(&self, ord: usize) -> Option<u64> {
        let entry = self.entry(self.next)?;
        let fenced = entry.request.fence && !self.owed.is_empty();
        let full = entry.request.op.awaits_response() && self.owed.len() >= ord;
        (!fenced && !full).then_some(self.next)
    }

    /// Whether all local memory of the request is there; so it is when there is no such request.
    pub(crate) fn is_intact(&self, seq: u64) -> bool {
        self.local(seq).is_none_or(SgList::is_intact)
    }

    /// Nothing more will happen to the request, because its local memory cannot be used.
    pub(crate) fn refuse(&mut self, seq: u64) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.done = Some(Status::LocalProtection);
        }
    }

    /// Takes `region` away from every request; true if one had a part of it.
    pub(crate) fn revoke(&mut self, region: &SharedRegion) -> bool {
        let lists = self.entries.iter_mut().map(|entry| &mut entry.request.local);
        lists.fold(false, |any, list| list.revoke(region) | any)
    }

    /// Marks the request as being transmitted.
    pub(crate) fn start(&mut self, seq: u64) {
        self.next = seq + 1;
        if self.entry(seq).is_some_and(|entry| entry.request.op.awaits_response()) {
            self.owed.push_back(Owed::QueuedSend(seq));
        }
    }

    /// Notes where in the stream the request's last byte ends.
    pub(crate) fn finish(&mut self, seq: u64, end: u64) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.end = Some(end);
        }
    }

    pub(crate) fn owe_rtr(&mut self) {
        self.owed.push_back(Owed::Rtr);
    }

    pub(crate) fn owed_len(&self) -> usize {
        self.owed.len()
    }

    pub(crate) fn oldest_owed(&self) -> Option<Owed> {
        self.owed.front().copied()
    }

    /// The oldest owed response is complete.
    pub(crate) fn settle_oldest(&mut self, status: Status) {
        if let Some(Owed::QueuedSend(seq)) = self.owed.pop_front()
            && let Some(entry) = self.entry_mut(seq)
        {
            entry.done = Some(status);
        }
    }

    pub(crate) fn entry(&self, seq: u64) -> Option<&QueuedSend> {
        self.entries.get(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }

    pub(crate) fn entry_mut(&mut self, seq: u64) -> Option<&mut QueuedSend> {
        self.entries.get_mut(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }

    /// The local memory of an entry.
    pub(crate) fn local(&self, seq: u64) -> Option<&SgList> {
        self.entry(seq).map(|entry| &entry.request.local)
    }

    /// Moves finished requests from the head to `out`. Sends and Writes are finished when TCP has
    /// taken their last byte (`sent`), the others when their response is here.
    pub(crate) fn retire(&mut self, sent: u64, qp: u32, out: &mut Vec<Completion>) {
        while let Some(status) = self.entries.front().and_then(|entry| entry.status(sent)) {
            if let Some(entry) = self.entries.pop_front() {
                self.base += 1;
                entry.complete(status, qp, out);
            }
        }
    }

    /// Ends every request: finished requests keep their result and the others become `Flushed`,
    /// except that the n-th oldest request that is owed a response gets `blame`'s status.
    pub(crate) fn flush(
        &mut self,
        sent: u64,
        qp: u32,
        blame: Option<(usize, Status)>,
        out: &mut Vec<Completion>,
    ) {
        if let Some((index, status)) = blame
            && let Some(Owed::QueuedSend(seq)) = self.owed.get(index).copied()
            && let Some(entry) = self.entry_mut(seq)
        {
            entry.done = Some(status);
        }
        for entry in self.entries.drain(..) {
            let status = entry.status(sent).unwrap_or(Status::Flushed);
            self.base += 1;
            entry.complete(status, qp, out);
        }
        self.next = self.base;
        self.owed.clear();
    }
}

impl QueuedSend {
    fn status(&self, sent: u64) -> Option<Status> {
        if self.done.is_some() || self.request.op.awaits_response() {
            return self.done;
        }
        self.end.filter(|end| *end <= sent).map(|_| Status::Success)
    }

    fn complete(self, status: Status, qp: u32, out: &mut Vec<Completion>) {
        let SendRequest { wr_id, op, local, signaled, .. } = self.request;
        if signaled || status != Status::Success {
            let bytes = match op {
                SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => 8,
                _ => u32::try_from(local.len()).unwrap_or(u32::MAX),
            };
            let mut completion = Completion::new(wr_id, qp, op.operation(), status, local);
            completion.bytes = if status == Status::Success { bytes } else { 0 };
            out.push(completion);
        }
    }
}
