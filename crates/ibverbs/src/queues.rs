//! A queue pair's queues: how requests are handled in each state, and how their completions look.
//!
//! On iWARP requests go directly to the native queue pair, and completions come directly from it.
//! RoCE differs in three ways, because its programs expect that: sends wait until there is a
//! connection, completions mean that the peer has the data (see [`crate::ledger`]), and a peer's
//! end is not noticed before something is sent to it.

use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, ibv_qp_state, ibv_wc_status,
};
use crate::cq::{lock, status};
use crate::guard::{Errno, Outcome, fail};
use crate::ledger::{KnownRequest, Ledger, verdict};
use crate::roce::{PATIENCE, Peer};
use crate::stats::{self, RequestFigures};
use outboard_verbs::{
    Completion, Cq, Operation, PostError, Qp as Native, QpState, RecvRequest, Refused, SendOp,
    SendRequest, SgList, SharedRegion, Status,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) send_wr: usize,
    pub(crate) recv_wr: usize,
    pub(crate) send_sge: usize,
    pub(crate) recv_sge: usize,
    pub(crate) inline: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) native: Arc<Native>,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) limits: QueueLimits,
    /// The number that the program knows.
    shown: u32,
    state: AtomicU32,
    /// Sends no longer wait for the connection.
    direct: AtomicBool,
    /// The program was told that no more receives of a shared queue are taken.
    last_told: AtomicBool,
    /// `None` for iWARP's.
    roce: Option<Roce>,
}

/// State that only RoCE's queue pairs have. Locks are taken in this order.
#[derive(Debug, Default)]
struct Roce {
    /// Every send completes.
    signal_all: bool,
    waiting: Mutex<Waiting>,
    ledger: Mutex<Ledger>,
    /// Receives that the native queue pair has flushed and that the program still considers posted,
    /// until its state is ERR.
    stranded: Mutex<Vec<u64>>,
    /// There may be some of them.
    strands: AtomicBool,
    /// The worker checks how long sends wait, and calls [`Peer::failed`].
    watched: AtomicBool,
    /// How long hardware would repeat a send, if the program has set that.
    patience: Mutex<Option<Duration>>,
}

/// Sends that wait for the connection.
#[derive(Debug, Default)]
struct Waiting {
    requests: Vec<SendRequest>,
    /// No connection will come.
    unreachable: bool,
}

/// The status of a completion made here, for sends that cannot have immediate data.
const FLUSHED: Option<u64> = Some(0);
/// The same: the peer could not be reached.
const UNREACHABLE: Option<u64> = Some(1);

/// A program's timeout is the time for a packet; here a peer may have to be dialed first.
const DIAL_MIN: Duration = Duration::from_secs(5);
/// Hardware's longest is 21 hours.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// A completion as the program sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: ibv_wc_status,
    pub(crate) operation: Operation,
    pub(crate) bytes: u32,
}

impl Queues {
    pub(crate) fn iwarp(
        native: Arc<Native>,
        send_cq: Cq,
        recv_cq: Cq,
        limits: QueueLimits,
    ) -> Self {
        // An iWARP queue pair is idle from the start: the next state comes with a connection.
        let (state, direct) = (AtomicU32::new(IBV_QPS_INIT), AtomicBool::new(true));
        let shown = native.number();
        let (last_told, roce) = (AtomicBool::new(false), None);
        Self { native, send_cq, recv_cq, limits, shown, state, direct, last_told, roce }
    }

    /// With this number instead of the native one.
    pub(crate) fn shown_as(self, shown: u32) -> Self {
        Self { shown, ..self }
    }

    /// With `signal_all` every send completes; the native queue pair must not do that.
    pub(crate) fn roce(
        native: Arc<Native>,
        send_cq: Cq,
        recv_cq: Cq,
        limits: QueueLimits,
        signal_all: bool,
    ) -> Self {
        let roce = Some(Roce { signal_all, ..Roce::default() });
        // Its peers are found by number, or their private data are wrapped (`crate::roce::hello`):
        // so both ends have agreed on it.
        native.allow_send_with_imm(true);
        let (state, direct) = (AtomicU32::new(IBV_QPS_RESET), AtomicBool::new(false));
        Self { state, direct, roce, ..Self::iwarp(native, send_cq, recv_cq, limits) }
    }

    /// The state that the program made, or ERR when the connection is over.
    pub(crate) fn state(&self) -> ibv_qp_state {
        let state = self.state.load(Ordering::Acquire);
        let over = matches!(state, IBV_QPS_RTR | IBV_QPS_RTS) && self.is_over();
        if over { IBV_QPS_ERR } else { state }
    }

    /// The connection is over, and the program must be told.
    fn is_over(&self) -> bool {
        match self.roce {
            None => self.native.state().is_over(),
            Some(_) => self.native.ended().is_some(),
        }
    }

    pub(crate) fn set_state(&self, state: ibv_qp_state) {
        let before = self.state.swap(state, Ordering::AcqRel);
        if state == IBV_QPS_ERR && before != IBV_QPS_ERR && self.ends_unsaid() {
            self.native.raise_last_receive();
        }
        if let Some(roce) = &self.roce
            && state == IBV_QPS_ERR
        {
            roce.strands.store(false, Ordering::Release);
            for wr_id in std::mem::take(&mut *lock(&roce.stranded)) {
                self.flush(&self.recv_cq, wr_id, Operation::Receive, FLUSHED);
            }
        }
    }

    /// No connection ends now, so there is no event for it; RoCE's may have ended before,
    /// unnoticed.
    fn ends_unsaid(&self) -> bool {
        match self.native.state() {
            QpState::Rts => false,
            over if over.is_over() => self.roce.is_some(),
            _ => true,
        }
    }

    /// True once, when the state that the program sees becomes ERR: then the program must be told
    /// that no more receives of a shared queue are taken.
    pub(crate) fn takes_last_receive(&self) -> bool {
        self.state() == IBV_QPS_ERR && !self.last_told.swap(true, Ordering::AcqRel)
    }

    /// The program's ERR: everything unfinished is flushed.
    pub(crate) fn end(&self) {
        self.set_state(IBV_QPS_ERR);
        self.flush_waiting(FLUSHED);
        if self.native.state() == QpState::Rts {
            self.native.disconnect();
        } else if !self.native.state().is_over() {
            self.native.reset();
        }
    }

    /// The program's RESET: as new.
    pub(crate) fn reset(&self) {
        self.set_state(if self.roce.is_some() { IBV_QPS_RESET } else { IBV_QPS_INIT });
        self.last_told.store(false, Ordering::Release);
        self.native.reset();
        if let Some(roce) = &self.roce {
            *lock(&roce.waiting) = Waiting::default();
            lock(&roce.ledger).clear();
            lock(&roce.stranded).clear();
            roce.strands.store(false, Ordering::Release);
            roce.watched.store(false, Ordering::Release);
            *lock(&roce.patience) = None;
            self.direct.store(false, Ordering::Release);
        }
    }

    /// The peer is found by its number: from now on [`Peer::failed`] is called when sends wait too
    /// long.
    pub(crate) fn watch(&self) {
        if let Some(roce) = &self.roce {
            roce.watched.store(true, Ordering::Release);
        }
    }

    /// Whether a peer can take this operation.
    pub(crate) fn check(&self, op: &SendOp) -> Outcome<()> {
        match op {
            SendOp::SendWithImm { .. } if self.roce.is_none() => fail(libc::EOPNOTSUPP),
            _ => Ok(()),
        }
    }

    /// How long sends may be repeated; `None` for ever.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        if let Some(roce) = &self.roce {
            *lock(&roce.patience) = patience;
        }
    }

    /// Before it is destroyed: drops waiting sends, and disconnects.
    pub(crate) fn let_go(&self) {
        if let Some(roce) = &self.roce {
            lock(&roce.waiting).requests.clear();
        }
        self.native.let_go();
    }

    /// Takes memory away from every request.
    pub(crate) fn revoke(&self, region: &SharedRegion) {
        // First the waiting sends: they may go out at any time, never the other way round.
        if let Some(roce) = &self.roce {
            for request in &mut lock(&roce.waiting).requests {
                request.local.revoke(region);
            }
        }
        self.native.revoke(region);
    }

    fn flush_waiting(&self, mut reason: Option<u64>) {
        let Some(roce) = &self.roce else { return };
        let mut waiting = lock(&roce.waiting);
        for request in std::mem::take(&mut waiting.requests) {
            self.flush_send(request.wr_id, request.op.operation(), reason);
            // The first could not reach the peer, the others were behind it.
            reason = FLUSHED;
        }
    }

    fn flush_send(&self, wr_id: u64, operation: Operation, reason: Option<u64>) {
        self.flush(&self.send_cq, wr_id, operation, reason);
    }

    fn flush(&self, cq: &Cq, wr_id: u64, operation: Operation, reason: Option<u64>) {
        let number = self.native.number();
        let mut completion =
            Completion::new(wr_id, number, operation, Status::Flushed, SgList::new());
        completion.immediate = reason;
        // Without room the queue reports its overflow when it is polled.
        cq.push(completion);
    }

    /// Posts one send.
    pub(crate) fn send(&self, request: SendRequest) -> Outcome<()> {
        if self.roce.is_some() || self.state.load(Ordering::Acquire) != IBV_QPS_RTS {
            return self.send_all(vec![request]).map_err(|(_, error)| error);
        }
        let asked = RequestFigures::of(&request);
        match self.native.post_send(request) {
            Ok(()) => {}
            Err(Refused { error: PostError::NotConnected, request })
                if self.native.state().is_over() =>
            {
                self.flush_sends(vec![request]).map_err(|(_, error)| error)?;
            }
            Err(Refused { error, .. }) => return Err(errno(error)),
        }
        stats::posted(self.shown, asked);
        Ok(())
    }

    /// Posts sends in order and transmits them together.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub(crate) fn send_all(&self, requests: Vec<SendRequest>) -> Result<(), (usize, Errno)> {
        // Without statistics this allocates no list.
        let asked: Vec<_> = requests.iter().map_while(RequestFigures::of).collect();
        let posted = self.post_all(requests);
        let taken = posted.map_or_else(|(taken, _)| taken, |()| asked.len());
        stats::posted(self.shown, asked.into_iter().take(taken));
        posted
    }

    fn post_all(&self, mut requests: Vec<SendRequest>) -> Result<(), (usize, Errno)> {
        match self.state.load(Ordering::Acquire) {
            IBV_QPS_RTS => {}
            IBV_QPS_ERR | IBV_QPS_SQE => return self.flush_sends(requests),
            _ => return Err((0, Errno(libc::EINVAL))),
        }
        if let Some(roce) = &self.roce {
            return self.send_on_roce(roce, requests);
        }
        let count = requests.len();
        match self.native.post_send_batch(&mut requests) {
            Ok(()) => Ok(()),
            // None of them was taken.
            Err(PostError::NotConnected) if self.native.state().is_over() => {
                self.flush_sends(requests)
            }
            Err(error) => Err((count - requests.len(), errno(error))),
        }
    }

    /// Flushes sends as far as there is room for them: those flushed before count until they are
    /// polled, so that a program that posts until the queue is full comes to an end.
    fn flush_sends(&self, requests: Vec<SendRequest>) -> Result<(), (usize, Errno)> {
        let under_way = self.roce.as_ref().map_or(0, |roce| lock(&roce.ledger).len());
        let room =
            self.limits.send_wr.saturating_sub(self.unpolled(false).saturating_add(under_way));
        let count = requests.len();
        for request in requests.into_iter().take(room) {
            self.flush_send(request.wr_id, request.op.operation(), FLUSHED);
        }
        if count > room { Err((room, Errno(libc::ENOMEM))) } else { Ok(()) }
    }

    /// How many flushed sends, or receives, the program has not polled; RoCE's sends only as far as
    /// the ledger has none of them. Where completions were lost they are as many as can be.
    fn unpolled(&self, receives: bool) -> usize {
        let cq = if receives { &self.recv_cq } else { &self.send_cq };
        match cq.flushed(self.native.number()) {
            Ok(flushed) if receives => flushed.receives,
            Ok(flushed) if self.roce.is_none() => flushed.sends,
            Ok(flushed) => flushed.sends_with_immediate,
            Err(_) => usize::MAX,
        }
    }

    fn send_on_roce(&self, roce: &Roce, requests: Vec<SendRequest>) -> Result<(), (usize, Errno)> {
        if self.direct.load(Ordering::Acquire) {
            return self.send_covered(roce, requests);
        }
        let mut waiting = lock(&roce.waiting);
        if self.native.state() == QpState::Rts {
            // It was connected by another part, such as the connection manager.
            self.go_out(roce, &mut waiting);
        }
        if self.direct.load(Ordering::Acquire) {
            drop(waiting);
            return self.send_covered(roce, requests);
        }
        let room = self.limits.send_wr - waiting.requests.len();
        let count = requests.len();
        waiting.requests.extend(requests.into_iter().take(room));
        if waiting.unreachable {
            drop(waiting);
            self.give_up(roce);
        }
        if count > room { Err((room, Errno(libc::ENOMEM))) } else { Ok(()) }
    }

    /// The connection is there: sends waiting sends.
    fn go_out(&self, roce: &Roce, waiting: &mut Waiting) {
        // Never refused: no more wait than fit, and a connection that is over again flushes.
        let _posted = self.send_covered(roce, std::mem::take(&mut waiting.requests));
        self.direct.store(true, Ordering::Release);
    }

    /// Posts sends, followed by a Read that makes the peer answer.
    fn send_covered(
        &self,
        roce: &Roce,
        mut requests: Vec<SendRequest>,
    ) -> Result<(), (usize, Errno)> {
        let mut ledger = lock(&roce.ledger);
        let room = self.limits.send_wr.saturating_sub(ledger.len());
        let refused = requests.len() > room;
        requests.truncate(room);
        let mut taken = requests.len();
        let covers = self.native.may_read();
        for request in &mut requests {
            request.signaled |= roce.signal_all;
            ledger.enter(request, covers);
        }
        requests.extend(ledger.cover());
        let Err(error) = self.native.post_send_batch(&mut requests) else {
            return if refused { Err((taken, Errno(libc::ENOMEM))) } else { Ok(()) };
        };
        let over = error == PostError::NotConnected && self.native.state().is_over();
        if over && self.fails_late(roce) {
            return if refused { Err((taken, Errno(libc::ENOMEM))) } else { Ok(()) };
        }
        let withdrawn = ledger.withdraw(requests.len());
        if over {
            drop(ledger);
            self.peer_is_gone(&withdrawn);
            return Ok(());
        }
        taken -= withdrawn.len();
        if let Some(cover) = ledger.cover().filter(|_| covers)
            && self.native.post_send(cover).is_err()
        {
            // The connection is over: requests under way are being flushed.
            ledger.withdraw(1);
        }
        Err((taken, errno(error)))
    }

    /// The peer is silent. The requests in the ledger fail only when [`Peer::failed`] is called:
    /// hardware repeats sends for a while, and programs that end before that never see the failure.
    fn fails_late(&self, roce: &Roce) -> bool {
        roce.watched.load(Ordering::Acquire)
            && self.state.load(Ordering::Acquire) != IBV_QPS_ERR
            && self.native.ended().is_none()
    }

    /// Sends have waited long enough.
    fn give_up(&self, roce: &Roce) {
        let mut reason = UNREACHABLE;
        lock(&roce.ledger).fail(u64::MAX, IBV_WC_RETRY_EXC_ERR, |known, _| {
            self.flush_send(known.wr_id, known.operation, reason);
            reason = FLUSHED;
        });
        self.flush_waiting(reason);
        self.set_state(IBV_QPS_ERR);
        self.native.reset();
    }

    /// No peer was found for the sends.
    fn peer_is_gone(&self, sends: &[KnownRequest]) {
        let mut reason = if self.state() == IBV_QPS_ERR { FLUSHED } else { UNREACHABLE };
        for known in sends {
            self.flush_send(known.wr_id, known.operation, reason);
            self.set_state(IBV_QPS_ERR);
            reason = FLUSHED;
        }
    }

    /// Translates a completion for a program on RoCE: `see` gets the result.
    pub(crate) fn look(&self, completion: &Completion, mut see: impl FnMut(SeenCompletion)) {
        let Completion { wr_id, operation, bytes, .. } = *completion;
        let ours = completion.status == Status::Flushed && completion.immediate.is_some();
        let plain = |status| SeenCompletion { wr_id, status, operation, bytes };
        match &self.roce {
            Some(_) if ours => see(plain(if completion.immediate == UNREACHABLE {
                IBV_WC_RETRY_EXC_ERR
            } else {
                IBV_WC_WR_FLUSH_ERR
            })),
            Some(roce) if operation.is_receive() => {
                if !self.strand(roce, completion) {
                    see(plain(status(completion.status)));
                }
            }
            Some(roce) if completion.status == Status::Flushed && self.fails_late(roce) => {}
            Some(roce) => self.settle(lock(&roce.ledger), completion, |known, status| {
                let KnownRequest { wr_id, operation, bytes, .. } = known;
                see(SeenCompletion { wr_id, status, operation, bytes });
            }),
            None => see(plain(status(completion.status))),
        }
    }

    /// True for a receive that the program still considers posted.
    fn strand(&self, roce: &Roce, completion: &Completion) -> bool {
        if completion.status != Status::Flushed {
            return false;
        }
        let mut stranded = lock(&roce.stranded);
        let hidden = self.state() != IBV_QPS_ERR;
        if hidden {
            stranded.push(completion.wr_id);
            roce.strands.store(true, Ordering::Release);
        }
        hidden
    }

    fn settle(
        &self,
        mut ledger: MutexGuard<'_, Ledger>,
        completion: &Completion,
        tell: impl FnMut(KnownRequest, ibv_wc_status),
    ) {
        match completion.status {
            Status::Success => return ledger.succeed(completion.wr_id, tell),
            Status::Flushed if ledger.is_cover(completion.wr_id) && self.came_through() => {
                return ledger.succeed(completion.wr_id, tell);
            }
            Status::Flushed => ledger.fail(completion.wr_id, self.reason(), tell),
            other => ledger.fail_alone(completion.wr_id, status(other), tell),
        }
        drop(ledger);
        self.set_state(IBV_QPS_ERR);
    }

    /// The peer has refused a Read or an atomic, so it had everything before that.
    fn came_through(&self) -> bool {
        self.native.ended().is_some_and(|ended| ended.by_peer && ended.quotes_request)
    }

    /// Why the oldest send is flushed.
    fn reason(&self) -> ibv_wc_status {
        match self.native.ended() {
            _ if self.state.load(Ordering::Acquire) == IBV_QPS_ERR => IBV_WC_WR_FLUSH_ERR,
            Some(ended) if !ended.by_peer => IBV_WC_WR_FLUSH_ERR,
            ended => verdict(ended.map(|ended| ended.code)),
        }
    }

    /// Posts one receive.
    pub(crate) fn receive(&self, request: RecvRequest) -> Outcome<()> {
        let over = match self.state.load(Ordering::Acquire) {
            IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE => false,
            IBV_QPS_ERR => true,
            _ => return fail(libc::EINVAL),
        };
        if over && !self.native.state().is_over() {
            if self.unpolled(true) >= self.limits.recv_wr {
                return fail(libc::ENOMEM);
            }
            self.flush(&self.recv_cq, request.wr_id, Operation::Receive, FLUSHED);
            return Ok(());
        }
        if self.roce.as_ref().is_some_and(|roce| self.is_full(roce)) {
            return fail(libc::ENOMEM);
        }
        self.native.post_recv(request).map_err(|refused| errno(refused.error))
    }

    /// Stranded receives are as many as can be posted, together with those that will be.
    fn is_full(&self, roce: &Roce) -> bool {
        roce.strands.load(Ordering::Acquire) && {
            let stranded = lock(&roce.stranded).len();
            stranded.saturating_add(self.unpolled(true)) >= self.limits.recv_wr
        }
    }
}

impl Peer for Queues {
    fn native(&self) -> &Native {
        &self.native
    }

    fn has_sends(&self) -> bool {
        self.roce.as_ref().is_some_and(|roce| {
            !lock(&roce.waiting).requests.is_empty() || lock(&roce.ledger).len() > 0
        })
    }

    fn patience(&self) -> Duration {
        let said = self.roce.as_ref().and_then(|roce| *lock(&roce.patience));
        let said = said.unwrap_or(PATIENCE).min(PATIENCE_MAX);
        if self.native.state().is_over() { said } else { said.max(DIAL_MIN) }
    }

    fn connected(&self) {
        if let Some(roce) = &self.roce {
            self.go_out(roce, &mut lock(&roce.waiting));
        }
    }

    fn failed(&self) {
        let Some(roce) = &self.roce else { return };
        lock(&roce.waiting).unreachable = true;
        // Otherwise the next send notices.
        if self.has_sends() {
            self.give_up(roce);
        }
    }

    fn lost(&self) {
        // The program learns of it when it posts and polls.
    }
}

/// The name of a status in verbs.
pub(crate) fn errno(error: PostError) -> Errno {
    Errno(match error {
        PostError::QueueFull { .. } => libc::ENOMEM,
        PostError::NoSendWithImm => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    })
}
