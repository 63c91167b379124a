//! The active side: TCP connect, Request, Reply.

use super::bound::{Bound, is_pending};
use super::{CmChannel, CmEvent, CmEventKind, CmShared, ConnectParams, FpduPolicy, connection};
use crate::context::Core;
use crate::engine::Source;
use crate::engine::link::Link;
use crate::error::{ConnectError, VerbsError};
use crate::qp::{Qp, QpShared};
use crate::signal::{deadline, lock};
use crate::state::{QpEvent, QpState};
use crate::tap::StreamTap;
use outboard_iwarp::startup::{Initiator, Negotiated, Outcome};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Octets of a Reply frame at most, and some of what may follow it.
const READ_LEN: usize = 2048;

/// What either side knows of a new connection.
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
    fpdu: FpduPolicy,
    progress: Mutex<Option<Progress>>,
}

/// What an attempt has in hand; gone once it is over.
struct Progress {
    socket: TcpStream,
    initiator: Initiator,
    /// What of the Request is still to be sent.
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
                // Nobody reads the channel any more.
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
        let socket = from.connect(peer)?;
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
            fpdu: params.fpdu,
            progress: Mutex::new(None),
        });
        attempt.begin(&self.shared.core, token, socket, initiator, request)
    }
}

impl Attempt {
    fn begin(
        self: Arc<Self>,
        core: &Arc<Core>,
        token: u64,
        socket: TcpStream,
        initiator: Initiator,
        request: Vec<u8>,
    ) -> Result<(), ConnectError> {
        // Held until the socket is watched, so that no event is looked at too early.
        let mut progress = lock(&self.progress);
        if let Err(error) = core.engine.add(token, &socket, Arc::clone(&self) as Arc<dyn Source>) {
            self.qp.lock().end_attempt(token);
            return Err(error.into());
        }
        *progress = Some(Progress { socket, initiator, request, received: Vec::new(), tap: None });
        drop(progress);
        core.engine.set_timer(token, self.deadline);
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
            Ok(None) => {}
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
        progress: &mut Progress,
    ) -> Result<Option<(Outcome, usize)>, ConnectError> {
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

    /// True once the Request is out.
    fn send_request(&self, core: &Core, progress: &mut Progress) -> Result<bool, ConnectError> {
        let unreachable = |source| ConnectError::Unreachable { peer: self.peer, source };
        if let Some(error) = progress.socket.take_error().map_err(unreachable)? {
            return Err(unreachable(error));
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
        progress: Progress,
        outcome: Outcome,
        used: usize,
    ) {
        match outcome {
            Outcome::Accepted(negotiated) => {
                self.attach(core, token, progress, negotiated, used);
            }
            Outcome::Rejected(private_data) => {
                let error = ConnectError::Rejected { peer: self.peer, private_data };
                self.fail(core, token, &progress.socket, error);
            }
        }
    }

    fn attach(
        &self,
        core: &Arc<Core>,
        token: u64,
        progress: Progress,
        negotiated: Negotiated,
        used: usize,
    ) {
        let Progress { socket, received, tap, .. } = progress;
        let connected = Connected::from(&negotiated);
        let conn = connection(&self.qp, negotiated, self.fpdu, &socket);
        let link = Link::new(token, socket, conn, &received[used..], tap);
        let mut inner = self.qp.lock();
        if !inner.end_attempt(token) {
            drop(inner);
            core.engine.remove(token, &link.socket);
            return self.tell(CmEventKind::Failed(ConnectError::Cancelled { peer: self.peer }));
        }
        core.engine.replace(token, Arc::clone(&self.qp) as Arc<dyn Source>);
        // Before anything that the first octets may bring about.
        self.tell(CmEventKind::Connected(connected));
        self.qp.attach(&mut inner, core, link);
    }

    fn fail(&self, core: &Arc<Core>, token: u64, socket: &TcpStream, error: ConnectError) {
        core.engine.remove(token, socket);
        self.qp.lock().end_attempt(token);
        self.tell(CmEventKind::Failed(error));
    }

    fn tell(&self, kind: CmEventKind) {
        self.cm.push(CmEvent { qp: self.qp.number, kind });
    }
}

impl Source for Attempt {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, token: u64, _hangup: bool) -> bool {
        self.advance(core, token);
        true
    }

    fn on_timer(self: Arc<Self>, core: &Arc<Core>, token: u64, now: Instant) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        if let Some(mut progress) = lock(&self.progress).take() {
            progress.initiator.handle_timeout();
            let error = ConnectError::TimedOut { peer: self.peer, limit: self.limit };
            self.fail(core, token, &progress.socket, error);
            core.engine.notify();
        }
    }
}
