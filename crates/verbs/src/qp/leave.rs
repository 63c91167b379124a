//! How a queue pair gives up its connection, everything posted, or memory that requests still name.
//! The rest of a stream is then handled by [`crate::engine::lingering`].

use super::{Inner, Qp, QpShared};
use crate::context::Core;
use crate::ended::EndReason;
use crate::engine::lingering::EndNotifier;
use crate::event::AsyncEvent;
use crate::signal::lock;
use crate::state::{QpEvent, QpState};
use outboard_mem::SharedRegion;
use std::sync::Arc;

impl Qp {
    /// As [`Qp::disconnect`], but the queue pair has no part in the stream from here on, and
    /// nothing of this side's memory is used: the engine has copies of what is still to go out.
    /// The connection's channel still gets the event of its end.
    pub fn let_go(&self) {
        self.disconnect();
        let mut inner = lock(&self.inner.inner);
        if let Some(link) = inner.link.take() {
            self.inner.note_end(&mut inner, &self.shared.core, EndReason::Left);
            let qp = self.inner.number;
            let notifier = inner.cm.clone().map(|cm| EndNotifier { cm, qp });
            self.shared.core.linger(link, notifier);
            QpShared::advance(&mut inner, QpEvent::Gone);
        }
    }

    /// Raises [`AsyncEvent::LastReceive`] if its receives come from a shared queue: for an owner
    /// that gives the queue pair up without a connection that could end.
    pub fn raise_last_receive(&self) {
        self.inner.push_last_receive(&self.shared.core);
    }

    /// Takes `region` away from every request: when this returns nothing of it is touched any more
    /// for this queue pair. A request that needs it fails when its turn comes, with
    /// [`LocalProtection`](crate::Status::LocalProtection), and ends the connection; a request of
    /// which TCP has a part fails now. Receives of a shared queue are revoked by
    /// [`Srq::revoke`](crate::Srq::revoke), to be called first, because a queue pair takes its
    /// receives from there.
    pub fn revoke(&self, region: &SharedRegion) {
        let mut inner = lock(&self.inner.inner);
        for request in &mut inner.posted {
            request.local.revoke(region);
        }
        let Some(link) = inner.link.as_mut() else { return };
        link.conn.revoke(region);
        if link.conn.phase().is_over() {
            self.inner.transmit(&mut inner, &self.shared.core);
        }
    }

    /// Ends the connection as [`Qp::disconnect`] does, if there is one, or an attempt to connect,
    /// and resets the queue pair: everything posted is flushed, there is no event of the
    /// connection's end, and it can be connected again at once.
    pub fn reset(&self) {
        let core = &self.shared.core;
        let mut inner = lock(&self.inner.inner);
        inner.cancel_attempt(core);
        // The old connection's end must not be reported as that of the next one.
        inner.cm = None;
        self.inner.desert(&mut inner, core);
        self.inner.flush_posted(&mut inner);
        self.inner.deliver(&mut inner, core);
        inner.flushed = 0;
        inner.overflowed = false;
        inner.ended = None;
        inner.end_reason = None;
        inner.state = QpState::Idle;
    }
}

impl QpShared {
    /// Leaves, and hands the stream to the engine: the program does not wait for its end.
    pub(super) fn desert(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        self.leave(inner, core);
        if let Some(link) = inner.link.take() {
            self.note_end(inner, core, EndReason::Left);
            core.linger(link, None);
            Self::advance(inner, QpEvent::Gone);
        }
    }

    pub(super) fn push_last_receive(&self, core: &Core) {
        if self.srq.is_some() {
            core.async_events.push(AsyncEvent::LastReceive { qp: self.number });
        }
    }

    /// Whether one more receive may be posted. Flushed receives count until they are polled, so
    /// that a program that posts until the queue is full also stops after the peer has gone.
    pub(super) fn has_room(&self, inner: &mut Inner) -> bool {
        let fits = |inner: &Inner| inner.posted.len() + inner.flushed < self.recv_depth;
        if inner.flushed == 0 || fits(inner) {
            return fits(inner);
        }
        // After completions were lost there is no room for any.
        let flushed = self.recv_cq.flushed(self.number).map(|flushed| flushed.receives);
        inner.flushed = flushed.unwrap_or(self.recv_depth);
        fits(inner)
    }
}
