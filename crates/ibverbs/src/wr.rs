//! Work requests built call by call (ibv_wr_post(3)), and the queue pairs that take them
//! (ibv_create_qp_ex(3)).

use crate::abi::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_INV,
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    ibv_context, ibv_data_buf, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_sge,
    verbs_context,
};
use crate::context::Context;
use crate::cq::lock;
use crate::guard::{Errno, Outcome, code, fail, pointer};
use crate::object::{find, trust};
use crate::pd::Pd;
use crate::post::{SEND_FLAGS, copied, flagged, immediate, memory, remote};
use crate::qp::{Qp, create_with, is_roce};
use crate::turn::Turn;
use libc::{c_int, c_void};
use outboard_verbs::{SendOp, SendRequest, SgList, SharedRegion, Stag};
use std::sync::Mutex;

/// Operations that queue pairs support.
const OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV) as u64;

/// iWARP's Sends have no immediate data.
fn operations() -> u64 {
    OPERATIONS | if is_roce() { u64::from(IBV_QP_EX_WITH_SEND_WITH_IMM) } else { 0 }
}

/// The requests between wr_start and wr_complete.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    turn: Turn,
    drafts: Mutex<Drafts>,
}

#[derive(Debug, Default)]
struct Drafts {
    requests: Vec<SendRequest>,
    /// The first mistake, which wr_complete returns.
    wrong: Option<Errno>,
}

impl Builder {
    /// Takes memory away from requests that are being built.
    pub(crate) fn revoke(&self, region: &SharedRegion) {
        for request in &mut lock(&self.drafts).requests {
            request.local.revoke(region);
        }
    }
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.create_qp_ex = Some(create_qp_ex);
}

/// `ibv_qp_to_qp_ex`: null for a queue pair that was not made for it.
///
/// # Safety
/// Null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    pointer("ibv_qp_to_qp_ex", || {
        let shown = find::<Qp>(qp)?.shown();
        // SAFETY: live as long as the queue pair; set once.
        if unsafe { (*shown).wr_start }.is_some() { Ok(shown) } else { fail(libc::EINVAL) }
    })
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer("ibv_create_qp_ex", || {
        find::<Context>(context)?;
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { attr.as_mut() }) else { return fail(libc::EINVAL) };
        let operations = check(attr)?;
        if find::<Pd>(attr.pd)?.context() != context {
            return fail(libc::EINVAL);
        }
        let mut plain = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        let made = create_with(attr.pd, &mut plain, |c| {
            if operations.is_some() {
                fill(c);
            }
        })?;
        attr.cap = plain.cap;
        Ok(made)
    })
}

/// The operations that the program wants to build call by call, if it wants to.
fn check(attr: &ibv_qp_init_attr_ex) -> Outcome<Option<u64>> {
    let has = |flag: u32| attr.comp_mask & flag != 0;
    if !has(IBV_QP_INIT_ATTR_PD) {
        return fail(libc::EINVAL);
    }
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0;
    let wanted = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
    if has(!known) || flags || wanted.is_some_and(|wanted| wanted & !operations() != 0) {
        return fail(libc::EOPNOTSUPP);
    }
    Ok(wanted)
}

fn fill(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    c.wr_rdma_read = Some(wr_rdma_read);
    c.wr_rdma_write = Some(wr_rdma_write);
    c.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    c.wr_send = Some(wr_send);
    c.wr_send_imm = Some(wr_send_imm);
    c.wr_send_inv = Some(wr_send_inv);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let _done = code("ibv_wr_start", || {
        let builder = &trust::<Qp>(qp.cast())?.requests.builder;
        builder.turn.begin();
        *lock(&builder.drafts) = Drafts::default();
        Ok(())
    });
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    code("ibv_wr_complete", || {
        let found: &Qp = trust(qp.cast())?;
        let builder = &found.requests.builder;
        if !builder.turn.is_mine() {
            return fail(libc::EINVAL);
        }
        // Until the requests are queued: see `Builder::revoke`.
        let mut held = lock(&builder.drafts);
        let drafts = std::mem::take(&mut *held);
        let posted = match drafts.wrong {
            Some(wrong) => Err(wrong),
            None if drafts.requests.len() > found.queues.limits.send_wr => fail(libc::ENOMEM),
            None => found.queues.send_all(drafts.requests).map_err(|(_, error)| error),
        };
        drop(held);
        builder.turn.end();
        posted
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let _done = code("ibv_wr_abort", || {
        let builder = &trust::<Qp>(qp.cast())?.requests.builder;
        if builder.turn.is_mine() {
            *lock(&builder.drafts) = Drafts::default();
            builder.turn.end();
        }
        Ok(())
    });
}

/// Works on the drafts of a queue pair; a mistake comes out at the end.
fn draft(
    entry: &'static str,
    qp: *mut ibv_qp_ex,
    work: impl FnOnce(&Qp, &mut Vec<SendRequest>) -> Outcome<()>,
) {
    let _done = code(entry, || {
        let found: &Qp = trust(qp.cast())?;
        let builder = &found.requests.builder;
        if !builder.turn.is_mine() {
            return fail(libc::EINVAL);
        }
        let mut drafts = lock(&builder.drafts);
        let done = work(found, &mut drafts.requests);
        if let Err(wrong) = done {
            drafts.wrong.get_or_insert(wrong);
        }
        done
    });
}

/// A new request with the flags that the program set before the call.
fn add(entry: &'static str, qp: *mut ibv_qp_ex, op: SendOp) {
    draft(entry, qp, |found, requests| {
        found.queues.check(&op)?;
        // SAFETY: the program sets both fields in this thread before the call.
        let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
        if flags & !SEND_FLAGS != 0 {
            return fail(libc::EINVAL);
        }
        requests.push(flagged(wr_id, op, SgList::new(), flags));
        Ok(())
    });
}

/// Gives the newest request its local memory.
fn set(
    entry: &'static str,
    qp: *mut ibv_qp_ex,
    find: impl FnOnce(&Qp, &SendOp) -> Outcome<SgList>,
) {
    draft(entry, qp, |qp, requests| {
        let Some(newest) = requests.last_mut() else { return fail(libc::EINVAL) };
        newest.local = find(qp, &newest.op)?;
        Ok(())
    });
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    add("ibv_wr_send", qp, SendOp::Send { invalidate: None });
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    add("ibv_wr_send_imm", qp, SendOp::SendWithImm { immediate: u32::from_be(imm_data) });
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    add("ibv_wr_send_inv", qp, SendOp::Send { invalidate: Some(Stag(rkey)) });
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, to: u64) {
    add("ibv_wr_rdma_write", qp, SendOp::Write { to: remote(rkey, to) });
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, to: u64, imm_data: u32) {
    let (to, immediate) = (remote(rkey, to), immediate(imm_data));
    add("ibv_wr_rdma_write_imm", qp, SendOp::WriteWithImm { to, immediate });
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, from: u64) {
    add("ibv_wr_rdma_read", qp, SendOp::Read { from: remote(rkey, from) });
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, at: u64, value: u64) {
    add("ibv_wr_atomic_fetch_add", qp, SendOp::fetch_add(remote(rkey, at), value));
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    at: u64,
    compare: u64,
    swap: u64,
) {
    add("ibv_wr_atomic_cmp_swp", qp, SendOp::compare_swap(remote(rkey, at), compare, swap));
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    set("ibv_wr_set_sge", qp, |qp, op| {
        let sge = ibv_sge { addr, length, lkey };
        Ok(memory(&qp.pd().keys(), &[sge], op.awaits_response(), &qp.requests))
    });
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    set("ibv_wr_set_sge_list", qp, |qp, op| {
        let sges = given(list, count, qp.queues.limits.send_sge)?;
        Ok(memory(&qp.pd().keys(), sges, op.awaits_response(), &qp.requests))
    });
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    set("ibv_wr_set_inline_data", qp, |qp, op| {
        inline(qp, op, std::iter::once((addr.cast_const().cast(), length)))
    });
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    set("ibv_wr_set_inline_data_list", qp, |qp, op| {
        // Pieces without bytes are no use, so that there are no more than bytes.
        let pieces = given(list, count, qp.queues.limits.inline.max(1))?;
        inline(qp, op, pieces.iter().map(|piece| (piece.addr.cast_const().cast(), piece.length)))
    });
}

fn inline(
    qp: &Qp,
    op: &SendOp,
    pieces: impl Iterator<Item = (*const u8, usize)>,
) -> Outcome<SgList> {
    if op.awaits_response() {
        return fail(libc::EINVAL);
    }
    copied(pieces, qp.queues.limits.inline)
}

/// A list of the program's, of at most `limit` entries.
fn given<'a, T>(list: *const T, count: usize, limit: usize) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || count > limit {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program says how many entries it has, and leaves them alone until the call
    // returns.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}
