//! How a [`Connection`] ends: by leaving, by the peer's FIN, by a fault, by loss, or because time
//! is over (RFC 5044 §7.2, RFC 5040 §6.2). The order of phases is in [`crate::phase`]; this file
//! feeds that table and carries out what a new phase requires.

use crate::Connection;
use crate::batch::Readable;
use crate::connection::{Env, Event, RnrPolicy};
use crate::fault::Fault;
use crate::phase::{Move, Phase};
use crate::work::Status;
use std::time::{Duration, Instant};

/// How long a closed half waits for the other, at most. A driver that finds sooner that nothing
/// moves any more says so with [`Connection::handle_lost`].
pub const CLOSE_LIMIT: Duration = Duration::from_secs(60);
/// How long a message waits for a posted receive when its sender has gone.
pub const RECEIVE_GRACE: Duration = Duration::from_secs(1);

impl Connection {
    /// Leaves gracefully: what TCP has half of is sent, unfinished requests are flushed.
    pub fn disconnect(&mut self) {
        self.step_phase(Move::Disconnect);
    }

    /// The peer sent FIN. In the middle of an FPDU that means the connection is lost. A driver says
    /// so when nothing in front of it waits for a receive ([`Connection::is_stalled`]), and
    /// [`Connection::handle_hangup`] until then.
    pub fn handle_eof(&mut self) {
        let broken = self.rx.mid_fpdu() || self.phase == Phase::HalfClosed;
        self.step_phase(if broken { Move::Lost } else { Move::PeerFin });
    }

    /// The peer has closed, though bytes before its end are still to be read: from now on no
    /// message waits longer than [`RECEIVE_GRACE`] for a receive.
    pub fn handle_hangup(&mut self, now: Instant) {
        self.peer_left.get_or_insert(now);
    }

    /// TCP lost the connection.
    pub fn handle_lost(&mut self) {
        self.step_phase(Move::Lost);
    }

    /// The time that [`Connection::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.stall_deadline().is_some_and(|at| at <= now)
            && let Some(stalled) = self.rx.stalled.take()
        {
            // A peer that has left needs no Terminate.
            match self.peer_left {
                Some(_) => self.step_phase(Move::Disconnect),
                None => self.fail(stalled.fault),
            }
        }
        self.tx.nudge |= self.nudge.fires(now);
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            let held = self.phase == Phase::Held;
            self.step_phase(if held { Move::GraceOver } else { Move::Expired });
        }
    }

    /// When [`Connection::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.stall_deadline(), self.deadline, self.nudge.deadline()].into_iter().flatten().min()
    }

    fn stall_deadline(&self) -> Option<Instant> {
        let since = self.rx.stalled.as_ref()?.since;
        let limit = match self.rnr_policy {
            // A time beyond the clock's range is never.
            RnrPolicy::Stall(limit) => since.checked_add(limit),
            RnrPolicy::Terminate => Some(since),
        };
        let grace = self.peer_left.map(|left| left.max(since) + RECEIVE_GRACE);
        limit.into_iter().chain(grace).min()
    }

    /// Since when a message has waited for a posted receive, if one does.
    pub fn stalled_since(&self) -> Option<Instant> {
        self.rx.stalled.as_ref().map(|stalled| stalled.since)
    }

    /// Half an FPDU is out and its rest no longer exists: only the loss of the TCP connection can
    /// tell the peer.
    pub(crate) fn lose_half_sent(&mut self, now: Instant, env: &mut Env<'_>) {
        self.step_phase(Move::Lost);
        self.settle(now, env);
    }

    /// Carries out what a change of phase asks for: flushing, deadlines, the final event.
    pub fn settle(&mut self, now: Instant, env: &mut Env<'_>) {
        if self.phase.is_over() && !self.flushed {
            self.flush(env);
            self.deadline = Some(now + CLOSE_LIMIT);
        }
        if self.phase.is_over() && self.batch.is_empty() && self.tx.terminate.is_none() {
            self.step_phase(Move::Drained);
        }
        if self.phase == Phase::Closed {
            self.deadline = None;
            self.batch.reset();
            self.tx.terminate = None;
        }
    }

    fn flush(&mut self, env: &mut Env<'_>) {
        self.flushed = true;
        let closed = self.phase == Phase::Closed;
        if !closed
            && self.batch.freeze(&self.sends, Readable { stags: env.stags, pd: self.pd }).is_err()
        {
            self.step_phase(Move::Lost);
        }
        self.inbound.clear();
        self.read_sinks.clear();
        let blame = self.blame.take();
        self.sends.flush(self.tx.sent, self.qp, blame, env.completions);
        if let Some(receiving) = self.receiving.take() {
            env.completions.push(receiving.complete(self.qp, Status::Flushed));
        }
        self.events.push_back(Event::Over);
    }

    /// Notes a fault of the peer's; the Terminate goes out next.
    pub(crate) fn fail(&mut self, fault: Fault) {
        if self.phase.receives() {
            self.tx.terminate = Some(fault.clone());
            self.events.push_back(Event::Faulted(fault));
            self.step_phase(Move::Fault);
        }
    }

    pub(crate) fn step_phase(&mut self, event: Move) {
        let before = self.phase;
        self.phase = before.after(event);
        if before == Phase::Held && self.phase != Phase::Held {
            // Ends the grace period, if there was one.
            self.deadline = None;
        }
        if before == Phase::Held && self.phase == Phase::Open {
            self.events.push_back(Event::Established);
        }
        if self.phase.is_over() {
            self.nudge.stop();
            self.rx.abandon();
        }
    }
}
