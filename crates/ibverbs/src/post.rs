//! Work requests from C into requests of the verbs layer (ibv_post_send(3), ibv_post_recv(3)).

use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
    ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use crate::guard::{Errno, Outcome, fail};
use crate::holders::Holder;
use crate::pd::{Keys, Pd};
use crate::qp::QpRequests;
use crate::queues::{Queues, errno};
use outboard_verbs::{
    RecvRequest, Remote, Segment, SendOp, SendRequest, SgList, SharedRegion, Srq, Stag,
};
use std::sync::Arc;

/// Flags of send requests that mean something here.
pub(crate) const SEND_FLAGS: u32 =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Posts a list of sends. On an error `at` is the first that was not taken.
pub(crate) fn send_list(qp: &Arc<QpRequests>, pd: &Pd, at: &mut *mut ibv_send_wr) -> Outcome<()> {
    let (queues, keys) = (&qp.queues, pd.keys());
    // SAFETY: programs pass lists that end with null.
    let Some(first) = (unsafe { at.as_ref() }) else { return Ok(()) };
    if first.next.is_null() {
        return queues.send(send_request(qp, &keys, first)?);
    }
    let mut requests = Vec::new();
    let mut last = *at;
    let mut wrong = Ok(());
    // SAFETY: as above.
    while let Some(wr) = unsafe { last.as_ref() } {
        // A longer list cannot fit in any state, and might be a ring.
        if requests.len() > queues.limits.send_wr {
            break;
        }
        match send_request(qp, &keys, wr) {
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
        // SAFETY: as above; the loop above walked over this many.
        *at = unsafe { (**at).next };
    }
    posted.map_err(|(_, error)| error).and(wrong)
}

/// Posts a list of receives, one by one to `post`. On an error `at` is the first that was not
/// taken.
pub(crate) fn recv_list<H: Holder + 'static>(
    holder: &Arc<H>,
    pd: &Pd,
    max_sge: usize,
    at: &mut *mut ibv_recv_wr,
    post: impl Fn(RecvRequest) -> Outcome<()>,
) -> Outcome<()> {
    let keys = pd.keys();
    // SAFETY: programs pass lists that end with null; a ring ends when the queue is full,
    // which it comes to be in every state.
    while let Some(wr) = unsafe { at.as_ref() } {
        // SAFETY: the program's own list, of `num_sge` entries.
        let sges = unsafe { scatter_gather(wr.sg_list, wr.num_sge, max_sge) }?;
        post(RecvRequest { wr_id: wr.wr_id, local: memory(&keys, sges, true, holder) })?;
        *at = wr.next;
    }
    Ok(())
}

/// Posts a receive to a shared queue.
pub(crate) fn receive_shared(srq: &Srq, request: RecvRequest) -> Outcome<()> {
    srq.post_recv(request).map_err(|refused| errno(refused.error))
}

fn send_request(qp: &Arc<QpRequests>, keys: &Keys<'_>, wr: &ibv_send_wr) -> Outcome<SendRequest> {
    let queues: &Queues = &qp.queues;
    if wr.send_flags & !SEND_FLAGS != 0 {
        return fail(libc::EINVAL);
    }
    let op = operation(wr)?;
    queues.check(&op)?;
    // SAFETY: the program's own list, of `num_sge` entries.
    let sges = unsafe { scatter_gather(wr.sg_list, wr.num_sge, queues.limits.send_sge) }?;
    let local = if wr.send_flags & IBV_SEND_INLINE == 0 {
        memory(keys, sges, op.awaits_response(), qp)
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

/// Verbs' four bytes of immediate data become the first of RDMAP's eight.
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
        IBV_WR_SEND_WITH_IMM => SendOp::SendWithImm { immediate: u32::from_be(imm_data) },
        IBV_WR_SEND_WITH_INV => SendOp::Send { invalidate: Some(Stag(stag)) },
        IBV_WR_RDMA_WRITE => SendOp::Write { to },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteWithImm { to, immediate: immediate(imm_data) },
        IBV_WR_RDMA_READ => SendOp::Read { from: to },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::fetch_add(at, atomic.compare_add),
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::compare_swap(at, atomic.compare_add, atomic.swap),
        // There are no memory windows.
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

/// The registered memory that a list names. A piece that names none makes the request fail when
/// it is carried out, as on hardware.
pub(crate) fn memory<H: Holder + 'static>(
    keys: &Keys<'_>,
    sges: &[ibv_sge],
    sink: bool,
    holder: &Arc<H>,
) -> SgList {
    let piece = |sge: &ibv_sge| {
        let len = sge.length as usize;
        keys.lend(sge, sink, holder).map_or(Segment::Gone { len }, Segment::Shared)
    };
    match sges {
        [] => SgList::new(),
        // A piece without bytes is not accessed, whatever its key.
        [one] if one.length == 0 => SgList::new(),
        [one] => SgList::from(piece(one)),
        many => {
            let some = many.iter().filter(|sge| sge.length > 0);
            SgList::from(some.map(piece).collect::<Vec<_>>())
        }
    }
}

/// A copy of pieces of the program's memory, of at most `limit` bytes.
pub(crate) fn copied(
    pieces: impl Iterator<Item = (*const u8, usize)>,
    limit: usize,
) -> Outcome<SgList> {
    let mut bytes = Vec::new();
    for (start, len) in pieces.filter(|(_, len)| *len > 0) {
        if start.is_null() || len > limit - bytes.len() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the program says that it may be read until the call returns. Peers may write it
        // at the same time: inline data may be part of registered memory.
        let copied = unsafe { SharedRegion::append_raw(start, len, &mut bytes) };
        copied.map_err(|_| Errno(libc::EFAULT))?;
    }
    Ok(SgList::copied(&bytes))
}
