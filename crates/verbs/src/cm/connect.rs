//! The active side: TCP connect, Request, Reply.

use super::bound::{Bound, Dialed, dial, is_pending};
use super::{CmChannel, CmEventKind, CmShared, ConnectParams, FpduPolicy, connection};
use crate::context::Core;
use crate::engine::EventSource;
use crate::engine::link::Link;
use crate::error::{ConnectError, VerbsError};
use crate::qp::{Qp, QpShared};
use crate::signal::{deadline, lock};
use crate::state::{QpEvent, QpState};
use crate::tap::StreamTap;
use outboard_iwarp::startup::{Initiator, Negotiated, ReplyOutcome};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of a Reply frame at most, and some of what may follow it.
const READ_LEN: usize = 2048;
/// How long a refused connect is tried again: a server may announce its port just before it
/// listens.
const REFUSED_LIMIT: Duration = Duration::from_millis(50);
/// Time between two tries.
const DIAL_AGAIN: Duration = Duration::from_millis(5);

/// What both sides know of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The peer's program's private data.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have under way towards us.
    pub ird: u16,
    /// Reads and atomics that we may have under way towards the peer.
    pub ord: u16,
    /// FPDUs carry CRCs.
    pub crc: bool,
    /// MPA revision in use.
    pub revision: u8,
}

impl From<&Negotiated> for Connected {
    fn from(agreed: &Negotiated) -> Self {
        Self {
            private_data: agreed.private_data.clone(),
            ird: agreed.ird,
            ord: agreed.ord,
            crc: agreed.crc,
            revision: agreed.revision,
        }
    }
}

/// A connection attempt.
struct Attempt {
    qp: Arc<QpShared>,
    cm: Arc<CmShared>,
    peer: SocketAddr,
    limit: Duration,
    deadline: Option<Instant>,
    /// Until then a refusal is not final.
    refusable_until: Instant,
    fpdu: FpduPolicy,
    progress: Mutex<Option<AttemptProgress>>,
}

/// The working state of an attempt; dropped when the attempt is over.
struct AttemptProgress {
    socket: TcpStream,
    /// Refused: when to try again.
    dial_at: Option<Instant>,
    initiator: Initiator,
    /// The part of the Request that is still to be sent.
    request: Vec<u8>,
    received: Vec<u8>,
    tap: Option<StreamTap>,
}

impl Qp {
    /// Connects and waits until the start-up is done.
    ///
    /// # Errors
    /// See [`ConnectError`]. The queue pair is idle again and can be used for another attempt.
    pub fn connect(
        &self,
        peer: SocketAddr,
        params: &ConnectParams,
    ) -> Result<Connected, ConnectError> {
        let channel = CmChannel::new(&self.shared, true)?;
        self.start_connect(peer, params, &channel)?;
        match channel.next(None).map(|event| event.kind) {
            Some(CmEventKind::Connected(connected)) => {
                // No caller reads the channel any more.
                self.inner.lock().cm = None;
                Ok(connected)
            }
            Some(CmEventKind::Failed(error)) => Err(error),
            _ => Err(ConnectError::Closed { peer }),
        }
    }

    /// Begins to connect; the outcome and later events come on `channel`.
    ///
    /// # Errors
    /// The caller's and this machine's; the peer's come as [`CmEventKind::Failed`].
    pub fn start_connect(
        &self,
        peer: SocketAddr,
        params: &ConnectParams,
        channel: &CmChannel,
    ) -> Result<(), ConnectError> {
        self.start_connect_from(Bound::unbound(peer)?, peer, params, channel)
    }

    /// As [`Qp::start_connect`], from an address of this machine.
    ///
    /// # Errors
    /// As [`Qp::start_connect`].
    pub fn start_connect_from(
        &self,
        from: Bound,
        peer: SocketAddr,
        params: &ConnectParams,
        channel: &CmChannel,
    ) -> Result<(), ConnectError> {
        self.shared.check_own(&channel.shared, "the channel")?;
        let mut inner = self.inner.lock();
        if inner.state != QpState::Idle {
            let (found, needed) = (inner.state.name(), QpState::Idle.name());
            return Err(VerbsError::WrongState { found, needed }.into());
        }
        let (initiator, request) = Initiator::new(params.local())
            .map_err(|source| ConnectError::Startup { peer, source })?;
        let (socket, dialed) = from.connect(peer)?;
        let dial_at = (dialed == Dialed::Refused).then(|| Instant::now() + DIAL_AGAIN);
        let token = self.shared.core.engine.next_token();
        QpShared::advance(&mut inner, QpEvent::Connect);
        inner.attempt = Some(token);
        inner.cm = Some(Arc::clone(&channel.inner));
        drop(inner);
        let attempt = Arc::new(Attempt {
            qp: Arc::clone(&self.inner),
            cm: Arc::clone(&channel.inner),
            peer,
            limit: params.timeout,
            deadline: deadline(Some(params.timeout)),
            refusable_until: Instant::now() + REFUSED_LIMIT,
            fpdu: params.fpdu,
            progress: Mutex::new(None),
        });
        let received = Vec::new();
        let progress = AttemptProgress { socket, dial_at, initiator, request, received, tap: None };
        attempt.begin(&self.shared.core, token, progress)
    }
}

impl Attempt {
    fn begin(
        self: Arc<Self>,
        core: &Arc<Core>,
        token: u64,
        begun: AttemptProgress,
    ) -> Result<(), ConnectError> {
        // Held until the socket is watched, so that no event is looked at too early.
        let mut progress = lock(&self.progress);
        let source = Arc::clone(&self) as Arc<dyn EventSource>;
        if let Err(error) = core.engine.add(token, &begun.socket, source) {
            self.qp.lock().end_attempt(token);
            return Err(error.into());
        }
        *progress = Some(begun);
        drop(progress);
        self.advance(core, token);
        Ok(())
    }

    /// Goes as far as the socket lets it.
    fn advance(self: &Arc<Self>, core: &Arc<Core>, token: u64) {
        let mut guard = lock(&self.progress);
        let Some(progress) = guard.as_mut() else { return };
        let cancelled = !self.qp.lock().is_attempting(token);
        let step = if cancelled {
            Err(ConnectError::Cancelled { peer: self.peer })
        } else {
            self.step(core, progress)
        };
        match step {
            Ok(None) => core.engine.set_timer(token, progress.dial_at.or(self.deadline)),
            Ok(Some((outcome, used))) => {
                if let Some(progress) = guard.take() {
                    self.finish(core, token, progress, outcome, used);
                }
            }
            Err(error) => {
                if let Some(progress) = guard.take() {
                    self.fail(core, token, &progress.socket, error);
                }
            }
        }
        drop(guard);
        core.engine.notify();
    }

    fn step(
        &self,
        core: &Core,
        progress: &mut AttemptProgress,
    ) -> Result<Option<(ReplyOutcome, usize)>, ConnectError> {
        if !self.dial_again(progress)? {
            return Ok(None);
        }
        if !progress.request.is_empty() && !self.send_request(core, progress)? {
            return Ok(None);
        }
        let peer = self.peer;
        loop {
            let mut bytes = [0; READ_LEN];
            match progress.socket.read(&mut bytes) {
                Ok(0) => return Err(ConnectError::Closed { peer }),
                Ok(count) => {
                    progress.received.extend_from_slice(&bytes[..count]);
                    if let Some(tap) = &progress.tap {
                        tap.received(&bytes[..count]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(ConnectError::Closed { peer }),
            }
            let outcome = progress
                .initiator
                .handle_bytes(&progress.received)
                .map_err(|source| ConnectError::Startup { peer, source })?;
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
    }

    /// True while TCP is connecting; false when it is not time yet to try again after a refusal.
    fn dial_again(&self, progress: &mut AttemptProgress) -> Result<bool, ConnectError> {
        let Some(at) = progress.dial_at else { return Ok(true) };
        if Instant::now() < at {
            return Ok(false);
        }
        progress.dial_at = None;
        let unreachable = |source| ConnectError::Unreachable { peer: self.peer, source };
        let socket = socket2::SockRef::from(&progress.socket);
        match dial(&socket, self.peer).map_err(unreachable)? {
            Dialed::OnItsWay => Ok(true),
            Dialed::Refused => self.refused(progress),
        }
    }

    /// No program listens there yet, or at all; never returns true.
    fn refused(&self, progress: &mut AttemptProgress) -> Result<bool, ConnectError> {
        let now = Instant::now();
        if now >= self.refusable_until {
            let source = io::Error::from_raw_os_error(libc::ECONNREFUSED);
            return Err(ConnectError::Unreachable { peer: self.peer, source });
        }
        progress.dial_at = Some(now + DIAL_AGAIN);
        Ok(false)
    }

    /// True once the Request is out.
    fn send_request(
        &self,
        core: &Core,
        progress: &mut AttemptProgress,
    ) -> Result<bool, ConnectError> {
        let unreachable = |source| ConnectError::Unreachable { peer: self.peer, source };
        match progress.socket.take_error().map_err(unreachable)? {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return self.refused(progress);
            }
            Some(error) => return Err(unreachable(error)),
            None => {}
        }
        match progress.socket.write(&progress.request) {
            Ok(count) => {
                let (socket, tap) = (&progress.socket, core.tap.as_ref());
                let open = || StreamTap::open(tap, socket, self.peer, true);
                progress.tap = progress.tap.take().or_else(open);
                if let Some(tap) = &progress.tap {
                    tap.sent(&progress.request[..count]);
                }
                progress.request.drain(..count);
                Ok(progress.request.is_empty())
            }
            Err(error) if is_pending(&error) => Ok(false),
            Err(error) => Err(unreachable(error)),
        }
    }

    fn finish(
        self: &Arc<Self>,
        core: &Arc<Core>,
        token: u64,
        progress: AttemptProgress,
        outcome: ReplyOutcome,
        used: usize,
    ) {
        match outcome {
            ReplyOutcome::Accepted(negotiated) => {
                self.attach(core, token, progress, negotiated, used);
            }
            ReplyOutcome::Rejected(private_data) => {
                let error = ConnectError::Rejected { peer: self.peer, private_data };
                self.fail(core, token, &progress.socket, error);
            }
        }
    }

    fn attach(
        &self,
        core: &Arc<Core>,
        token: u64,
        progress: AttemptProgress,
        negotiated: Negotiated,
        used: usize,
    ) {
        let AttemptProgress { socket, received, tap, .. } = progress;
        let connected = Connected::from(&negotiated);
        let conn = connection(&self.qp, negotiated, self.fpdu, &socket);
        let link = Link::new(token, socket, conn, &received[used..], tap);
        let mut inner = self.qp.lock();
        if !inner.end_attempt(token) {
            drop(inner);
            core.engine.remove(token, &link.socket);
            return self.report(CmEventKind::Failed(ConnectError::Cancelled { peer: self.peer }));
        }
        core.engine.begin_link(token, Arc::clone(&self.qp) as Arc<dyn EventSource>);
        // Before anything that the first bytes may bring about.
        self.report(CmEventKind::Connected(connected));
        self.qp.attach(&mut inner, core, link);
    }

    fn fail(&self, core: &Arc<Core>, token: u64, socket: &TcpStream, error: ConnectError) {
        core.engine.remove(token, socket);
        self.qp.lock().end_attempt(token);
        self.report(CmEventKind::Failed(error));
    }

    fn report(&self, kind: CmEventKind) {
        self.cm.push(self.qp.number, kind);
    }
}

impl EventSource for Attempt {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, token: u64, _hangup: bool) -> bool {
        self.advance(core, token);
        true
    }

    fn on_timer(self: Arc<Self>, core: &Arc<Core>, token: u64, now: Instant) {
        if self.deadline.is_none_or(|at| now < at) {
            return self.advance(core, token);
        }
        if let Some(mut progress) = lock(&self.progress).take() {
            progress.initiator.handle_timeout();
            // The Request leaves when TCP is connected.
            let (peer, limit, reached) = (self.peer, self.limit, progress.request.is_empty());
            let error = ConnectError::TimedOut { peer, limit, reached };
            self.fail(core, token, &progress.socket, error);
            core.engine.notify();
        }
    }
}
