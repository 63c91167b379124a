//! Queue pairs: send queue, receive queue and the connection between them and a peer.

mod leave;

use crate::cm::{CmEvent, CmEventKind, CmShared};
use crate::context::{Core, Shared};
use crate::cq::{Cq, CqShared};
use crate::ended::Ended;
use crate::engine::link::{Link, RecvSource};
use crate::error::{Refused, VerbsError};
use crate::event::AsyncEvent;
use crate::pd::Pd;
use crate::signal::lock;
use crate::srq::{Srq, SrqShared};
use crate::state::{QpEvent, QpState};
use outboard_iwarp::work::{Completion, Operation, RecvRequest, SendRequest, Status};
use outboard_iwarp::{Env, Event, MissingReceive, PostError};
use outboard_mem::{Access, PdId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a message may wait for a posted receive unless the configuration says otherwise.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// What a queue pair is made of.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// Where send requests complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<Srq>,
    /// Send requests that may be unfinished at a time.
    pub send_depth: usize,
    /// Receives that may be posted at a time.
    pub recv_depth: usize,
    /// Segments that a local list may have.
    pub max_sge: usize,
    /// Every send request completes, signaled or not.
    pub signal_all: bool,
    /// What happens to a message that finds no posted receive.
    pub missing_receive: MissingReceive,
}

impl QpConfig {
    /// A queue pair that completes on one queue, with depths of 128.
    pub fn new(cq: &Cq) -> Self {
        Self {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            send_depth: 128,
            recv_depth: 128,
            max_sge: 16,
            signal_all: false,
            missing_receive: MissingReceive::Stall(STALL_LIMIT),
        }
    }
}

/// A queue pair. Dropping it ends its connection and drops what was posted.
#[derive(Debug)]
pub struct Qp {
    pub(crate) inner: Arc<QpShared>,
    pub(crate) shared: Arc<Shared>,
}

/// What the engine and the connection manager work on.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) number: u32,
    pub(crate) pd: PdId,
    pub(crate) send_depth: usize,
    pub(crate) missing_receive: MissingReceive,
    recv_depth: usize,
    max_sge: usize,
    signal_all: bool,
    send_cq: Arc<CqShared>,
    recv_cq: Arc<CqShared>,
    srq: Option<Arc<SrqShared>>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: QpState,
    pub(crate) link: Option<Link>,
    /// Who hears of the connection's life.
    pub(crate) cm: Option<Arc<CmShared>>,
    posted: VecDeque<RecvRequest>,
    /// Receives that were flushed and may not have been polled: no fewer than there are.
    flushed: usize,
    completions: Vec<Completion>,
    /// The attempt to connect that may still give it a link.
    pub(crate) attempt: Option<u64>,
    /// What the peer may do here, whatever STags it has.
    allowed: Access,
    /// Immediate Data may belong to the Send behind it.
    pairs: bool,
    /// How a Terminate has ended the connection.
    ended: Option<Ended>,
    /// The owner dropped it: completions have no reader.
    orphaned: bool,
    /// A completion queue had no room: what comes later is lost.
    overflowed: bool,
    /// The shared receive queue knows that this stream waits for a receive.
    noted: bool,
}

impl Qp {
    pub(crate) fn new(pd: &Pd, config: QpConfig) -> Result<Self, VerbsError> {
        check_depth("the send queue's depth", config.send_depth)?;
        check_depth("the receive queue's depth", config.recv_depth)?;
        check_contexts(pd, &config)?;
        let core = &pd.shared.core;
        core.start_background()?;
        let inner = Arc::new(QpShared {
            number: core.next_number(),
            pd: pd.id,
            send_depth: config.send_depth,
            missing_receive: config.missing_receive,
            recv_depth: config.recv_depth,
            max_sge: config.max_sge,
            signal_all: config.signal_all,
            send_cq: Arc::clone(&config.send_cq.inner),
            recv_cq: Arc::clone(&config.recv_cq.inner),
            srq: config.srq.map(|srq| srq.inner),
            inner: Mutex::new(Inner {
                state: QpState::Idle,
                link: None,
                cm: None,
                posted: VecDeque::new(),
                flushed: 0,
                completions: Vec::new(),
                attempt: None,
                allowed: Access::REMOTE,
                pairs: false,
                ended: None,
                orphaned: false,
                overflowed: false,
                noted: false,
            }),
        });
        inner.send_cq.attach(&inner);
        if !Arc::ptr_eq(&inner.send_cq, &inner.recv_cq) {
            inner.recv_cq.attach(&inner);
        }
        Ok(Self { inner, shared: Arc::clone(&pd.shared) })
    }

    /// Number of the queue pair, as completions and events name it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Where it is in its life.
    pub fn state(&self) -> QpState {
        lock(&self.inner.inner).state
    }

    /// Limits what peers may do here, whatever STags they have: Writes, Reads and atomics without
    /// their right in `access` are refused from now on. At first everything is allowed.
    pub fn allow(&self, access: Access) {
        let mut inner = lock(&self.inner.inner);
        inner.allowed = access;
        if let Some(link) = inner.link.as_mut() {
            link.conn.allow(access);
        }
    }

    /// Whether both ends have agreed, by means of their own, that the next connection has Sends
    /// with immediate data ([`outboard_iwarp::Connection::pair_immediates`]). At first it has none.
    pub fn pair_immediates(&self, agreed: bool) {
        lock(&self.inner.inner).pairs = agreed;
    }

    /// How a Terminate has ended the connection; `None` while it works, and when a side left in
    /// order or was lost.
    pub fn ended(&self) -> Option<Ended> {
        lock(&self.inner.inner).ended
    }

    /// True while there is a connection on which Reads and atomics may be posted (ORD above 0).
    pub fn may_read(&self) -> bool {
        lock(&self.inner.inner).link.as_ref().is_some_and(|link| link.conn.ord() > 0)
    }

    /// Posts one send request; it is transmitted before this returns when nothing is queued and
    /// TCP takes it.
    ///
    /// # Errors
    /// See [`PostError`]; the request comes back untouched.
    pub fn post_send(&self, request: SendRequest) -> Result<(), Refused<SendRequest>> {
        let mut inner = lock(&self.inner.inner);
        self.inner.enqueue(&mut inner, request)?;
        self.inner.transmit(&mut inner, &self.shared.core);
        Ok(())
    }

    /// Posts requests in order and transmits them together. On an error the requests that were
    /// not taken stay in `requests`, the refused one first.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_send_batch(&self, requests: &mut Vec<SendRequest>) -> Result<(), PostError> {
        let mut inner = lock(&self.inner.inner);
        let posted = post_in_order(requests, |request| self.inner.enqueue(&mut inner, request));
        self.inner.transmit(&mut inner, &self.shared.core);
        posted
    }

    /// Posts a receive. Once the connection is over it is flushed at once, and counts towards the
    /// queue's depth until its completion is taken.
    ///
    /// # Errors
    /// [`PostError::QueueFull`] and [`PostError::TooLarge`]; the request comes back.
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), Refused<RecvRequest>> {
        let mut inner = lock(&self.inner.inner);
        self.inner.enqueue_recv(&mut inner, request)?;
        self.inner.resume(&mut inner, &self.shared.core);
        Ok(())
    }

    /// Posts receives in order. On an error those that were not taken stay in `requests`.
    ///
    /// # Errors
    /// As [`Qp::post_recv`].
    pub fn post_recv_batch(&self, requests: &mut Vec<RecvRequest>) -> Result<(), PostError> {
        let mut inner = lock(&self.inner.inner);
        let enqueue = |request| self.inner.enqueue_recv(&mut inner, request);
        let posted = post_in_order(requests, enqueue);
        self.inner.resume(&mut inner, &self.shared.core);
        posted
    }

    /// Ends the connection in order, or gives up an attempt to connect. Requests that are not
    /// finished are flushed, so wait for the completions that matter first.
    pub fn disconnect(&self) {
        let mut inner = lock(&self.inner.inner);
        inner.cancel_attempt(&self.shared.core);
        self.inner.leave(&mut inner, &self.shared.core);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.inner.send_cq.detach(&self.inner);
        self.inner.recv_cq.detach(&self.inner);
        let mut inner = lock(&self.inner.inner);
        inner.orphaned = true;
        inner.cm = None;
        inner.cancel_attempt(&self.shared.core);
        self.inner.leave(&mut inner, &self.shared.core);
    }
}

impl Inner {
    /// True while this attempt may still give the queue pair a link.
    pub(crate) fn is_attempting(&self, token: u64) -> bool {
        self.attempt == Some(token)
    }

    /// The attempt is over, one way or the other; false when it had been given up before.
    pub(crate) fn end_attempt(&mut self, token: u64) -> bool {
        let current = self.is_attempting(token);
        if current {
            self.attempt = None;
            QpShared::advance(self, QpEvent::ConnectFailed);
        }
        current
    }

    /// Gives an attempt up; it notices in the next turn.
    fn cancel_attempt(&mut self, core: &Core) {
        if let Some(token) = self.attempt.take() {
            QpShared::advance(self, QpEvent::ConnectFailed);
            core.engine.run_again(token);
        }
    }
}

impl QpShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Moves the state along its table.
    pub(crate) fn advance(inner: &mut Inner, event: QpEvent) {
        if let Some(next) = inner.state.after(event) {
            inner.state = next;
        }
    }

    /// Receives and transmits what there is; true when anything came in.
    pub(crate) fn progress(self: &Arc<Self>, core: &Arc<Core>, hangup: bool) -> bool {
        let mut inner = lock(&self.inner);
        let before = inner.link.as_mut().map(Link::unblock);
        self.progress_locked(&mut inner, core, hangup);
        before != inner.link.as_ref().map(Link::received)
    }

    /// A turn has found something for this queue pair.
    pub(crate) fn note_found(&self) {
        self.send_cq.cadence.note_own();
        self.recv_cq.cadence.note_own();
    }

    /// The shared receive queue has a receive for this stream, which waits for one.
    pub(crate) fn take_shared_receive(self: &Arc<Self>, core: &Arc<Core>) {
        let mut inner = lock(&self.inner);
        inner.noted = false;
        self.progress_locked(&mut inner, core, false);
    }

    /// True when no request of either queue is under way; a shared receive queue always has some.
    pub(crate) fn expects_nothing(&self) -> bool {
        self.srq.is_none()
            && self.inner.try_lock().is_ok_and(|inner| {
                let idle = inner.link.as_ref().is_none_or(|link| link.conn.is_idle());
                idle && inner.posted.is_empty()
            })
    }

    /// The same without news from the kernel, unless another thread is at it.
    pub(crate) fn try_progress(self: &Arc<Self>, core: &Arc<Core>) {
        if let Ok(mut inner) = self.inner.try_lock() {
            self.progress_locked(&mut inner, core, false);
        }
    }

    fn progress_locked(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>, hangup: bool) {
        let mut again = true;
        while again {
            again = false;
            self.with_link(inner, core, |link, env| link.receive(core, hangup, env));
            if inner.link.as_ref().is_some_and(Link::is_stalled)
                && let Some(srq) = &self.srq
            {
                if !std::mem::replace(&mut inner.noted, true) {
                    srq.note_stalled(Arc::downgrade(self));
                }
                // A receive may have been posted just before we were noted: look once more.
                again = !srq.as_ref().is_empty();
            }
        }
        self.transmit(inner, core);
        if let Some(event) = self.srq.as_ref().and_then(|srq| srq.take_limit_event()) {
            core.async_events.push(event);
        }
    }

    /// A deadline of the connection's has come.
    pub(crate) fn handle_timer(self: &Arc<Self>, core: &Arc<Core>, now: Instant) {
        let mut inner = lock(&self.inner);
        self.with_link(&mut inner, core, |link, _| link.handle_timer(now));
        self.transmit(&mut inner, core);
    }

    fn with_link(
        &self,
        inner: &mut Inner,
        core: &Arc<Core>,
        work: impl FnOnce(&mut Link, &mut Env<'_>),
    ) {
        let Inner { link: Some(link), posted, completions, .. } = inner else {
            return;
        };
        let mut receives = RecvSource { own: posted, srq: self.srq.as_deref() };
        let mut env = Env { stags: &core.stags, receives: &mut receives, completions };
        work(link, &mut env);
    }

    /// Hands what is queued to TCP, then everything that came of it to those who wait for it.
    pub(crate) fn transmit(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        if inner.link.as_ref().is_some_and(Link::wants_transmit) {
            self.with_link(inner, core, |link, env| link.transmit(core, env));
        }
        if inner.link.as_ref().is_some_and(Link::has_news) {
            self.handle_news(inner, core);
        }
        self.deliver(inner, core);
    }

    /// Events of the connection, its timers and its end.
    fn handle_news(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        while let Some(event) = inner.link.as_mut().and_then(|link| link.conn.poll_event()) {
            self.handle_event(inner, core, event);
        }
        let Some(link) = inner.link.as_mut() else {
            return;
        };
        if let Some(error) = link.take_session_fault() {
            core.async_events.push(AsyncEvent::SessionFailed { qp: self.number, error });
        }
        link.send_fin();
        link.arm_timer(core);
        if link.is_closed()
            && let Some(link) = inner.link.take()
        {
            self.close(inner, core, link);
        }
    }

    fn handle_event(&self, inner: &mut Inner, core: &Arc<Core>, event: Event) {
        match event {
            Event::Established => self.tell(inner, CmEventKind::Established),
            Event::Faulted(fault) => {
                inner.ended = Some(Ended::by_us(fault.code));
                Self::advance(inner, QpEvent::Terminate);
                // Of our own mistakes a completion tells.
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
                self.tell(inner, CmEventKind::Disconnected);
            }
        }
    }

    fn tell(&self, inner: &Inner, kind: CmEventKind) {
        if let Some(cm) = &inner.cm {
            cm.push(CmEvent { qp: self.number, kind });
        }
    }

    fn close(&self, inner: &mut Inner, core: &Arc<Core>, link: Link) {
        core.engine.remove(link.token, &link.socket);
        Self::advance(inner, QpEvent::Gone);
    }

    fn flush_posted(&self, inner: &mut Inner) {
        let Inner { posted, flushed, completions, .. } = inner;
        *flushed += posted.len();
        completions.extend(posted.drain(..).map(|request| {
            let RecvRequest { wr_id, local } = request;
            Completion::new(wr_id, self.number, Operation::Receive, Status::Flushed, local)
        }));
    }

    /// Hands completions to their queues and wakes who waits.
    pub(crate) fn deliver(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
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

    fn leave(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        if let Some(link) = inner.link.as_mut() {
            link.conn.disconnect();
            self.transmit(inner, core);
        }
    }

    fn enqueue(
        &self,
        inner: &mut Inner,
        mut request: SendRequest,
    ) -> Result<(), (PostError, SendRequest)> {
        let found = request.local.segment_count();
        if found > self.max_sge {
            return Err((too_many_segments(found, self.max_sge), request));
        }
        request.signaled |= self.signal_all;
        match inner.link.as_mut() {
            Some(link) => link.conn.post(request),
            None => Err((PostError::NotConnected, request)),
        }
    }

    fn enqueue_recv(
        &self,
        inner: &mut Inner,
        request: RecvRequest,
    ) -> Result<(), (PostError, RecvRequest)> {
        if self.srq.is_some() {
            return Err((PostError::SharedReceives, request));
        }
        let found = request.local.segment_count();
        if found > self.max_sge {
            return Err((too_many_segments(found, self.max_sge), request));
        }
        if !self.has_room(inner) {
            return Err((PostError::QueueFull { depth: self.recv_depth }, request));
        }
        inner.posted.push_back(request);
        Ok(())
    }

    /// Receives were posted: a stalled stream goes on, a queue pair that is over flushes them.
    fn resume(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>) {
        if inner.state.is_over() {
            self.flush_posted(inner);
            self.deliver(inner, core);
        } else if inner.link.as_ref().is_some_and(Link::is_stalled) {
            self.progress_locked(inner, core, false);
        }
    }

    /// A connection is there: the queue pair starts to work.
    pub(crate) fn attach(self: &Arc<Self>, inner: &mut Inner, core: &Arc<Core>, mut link: Link) {
        link.conn.allow(inner.allowed);
        link.conn.pair_immediates(inner.pairs);
        inner.link = Some(link);
        Self::advance(inner, QpEvent::Attach);
        if inner.orphaned {
            return self.leave(inner, core);
        }
        self.progress_locked(inner, core, true);
    }
}

pub(crate) fn too_many_segments(found: usize, limit: usize) -> PostError {
    PostError::TooLarge { what: "the number of segments in the local list", found, limit }
}

/// Posts in order until one is refused: that one and those behind it stay.
pub(crate) fn post_in_order<T>(
    requests: &mut Vec<T>,
    mut post: impl FnMut(T) -> Result<(), (PostError, T)>,
) -> Result<(), PostError> {
    let mut refused = None;
    let mut left = Vec::new();
    for request in requests.drain(..) {
        if refused.is_some() {
            left.push(request);
        } else if let Err((error, request)) = post(request) {
            refused = Some(error);
            left.push(request);
        }
    }
    requests.append(&mut left);
    refused.map_or(Ok(()), Err)
}

fn check_contexts(pd: &Pd, config: &QpConfig) -> Result<(), VerbsError> {
    pd.shared.check_own(&config.send_cq.shared, "the send completion queue")?;
    pd.shared.check_own(&config.recv_cq.shared, "the receive completion queue")?;
    let srq = config.srq.as_ref();
    srq.map_or(Ok(()), |srq| pd.shared.check_own(&srq.shared, "the shared queue"))
}

fn check_depth(what: &'static str, found: usize) -> Result<(), VerbsError> {
    if found > 0 {
        return Ok(());
    }
    Err(VerbsError::BadParameter { what, found, needed: "at least 1" })
}
