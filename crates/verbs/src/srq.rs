//! Shared receive queues: many queue pairs take their receives from one.

use crate::context::Shared;
use crate::error::Refused;
use crate::event::AsyncEvent;
use crate::pd::Pd;
use crate::qp::{QpShared, post_in_order, too_many_segments};
use crate::signal::lock;
use outboard_iwarp::PostError;
use outboard_iwarp::work::{Receives, RecvRequest};
use outboard_mem::SharedRegion;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct Srq {
    pub(crate) inner: Arc<SrqShared>,
    pub(crate) shared: Arc<Shared>,
}

/// The part of a shared receive queue that its queue pairs share.
#[derive(Debug)]
pub(crate) struct SrqShared {
    number: u32,
    depth: usize,
    max_sge: usize,
    state: Mutex<SrqState>,
}

#[derive(Debug, Default)]
struct SrqState {
    posted: VecDeque<RecvRequest>,
    /// Below this many entries an event is due; 0 when none is wanted.
    limit: usize,
    /// The event is due, until it is taken.
    limit_reached: bool,
    /// Queue pairs whose stream waits for a receive, each once.
    stalled: VecDeque<Weak<QpShared>>,
}

impl SrqState {
    fn note_limit(&mut self) {
        if self.posted.len() < self.limit {
            self.limit_reached = true;
            self.limit = 0;
        }
    }
}

impl Srq {
    pub(crate) fn new(pd: &Pd, depth: usize, max_sge: usize) -> Self {
        let inner = SrqShared {
            number: pd.shared.core.next_number(),
            depth: depth.max(1),
            max_sge,
            state: Mutex::new(SrqState::default()),
        };
        Self { inner: Arc::new(inner), shared: Arc::clone(&pd.shared) }
    }

    /// Number of the queue, as events name it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Receives posted and not yet taken.
    pub fn len(&self) -> usize {
        lock(&self.inner.state).posted.len()
    }

    /// True when no receive is posted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive for whichever queue pair needs one first.
    ///
    /// # Errors
    /// [`PostError::QueueFull`] and [`PostError::TooLarge`]; the request comes back.
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), Refused<RecvRequest>> {
        let found = request.local.segment_count();
        if found > self.inner.max_sge {
            return Err((too_many_segments(found, self.inner.max_sge), request).into());
        }
        let mut state = lock(&self.inner.state);
        if state.posted.len() == self.inner.depth {
            return Err((PostError::QueueFull { depth: self.inner.depth }, request).into());
        }
        state.posted.push_back(request);
        drop(state);
        self.serve_stalled();
        Ok(())
    }

    /// Posts receives in order. On an error those that were not taken stay in `requests`.
    ///
    /// # Errors
    /// As [`Srq::post_recv`].
    pub fn post_recv_batch(&self, requests: &mut Vec<RecvRequest>) -> Result<(), PostError> {
        let post =
            |request| self.post_recv(request).map_err(|refused| (refused.error, refused.request));
        post_in_order(requests, post)
    }

    /// Takes `region` away from every receive. A message that consumes such a receive fails, as
    /// [`Qp::revoke`](crate::Qp::revoke) says.
    pub fn revoke(&self, region: &SharedRegion) {
        for request in &mut lock(&self.inner.state).posted {
            request.local.revoke(region);
        }
    }

    /// Lets streams that wait for a receive go on while there are receives, the longest waiting
    /// first.
    fn serve_stalled(&self) {
        while let Some(qp) = self.inner.next_stalled() {
            if let Some(qp) = qp.upgrade() {
                qp.take_shared_receive(&self.shared.core);
            }
        }
    }

    /// Asks for one [`AsyncEvent::SrqLimit`] when fewer than `limit` receives are left, at once if
    /// that is so already.
    pub fn arm_limit(&self, limit: usize) {
        let mut state = lock(&self.inner.state);
        state.limit = limit;
        state.note_limit();
        drop(state);
        if let Some(event) = self.inner.take_limit_event() {
            self.shared.core.async_events.push(event);
        }
    }
}

impl SrqShared {
    /// Notes a queue pair that waits for a receive.
    pub(crate) fn note_stalled(&self, qp: Weak<QpShared>) {
        lock(&self.state).stalled.push_back(qp);
    }

    /// The longest waiting queue pair, when there is a receive for it.
    fn next_stalled(&self) -> Option<Weak<QpShared>> {
        let mut state = lock(&self.state);
        if state.posted.is_empty() { None } else { state.stalled.pop_front() }
    }

    /// True when no receive is posted.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).posted.is_empty()
    }

    /// The limit event, once it is due.
    pub(crate) fn take_limit_event(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        std::mem::take(&mut state.limit_reached)
            .then_some(AsyncEvent::SrqLimit { srq: self.number })
    }
}

impl Receives for &SrqShared {
    fn pop(&mut self) -> Option<RecvRequest> {
        let mut state = lock(&self.state);
        let request = state.posted.pop_front();
        state.note_limit();
        request
    }
}
