//! How a queue pair lets go: of its connection at once, of everything posted, or of memory that
//! requests still name. Leaving in order is [`Qp::disconnect`].

use super::{Inner, Qp, QpShared};
use crate::signal::lock;
use crate::state::QpState;
use outboard_iwarp::work::{Completion, Status};
use outboard_mem::SharedRegion;

impl Qp {
    /// As [`Qp::disconnect`], but nothing of this side's memory is used afterwards: a connection
    /// that would have to send more of it, because TCP has half of a message, ends at once.
    pub fn let_go(&self) {
        self.disconnect();
        let busy = lock(&self.inner.inner).link.as_ref().is_some_and(|link| link.conn.has_output());
        if busy {
            self.reset();
        }
    }

    /// Takes `region` away from every request: when this returns nothing of it is touched any more
    /// for this queue pair. A request that needs it fails when its turn comes, with
    /// [`LocalProtection`](crate::Status::LocalProtection), and ends the connection; one of which
    /// TCP has half does so now. Receives of a shared queue are the matter of
    /// [`Srq::revoke`](crate::Srq::revoke), which goes first: a queue pair takes them from there.
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

    /// Ends the connection at once, if there is one, or an attempt to connect, and makes the queue
    /// pair as new: whatever was posted is flushed, and it can be connected again.
    pub fn reset(&self) {
        let core = &self.shared.core;
        let mut inner = lock(&self.inner.inner);
        inner.cancel_attempt(core);
        self.inner.with_link(&mut inner, core, |link, env| link.abandon(env));
        if let Some(link) = inner.link.take() {
            self.inner.close(&mut inner, core, link);
        }
        self.inner.flush_posted(&mut inner);
        self.inner.deliver(&mut inner, core);
        inner.flushed = 0;
        inner.overflowed = false;
        inner.ended = None;
        inner.state = QpState::Idle;
    }
}

impl QpShared {
    /// Whether one more receive may be posted. Those that were flushed count until they are polled:
    /// whoever posts until the queue is full comes to an end after the peer has gone as well.
    pub(super) fn has_room(&self, inner: &mut Inner) -> bool {
        let fits = |inner: &Inner| inner.posted.len() + inner.flushed < self.recv_depth;
        if inner.flushed == 0 || fits(inner) {
            return fits(inner);
        }
        let flushed = |completion: &Completion| {
            completion.qp == self.number
                && completion.operation.is_receive()
                && completion.status == Status::Flushed
        };
        // Where completions were lost there is no room for any.
        inner.flushed = self.recv_cq.waiting(flushed).unwrap_or(self.recv_depth);
        fits(inner)
    }
}
