//! Connections over an existing session: the MPA start-up and everything after it pass through it.
//! Either side may have dialed; the side with [`Role::Initiator`] sends first.

use super::secured::{self, Secured};
use super::{CmChannel, ConnectParams, Connected, FpduPolicy, LOOPBACK_ULPDU_CRC, connection};
use crate::context::Core;
use crate::engine::EventSource;
use crate::engine::link::Link;
use crate::error::{ConnectError, VerbsError};
use crate::qp::{Qp, QpShared};
use crate::state::{QpEvent, QpState};
use crate::tap::StreamTap;
use outboard_iwarp::startup::{
    Initiator, LocalParams, Negotiated, ReplyOutcome, Responder, Role, StartupError,
};
use outboard_secure::Mode;
use outboard_wire::fpdu::MAX_ULPDU;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A start-up under way.
struct SessionStartup {
    stream: Secured,
    local: LocalParams,
    peer: SocketAddr,
    deadline: Instant,
    limit: Duration,
    received: Vec<u8>,
    tap: Option<StreamTap>,
}

impl Qp {
    /// Makes a connection of a socket and its session, and waits until the start-up is done or
    /// [`ConnectParams::timeout`] is over; later events come on `channel`.
    ///
    /// An encrypted session leaves out CRCs and markers. FPDUs are large unless the parameters say
    /// otherwise, because the peer is an Outboard.
    ///
    /// # Errors
    /// See [`ConnectError`]. The queue pair is idle again and can be used for another attempt.
    pub fn adopt(
        &self,
        stream: Secured,
        role: Role,
        params: &ConnectParams,
        channel: &CmChannel,
    ) -> Result<Connected, ConnectError> {
        self.shared.check_own(&channel.shared, "the channel")?;
        let core = &self.shared.core;
        let mut startup = SessionStartup::new(core, stream, role, params)?;
        let token = core.engine.next_token();
        self.begin_adoption(token, channel)?;
        match startup.run(role) {
            Ok(negotiated) => self.attach_adopted(token, startup, negotiated, params.fpdu),
            Err(error) => {
                self.inner.lock().end_attempt(token);
                Err(error)
            }
        }
    }

    fn begin_adoption(&self, token: u64, channel: &CmChannel) -> Result<(), VerbsError> {
        let mut inner = self.inner.lock();
        if inner.state != QpState::Idle {
            let (found, needed) = (inner.state.name(), QpState::Idle.name());
            return Err(VerbsError::WrongState { found, needed });
        }
        QpShared::advance(&mut inner, QpEvent::Connect);
        inner.attempt = Some(token);
        inner.cm = Some(Arc::clone(&channel.inner));
        Ok(())
    }

    fn attach_adopted(
        &self,
        token: u64,
        startup: SessionStartup,
        negotiated: Negotiated,
        policy: FpduPolicy,
    ) -> Result<Connected, ConnectError> {
        let core = &self.shared.core;
        let SessionStartup { stream, peer, received, tap, .. } = startup;
        // Bytes that came early were decrypted with the start-up.
        let (socket, session, _) = stream.into_parts();
        let connected = Connected::from(&negotiated);
        let conn = connection(&self.inner, negotiated, large(policy, connected.crc), &socket);
        let mut inner = self.inner.lock();
        if !inner.end_attempt(token) {
            return Err(ConnectError::Cancelled { peer });
        }
        let system = |error| VerbsError::system("cannot make a socket non-blocking", error);
        socket.set_nonblocking(true).map_err(system)?;
        core.engine.add(token, &socket, Arc::clone(&self.inner) as Arc<dyn EventSource>)?;
        let mut link = Link::new(token, socket, conn, &received, tap);
        if session.mode() == Mode::Encrypted {
            link.seal(session);
        }
        self.inner.attach(&mut inner, core, link);
        Ok(connected)
    }
}

impl SessionStartup {
    fn new(
        core: &Core,
        stream: Secured,
        role: Role,
        params: &ConnectParams,
    ) -> Result<Self, ConnectError> {
        let system = |what| move |error| VerbsError::system(what, error);
        let peer = stream.peer_addr().map_err(system("the peer has gone before the start-up"))?;
        let nodelay = stream.socket().set_nodelay(true);
        nodelay.map_err(system("cannot turn Nagle's algorithm off"))?;
        let tap = core.tap.as_ref();
        let tap = StreamTap::open(tap, stream.socket(), peer, role == Role::Initiator);
        let mut local = params.local();
        if stream.session().mode() == Mode::Encrypted {
            local.crc = false;
            local.markers = false;
        }
        let limit = params.timeout;
        let now = Instant::now();
        // A limit beyond the clock's range means no limit in practice.
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400));
        Ok(Self { stream, local, peer, deadline, limit, received: Vec::new(), tap })
    }

    /// The outcome of the negotiation; bytes behind the start-up frames stay in `received`.
    fn run(&mut self, role: Role) -> Result<Negotiated, ConnectError> {
        match role {
            Role::Initiator => self.initiate(),
            Role::Responder => self.respond(),
        }
    }

    fn initiate(&mut self) -> Result<Negotiated, ConnectError> {
        let peer = self.peer;
        let (mut initiator, request) =
            Initiator::new(self.local.clone()).map_err(|source| self.broken(source))?;
        self.send(&request)?;
        loop {
            self.receive()?;
            let heard = initiator.handle_bytes(&self.received);
            match heard.map_err(|source| self.broken(source))? {
                Some((ReplyOutcome::Accepted(negotiated), used)) => {
                    self.received.drain(..used);
                    return Ok(negotiated);
                }
                Some((ReplyOutcome::Rejected(private_data), _)) => {
                    return Err(ConnectError::Rejected { peer, private_data });
                }
                None => {}
            }
        }
    }

    fn respond(&mut self) -> Result<Negotiated, ConnectError> {
        let mut responder = Responder::default();
        loop {
            self.receive()?;
            let heard = responder.handle_bytes(&self.received);
            if heard.map_err(|source| self.broken(source))?.is_some() {
                break;
            }
        }
        let answer = responder.accept(&self.local).map_err(|source| self.broken(source))?;
        let (reply, negotiated) = answer.ok_or(ConnectError::Closed { peer: self.peer })?;
        self.send(&reply)?;
        self.received.clear();
        Ok(negotiated)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let sent = self.stream.send(bytes, self.deadline);
        sent.map_err(|error| secured::failed(error, self.peer, self.limit))?;
        if let Some(tap) = &self.tap {
            tap.sent(bytes);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), ConnectError> {
        let before = self.received.len();
        let received = self.stream.receive(&mut self.received, self.deadline);
        received.map_err(|error| secured::failed(error, self.peer, self.limit))?;
        if let Some(tap) = &self.tap {
            tap.received(&self.received[before..]);
        }
        Ok(())
    }

    fn broken(&self, source: StartupError) -> ConnectError {
        ConnectError::Startup { peer: self.peer, source }
    }
}

/// Both ends are Outboards, so that no FPDU needs to fit a segment: with CRCs, which a receiver
/// checks over whole FPDUs, both ends overlap on large messages; without, there is nothing to wait
/// for.
fn large(policy: FpduPolicy, crc: bool) -> FpduPolicy {
    match policy {
        FpduPolicy::Auto if crc => FpduPolicy::Max(LOOPBACK_ULPDU_CRC),
        FpduPolicy::Auto => FpduPolicy::Max(MAX_ULPDU),
        FpduPolicy::Max(len) => FpduPolicy::Max(len),
    }
}
