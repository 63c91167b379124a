//! Work requests from C into requests of the verbs layer (ibv_post_send(3), ibv_post_recv(3)), and
//! what becomes of them in each state of a queue pair.

use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_INV, ibv_qp_state, ibv_recv_wr,
    ibv_send_wr, ibv_sge,
};
use crate::cq::{UNREACHABLE, lock};
use crate::guard::{Errno, Outcome, fail};
use crate::pd::Pd;
use crate::roce::Peer;
use crate::stats;
use outboard_verbs::{
    Completion, Cq, Operation, PostError, Qp as Native, QpState, RecvRequest, Remote, Segment,
    SendOp, SendRequest, SgList, Srq, Stag, Status,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Flags of send requests that mean something here.
pub(crate) const SEND_FLAGS: u32 =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// What requests may be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) send_wr: usize,
    pub(crate) send_sge: usize,
    pub(crate) recv_sge: usize,
    pub(crate) inline: usize,
}

/// A queue pair's queues: where requests go.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) native: Arc<Native>,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) limits: Limits,
    state: AtomicU32,
    /// Sends go straight to the native queue pair.
    direct: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// Sends that wait for the connection.
#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<SendRequest>,
    /// No connection will come.
    unreachable: bool,
}

impl Queues {
    /// With `direct`, sends never wait: the program learns when the connection is there.
    pub(crate) fn new(
        native: Arc<Native>,
        send_cq: Cq,
        recv_cq: Cq,
        limits: Limits,
        direct: bool,
    ) -> Self {
        Self {
            native,
            send_cq,
            recv_cq,
            limits,
            state: AtomicU32::new(IBV_QPS_RESET),
            direct: AtomicBool::new(direct),
            waiting: Mutex::default(),
        }
    }

    /// The state that the program made, or ERR when the connection is over.
    pub(crate) fn state(&self) -> ibv_qp_state {
        let state = self.state.load(Ordering::Acquire);
        let over = matches!(state, IBV_QPS_RTR | IBV_QPS_RTS) && self.native.state().is_over();
        if over { IBV_QPS_ERR } else { state }
    }

    pub(crate) fn set_state(&self, state: ibv_qp_state) {
        self.state.store(state, Ordering::Release);
    }

    /// The connection is there: what waited goes out.
    fn go_out(&self, waiting: &mut Waiting) {
        while let Some(request) = waiting.requests.pop_front() {
            if let Err((_, request)) = self.native.post_send(request) {
                // It is over again.
                self.flush_send(&request, None);
            }
        }
        self.direct.store(true, Ordering::Release);
    }

    /// The program's ERR: everything unfinished is flushed.
    pub(crate) fn end(&self) {
        self.set_state(IBV_QPS_ERR);
        self.flush_waiting(None);
        if self.native.state() == QpState::Rts {
            self.native.disconnect();
        } else if !self.native.state().is_over() {
            self.native.reset();
        }
    }

    /// The program's RESET: as new. With `direct` as in [`Queues::new`].
    pub(crate) fn reset(&self, direct: bool) {
        self.set_state(IBV_QPS_RESET);
        *lock(&self.waiting) = Waiting::default();
        self.direct.store(direct, Ordering::Release);
        self.native.reset();
    }

    fn flush_waiting(&self, reason: Option<u64>) {
        let mut waiting = lock(&self.waiting);
        // The first could not reach the peer, the others were behind it.
        let mut reason = reason.inspect(|_| waiting.unreachable = true);
        for request in std::mem::take(&mut waiting.requests) {
            self.flush_send(&request, reason.take());
        }
    }

    fn flush_send(&self, request: &SendRequest, reason: Option<u64>) {
        self.flush(&self.send_cq, request.wr_id, request.op.operation(), reason);
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
        self.count(&request);
        self.send_on(request)
    }

    fn count(&self, request: &SendRequest) {
        stats::posted(self.native.number(), request.op.operation(), request.local.len());
    }

    fn send_on(&self, request: SendRequest) -> Outcome<()> {
        match self.state.load(Ordering::Acquire) {
            IBV_QPS_RTS if self.direct.load(Ordering::Acquire) => self.hand_over(request),
            IBV_QPS_RTS => self.hold(request),
            IBV_QPS_ERR | IBV_QPS_SQE => {
                self.flush_send(&request, None);
                Ok(())
            }
            _ => fail(libc::EINVAL),
        }
    }

    /// Posts sends in order and transmits them together.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub(crate) fn send_all(&self, mut requests: Vec<SendRequest>) -> Result<(), (usize, Errno)> {
        requests.iter().for_each(|request| self.count(request));
        let count = requests.len();
        let direct = self.direct.load(Ordering::Acquire);
        if direct && self.state.load(Ordering::Acquire) == IBV_QPS_RTS {
            match self.native.post_send_batch(&mut requests) {
                Ok(()) | Err(PostError::NotConnected) => {}
                Err(error) => return Err((count - requests.len(), errno(error))),
            }
        }
        // What is left has no connection yet, or none any more.
        let taken = count - requests.len();
        for (taken, request) in (taken..).zip(requests) {
            self.send_on(request).map_err(|error| (taken, error))?;
        }
        Ok(())
    }

    fn hand_over(&self, request: SendRequest) -> Outcome<()> {
        match self.native.post_send(request) {
            Ok(()) => Ok(()),
            Err((PostError::NotConnected, request)) if self.native.state().is_over() => {
                self.flush_send(&request, None);
                Ok(())
            }
            Err((error, _)) => Err(errno(error)),
        }
    }

    fn hold(&self, request: SendRequest) -> Outcome<()> {
        let mut waiting = lock(&self.waiting);
        if self.native.state() == QpState::Rts {
            // Somebody else has connected it, such as the connection manager.
            self.go_out(&mut waiting);
        }
        if self.direct.load(Ordering::Acquire) {
            drop(waiting);
            return self.hand_over(request);
        }
        if waiting.unreachable {
            self.flush_send(&request, Some(UNREACHABLE));
            return Ok(());
        }
        if waiting.requests.len() >= self.limits.send_wr {
            return fail(libc::ENOMEM);
        }
        waiting.requests.push_back(request);
        Ok(())
    }

    /// Posts one receive.
    pub(crate) fn receive(&self, request: RecvRequest) -> Outcome<()> {
        match self.state.load(Ordering::Acquire) {
            IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE => {
                self.native.post_recv(request).map_err(|(error, _)| errno(error))
            }
            IBV_QPS_ERR if self.native.state().is_over() => {
                self.native.post_recv(request).map_err(|(error, _)| errno(error))
            }
            IBV_QPS_ERR => {
                self.flush(&self.recv_cq, request.wr_id, Operation::Receive, None);
                Ok(())
            }
            _ => fail(libc::EINVAL),
        }
    }
}

impl Peer for Queues {
    fn native(&self) -> &Native {
        &self.native
    }

    fn has_sends(&self) -> bool {
        !lock(&self.waiting).requests.is_empty()
    }

    fn connected(&self) {
        self.go_out(&mut lock(&self.waiting));
    }

    fn failed(&self) {
        self.set_state(IBV_QPS_ERR);
        self.flush_waiting(Some(UNREACHABLE));
        self.native.reset();
    }

    fn lost(&self) {
        self.set_state(IBV_QPS_ERR);
        self.flush_waiting(None);
    }
}

/// What verbs calls it.
fn errno(error: PostError) -> Errno {
    Errno(match error {
        PostError::QueueFull { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    })
}

/// Posts a list of sends. On an error `at` is the first that was not taken.
pub(crate) fn send_list(queues: &Queues, pd: &Pd, at: &mut *mut ibv_send_wr) -> Outcome<()> {
    // SAFETY: programs pass lists that end with null.
    let Some(first) = (unsafe { at.as_ref() }) else { return Ok(()) };
    if first.next.is_null() {
        return queues.send(send_request(queues, pd, first)?);
    }
    let mut requests = Vec::new();
    let mut last = *at;
    let mut wrong = Ok(());
    // SAFETY: as above.
    while let Some(wr) = unsafe { last.as_ref() } {
        // A longer list cannot fit, and might be a ring.
        if requests.len() > queues.limits.send_wr {
            break;
        }
        match send_request(queues, pd, wr) {
            Ok(request) => requests.push(request),
            Err(error) => {
                wrong = Err(error);
                break;
            }
        }
        last = wr.next;
    }
    let count = requests.len();
    let posted = queues.send_all(requests);
    let taken = posted.map_or_else(|(taken, _)| taken, |()| count);
    for _ in 0..taken {
        // SAFETY: as above; so many were walked over just now.
        *at = unsafe { (**at).next };
    }
    posted.map_err(|(_, error)| error).and(wrong)
}

/// Posts a list of receives, one by one to `post`. On an error `at` is the first that was not
/// taken.
pub(crate) fn recv_list(
    pd: &Pd,
    max_sge: usize,
    at: &mut *mut ibv_recv_wr,
    post: impl Fn(RecvRequest) -> Outcome<()>,
) -> Outcome<()> {
    // SAFETY: programs pass lists that end with null; a ring ends when the queue is full.
    while let Some(wr) = unsafe { at.as_ref() } {
        // SAFETY: the program's own list of so many.
        let sges = unsafe { scatter_gather(wr.sg_list, wr.num_sge, max_sge) }?;
        post(RecvRequest { wr_id: wr.wr_id, local: memory(pd, sges, true)? })?;
        *at = wr.next;
    }
    Ok(())
}

/// Posts a receive to a shared queue.
pub(crate) fn receive_shared(srq: &Srq, request: RecvRequest) -> Outcome<()> {
    srq.post_recv(request).map_err(|(error, _)| errno(error))
}

fn send_request(queues: &Queues, pd: &Pd, wr: &ibv_send_wr) -> Outcome<SendRequest> {
    if wr.send_flags & !SEND_FLAGS != 0 {
        return fail(libc::EINVAL);
    }
    let op = operation(wr)?;
    // SAFETY: the program's own list of so many.
    let sges = unsafe { scatter_gather(wr.sg_list, wr.num_sge, queues.limits.send_sge) }?;
    let local = if wr.send_flags & IBV_SEND_INLINE == 0 {
        memory(pd, sges, op.awaits_response())?
    } else if op.awaits_response() {
        return fail(libc::EINVAL);
    } else {
        let pieces = sges.iter().map(|sge| (address(sge.addr), sge.length as usize));
        copied(pieces, queues.limits.inline)?
    };
    Ok(flagged(wr.wr_id, op, local, wr.send_flags))
}

/// A request with C's flags.
pub(crate) fn flagged(wr_id: u64, op: SendOp, local: SgList, flags: u32) -> SendRequest {
    SendRequest {
        wr_id,
        op,
        local,
        signaled: flags & IBV_SEND_SIGNALED != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
    }
}

/// A C address of the program's.
pub(crate) fn address(address: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0))
}

pub(crate) fn remote(rkey: u32, offset: u64) -> Remote {
    Remote { stag: Stag(rkey), offset }
}

/// Verbs' four octets of immediate data become the first of RDMAP's eight.
pub(crate) fn immediate(imm_data: u32) -> u64 {
    u64::from(u32::from_be(imm_data)) << 32
}

fn operation(wr: &ibv_send_wr) -> Outcome<SendOp> {
    // SAFETY: every member is made of integers, and the opcode says which one counts.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    // SAFETY: as above.
    let (imm_data, stag) =
        unsafe { (wr.__bindgen_anon_1.imm_data, wr.__bindgen_anon_1.invalidate_rkey) };
    let to = remote(rdma.rkey, rdma.remote_addr);
    let at = remote(atomic.rkey, atomic.remote_addr);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send { invalidate: None },
        IBV_WR_SEND_WITH_INV => SendOp::Send { invalidate: Some(Stag(stag)) },
        IBV_WR_RDMA_WRITE => SendOp::Write { to },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImmediate { to, immediate: immediate(imm_data) },
        IBV_WR_RDMA_READ => SendOp::Read { from: to },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::fetch_add(at, atomic.compare_add),
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::compare_swap(at, atomic.compare_add, atomic.swap),
        // No RDMAP message is both a Send and immediate data; memory windows there are none.
        _ => return fail(libc::EOPNOTSUPP),
    })
}

/// A list of the program's.
///
/// # Safety
/// `list` has `count` entries, which the program leaves alone until the call returns.
pub(crate) unsafe fn scatter_gather<'a>(
    list: *const ibv_sge,
    count: i32,
    limit: usize,
) -> Outcome<&'a [ibv_sge]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= limit && !list.is_null() => {
            // SAFETY: the caller vouches for it.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => fail(libc::EINVAL),
    }
}

/// The registered memory that a list names.
pub(crate) fn memory(pd: &Pd, sges: &[ibv_sge], sink: bool) -> Outcome<SgList> {
    let piece = |sge: &ibv_sge| pd.local(sge.lkey, sge.addr, sge.length as usize, sink);
    match sges {
        [] => Ok(SgList::new()),
        // Nothing of such a piece is touched, whatever its key.
        [one] if one.length == 0 => Ok(SgList::new()),
        [one] => Ok(SgList::from(piece(one)?)),
        many => {
            let some = many.iter().filter(|sge| sge.length > 0);
            let pieces: Outcome<Vec<_>> =
                some.map(|sge| Ok(Segment::Shared(piece(sge)?))).collect();
            Ok(SgList::from(pieces?))
        }
    }
}

/// A copy of pieces of the program's memory, of at most `limit` octets.
pub(crate) fn copied(
    pieces: impl Iterator<Item = (*const u8, usize)>,
    limit: usize,
) -> Outcome<SgList> {
    let mut bytes = Vec::new();
    for (start, len) in pieces.filter(|(_, len)| *len > 0) {
        if start.is_null() || len > limit - bytes.len() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the program says that it may be read, and leaves it alone until the call returns.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
    }
    Ok(SgList::copied(&bytes))
}
