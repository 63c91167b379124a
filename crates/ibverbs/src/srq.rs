//! Shared receive queues (ibv_create_srq(3), ibv_modify_srq(3)).

use crate::abi::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC,
    ibv_context, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, verbs_context,
};
use crate::channel::Unacknowledged;
use crate::context::Context;
use crate::cq::lock;
use crate::guard::{Outcome, code, fail, pointer};
use crate::holders::{Holder, Noted};
use crate::object::{Kind, Object, Shown, Trusted, find, give, take, trust};
use crate::pd::Pd;
use crate::post::{receive_shared, recv_list};
use crate::qp::{MAX_SGE, MAX_WR, QpRequests};
use libc::{c_int, c_void};
use outboard_verbs::{SharedRegion, Srq as Native};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A shared receive queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Srq {
    shown: Shown<ibv_srq>,
    tag: Kind,
    generation: u32,
    pub(crate) native: Native,
    /// Everything of it that names memory.
    pub(crate) requests: Arc<SrqRequests>,
    /// Asynchronous events.
    pub(crate) async_events: Unacknowledged,
    /// Queue pairs that must be destroyed first.
    pub(crate) users: AtomicU32,
    pd: &'static Pd,
    max_wr: u32,
    max_sge: u32,
    /// The limit that ibv_modify_srq(3) set; 0 once the event has come.
    pub(crate) limit: AtomicU32,
}

// SAFETY: the structure is the first field.
unsafe impl Object for Srq {
    type C = ibv_srq;
    const KIND: Kind = Kind::Srq;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl Trusted for Srq {
    fn generation(&self) -> u32 {
        self.generation
    }
}

/// The receives of a shared queue, in it and in queue pairs that took them.
#[derive(Debug)]
pub(crate) struct SrqRequests {
    native: Native,
    /// Queue pairs that take receives from here, by native number.
    takers: Mutex<HashMap<u32, Weak<QpRequests>>>,
    noted: Noted,
}

impl SrqRequests {
    fn new(native: Native) -> Self {
        Self { native, takers: Mutex::default(), noted: Noted::default() }
    }

    pub(crate) fn attach(&self, qp: u32, requests: &Arc<QpRequests>) {
        lock(&self.takers).insert(qp, Arc::downgrade(requests));
    }

    pub(crate) fn detach(&self, qp: u32) {
        lock(&self.takers).remove(&qp);
    }
}

impl Holder for SrqRequests {
    fn revoke(&self, region: &SharedRegion) {
        // First this queue: queue pairs take receives from it, never the other way round.
        self.native.revoke(region);
        let takers: Vec<_> = lock(&self.takers).values().filter_map(Weak::upgrade).collect();
        for taker in takers {
            if region.is_sole() {
                return;
            }
            taker.queues.revoke(region);
        }
    }

    fn noted(&self) -> &Noted {
        &self.noted
    }
}

/// Makes a queue and writes its capabilities to `attr`. The limit is not armed.
fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Outcome<*mut ibv_srq> {
    // The domain outlives the queue, because it counts its users.
    let domain: &'static Pd = find(pd)?;
    if attr.max_wr == 0 || attr.max_wr > MAX_WR || attr.max_sge > MAX_SGE {
        return fail(libc::EINVAL);
    }
    domain.adapter.keep(|_| ())?;
    let (max_wr, max_sge) = (attr.max_wr, attr.max_sge.max(1));
    attr.max_sge = max_sge;
    let native = domain.native.create_srq(max_wr as usize, max_sge as usize);
    let number = native.number();
    let shown = Shown::<ibv_srq>::zeroed();
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    (c.context, c.srq_context, c.pd, c.handle) = (domain.context(), srq_context, pd, number);
    let requests = Arc::new(SrqRequests::new(native.clone()));
    domain.users.fetch_add(1, Ordering::SeqCst);
    let given = give(Box::new(Srq {
        shown,
        tag: Kind::Srq,
        generation: crate::fork::generation(),
        native,
        requests,
        async_events: Unacknowledged::default(),
        users: AtomicU32::new(0),
        pd: domain,
        max_wr,
        max_sge,
        limit: AtomicU32::new(0),
    }));
    lock(&domain.adapter.srqs).insert(number, given.expose_provenance());
    Ok(given)
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.context.ops.post_srq_recv = Some(post_srq_recv);
    c.create_srq_ex = Some(create_srq_ex);
    c.get_srq_num = Some(get_srq_num);
}

/// ibv_create_srq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer("ibv_create_srq", || {
        // SAFETY: the program's own structure.
        match unsafe { srq_init_attr.as_mut() } {
            Some(wanted) => create(pd, wanted.srq_context, &mut wanted.attr),
            None => fail(libc::EINVAL),
        }
    })
}

/// ibv_create_srq_ex(3). XRC and tag matching are not supported.
unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    wanted: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer("ibv_create_srq_ex", || {
        find::<Context>(context)?;
        // SAFETY: the program's own structure.
        let Some(wanted) = (unsafe { wanted.as_mut() }) else { return fail(libc::EINVAL) };
        let mask = wanted.comp_mask;
        let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || wanted.srq_type == IBV_SRQT_BASIC;
        if !basic || mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 || find::<Pd>(wanted.pd)?.context() != context {
            return fail(libc::EINVAL);
        }
        create(wanted.pd, wanted.srq_context, &mut wanted.attr)
    })
}

unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    code("ibv_get_srq_num", || {
        let found: &Srq = find(srq)?;
        if number.is_null() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the program gave room for it.
        unsafe { *number = found.native.number() };
        Ok(())
    })
}

/// ibv_modify_srq(3): arms the limit; queues do not grow.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    code("ibv_modify_srq", || {
        let found: &Srq = find(srq)?;
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { srq_attr.as_ref() }) else { return fail(libc::EINVAL) };
        let mask = srq_attr_mask.cast_unsigned();
        if mask & !(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR) != 0 {
            return fail(libc::EINVAL);
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            if attr.srq_limit > found.max_wr {
                return fail(libc::EINVAL);
            }
            found.limit.store(attr.srq_limit, Ordering::SeqCst);
            found.native.arm_limit(attr.srq_limit as usize);
        }
        Ok(())
    })
}

/// ibv_query_srq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
    code("ibv_query_srq", || {
        let found: &Srq = find(srq)?;
        if srq_attr.is_null() {
            return fail(libc::EINVAL);
        }
        let srq_limit = found.limit.load(Ordering::SeqCst);
        let (max_wr, max_sge) = (found.max_wr, found.max_sge);
        // SAFETY: the program gave room for it.
        unsafe { srq_attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit }) };
        Ok(())
    })
}

/// ibv_destroy_srq(3). Returns when all events are acknowledged.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    code("ibv_destroy_srq", || {
        let found: &Srq = find(srq)?;
        if found.users.load(Ordering::SeqCst) > 0 {
            return fail(libc::EBUSY);
        }
        // No event can be delivered from here on.
        lock(&found.pd.adapter.srqs).remove(&found.native.number());
        found.async_events.wait();
        let gone = take::<Srq>(srq)?;
        gone.pd.users.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    })
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = wr;
    let result = code("ibv_post_srq_recv", || {
        let srq: &Srq = trust(srq)?;
        let post = |request| receive_shared(&srq.native, request);
        recv_list(&srq.requests, srq.pd, srq.max_sge as usize, &mut at, post)
    });
    if result != 0 && !bad_wr.is_null() {
        // SAFETY: the program gave room for it.
        unsafe { *bad_wr = at };
    }
    result
}
