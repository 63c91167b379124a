//! One queue pair's socket and connection: moves octets between the two. It decides how much to
//! ask the kernel for, and when to stop so that others get their turn; it knows no opcode. Between
//! the two may be a session.

use crate::context::Core;
use crate::engine::Source;
use crate::engine::sealed::{self, Sealed};
use crate::engine::sockio::{self, Sent};
use crate::engine::staging::{STAGING_LEN, Staging};
use crate::engine::tapped;
use crate::qp::QpShared;
use crate::srq::SrqShared;
use crate::tap::StreamTap;
use outboard_iwarp::work::{Receives, RecvRequest};
use outboard_iwarp::{Connection, Env, Phase};
use outboard_mem::Span;
use outboard_secure::{Session, SessionError};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Octets that one connection may receive or send before others get their turn.
const TURN_BYTES: usize = 1 << 20;
/// Octets of the first system call of an answer: small enough for the peer, which waits for it, to
/// work on them while we prepare the next.
const FIRST_BATCH: usize = 32 * 1024;
/// Octets of other system calls: full segments for TCP, and still in the cache after their CRCs.
const LATER_BATCH: usize = 128 * 1024;
/// The same without CRCs and ciphers, which would touch the octets before.
const PLAIN_BATCH: usize = 512 * 1024;
/// What follows a payload that is received in place: pad and CRC, then the next header.
const NEXT_HEADER: usize = 32;
/// Payloads of which at least this many octets are to come are received in place.
const DIRECT_MIN: usize = 16 * 1024;

thread_local! {
    /// Scratch for system calls; empty between them.
    static SPANS: Cell<Vec<Span>> = const { Cell::new(Vec::new()) };
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
    /// TCP took less than it was offered: no use to try again before it has room.
    blocked: bool,
    /// The kernel said, once, that the peer has closed: the stream's end is looked for until it is
    /// found, or nothing is there.
    hangup: bool,
    /// The peer's FIN was read, or the socket failed.
    ended: bool,
    /// Octets so far; may wrap.
    received: usize,
    fin_sent: bool,
    /// Something has arrived since we last sent: the peer may be waiting for an answer.
    answering: bool,
    timer: Option<Instant>,
    /// Watches what passes.
    tap: Option<StreamTap>,
    /// What the octets are turned into on the way, if anything.
    sealed: Option<Box<Sealed>>,
}

impl Link {
    /// A link over a connected, non-blocking socket. `early` are octets of the stream that came
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
            received: 0,
            fin_sent: false,
            answering: true,
            timer: None,
            tap,
            sealed: None,
        }
    }

    /// From now on everything passes through a session.
    pub(crate) fn seal(&mut self, session: Session) {
        self.sealed = Some(Box::new(Sealed::new(session)));
    }

    /// Why the session has failed, once.
    pub(crate) fn take_session_fault(&mut self) -> Option<SessionError> {
        self.sealed.as_mut()?.take_fault()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.conn.is_stalled()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.conn.phase() == Phase::Closed
    }

    /// True when events, deadlines or the connection's end want attention.
    pub(crate) fn has_news(&self) -> bool {
        self.conn.has_events()
            || self.conn.poll_timeout() != self.timer
            || self.conn.phase() != Phase::Open
    }

    /// Receives until the kernel has no more, the turn is over, or nothing more may be taken.
    /// With `hangup` the stream's end is looked for behind the last octet.
    pub(crate) fn receive(&mut self, core: &Core, hangup: bool, env: &mut Env<'_>) {
        self.hangup |= hangup;
        self.consume(env);
        let mut spans = take_spans();
        let mut total = 0;
        while !self.ended && !self.conn.is_stalled() {
            match self.receive_once(&mut spans, env) {
                Ok((count, short)) => {
                    total += count;
                    if short && !self.hangup {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // No FIN behind what was read: if one comes, the kernel says so anew.
                    self.hangup = false;
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
        keep_spans(spans);
        self.staging.settle();
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
            // A session that fails may have opened something before.
            self.consume(env);
        }
        let got = got?;
        self.answering = true;
        if got.total == 0 {
            self.ended = true;
            self.conn.handle_eof();
        }
        self.consume(env);
        Ok((got.total, got.short))
    }

    /// How many octets to stage: everything that is there, unless most of a long payload can go
    /// straight to its place. One read and a copy cost less than a read for the header and one
    /// for the payload.
    fn want(&self) -> usize {
        if self.conn.direct_len() >= DIRECT_MIN { NEXT_HEADER } else { STAGING_LEN }
    }

    /// Offers what waits to the connection.
    fn consume(&mut self, env: &mut Env<'_>) {
        if self.staging.is_empty() {
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

    /// The kernel says that something changed: TCP may have room again. Returns what
    /// [`Self::received`] does.
    pub(crate) fn unblock(&mut self) -> usize {
        self.blocked = false;
        self.received
    }

    /// Octets received so far.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// Hands what is queued to TCP.
    pub(crate) fn transmit(&mut self, core: &Core, env: &mut Env<'_>) {
        // In a stream the peer has work already.
        let streams = !std::mem::take(&mut self.answering) || self.conn.requests_waiting() > 1;
        let untouched = !self.conn.checks_crc() && self.sealed.is_none();
        let full = if untouched { PLAIN_BATCH } else { LATER_BATCH };
        let mut budget = if streams { full } else { FIRST_BATCH };
        let mut spans = take_spans();
        let mut total = 0;
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
                Ok(Sent::Blocked) => {
                    self.blocked = true;
                    break;
                }
                Ok(Sent::Some) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.abandon(env);
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
        keep_spans(spans);
    }

    /// Ends the connection where it stands: everything unfinished is flushed.
    pub(crate) fn abandon(&mut self, env: &mut Env<'_>) {
        self.lose();
        self.conn.settle(Instant::now(), env);
    }

    /// The socket or the session has failed. Of a session that is cut when all is over anyway,
    /// nobody needs to hear.
    fn break_off(&mut self) {
        if !self.conn.phase().receives() {
            self.take_session_fault();
        }
        self.lose();
    }

    fn lose(&mut self) {
        self.ended = true;
        self.conn.handle_lost();
    }

    pub(crate) fn handle_timer(&mut self, now: Instant) {
        self.timer = None;
        self.conn.handle_timeout(now);
    }

    /// Sends our FIN once everything before it is in TCP's hands.
    pub(crate) fn send_fin(&mut self) {
        if self.conn.wants_fin() && !self.fin_sent {
            // What an error leaves unsaid is lost with the connection.
            let sealed = self.sealed.as_mut().map(|sealed| sealed.finish(&self.socket));
            if matches!(sealed, Some(Ok(false))) {
                return;
            }
            self.fin_sent = true;
            // Fails only when the connection is gone, and then the peer knows.
            let _sent = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Keeps the engine's timer at the connection's deadline.
    pub(crate) fn arm_timer(&mut self, core: &Core) {
        let due = self.conn.poll_timeout();
        if due != self.timer {
            self.timer = due;
            core.engine.set_timer(self.token, due);
        }
    }
}

impl Source for QpShared {
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
