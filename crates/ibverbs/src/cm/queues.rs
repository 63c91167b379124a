//! Queue pairs and shared receive queues of identifiers (rdma_create_qp(3), rdma_create_srq(3),
//! rdma_init_qp_attr(3)).

use super::id::{CmId, CmPhase};
use super::news;
use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_MTU_4096,
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, ibv_gid, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, rdma_cm_id, verbs_context,
};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::guard::{Errno, Outcome, fail, minus_one};
use crate::object::{find, find_shared};
use crate::pd::Pd;
use crate::qp::modify::BY_CM;
use crate::qp::{self, Qp, ibv_destroy_qp};
use crate::srq::{ibv_create_srq, ibv_destroy_srq};
use libc::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

/// The errno number that a call has set.
fn last_error() -> Errno {
    std::io::Error::last_os_error().into()
}

fn check<T>(made: *mut T) -> Outcome<*mut T> {
    if made.is_null() { Err(last_error()) } else { Ok(made) }
}

/// Makes the completion queues that are missing, each with a channel; the identifier owns them.
///
/// # Safety
/// The identifier is live.
unsafe fn create_cqs(id: *mut rdma_cm_id, send: u32, recv: u32) -> Outcome<()> {
    // SAFETY: the caller's word; the calls check what they are given.
    unsafe {
        let owner = id.cast::<c_void>();
        let size = |wanted: u32| c_int::try_from(wanted).map_err(|_| Errno(libc::EINVAL));
        if recv > 0 {
            (*id).recv_cq_channel = check(ibv_create_comp_channel((*id).verbs))?;
            let channel = (*id).recv_cq_channel;
            (*id).recv_cq = check(ibv_create_cq((*id).verbs, size(recv)?, owner, channel, 0))?;
        }
        if send > 0 {
            (*id).send_cq_channel = check(ibv_create_comp_channel((*id).verbs))?;
            let channel = (*id).send_cq_channel;
            (*id).send_cq = check(ibv_create_cq((*id).verbs, size(send)?, owner, channel, 0))?;
        }
    }
    Ok(())
}

/// Destroys the completion queues that the identifier owns.
///
/// # Safety
/// The identifier is live.
unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the caller's word; the calls refuse null.
    unsafe {
        for cq in [&raw mut (*id).recv_cq, &raw mut (*id).send_cq] {
            if !(*cq).is_null() {
                ibv_destroy_cq(cq.replace(null_mut()));
            }
        }
        for channel in [&raw mut (*id).recv_cq_channel, &raw mut (*id).send_cq_channel] {
            if !(*channel).is_null() {
                ibv_destroy_comp_channel(channel.replace(null_mut()));
            }
        }
    }
}

/// rdma_create_qp(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_qp")]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    minus_one("rdma_create_qp", || {
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { qp_init_attr.as_mut() }) else { return fail(libc::EINVAL) };
        // SAFETY: `create_qp` has looked it up when it calls.
        create_qp(id, pd, attr, |_, pd, attr| qp::create(pd, attr))?;
        Ok(0)
    })
}

/// rdma_create_qp_ex(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_qp_ex")]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    minus_one("rdma_create_qp_ex", || {
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { qp_init_attr.as_mut() }) else { return fail(libc::EINVAL) };
        let has_pd = attr.comp_mask & IBV_QP_INIT_ATTR_PD != 0;
        let pd = if has_pd { attr.pd } else { null_mut() };
        let mut basic = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        create_qp(id, pd, &mut basic, |id, pd, basic| {
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            attr.pd = pd;
            (attr.send_cq, attr.recv_cq, attr.srq) = (basic.send_cq, basic.recv_cq, basic.srq);
            // SAFETY: `create_qp` has looked the identifier up.
            unsafe { extended(id, attr) }
        })?;
        Ok(0)
    })
}

/// ibv_create_qp_ex(3), which is inline code in the header.
///
/// # Safety
/// The identifier is live and has a device.
unsafe fn extended(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Outcome<*mut ibv_qp> {
    // SAFETY: the caller's word; contexts lie in a `verbs_context`.
    unsafe {
        let verbs = (*id).verbs;
        let around = verbs.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        match (*around).create_qp_ex {
            Some(create) => check(create(verbs, attr)),
            None => fail(libc::EOPNOTSUPP),
        }
    }
}

/// Makes a queue pair with `make`, and the completion queues that the program left out.
fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    make: impl FnOnce(*mut rdma_cm_id, *mut ibv_pd, &mut ibv_qp_init_attr) -> Outcome<*mut ibv_qp>,
) -> Outcome<()> {
    let found = find_shared::<CmId>(id)?;
    let state = found.lock();
    if state.phase == CmPhase::Gone || state.nic.is_none() || !found.qp().is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: live while it is locked; programs set these fields between calls.
    unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        let other = |ours: *mut crate::abi::ibv_cq, theirs: *mut crate::abi::ibv_cq| {
            !ours.is_null() && !theirs.is_null() && ours != theirs
        };
        if find::<Pd>(pd)?.context() != (*id).verbs
            || other((*id).send_cq, attr.send_cq)
            || other((*id).recv_cq, attr.recv_cq)
        {
            return fail(libc::EINVAL);
        }
        let lacks = |ours: *mut crate::abi::ibv_cq, theirs: *mut crate::abi::ibv_cq, size: u32| {
            if ours.is_null() && theirs.is_null() { size.max(1) } else { 0 }
        };
        let send = lacks((*id).send_cq, attr.send_cq, attr.cap.max_send_wr);
        let recv = lacks((*id).recv_cq, attr.recv_cq, attr.cap.max_recv_wr);
        let made = create_cqs(id, send, recv).and_then(|()| {
            fill_in(id, attr);
            make(id, pd, attr)
        });
        let made = made.inspect_err(|_| destroy_cqs(id))?;
        let qp: &Qp = find(made)?;
        qp.set_state(IBV_QPS_INIT);
        found.note_qp(qp);
        if let Some(exponent) = state.ack_timeout {
            qp.note_timeout(exponent);
        }
        ((*id).pd, (*id).qp) = (pd, made);
    }
    Ok(())
}

/// # Safety
/// The identifier is live.
unsafe fn fill_in(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr) {
    // SAFETY: the caller's word.
    let (send_cq, recv_cq, srq) = unsafe { ((*id).send_cq, (*id).recv_cq, (*id).srq) };
    if attr.send_cq.is_null() {
        attr.send_cq = send_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = recv_cq;
    }
    if attr.srq.is_null() {
        attr.srq = srq;
    }
}

/// rdma_destroy_qp(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_destroy_qp")]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    minus_one("rdma_destroy_qp", || {
        let found = find_shared::<CmId>(id)?;
        let mut state = found.lock();
        // The engine reports nothing about a queue pair that is gone.
        if let Some(end) = news::over(&found, &mut state) {
            found.push_event(&state, end);
            found.silence(&mut state);
        }
        drop(state);
        // SAFETY: found just now; the calls refuse what is not ours.
        unsafe {
            ibv_destroy_qp(std::mem::replace(&mut (*id).qp, null_mut()));
            destroy_cqs(id);
        }
        Ok(0)
    });
}

/// rdma_create_srq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_srq")]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    minus_one("rdma_create_srq", || {
        // SAFETY: the call checks what it is given.
        create_srq(id, pd, |pd| unsafe { ibv_create_srq(pd, attr) })?;
        Ok(0)
    })
}

/// rdma_create_srq_ex(3). XRC is not supported.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_srq_ex")]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    minus_one("rdma_create_srq_ex", || {
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { attr.as_mut() }) else { return fail(libc::EINVAL) };
        let mask = attr.comp_mask;
        if mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return fail(libc::EINVAL);
        }
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        if attr.srq_type != IBV_SRQT_BASIC || mask & !known != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        let pd = if mask & IBV_SRQ_INIT_ATTR_PD == 0 { null_mut() } else { attr.pd };
        let mut basic = ibv_srq_init_attr { srq_context: attr.srq_context, attr: attr.attr };
        // SAFETY: the call checks what it is given.
        create_srq(id, pd, |pd| unsafe { ibv_create_srq(pd, &raw mut basic) })?;
        attr.attr = basic.attr;
        Ok(0)
    })
}

fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    make: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq,
) -> Outcome<()> {
    let found = find_shared::<CmId>(id)?;
    let state = found.lock();
    // SAFETY: live while it is locked; programs set these fields between calls.
    unsafe {
        if state.nic.is_none() || !(*id).srq.is_null() {
            return fail(libc::EINVAL);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if find::<Pd>(pd)?.context() != (*id).verbs {
            return fail(libc::EINVAL);
        }
        ((*id).srq, (*id).pd) = (check(make(pd))?, pd);
    }
    Ok(())
}

/// rdma_destroy_srq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_destroy_srq")]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    minus_one("rdma_destroy_srq", || {
        find_shared::<CmId>(id)?;
        // SAFETY: found just now; the calls refuse what is not ours.
        unsafe {
            ibv_destroy_srq(std::mem::replace(&mut (*id).srq, null_mut()));
            destroy_cqs(id);
        }
        Ok(0)
    });
}

/// rdma_init_qp_attr(3): what ibv_modify_qp(3) needs for a queue pair that is connected through
/// this identifier.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_init_qp_attr")]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    minus_one("rdma_init_qp_attr", || {
        let found = find_shared::<CmId>(id)?;
        let state = found.lock();
        state.nic()?;
        if qp_attr.is_null() || qp_attr_mask.is_null() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the program's own structures.
        unsafe {
            let id = found.pointer();
            let (port, dgid) = ((*id).port_num, (*id).route.addr.addr.ibaddr.dgid);
            let mask = attributes(&mut *qp_attr, port, dgid, state.depths)?;
            if mask & IBV_QP_TIMEOUT != 0 {
                (*qp_attr).timeout = state.ack_timeout.unwrap_or(ACK_TIMEOUT);
            }
            *qp_attr_mask = mask.cast_signed();
        }
        Ok(0)
    })
}

/// Unless the program says otherwise: 67 ms.
const ACK_TIMEOUT: u8 = 14;
const INIT_MASK: u32 = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
const RTR_MASK: u32 = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const RTS_MASK: u32 = IBV_QP_STATE
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC;

/// Fills in the attributes of one step, and returns their mask.
fn attributes(attr: &mut ibv_qp_attr, port: u8, dgid: ibv_gid, depths: (u8, u8)) -> Outcome<u32> {
    match attr.qp_state {
        IBV_QPS_INIT => {
            let access =
                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            (attr.qp_access_flags, attr.pkey_index, attr.port_num) = (access, 0, port);
            Ok(INIT_MASK)
        }
        IBV_QPS_RTR => {
            // SAFETY: integers only.
            attr.ah_attr = unsafe { std::mem::zeroed() };
            attr.ah_attr.grh.dgid = dgid;
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, port);
            (attr.ah_attr.grh.hop_limit, attr.path_mtu) = (64, IBV_MTU_4096);
            // No peer is searched for by these attributes.
            (attr.dest_qp_num, attr.rq_psn) = (BY_CM, 0);
            (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (depths.0, 0);
            Ok(RTR_MASK)
        }
        IBV_QPS_RTS => {
            (attr.retry_cnt, attr.rnr_retry) = (7, 7);
            (attr.sq_psn, attr.max_rd_atomic) = (0, depths.1);
            Ok(RTS_MASK)
        }
        _ => fail(libc::EINVAL),
    }
}
