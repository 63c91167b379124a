//! One queue pair's socket and connection: moves bytes between the two. It decides how much to ask
//! the kernel for, and when to stop so that other connections get their turn; it knows no opcode
//! and no queue pair. A session may stand between the two. [`super::ending`] has the stream's end.

use crate::context::Core;
use crate::engine::EventSource;
use crate::engine::ending::{EndEvent, Ending, Flow, Stepped, StreamEnd};
use crate::engine::sealed::{self, Sealed};
use crate::engine::sockio::{self, Sent};
use crate::engine::staging::{STAGING_LEN, Staging};
use crate::engine::tapped;
use crate::engine::unsent::Unsent;
use crate::event::AsyncEvent;
use crate::qp::QpShared;
use crate::srq::SrqShared;
use crate::tap::StreamTap;
use outboard_iwarp::work::{Receives, RecvRequest};
use outboard_iwarp::{Connection, Env, Phase, RECEIVE_GRACE};
use outboard_mem::Span;
use outboard_secure::{SecureSession, SessionError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that one connection may receive or send before others get their turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes of the first system call of an answer: small enough for the peer, which waits for it, to
/// work on them while we prepare the next.
const FIRST_BATCH: usize = 32 * 1024;
/// Bytes of other system calls: with fewer calls in a stream both ends wait less often for each
/// other, which saves more than batches that fit into the cache.
const LATER_BATCH: usize = 1 << 20;
/// The same where the bytes are copied once more (to be sealed, or for a tap), and while
/// connections whose peers do not read hold more than [`BATCHED_MAX`].
const SMALL_BATCH: usize = 128 * 1024;
/// Bytes that all connections of a context may hold for TCP before batches are small.
const BATCHED_MAX: usize = 64 << 20;
/// What follows a payload that is received in place: pad and CRC, then the next header.
const NEXT_HEADER: usize = 32;
/// Payloads of which at least this many bytes are to come are received in place.
const DIRECT_MIN: usize = 16 * 1024;
/// Bytes that are received from a peer and dropped after the connection has ended.
const LEFTOVERS_MAX: usize = 64 << 20;
/// Bytes that the kernel is asked to hold of a stream that waits for a receive; its own limit is
/// lower.
const STALLED_BYTES_MAX: usize = 1 << 30;

thread_local! {
    /// Scratch for system calls; empty between them.
    static SPANS: Cell<Vec<Span>> = const { Cell::new(Vec::new()) };
    /// Lent to the connection that transmits.
    static BATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's scratch; new when the thread is ending, as in functions of atexit(3).
fn take_spans() -> Vec<Span> {
    SPANS.try_with(Cell::take).unwrap_or_default()
}

fn keep_spans(mut spans: Vec<Span>) {
    spans.clear();
    // An ending thread keeps nothing.
    let _kept = SPANS.try_with(|kept| kept.set(spans));
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) token: u64,
    pub(crate) socket: TcpStream,
    pub(crate) conn: Connection,
    staging: Staging,
    /// TCP took less than it was offered: trying again is useless before it has room.
    blocked: bool,
    /// The kernel said that the peer has closed, which it says once: reads look for the stream's
    /// end until they find it, or nothing is there.
    hangup: bool,
    /// The peer's FIN was read, or the socket failed.
    ended: bool,
    /// TCP lost the connection, or it was given up.
    lost: bool,
    /// Bytes so far; may wrap.
    received: usize,
    /// Bytes that arrived after the connection had ended.
    leftovers: usize,
    ending: Ending,
    /// The outcome of the last deadline of the stream's end.
    late: Option<EndEvent>,
    fin_sent: bool,
    /// The kernel has been asked to hold more, so that the peer's end can be seen behind it.
    holds_more: bool,
    unsent: Unsent,
    /// Something has arrived since we last sent: the peer may be waiting for an answer.
    answering: bool,
    timer: Option<Instant>,
    /// Watches what passes.
    tap: Option<StreamTap>,
    /// The session that the bytes pass through, if there is one.
    sealed: Option<Box<Sealed>>,
}

impl Link {
    /// A link over a connected, non-blocking socket. `early` are bytes of the stream that came
    /// with the start-up frames.
    pub(crate) fn new(
        token: u64,
        socket: TcpStream,
        conn: Connection,
        early: &[u8],
        tap: Option<StreamTap>,
    ) -> Self {
        let mut staging = Staging::default();
        staging.fill();
        let room = staging.room(early.len());
        room.copy_from_slice(early);
        staging.added(early.len());
        staging.settle();
        Self {
            token,
            socket,
            conn,
            staging,
            blocked: false,
            hangup: false,
            ended: false,
            lost: false,
            received: 0,
            leftovers: 0,
            ending: Ending::default(),
            late: None,
            fin_sent: false,
            holds_more: false,
            unsent: Unsent::default(),
            answering: true,
            timer: None,
            tap,
            sealed: None,
        }
    }

    /// From now on everything passes through a session.
    pub(crate) fn seal(&mut self, session: SecureSession) {
        self.sealed = Some(Box::new(Sealed::new(session)));
    }

    /// Why the session has failed; returned once.
    pub(crate) fn take_session_fault(&mut self) -> Option<SessionError> {
        self.sealed.as_mut()?.take_fault()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.conn.is_stalled()
    }

    /// TCP lost the connection, or it was given up.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    fn is_closed(&self) -> bool {
        self.conn.phase() == Phase::Closed && (self.fin_sent || self.lost)
    }

    /// The connection has flushed its requests, and nothing of the program's is used any more.
    pub(crate) fn end(&mut self, event: EndEvent) -> Option<Stepped> {
        let flow = self.flow();
        let stepped = self.ending.step(event, Instant::now());
        self.ending.note(flow);
        stepped
    }

    /// The program does not wait for the end.
    pub(crate) fn desert(&mut self) {
        self.end(EndEvent::Deserted);
    }

    /// The progress of the stream's end since the last call.
    pub(crate) fn step_end(&mut self) -> Option<Stepped> {
        let late = self.late.take();
        let event = if self.is_closed() { EndEvent::Closed } else { late? };
        if event == EndEvent::Blocked {
            self.reset_at_close();
        }
        self.end(event)
    }

    fn flow(&self) -> Flow {
        let fd = self.socket.as_fd();
        let unacknowledged = sockio::unacknowledged(fd);
        let blocked = unacknowledged > 0 && !sockio::is_in_flight(fd);
        Flow { received: self.received, unacknowledged, blocked }
    }

    /// Has TCP tell the peer by a reset, when the socket is closed, what no FIN can tell it.
    fn reset_at_close(&self) {
        // Without effect the peer finds out when its own TCP asks.
        let _set = socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// True when the peer's TCP has everything, our FIN too.
    pub(crate) fn has_sent(&self) -> bool {
        self.fin_sent && sockio::unacknowledged(self.socket.as_fd()) == 0
    }

    /// Drops the events of a connection whose queue pair has given it up.
    pub(crate) fn forget_news(&mut self) {
        while self.conn.poll_event().is_some() {}
        self.take_session_fault();
    }

    /// The stream's end may have come without an event from the kernel.
    pub(crate) fn expect_hangup(&mut self) {
        self.hangup = true;
        self.blocked = false;
    }

    /// True when events, deadlines or the connection's end want attention.
    pub(crate) fn has_news(&self) -> bool {
        self.conn.has_events() || self.due() != self.timer || self.conn.phase() != Phase::Open
    }

    /// Receives until the kernel has no more, the turn is over, or nothing more may be taken.
    /// With `hangup` the stream's end is looked for behind the last byte.
    pub(crate) fn receive(&mut self, core: &Core, hangup: bool, env: &mut Env<'_>) {
        self.hangup |= hangup;
        self.consume(env);
        self.watch_stall();
        let mut spans = take_spans();
        let mut total = 0;
        while !self.ended && !self.conn.is_full() {
            match self.receive_once(&mut spans, env) {
                Ok((count, short)) => {
                    total += count;
                    if short && (!self.hangup || self.conn.is_stalled()) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // There is no FIN behind what was read: when it comes, the kernel says so
                    // again.
                    self.hangup = false;
                    if self.ending.state() == StreamEnd::Draining {
                        self.break_off();
                    }
                    break;
                }
                // A reset, behind a message that waits for a receive: as a FIN there.
                Err(error) if self.conn.is_stalled() && error.raw_os_error().is_some() => {
                    self.hangup = true;
                    break;
                }
                Err(_) => self.break_off(),
            }
            if total > TURN_BYTES {
                core.engine.run_again(self.token);
                break;
            }
        }
        self.received = self.received.wrapping_add(total);
        core.engine.counts.received(total);
        keep_spans(spans);
        self.staging.settle();
        self.watch_stall();
    }

    /// While a message waits for a receive, the link reads only as much behind it as the
    /// connection keeps, and does not report the stream's end. Only the kernel can then report that
    /// the peer has gone, and only if it has room for everything up to the end.
    fn watch_stall(&mut self) {
        if !self.conn.is_full() && std::mem::take(&mut self.holds_more) {
            sockio::set_receive_low_water(self.socket.as_fd(), 1);
        }
        if self.conn.is_stalled() && self.hangup {
            self.hangup = self.peer_has_left();
            if self.hangup {
                self.conn.handle_hangup(Instant::now());
            }
        }
    }

    /// A message has waited for long, and the connection keeps no more: asks the kernel to buffer
    /// what follows.
    fn hold_more(&mut self) {
        self.holds_more = true;
        // The kernel makes room for that many bytes, up to half of `net.ipv4.tcp_rmem`.
        sockio::set_receive_low_water(self.socket.as_fd(), STALLED_BYTES_MAX);
        self.hangup = true;
        self.watch_stall();
    }

    /// When to look behind a message that waits for a receive.
    fn look_behind_at(&self) -> Option<Instant> {
        let full = self.conn.is_full() && !self.holds_more;
        let since = self.conn.stalled_since().filter(|_| full)?;
        Some(since + RECEIVE_GRACE)
    }

    /// The peer's FIN is behind what has not been read, or TCP lost the connection.
    fn peer_has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // HUP and ERR are always reported.
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn receive_once(
        &mut self,
        spans: &mut Vec<Span>,
        env: &mut Env<'_>,
    ) -> io::Result<(usize, bool)> {
        self.staging.fill();
        let want = self.want();
        let fd = self.socket.as_fd();
        let staging = &mut self.staging;
        let got = match (&mut self.sealed, &self.tap) {
            (None, None) => sockio::receive(fd, &mut self.conn, staging, want, spans, env),
            (None, Some(tap)) => tapped::receive(&self.socket, staging, STAGING_LEN, tap),
            (Some(sealed), tap) => sealed::receive(&self.socket, sealed, staging, tap.as_ref()),
        };
        if self.sealed.is_some() {
            // A session that fails may have decrypted something before.
            self.consume(env);
        }
        let got = got?;
        self.answering = true;
        if got.total == 0 {
            self.handle_eof();
        }
        if self.conn.phase().is_over() {
            self.leftovers = self.leftovers.saturating_add(got.total);
            if self.leftovers > LEFTOVERS_MAX {
                self.lose();
            }
        }
        self.consume(env);
        Ok((got.total, got.short))
    }

    fn handle_eof(&mut self) {
        if self.conn.is_stalled() {
            // It is read again when no message in front of it waits.
            self.hangup = true;
            return;
        }
        self.ended = true;
        if self.ending.state() == StreamEnd::Draining {
            return self.lose();
        }
        self.conn.handle_eof();
    }

    /// How many bytes to stage: everything that is there, unless most of a long payload can go
    /// straight to its place. One read and a copy cost less than a read for the header and one
    /// for the payload.
    fn want(&self) -> usize {
        if self.conn.direct_len() >= DIRECT_MIN { NEXT_HEADER } else { STAGING_LEN }
    }

    /// Offers what waits to the connection.
    fn consume(&mut self, env: &mut Env<'_>) {
        if self.staging.is_empty() && !self.conn.is_stalled() {
            return;
        }
        let taken = self.conn.handle_bytes(Instant::now(), self.staging.waiting(), env);
        self.staging.taken(taken);
    }

    /// True when handing something to TCP may succeed, or needs settling.
    pub(crate) fn wants_transmit(&self) -> bool {
        let pending = self.sealed.as_ref().is_some_and(|sealed| sealed.is_pending());
        !self.blocked && (pending || self.conn.has_output()) || self.conn.phase() != Phase::Open
    }

    /// The kernel says that something changed: TCP may have room again. Returns the same as
    /// [`Self::received`].
    pub(crate) fn unblock(&mut self) -> usize {
        self.blocked = false;
        self.received
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// Hands what is queued to TCP.
    pub(crate) fn transmit(&mut self, core: &Core, env: &mut Env<'_>) {
        if self.ending.state() == StreamEnd::Draining {
            if self.conn.phase().is_over() {
                self.abandon(env);
            }
            return;
        }
        // In a stream of requests the peer has enough to do.
        let streams = !std::mem::take(&mut self.answering) || self.conn.requests_waiting() > 1;
        let small =
            self.sealed.is_some() || self.tap.is_some() || core.engine.unsent.get() > BATCHED_MAX;
        let full = if small { SMALL_BATCH } else { LATER_BATCH };
        let mut budget = if streams { full } else { FIRST_BATCH };
        let mut spans = take_spans();
        let mut batch = BATCH.try_with(Cell::take).unwrap_or_default();
        self.conn.lend_buffer(&mut batch);
        let (mut total, mut handed) = (0, 0);
        loop {
            let fd = self.socket.as_fd();
            let conn = &mut self.conn;
            let sent = match (&mut self.sealed, &self.tap) {
                (None, None) => sockio::transmit(fd, conn, budget, &mut spans, env),
                (None, Some(tap)) => tapped::transmit(&self.socket, conn, budget, tap, env),
                (Some(sealed), tap) => {
                    sealed::transmit(&self.socket, conn, sealed, budget, tap.as_ref(), env)
                }
            };
            match sent {
                Ok(Sent::Everything) => break,
                Ok(Sent::Blocked(count)) => {
                    handed += count;
                    self.blocked = true;
                    break;
                }
                Ok(Sent::Some(count)) => handed += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fail_to_send(&error, core, env);
                    break;
                }
            }
            total += budget;
            budget = full;
            if total > TURN_BYTES {
                core.engine.run_again(self.token);
                break;
            }
        }
        core.engine.counts.sent(handed);
        self.conn.take_buffer_back(&mut batch);
        let _kept = BATCH.try_with(|kept| kept.set(batch));
        self.unsent.set(&core.engine.unsent, self.conn.untransmitted());
        keep_spans(spans);
    }

    /// TCP takes nothing more. The peer's last messages may still be here: a reply before its
    /// program ended.
    fn fail_to_send(&mut self, error: &io::Error, core: &Core, env: &mut Env<'_>) {
        // The session's own errors have no number.
        if error.raw_os_error().is_none() || self.conn.phase().is_over() {
            return self.abandon(env);
        }
        self.end(EndEvent::SendFailed);
        self.hangup = true;
        core.engine.run_again(self.token);
    }

    /// Ends the connection where it stands: everything unfinished is flushed.
    pub(crate) fn abandon(&mut self, env: &mut Env<'_>) {
        self.lose();
        self.conn.settle(Instant::now(), env);
    }

    /// The socket or the session has failed. A session that is cut off after the connection has
    /// ended is not reported.
    fn break_off(&mut self) {
        if !self.conn.phase().receives() {
            self.take_session_fault();
        }
        self.lose();
    }

    fn lose(&mut self) {
        self.ended = true;
        self.lost = true;
        self.conn.handle_lost();
    }

    pub(crate) fn handle_timer(&mut self, now: Instant) {
        self.timer = None;
        if self.look_behind_at().is_some_and(|at| at <= now) {
            self.hold_more();
        }
        self.conn.handle_timeout(now);
        let mut ending = std::mem::take(&mut self.ending);
        self.late = ending.check(now, || self.flow());
        self.ending = ending;
    }

    /// Sends our FIN once everything before it is in TCP's hands.
    pub(crate) fn send_fin(&mut self) {
        if self.conn.wants_fin() && !self.fin_sent {
            // If this fails, the connection is lost anyway.
            let sealed = self.sealed.as_mut().map(|sealed| sealed.finish(&self.socket));
            if matches!(sealed, Some(Ok(false))) {
                return;
            }
            self.fin_sent = true;
            // Fails only when the connection is gone; then the peer knows it.
            let _sent = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// The next deadline of the connection's and of its end's.
    fn due(&self) -> Option<Instant> {
        let behind = self.look_behind_at();
        [self.conn.poll_timeout(), behind, self.ending.deadline()].into_iter().flatten().min()
    }

    /// Keeps the engine's timer at the next deadline.
    pub(crate) fn arm_timer(&mut self, core: &Core) {
        let due = self.due();
        if due != self.timer {
            self.timer = due;
            core.engine.set_timer(self.token, due);
        }
    }
}

impl EventSource for QpShared {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, _token: u64, hangup: bool) -> bool {
        let news = self.progress(core, hangup);
        if news {
            self.note_found();
        }
        news
    }

    fn on_timer(self: Arc<Self>, core: &Arc<Core>, _token: u64, now: Instant) {
        self.handle_timer(core, now);
    }

    fn engine_failed(self: Arc<Self>, core: &Arc<Core>) {
        // First: a program that sees the end finds the reason.
        core.async_events.push(AsyncEvent::EngineFailed { qp: self.number });
        self.end_at_once(core);
    }
}

/// A queue pair's own receives, or those of its shared queue.
pub(crate) struct RecvSource<'a> {
    pub(crate) own: &'a mut VecDeque<RecvRequest>,
    pub(crate) srq: Option<&'a SrqShared>,
}

impl Receives for RecvSource<'_> {
    fn pop(&mut self) -> Option<RecvRequest> {
        match &mut self.srq {
            Some(srq) => srq.pop(),
            None => self.own.pop_front(),
        }
    }
}
