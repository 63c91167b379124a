//! The results of a pass over a queue pair's link: bytes to TCP, completions to their queues,
//! events to the program, and the end. Completions go first: a program that learns of an end finds
//! all completions from before it.

use super::{Inner, QpShared};
use crate::cm::CmEventKind;
use crate::context::Core;
use crate::ended::{EndReason, Ended};
use crate::engine::ending::{EndEvent, Stepped, StreamEnd};
use crate::engine::link::Link;
use crate::event::AsyncEvent;
use crate::state::QpEvent;
use outboard_iwarp::Event;
use outboard_iwarp::work::{Completion, Operation, RecvRequest, Status};
use outboard_secure::SessionError;
use std::sync::Arc;

impl QpShared {
    /// Hands queued bytes to TCP, then delivers the resulting completions and events.
    pub(crate) fn transmit(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        if inner.link.as_ref().is_some_and(Link::wants_transmit) {
            self.with_link(inner, core, |link, env| link.transmit(core, env));
        }
        // In this order: the end is reported only after everything that came before it.
        self.deliver(inner, core);
        if inner.link.as_ref().is_some_and(Link::has_news) {
            self.handle_news(inner, core);
        }
    }

    /// Events of the connection, its timers and its end.
    fn handle_news(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        while let Some(event) = inner.link.as_mut().and_then(|link| link.conn.poll_event()) {
            self.handle_event(inner, core, event);
        }
        self.deliver(inner, core);
        let Some(link) = inner.link.as_mut() else {
            return;
        };
        let fault = link.take_session_fault();
        if let Some(error) = fault.clone() {
            core.async_events.push(AsyncEvent::SessionFailed { qp: self.number, error });
        }
        let (is_over, is_lost) = (link.conn.phase().is_over(), link.is_lost());
        link.send_fin();
        link.arm_timer(core);
        let stepped = link.step_end();
        if is_over || fault.is_some() {
            self.note_over(inner, core, fault, is_lost);
        }
        if let Some(stepped) = stepped {
            self.step_end(inner, core, stepped);
        }
    }

    /// The connection is over, for one of several reasons.
    fn note_over(
        &self,
        inner: &mut Inner,
        core: &Core,
        fault: Option<SessionError>,
        is_lost: bool,
    ) {
        let reason = match (fault, inner.ended) {
            (Some(error), _) => EndReason::SessionFailed(error),
            (None, Some(ended)) => EndReason::Terminated(ended),
            (None, None) if is_lost => EndReason::Lost,
            (None, None) => EndReason::Left,
        };
        self.note_end(inner, core, reason);
    }

    /// Counts and logs the end of the connection, once.
    pub(super) fn note_end(&self, inner: &mut Inner, core: &Core, reason: EndReason) {
        if inner.end_reason.is_none() {
            core.engine.counts.ended(&reason);
            tracing::debug!(qp = self.number, why = %reason, "connection ended");
            inner.end_reason = Some(reason);
        }
    }

    /// The queue pair has given up its stream, which may not be drained yet.
    fn step_end(&self, inner: &mut Inner, core: &Arc<Core>, stepped: Stepped) {
        let Some(link) = inner.link.take() else { return };
        match stepped.to {
            StreamEnd::Closed => core.engine.remove(link.token, &link.socket),
            _ => core.linger(link, None),
        }
        Self::advance(inner, QpEvent::Gone);
        if stepped.tells {
            self.report(inner, CmEventKind::Disconnected);
            core.engine.notify();
        }
    }

    fn handle_event(&self, inner: &mut Inner, core: &Arc<Core>, event: Event) {
        match event {
            Event::Established => self.report(inner, CmEventKind::Established),
            Event::Faulted(fault) => {
                inner.ended = Some(Ended::by_us(fault.code));
                Self::advance(inner, QpEvent::Terminate);
                // Our own mistakes are reported by a completion.
                if !fault.is_local() {
                    let event = AsyncEvent::PeerFault { qp: self.number, code: fault.code };
                    core.async_events.push(event);
                }
            }
            Event::PeerTerminated { terminate, .. } => {
                inner.ended = Some(Ended::by_peer(&terminate));
                Self::advance(inner, QpEvent::Terminate);
                let event = AsyncEvent::PeerTerminated { qp: self.number, code: terminate.code };
                core.async_events.push(event);
            }
            Event::Over => {
                Self::advance(inner, QpEvent::Leave);
                self.flush_posted(inner);
                self.push_last_receive(core);
                if let Some(link) = inner.link.as_mut() {
                    link.end(EndEvent::Over);
                }
            }
        }
    }

    fn report(&self, inner: &Inner, kind: CmEventKind) {
        if let Some(cm) = &inner.cm {
            cm.push(self.number, kind);
        }
    }

    pub(super) fn flush_posted(&self, inner: &mut Inner) {
        let Inner { posted, flushed, completions, .. } = inner;
        *flushed += posted.len();
        completions.extend(posted.drain(..).map(|request| {
            let RecvRequest { wr_id, local } = request;
            Completion::new(wr_id, self.number, Operation::Receive, Status::Flushed, local)
        }));
    }

    /// Hands completions to their queues and wakes threads that wait.
    pub(crate) fn deliver(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        self.note_busy(inner);
        if inner.completions.is_empty() {
            return;
        }
        let overflowed = if inner.orphaned || inner.overflowed {
            inner.completions.clear();
            None
        } else if Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            let overflowed = self.send_cq.push_all(inner.completions.drain(..));
            overflowed.then_some(self.send_cq.number)
        } else {
            self.deliver_apart(inner)
        };
        core.engine.notify();
        if let Some(cq) = overflowed {
            core.async_events.push(AsyncEvent::CqOverflow { cq, qp: self.number });
            inner.overflowed = true;
            self.leave(inner, core);
        }
    }

    /// Number of a queue that had no room, if one had none.
    fn deliver_apart(&self, inner: &mut Inner) -> Option<u32> {
        let mut overflowed = None;
        for completion in inner.completions.drain(..) {
            let receive = completion.operation.is_receive();
            let cq = if receive { &self.recv_cq } else { &self.send_cq };
            if cq.push_all(std::iter::once(completion)) {
                overflowed = Some(cq.number);
            }
        }
        overflowed
    }

    pub(super) fn leave(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        if let Some(link) = inner.link.as_mut() {
            link.conn.disconnect();
            self.transmit(inner, core);
        }
    }
}
