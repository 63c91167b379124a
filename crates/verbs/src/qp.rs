//! Queue pairs: send queue, receive queue and the connection between them and a peer.

mod leave;
mod news;

use crate::cm::CmShared;
use crate::context::{Core, Shared};
use crate::cq::{Cq, CqShared};
use crate::ended::{EndReason, Ended};
use crate::engine::link::{Link, RecvSource};
use crate::error::{Refused, VerbsError};
use crate::pd::Pd;
use crate::signal::lock;
use crate::srq::{Srq, SrqShared};
use crate::state::{QpEvent, QpState};
use outboard_iwarp::work::{Completion, RecvRequest, SendRequest};
use outboard_iwarp::{Env, PostError, RnrPolicy};
use outboard_mem::{Access, PdId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a message may wait for a posted receive unless the configuration says otherwise.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// The parameters of a new queue pair.
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
    pub rnr_policy: RnrPolicy,
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
            rnr_policy: RnrPolicy::Stall(STALL_LIMIT),
        }
    }
}

/// A queue pair. Dropping it ends its connection as [`Qp::disconnect`] does, and drops what was
/// posted: the engine sees to the rest of the stream.
#[derive(Debug)]
pub struct Qp {
    pub(crate) inner: Arc<QpShared>,
    pub(crate) shared: Arc<Shared>,
}

/// The state that the engine and the connection manager work on.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) number: u32,
    pub(crate) pd: PdId,
    pub(crate) send_depth: usize,
    pub(crate) rnr_policy: RnrPolicy,
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
    /// Where the connection's events go.
    pub(crate) cm: Option<Arc<CmShared>>,
    posted: VecDeque<RecvRequest>,
    /// Receives that were flushed and may not have been polled: no fewer than there are.
    flushed: usize,
    completions: Vec<Completion>,
    /// The attempt to connect that may still give it a link.
    pub(crate) attempt: Option<u64>,
    /// What the peer may do on this queue pair, whatever rights its STags have.
    allowed: Access,
    /// Sends with immediate data are allowed: Immediate Data may belong to the Send behind it.
    send_with_imm: bool,
    /// How a Terminate has ended the connection.
    ended: Option<Ended>,
    /// Why the connection is over.
    end_reason: Option<EndReason>,
    /// The owner dropped it: completions have no reader.
    orphaned: bool,
    /// A completion queue had no room: what comes later is lost.
    overflowed: bool,
    /// The shared receive queue knows that this stream waits for a receive.
    noted: bool,
    /// The completion queues count it among those with outstanding requests.
    busy: bool,
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
            rnr_policy: config.rnr_policy,
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
                send_with_imm: false,
                ended: None,
                end_reason: None,
                orphaned: false,
                overflowed: false,
                noted: false,
                busy: false,
            }),
        });
        inner.cqs().for_each(|cq| cq.attach(&inner));
        inner.note_busy(&mut inner.lock());
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

    /// Limits what the peer may do on this queue pair, whatever rights its STags have: Writes,
    /// Reads, atomics and invalidations without their right in `access` are refused from now on. At
    /// first everything is allowed.
    pub fn set_access(&self, access: Access) {
        let mut inner = lock(&self.inner.inner);
        inner.allowed = access;
        if let Some(link) = inner.link.as_mut() {
            link.conn.set_access(access);
        }
    }

    /// Allows Sends with immediate data on the next connection
    /// ([`outboard_iwarp::Connection::allow_send_with_imm`]): `agreed` says whether both ends have
    /// agreed on them, by means of their own. At first they are not allowed.
    pub fn allow_send_with_imm(&self, agreed: bool) {
        lock(&self.inner.inner).send_with_imm = agreed;
    }

    /// How a Terminate has ended the connection; `None` while it works, and when a side left in
    /// order or was lost.
    pub fn ended(&self) -> Option<Ended> {
        lock(&self.inner.inner).ended
    }

    /// Why the connection is over; `None` while there is one, and before.
    pub fn end_reason(&self) -> Option<EndReason> {
        lock(&self.inner.inner).end_reason.clone()
    }

    /// True while there is a connection on which Reads and atomics may be posted (ORD above 0).
    pub fn may_read(&self) -> bool {
        lock(&self.inner.inner).link.as_ref().is_some_and(|link| link.conn.ord() > 0)
    }

    /// How many Reads and atomics may be under way towards us (IRD) and towards the peer (ORD),
    /// while there is a connection.
    pub fn read_depths(&self) -> Option<(u16, u16)> {
        lock(&self.inner.inner).link.as_ref().map(|link| (link.conn.ird(), link.conn.ord()))
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
    /// finished are flushed, so wait for the completions that matter first. What has completed
    /// reaches the peer as long as it reads; when both sides have closed, the program is told
    /// [`Disconnected`](crate::CmEventKind::Disconnected).
    pub fn disconnect(&self) {
        let mut inner = lock(&self.inner.inner);
        inner.cancel_attempt(&self.shared.core);
        self.inner.leave(&mut inner, &self.shared.core);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.inner.cqs().for_each(|cq| cq.detach(&self.inner));
        let mut inner = lock(&self.inner.inner);
        inner.orphaned = true;
        inner.cm = None;
        self.inner.note_busy(&mut inner);
        inner.cancel_attempt(&self.shared.core);
        self.inner.desert(&mut inner, &self.shared.core);
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

    /// A turn has found work for this queue pair.
    pub(crate) fn note_found(&self) {
        self.send_cq.interval.note_own();
        self.recv_cq.interval.note_own();
    }

    /// The shared receive queue has a receive for this stream, which waits for one.
    pub(crate) fn take_shared_receive(self: &Arc<Self>, core: &Arc<Core>) {
        let mut inner = lock(&self.inner);
        inner.noted = false;
        self.progress_locked(&mut inner, core, false);
    }

    /// Its completion queues, each once.
    fn cqs(&self) -> impl Iterator<Item = &CqShared> {
        let one = Arc::ptr_eq(&self.send_cq, &self.recv_cq);
        std::iter::once(&*self.send_cq).chain((!one).then_some(&*self.recv_cq))
    }

    /// Tells the completion queues whether a request of either queue is under way; a shared receive
    /// queue always has some.
    fn note_busy(&self, inner: &mut Inner) {
        let sends = || inner.link.as_ref().is_some_and(|link| !link.conn.is_idle());
        let any = self.srq.is_some() || !inner.posted.is_empty() || sends();
        let busy = any && !inner.orphaned;
        if std::mem::replace(&mut inner.busy, busy) != busy {
            self.cqs().for_each(|cq| cq.count_busy(busy));
        }
    }

    /// As [`Self::progress`] without an event from the kernel, unless another thread does the same
    /// now.
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

    /// Ends the connection where it stands.
    pub(crate) fn end_at_once(self: &Arc<Self>, core: &Arc<Core>) {
        let mut inner = lock(&self.inner);
        self.with_link(&mut inner, core, |link, env| link.abandon(env));
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
        self.note_busy(inner);
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
        link.conn.set_access(inner.allowed);
        link.conn.allow_send_with_imm(inner.send_with_imm);
        inner.link = Some(link);
        inner.end_reason = None;
        core.engine.counts.connected();
        Self::advance(inner, QpEvent::Attach);
        if inner.orphaned {
            return self.desert(inner, core);
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
