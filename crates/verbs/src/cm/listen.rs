//! The passive side: TCP accept, Request, the program's decision, Reply.
//!
//! Everything that an unknown peer can make us hold is bounded: requests that wait for the program
//! by the backlog, start-ups by a bound of their own ([`Backlog`]; further ones stay in the
//! kernel's queue), each start-up by the size of a Request frame and by [`REQUEST_LIMIT`].

use super::backlog::{Backlog, Room};
use super::bound::Bound;
use super::{CmChannel, CmEvent, CmEventKind, CmShared, ConnectParams, Connected, connection};
use crate::context::{Core, Shared};
use crate::engine::EventSource;
use crate::engine::link::Link;
use crate::error::{ConnectError, VerbsError};
use crate::qp::Qp;
use crate::signal::{deadline, lock};
use crate::state::QpState;
use crate::tap::StreamTap;
use outboard_iwarp::startup::{MpaRequest, Negotiated, Responder};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a peer may take to send its Request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How soon to accept again after the system refused.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Bytes of a Request frame at most, and one more to see that there is more.
const READ_LEN: usize = 533;

/// A listening address. Dropping it closes it; requests that were handed out stay good.
#[derive(Debug)]
pub struct Listener {
    inner: Arc<ListenerShared>,
    channel: CmChannel,
    shared: Arc<Shared>,
    token: u64,
}

#[derive(Debug)]
struct ListenerShared {
    socket: TcpListener,
    address: SocketAddr,
    cm: Arc<CmShared>,
    backlog: Backlog,
    /// The listener was dropped: later peers are refused.
    closed: AtomicBool,
    token: u64,
}

/// The place that a peer takes in a listener until it is answered.
#[derive(Debug)]
struct BacklogPlace {
    listener: Arc<ListenerShared>,
    core: Arc<Core>,
    token: u64,
    /// True for a place in the backlog, false for a start-up's.
    promoted: bool,
    /// The request was not answered: the source goes with the place.
    unanswered: bool,
}

impl Drop for BacklogPlace {
    fn drop(&mut self) {
        if self.unanswered {
            self.core.engine.forget(self.token);
        }
        if self.promoted {
            self.listener.backlog.answered();
        } else {
            self.listener.backlog.forget(self.token);
        }
        self.wake_others();
    }
}

impl BacklogPlace {
    fn of_startup(listener: &Arc<ListenerShared>, core: &Arc<Core>, token: u64) -> Self {
        let (listener, core) = (Arc::clone(listener), Arc::clone(core));
        Self { listener, core, token, promoted: false, unanswered: true }
    }

    /// The Request is here. False: it has to wait for a place in the backlog.
    fn promote(&mut self) -> bool {
        self.promoted = self.listener.backlog.promote(self.token);
        if self.promoted {
            self.wake_others();
        }
        self.promoted
    }

    /// A place was given back for which other peers may wait.
    fn wake_others(&self) {
        if self.listener.backlog.was_starved() {
            self.core.engine.run_again(self.listener.token);
        }
    }
}

/// A start-up that waits for its Request, or for a place in the backlog.
#[derive(Debug)]
pub(super) struct Pending {
    deadline: Instant,
    progress: Mutex<Option<RequestProgress>>,
}

#[derive(Debug)]
struct RequestProgress {
    socket: TcpStream,
    peer: SocketAddr,
    responder: Responder,
    received: Vec<u8>,
    /// The Request, while it waits for a place.
    request: Option<MpaRequest>,
    place: BacklogPlace,
    tap: Option<StreamTap>,
}

/// A peer's request to connect. Dropping it closes the connection.
#[derive(Debug)]
pub struct ConnectRequest {
    progress: RequestProgress,
    request: MpaRequest,
    token: u64,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotAccepted {
    /// What is wrong.
    pub error: ConnectError,
    request: Option<Box<ConnectRequest>>,
}

impl NotAccepted {
    fn with(request: ConnectRequest, error: ConnectError) -> Self {
        Self { error, request: Some(Box::new(request)) }
    }

    /// The request, still usable, unless the peer has gone. Dropping it closes the connection.
    pub fn into_request(self) -> Option<ConnectRequest> {
        self.request.map(|request| *request)
    }
}

impl From<NotAccepted> for ConnectError {
    fn from(refused: NotAccepted) -> Self {
        refused.error
    }
}

impl Listener {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        at: Bound,
        backlog: usize,
        channel: &CmChannel,
    ) -> Result<Self, VerbsError> {
        if backlog == 0 {
            let (what, needed) = ("the listener's backlog", "at least 1");
            return Err(VerbsError::BadParameter { what, found: 0, needed });
        }
        let core = &shared.core;
        core.start_background()?;
        let token = core.engine.next_token();
        let address = at.local_addr()?;
        let socket = at.listen(backlog)?;
        let inner = Arc::new(ListenerShared {
            socket,
            address,
            cm: Arc::clone(&channel.inner),
            backlog: Backlog::new(backlog),
            closed: AtomicBool::new(false),
            token,
        });
        core.engine.add(token, &inner.socket, Arc::clone(&inner) as Arc<dyn EventSource>)?;
        Ok(Self { inner, channel: channel.clone(), shared: Arc::clone(shared), token })
    }

    /// The address that peers connect to; with port 0 asked for, this has the port given.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.address
    }

    /// Waits for a peer; `None` when the time is over. For listeners with a channel of their own.
    pub fn next_request(&self, timeout: Option<Duration>) -> Option<ConnectRequest> {
        let deadline = deadline(timeout);
        let wanted = |event: &CmEvent| matches!(event.kind, CmEventKind::ConnectRequest(_));
        let channel = &self.channel.inner;
        match self.shared.core.wait_until(deadline, || channel.pop_if(wanted))?.kind {
            CmEventKind::ConnectRequest(request) => Some(request),
            _ => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.core.engine.remove(self.token, &self.inner.socket);
        // The socket lives as long as requests that were handed out; listening ends now.
        let _ended = rustix::net::shutdown(&self.inner.socket, rustix::net::Shutdown::Read);
        self.inner.closed.store(true, Ordering::SeqCst);
        self.inner.backlog.drain().iter().for_each(|pending| pending.give_up());
        self.inner.refuse_waiting();
    }
}

impl ListenerShared {
    /// Gives free places to peers that wait for them, here and in the kernel's queue.
    fn serve(self: &Arc<Self>, core: &Arc<Core>) {
        // Only an attempt that finds no place notes that a peer waits, so one attempt must be made.
        let waits = |(token, pending): (u64, Arc<Pending>)| !pending.advance(core, token);
        let _full = self.backlog.ready().into_iter().any(waits);
        self.accept_all(core);
    }

    /// Takes peers from the kernel while there is room for start-ups.
    fn accept_all(self: &Arc<Self>, core: &Arc<Core>) {
        while self.has_room(core) {
            match self.socket.accept() {
                Ok((socket, peer)) => Pending::begin(core, socket, peer, self),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors, perhaps: a peer in the kernel's queue makes no second event,
                // so look again.
                Err(_) => {
                    core.engine.set_timer(self.token, Some(Instant::now() + ACCEPT_RETRY));
                    return;
                }
            }
        }
    }

    fn has_room(&self, core: &Core) -> bool {
        match self.backlog.room(Instant::now()) {
            Room::Free => return true,
            Room::Instead(silent) => {
                silent.give_up();
                return true;
            }
            Room::At(time) => core.engine.set_timer(self.token, Some(time)),
            Room::None => {}
        }
        false
    }

    /// Closes the requests that the program has not taken: each holds the listener, which holds
    /// their channel.
    fn refuse_waiting(self: &Arc<Self>) {
        let ours = |event: &CmEvent| match &event.kind {
            CmEventKind::ConnectRequest(request) => {
                Arc::ptr_eq(&request.progress.place.listener, self)
            }
            _ => false,
        };
        while let Some(event) = self.cm.pop_if(ours) {
            drop(event);
        }
    }
}

impl EventSource for ListenerShared {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, _token: u64, _hangup: bool) -> bool {
        self.serve(core);
        true
    }

    fn on_timer(self: Arc<Self>, core: &Arc<Core>, _token: u64, _now: Instant) {
        self.serve(core);
    }
}

impl Pending {
    fn begin(
        core: &Arc<Core>,
        socket: TcpStream,
        peer: SocketAddr,
        listener: &Arc<ListenerShared>,
    ) {
        // A socket that cannot be set up is closed, and its peer sees that.
        if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
            return;
        }
        let token = core.engine.next_token();
        let deadline = Instant::now() + REQUEST_LIMIT;
        let pending = Arc::new(Self { deadline, progress: Mutex::new(None) });
        let mut progress = lock(&pending.progress);
        let source = Arc::clone(&pending) as Arc<dyn EventSource>;
        if core.engine.add(token, &socket, source).is_err() {
            return;
        }
        listener.backlog.begin(token, Arc::clone(&pending));
        let place = BacklogPlace::of_startup(listener, core, token);
        let tap = StreamTap::open(core.tap.as_ref(), &socket, peer, false);
        let (responder, received) = (Responder::default(), Vec::new());
        let begun =
            RequestProgress { socket, peer, responder, received, request: None, place, tap };
        *progress = Some(begun);
        drop(progress);
        core.engine.set_timer(token, Some(deadline));
        if listener.closed.load(Ordering::SeqCst) {
            return pending.give_up();
        }
        pending.advance(core, token);
    }

    /// Goes as far as the socket and the backlog let it; false when it waits for a place.
    fn advance(&self, core: &Arc<Core>, token: u64) -> bool {
        let mut guard = lock(&self.progress);
        let Some(progress) = guard.as_mut() else { return true };
        let outcome =
            progress.request.take().map_or_else(|| progress.read(), |read| Some(Ok(read)));
        let Some(outcome) = outcome else { return true };
        if let Ok(request) = &outcome
            && !progress.place.promote()
            && !progress.place.listener.closed.load(Ordering::SeqCst)
        {
            progress.request = Some(request.clone());
            return false;
        }
        let Some(progress) = guard.take() else { return true };
        drop(guard);
        // RFC 5044 §7.1.2: an improper Request closes the connection.
        if let Ok(request) = outcome {
            let listener = Arc::clone(&progress.place.listener);
            let request = ConnectRequest { progress, request, token };
            listener.cm.push(0, CmEventKind::ConnectRequest(request));
            if listener.closed.load(Ordering::SeqCst) {
                listener.refuse_waiting();
            }
            core.engine.notify();
        }
        true
    }

    /// Closes the connection, unless its Request was handed out.
    fn give_up(&self) {
        drop(lock(&self.progress).take());
    }
}

impl EventSource for Pending {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, token: u64, _hangup: bool) -> bool {
        self.advance(core, token);
        true
    }

    fn on_timer(self: Arc<Self>, _core: &Arc<Core>, _token: u64, now: Instant) {
        let silent = |progress: &mut RequestProgress| progress.request.is_none();
        if now >= self.deadline {
            drop(lock(&self.progress).take_if(silent));
        }
    }
}

impl RequestProgress {
    /// Reads the bytes that are there: returns the Request, `Err` when there will be none, `None`
    /// to wait for more.
    fn read(&mut self) -> Option<Result<MpaRequest, ()>> {
        loop {
            let mut bytes = [0; READ_LEN];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Some(Err(())),
                Ok(count) => {
                    self.received.extend_from_slice(&bytes[..count]);
                    if let Some(tap) = &self.tap {
                        tap.received(&bytes[..count]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Some(Err(())),
            }
            match self.responder.handle_bytes(&self.received) {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(_) => return Some(Err(())),
            }
        }
    }
}

impl ConnectRequest {
    /// The address of the peer that wants to connect.
    pub fn peer_addr(&self) -> SocketAddr {
        self.progress.peer
    }

    /// The address of this machine to which the peer wants to connect.
    ///
    /// # Errors
    /// [`ConnectError::Closed`] when the peer has gone.
    pub fn local_addr(&self) -> Result<SocketAddr, ConnectError> {
        let closed = |_| ConnectError::Closed { peer: self.progress.peer };
        self.progress.socket.local_addr().map_err(closed)
    }

    /// The private data of the peer's program.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Reads and atomics that the peer allows towards itself, where it says.
    pub fn peer_ird(&self) -> Option<u16> {
        self.request.ird
    }

    /// Reads and atomics that the peer wants towards us, where it says.
    pub fn peer_ord(&self) -> Option<u16> {
        self.request.ord
    }

    /// Accepts: the queue pair has the connection when this returns. It may receive at once, and
    /// send when the peer's first message is here; sends posted before that wait.
    ///
    /// # Errors
    /// The caller's, with the request, and [`ConnectError::Closed`] when the peer has gone.
    pub fn accept(self, qp: &Qp, params: &ConnectParams) -> Result<Connected, NotAccepted> {
        self.accept_with(qp, params, None)
    }

    /// As [`ConnectRequest::accept`], with the connection's later events on `channel`.
    ///
    /// # Errors
    /// As [`ConnectRequest::accept`].
    pub fn accept_on(
        self,
        qp: &Qp,
        params: &ConnectParams,
        channel: &CmChannel,
    ) -> Result<Connected, NotAccepted> {
        if let Err(error) = qp.shared.check_own(&channel.shared, "the channel") {
            return Err(NotAccepted::with(self, error.into()));
        }
        self.accept_with(qp, params, Some(Arc::clone(&channel.inner)))
    }

    fn accept_with(
        mut self,
        qp: &Qp,
        params: &ConnectParams,
        cm: Option<Arc<CmShared>>,
    ) -> Result<Connected, NotAccepted> {
        let mut inner = qp.inner.lock();
        let (reply, negotiated) = match self.answer(qp, inner.state, params) {
            Ok(answer) => answer,
            Err(error) => return Err(NotAccepted::with(self, error)),
        };
        let connected = Connected::from(&negotiated);
        let core = Arc::clone(&self.progress.place.core);
        self.send(&reply).map_err(|error| NotAccepted { error, request: None })?;
        let RequestProgress { socket, mut place, tap, .. } = self.progress;
        place.unanswered = false;
        let conn = connection(&qp.inner, negotiated, params.fpdu, &socket);
        let link = Link::new(self.token, socket, conn, &[], tap);
        core.engine.begin_link(self.token, Arc::clone(&qp.inner) as Arc<dyn EventSource>);
        inner.cm = cm;
        qp.inner.attach(&mut inner, &core, link);
        Ok(connected)
    }

    /// The Reply to the peer, and the outcome of the negotiation; on an error the request is
    /// unchanged.
    fn answer(
        &mut self,
        qp: &Qp,
        state: QpState,
        params: &ConnectParams,
    ) -> Result<(Vec<u8>, Negotiated), ConnectError> {
        let peer = self.progress.peer;
        if !Arc::ptr_eq(&self.progress.place.core, &qp.shared.core) {
            return Err(VerbsError::OtherContext { what: "the queue pair" }.into());
        }
        if state != QpState::Idle {
            let (found, needed) = (state.name(), QpState::Idle.name());
            return Err(VerbsError::WrongState { found, needed }.into());
        }
        let answer = self.progress.responder.accept(&params.local());
        let answer = answer.map_err(|source| ConnectError::Startup { peer, source })?;
        answer.ok_or(ConnectError::Closed { peer })
    }

    /// Refuses; the peer gets the private data.
    ///
    /// # Errors
    /// [`ConnectError::Startup`] when the private data is too long, [`ConnectError::Closed`] when
    /// the peer has gone.
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), ConnectError> {
        let peer = self.progress.peer;
        let reply = self
            .progress
            .responder
            .reject(private_data)
            .map_err(|source| ConnectError::Startup { peer, source })?
            .ok_or(ConnectError::Closed { peer })?;
        self.send(&reply)
    }

    /// A Reply always fits the empty buffer of a new connection.
    fn send(&mut self, reply: &[u8]) -> Result<(), ConnectError> {
        let peer = self.progress.peer;
        match self.progress.socket.write(reply) {
            Ok(count) if count == reply.len() => {
                if let Some(tap) = &self.progress.tap {
                    tap.sent(reply);
                }
                Ok(())
            }
            _ => Err(ConnectError::Closed { peer }),
        }
    }
}
