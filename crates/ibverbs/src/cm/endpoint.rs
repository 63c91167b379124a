//! Synchronous identifiers: calls wait for their event and leave it in `id->event`
//! (rdma_create_ep(3), rdma_get_request(3)).
//!
//! Threads may be cancelled while they wait, which unwinds: the functions that wait have nothing
//! to drop.

use super::address;
use super::channel::rdma_get_cm_event;
use super::connect::rdma_reject;
use super::id::{CmId, QpAttr, ack_kept, rdma_destroy_id};
use super::queues::{rdma_create_qp, rdma_destroy_qp, rdma_destroy_srq};
use super::resolve::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use crate::abi::{
    IBV_QPT_RC, RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_REJECTED, RDMA_PS_TCP,
    ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_event, rdma_cm_id,
};
use crate::guard::{Outcome, fail, minus_one};
use crate::object::find_shared;
use libc::c_int;
use std::ptr::null_mut;

/// The identifier is asynchronous: the program takes its events itself.
const ASYNCHRONOUS: c_int = 1;
/// How long addresses may take to resolve, in milliseconds; ours take no time.
const RESOLVE_LIMIT: c_int = 2000;

/// Waits for the event of a successful call, if the identifier is synchronous.
pub(crate) extern "C-unwind" fn complete(id: *mut rdma_cm_id) -> c_int {
    match prepare(id) {
        ASYNCHRONOUS => return 0,
        0 => {}
        error => return error,
    }
    // SAFETY: found just now.
    let taken = unsafe { rdma_get_cm_event((*id).channel, &raw mut (*id).event) };
    if taken != 0 {
        return taken;
    }
    // SAFETY: as above, and the event has been put there.
    minus_one("rdma_get_cm_event", || verdict(unsafe { &*(*id).event }).map(|()| 0))
}

fn prepare(id: *mut rdma_cm_id) -> c_int {
    minus_one("rdma_get_cm_event", || {
        let found = find_shared::<CmId>(id)?;
        if !found.lock().is_sync {
            return Ok(ASYNCHRONOUS);
        }
        ack_kept(&found);
        Ok(0)
    })
}

/// The result that an event gives to the call that waited for it.
fn verdict(event: &rdma_cm_event) -> Outcome<()> {
    match event.status {
        0 => Ok(()),
        _ if event.event == RDMA_CM_EVENT_REJECTED => fail(libc::ECONNREFUSED),
        status => fail(status.abs()),
    }
}

/// rdma_get_request(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_get_request")]
pub unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let ready = prepare_request(listen, id);
    if ready != 0 {
        return ready;
    }
    // SAFETY: found just now.
    let taken = unsafe { rdma_get_cm_event((*listen).channel, &raw mut (*listen).event) };
    if taken != 0 { taken } else { take_request(listen, id) }
}

fn prepare_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    minus_one("rdma_get_request", || {
        let found = find_shared::<CmId>(listen)?;
        if id.is_null() || !found.lock().is_sync {
            return fail(libc::EINVAL);
        }
        ack_kept(&found);
        Ok(0)
    })
}

fn take_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    minus_one("rdma_get_request", || {
        let found = find_shared::<CmId>(listen)?;
        // SAFETY: put there just now.
        let event = unsafe { &*(*listen).event };
        verdict(event)?;
        if event.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            return fail(libc::EINVAL);
        }
        let (child, wanted) = (event.id, found.lock().qp_attr);
        if let Some(QpAttr(mut attr)) = wanted {
            // SAFETY: both identifiers are ours; the attributes are a copy.
            let made = unsafe { rdma_create_qp(child, (*listen).pd, &raw mut attr) };
            if made != 0 {
                let error = std::io::Error::last_os_error();
                // SAFETY: made for this request, and no other code has it.
                unsafe {
                    rdma_reject(child, std::ptr::null(), 0);
                    rdma_destroy_id(child);
                }
                return Err(error.into());
            }
        }
        // SAFETY: the event moves to the new identifier, whose program acknowledges it.
        unsafe {
            (*child).event = std::mem::replace(&mut (*listen).event, null_mut());
            *id = child;
        }
        Ok(0)
    })
}

/// rdma_create_ep(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_ep")]
pub unsafe extern "C-unwind" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let mut made = null_mut();
    let begun = begin(id, res, &mut made);
    if begun != 0 {
        return begun;
    }
    // SAFETY: checked just now.
    let passive = unsafe { (*res).ai_flags } & RAI_PASSIVE.cast_signed() != 0;
    let done = if passive {
        passive_ep(made, res, pd, qp_init_attr)
    } else {
        active_ep(made, res, pd, qp_init_attr)
    };
    // SAFETY: made here; `begin` has checked where it goes.
    unsafe {
        if done == 0 {
            *id = made;
        } else {
            rdma_destroy_ep(made);
        }
    }
    done
}

fn begin(id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, made: &mut *mut rdma_cm_id) -> c_int {
    minus_one("rdma_create_ep", || {
        // SAFETY: the program's own structure.
        let Some(res) = (unsafe { res.as_ref() }) else { return fail(libc::EINVAL) };
        if id.is_null() {
            return fail(libc::EINVAL);
        }
        let is_tcp = u32::try_from(res.ai_port_space) == Ok(RDMA_PS_TCP);
        if !is_tcp || u32::try_from(res.ai_qp_type) != Ok(IBV_QPT_RC) {
            return fail(libc::EOPNOTSUPP);
        }
        *made = CmId::create(null_mut(), null_mut(), RDMA_PS_TCP, IBV_QPT_RC)?.pointer();
        Ok(0)
    })
}

fn passive_ep(
    id: *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the identifier is new; the addresses are the program's.
    let bound = unsafe { rdma_bind_addr(id, (*res).ai_src_addr) };
    if bound != 0 {
        return bound;
    }
    minus_one("rdma_create_ep", || {
        let found = find_shared::<CmId>(id)?;
        if !pd.is_null() {
            // SAFETY: as above.
            unsafe { (*id).pd = pd };
        }
        // SAFETY: the program's own structure.
        let wanted = unsafe { qp_init_attr.as_ref() };
        let wanted = wanted.map(|attr| QpAttr(ibv_qp_init_attr { qp_type: IBV_QPT_RC, ..*attr }));
        found.lock().qp_attr = wanted;
        Ok(0)
    })
}

extern "C-unwind" fn active_ep(
    id: *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the identifier is new; the addresses and the attributes are the program's.
    unsafe {
        let (source, peer) = ((*res).ai_src_addr, (*res).ai_dst_addr);
        let mut done = rdma_resolve_addr(id, source, peer, RESOLVE_LIMIT);
        if done == 0 {
            done = rdma_resolve_route(id, RESOLVE_LIMIT);
        }
        if done == 0 && !qp_init_attr.is_null() {
            (*qp_init_attr).qp_type = IBV_QPT_RC;
            done = rdma_create_qp(id, pd, qp_init_attr);
        }
        if done == 0 { keep_connect_data(id, res) } else { done }
    }
}

fn keep_connect_data(id: *mut rdma_cm_id, res: *mut rdma_addrinfo) -> c_int {
    minus_one("rdma_create_ep", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own structure and the bytes it points to.
        let data = unsafe { address::bytes((*res).ai_connect.cast(), (*res).ai_connect_len) };
        found.lock().connect_data = data;
        Ok(0)
    })
}

/// rdma_destroy_ep(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_destroy_ep")]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    if find_shared::<CmId>(id).is_err() {
        return;
    }
    // SAFETY: found just now; each call refuses what is not ours.
    unsafe {
        if !(*id).qp.is_null() {
            rdma_destroy_qp(id);
        }
        if !(*id).srq.is_null() {
            rdma_destroy_srq(id);
        }
        rdma_destroy_id(id);
    }
}
