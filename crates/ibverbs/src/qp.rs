//! Queue pairs: made, queried, destroyed (ibv_create_qp(3), ibv_query_qp(3)); [`modify`] has their
//! states.

pub mod modify;

use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QPS_RESET,
    IBV_QPT_RC, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_state,
    ibv_recv_wr, ibv_send_wr, verbs_context,
};
use crate::absent::{Absent, refuse};
use crate::adapter::Adapter;
use crate::channel::Unacknowledged;
use crate::config::{Personality, config};
use crate::cq::{Cq, lock};
use crate::guard::{Errno, Outcome, code, fail, pointer};
use crate::holders::{Holder, Noted};
use crate::object::{Kind, Object, Shown, Trusted, find, give, take, trust};
use crate::pd::Pd;
use crate::post::{recv_list, send_list};
use crate::query::active_mtu;
use crate::queues::{QueueLimits, Queues};
use crate::roce;
use crate::srq::Srq;
use crate::wr::Builder;
use libc::c_int;
use outboard_verbs::{Qp as Native, QpConfig, SharedRegion, VerbsError};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Requests that a queue can hold.
pub(crate) const MAX_WR: u32 = 1 << 15;
/// Pieces of local memory in a request.
pub(crate) const MAX_SGE: u32 = 32;
/// Bytes of inline data.
pub(crate) const MAX_INLINE: u32 = 4096;
/// Bytes of inline data that every queue pair takes, as hardware's do; programs rely on it.
const MIN_INLINE: u32 = 64;

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    shown: Shown<ibv_qp_ex>,
    tag: Kind,
    generation: u32,
    pub(crate) native: Arc<Native>,
    pub(crate) queues: Arc<Queues>,
    /// Everything of it that names memory.
    pub(crate) requests: Arc<QpRequests>,
    /// Asynchronous events.
    pub(crate) async_events: Unacknowledged,
    parts: Parts,
    /// The attributes that ibv_modify_qp(3) set.
    attributes: Mutex<ibv_qp_attr>,
    /// The attributes that it was made with.
    made: Shown<ibv_qp_init_attr>,
}

/// The requests of a queue pair, built and queued.
#[derive(Debug)]
pub(crate) struct QpRequests {
    pub(crate) queues: Arc<Queues>,
    /// Requests that are built call by call.
    pub(crate) builder: Builder,
    noted: Noted,
}

impl QpRequests {
    pub(crate) fn new(queues: Arc<Queues>) -> Self {
        Self { queues, builder: Builder::default(), noted: Noted::default() }
    }

    /// Ends its connection: no memory of the program's is touched after that.
    pub(crate) fn close(&self) {
        self.queues.end();
        self.queues.let_go();
    }
}

impl Holder for QpRequests {
    fn revoke(&self, region: &SharedRegion) {
        // First those that are being built: they are queued later, never the other way round.
        self.builder.revoke(region);
        self.queues.revoke(region);
    }

    fn noted(&self) -> &Noted {
        &self.noted
    }
}

/// The objects that a queue pair works with; all of them outlive the queue pair, because they count
/// their users.
#[derive(Clone, Copy, Debug)]
struct Parts {
    pd: &'static Pd,
    send_cq: &'static Cq,
    recv_cq: &'static Cq,
    srq: Option<&'static Srq>,
}

// SAFETY: `ibv_qp` is the first field of `ibv_qp_ex`, and that of the object.
unsafe impl Object for Qp {
    type C = ibv_qp;
    const KIND: Kind = Kind::Qp;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl Trusted for Qp {
    fn generation(&self) -> u32 {
        self.generation
    }
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qp").field("native", &self.native.number()).finish_non_exhaustive()
    }
}

impl Parts {
    fn find(pd: *mut ibv_pd, attr: &ibv_qp_init_attr) -> Outcome<Self> {
        let srq = if attr.srq.is_null() { None } else { Some(find(attr.srq)?) };
        Ok(Self { pd: find(pd)?, send_cq: find(attr.send_cq)?, recv_cq: find(attr.recv_cq)?, srq })
    }

    fn native(&self, attr: &ibv_qp_init_attr) -> Outcome<Native> {
        let mut wanted = QpConfig::new(&self.send_cq.native);
        wanted.recv_cq = self.recv_cq.native.clone();
        wanted.srq = self.srq.map(|srq| srq.native.clone());
        wanted.send_depth = attr.cap.max_send_wr as usize;
        wanted.recv_depth = attr.cap.max_recv_wr as usize;
        wanted.max_sge = attr.cap.max_send_sge.max(attr.cap.max_recv_sge) as usize;
        wanted.signal_all = attr.sq_sig_all != 0 && !is_roce();
        if is_roce() {
            // Each send may be followed by a Read that the ledger adds.
            wanted.send_depth = wanted.send_depth * 2 + 1;
        }
        self.pd.native.create_qp(wanted).map_err(|error| match error {
            VerbsError::OtherContext { .. } => Errno(libc::EINVAL),
            _ => Errno(libc::ENOMEM),
        })
    }

    /// These can be destroyed only after the queue pair.
    fn hold(&self) {
        self.pd.users.fetch_add(1, Ordering::SeqCst);
        self.send_cq.users.fetch_add(1, Ordering::SeqCst);
        self.recv_cq.users.fetch_add(1, Ordering::SeqCst);
        if let Some(srq) = self.srq {
            srq.users.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn release(&self) {
        self.pd.users.fetch_sub(1, Ordering::SeqCst);
        self.send_cq.users.fetch_sub(1, Ordering::SeqCst);
        self.recv_cq.users.fetch_sub(1, Ordering::SeqCst);
        if let Some(srq) = self.srq {
            srq.users.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The granted capabilities, which are at least the requested ones.
fn capabilities(asked: &ibv_qp_cap, shared: bool) -> Outcome<ibv_qp_cap> {
    let too_much = asked.max_send_wr > MAX_WR
        || asked.max_recv_wr > MAX_WR
        || asked.max_send_sge > MAX_SGE
        || asked.max_recv_sge > MAX_SGE
        || asked.max_inline_data > MAX_INLINE;
    if too_much {
        return fail(libc::EINVAL);
    }
    Ok(ibv_qp_cap {
        max_send_wr: asked.max_send_wr.max(1),
        max_recv_wr: if shared { 1 } else { asked.max_recv_wr.max(1) },
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: asked.max_recv_sge.max(1),
        max_inline_data: asked.max_inline_data.max(MIN_INLINE),
    })
}

/// Makes a queue pair, which is in the state RESET.
pub(crate) fn create(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> Outcome<*mut ibv_qp> {
    // SAFETY: the program's own structure.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return fail(libc::EINVAL) };
    create_with(pd, attr, |_| ())
}

/// Makes a queue pair; `more` fills in the fields of extended ones.
pub(crate) fn create_with(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    more: impl FnOnce(&mut ibv_qp_ex),
) -> Outcome<*mut ibv_qp> {
    let parts = Parts::find(pd, attr)?;
    let adapter = &parts.pd.adapter;
    if attr.qp_type != IBV_QPT_RC {
        return refuse(Absent::of_type(attr.qp_type));
    }
    let cap = capabilities(&attr.cap, parts.srq.is_some())?;
    let native = Arc::new(parts.native(&ibv_qp_init_attr { cap, ..*attr })?);
    let number = number(adapter, &native)?;
    attr.cap = cap;
    let shown = Shown::<ibv_qp_ex>::zeroed();
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    fill(&mut c.qp_base, pd, attr, parts.pd.context());
    (c.qp_base.handle, c.qp_base.qp_num) = (native.number(), number);
    more(c);
    let made = assemble(shown, native, parts, attr);
    let (queues, requests) = (Arc::clone(&made.queues), Arc::clone(&made.requests));
    let native = queues.native.number();
    // Before the program can post to it: objects that the adapter does not know do not end with the
    // device.
    adapter.keep(|live| live.qps.insert(native, Arc::clone(&requests)))?;
    if let Some(srq) = parts.srq {
        srq.requests.attach(native, &requests);
    }
    let given = give(Box::new(made));
    parts.hold();
    if native != number {
        parts.send_cq.rename(&queues, number);
        parts.recv_cq.rename(&queues, number);
    }
    lock(&adapter.qps).insert(native, given.expose_provenance());
    Ok(given)
}

/// The number to show: RoCE's are such that peers find the queue pair by them.
fn number(adapter: &Adapter, native: &Native) -> Outcome<u32> {
    if is_roce() { roce::number(adapter) } else { Ok(native.number()) }
}

fn fill(
    c: &mut ibv_qp,
    pd: *mut ibv_pd,
    attr: &ibv_qp_init_attr,
    context: *mut crate::abi::ibv_context,
) {
    (c.context, c.qp_context, c.pd) = (context, attr.qp_context, pd);
    (c.send_cq, c.recv_cq, c.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
    (c.state, c.qp_type) = (IBV_QPS_RESET, attr.qp_type);
}

fn assemble(
    shown: Shown<ibv_qp_ex>,
    native: Arc<Native>,
    parts: Parts,
    attr: &ibv_qp_init_attr,
) -> Qp {
    let limits = QueueLimits {
        send_wr: attr.cap.max_send_wr as usize,
        recv_wr: attr.cap.max_recv_wr as usize,
        send_sge: attr.cap.max_send_sge as usize,
        recv_sge: attr.cap.max_recv_sge as usize,
        inline: attr.cap.max_inline_data as usize,
    };
    let (send_cq, recv_cq) = (parts.send_cq.native.clone(), parts.recv_cq.native.clone());
    let own = Arc::clone(&native);
    let queues = if is_roce() {
        // SAFETY: no other code has the structure yet.
        let number = unsafe { (*shown.get()).qp_base.qp_num };
        Queues::roce(own, send_cq, recv_cq, limits, attr.sq_sig_all != 0).shown_as(number)
    } else {
        Queues::iwarp(own, send_cq, recv_cq, limits)
    };
    // SAFETY: all zero bits are a value of the structure.
    let attributes = Mutex::new(unsafe { std::mem::zeroed() });
    let made = Shown(std::cell::UnsafeCell::new(*attr));
    let queues = Arc::new(queues);
    let requests = Arc::new(QpRequests::new(Arc::clone(&queues)));
    Qp {
        shown,
        tag: Kind::Qp,
        generation: crate::fork::generation(),
        native,
        queues,
        requests,
        async_events: Unacknowledged::default(),
        parts,
        attributes,
        made,
    }
}

/// The personality of this process.
pub(crate) fn is_roce() -> bool {
    config().personality == Personality::Roce
}

impl Qp {
    /// The state that the program or the connection manager made, or ERR once the connection is
    /// over.
    pub(crate) fn state(&self) -> ibv_qp_state {
        self.queues.state()
    }

    /// Notes a state.
    pub(crate) fn set_state(&self, state: ibv_qp_state) {
        self.note_connection(&mut lock(&self.attributes));
        self.queues.set_state(state);
        self.show_state(state);
    }

    /// Sets what the connection manager agreed on as attributes, which a program on RoCE sets by
    /// itself.
    fn note_connection(&self, attributes: &mut ibv_qp_attr) {
        let Some((ird, ord)) = self.native.read_depths() else { return };
        if attributes.path_mtu != 0 {
            return;
        }
        let depth = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        attributes.path_mtu = active_mtu(self.adapter().device);
        attributes.port_num = 1;
        attributes.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        (attributes.max_dest_rd_atomic, attributes.max_rd_atomic) = (depth(ird), depth(ord));
    }

    /// Notes the timeout that queries return.
    pub(crate) fn note_timeout(&self, exponent: u8) {
        lock(&self.attributes).timeout = exponent;
    }

    /// Changes the field `state` where rdma-core does: when the program modifies or queries the
    /// queue pair, and with the connection manager's events. So after a peer has left it is RTS
    /// until the program takes the event or asks (ibv_query_qp(3)), as on hardware.
    fn show_state(&self, state: ibv_qp_state) {
        // SAFETY: live as long as the queue pair; programs only read the field.
        unsafe { (&raw mut (*self.shown.get()).qp_base.state).write(state) };
    }

    /// The number that the program knows.
    pub(crate) fn shown_number(&self) -> u32 {
        // SAFETY: live as long as the queue pair; set once.
        unsafe { (*self.shown.get()).qp_base.qp_num }
    }

    /// The structure that programs see.
    pub(crate) fn shown(&self) -> *mut ibv_qp_ex {
        self.shown.get()
    }

    pub(crate) fn pd(&self) -> &Pd {
        self.parts.pd
    }

    /// Drops completions that have not been polled.
    fn forget_completions(&self) {
        let (native, shown) = (self.native.number(), self.shown_number());
        self.parts.send_cq.purge(native, shown);
        self.parts.recv_cq.purge(native, shown);
    }

    /// The device it belongs to.
    fn adapter(&self) -> &Adapter {
        &self.parts.pd.adapter
    }

    /// Ends its connection, or attempt to connect, by number.
    fn forget_peer(&self) {
        roce::disconnect(self.adapter(), self.shown_number());
    }

    /// From here on it accesses no memory of the program's, and gets no more events.
    fn leave(&self) {
        roce::release(self.adapter(), self.shown_number());
        self.queues.let_go();
        lock(&self.adapter().qps).remove(&self.native.number());
    }

    fn destroy(self: Box<Self>) {
        let (native, shown) = (self.native.number(), self.shown_number());
        // After the device was closed, nothing is kept.
        let _kept = self.adapter().keep(|live| live.qps.remove(&native));
        if let Some(srq) = self.parts.srq {
            srq.requests.detach(native);
        }
        self.parts.send_cq.forget(native, shown);
        self.parts.recv_cq.forget(native, shown);
        self.parts.release();
    }
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.context.ops.post_send = Some(post_send);
    c.context.ops.post_recv = Some(post_recv);
    crate::wr::set_operations(c);
}

/// ibv_create_qp(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    pointer("ibv_create_qp", || create(pd, qp_init_attr))
}

/// ibv_destroy_qp(3). Returns when all events are acknowledged.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    code("ibv_destroy_qp", || {
        let found: &Qp = find(qp)?;
        found.leave();
        found.async_events.wait();
        take::<Qp>(qp)?.destroy();
        Ok(())
    })
}

/// ibv_query_qp(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    code("ibv_query_qp", || {
        let found: &Qp = find(qp)?;
        if attr.is_null() || init_attr.is_null() {
            return fail(libc::EINVAL);
        }
        let state = found.state();
        // SAFETY: set once, before anybody else knew it.
        let made = unsafe { *found.made.get() };
        let mut attributes = lock(&found.attributes);
        found.note_connection(&mut attributes);
        let known =
            ibv_qp_attr { qp_state: state, cur_qp_state: state, cap: made.cap, ..*attributes };
        drop(attributes);
        found.show_state(state);
        // SAFETY: the program gave room for both.
        unsafe { (attr.write(known), init_attr.write(made)) };
        Ok(())
    })
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut at = wr;
    let result = code("ibv_post_send", || {
        let qp: &Qp = trust(qp)?;
        send_list(&qp.requests, qp.parts.pd, &mut at)
    });
    if result != 0 && !bad_wr.is_null() {
        // SAFETY: the program gave room for it.
        unsafe { *bad_wr = at };
    }
    result
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = wr;
    let result = code("ibv_post_recv", || {
        let qp: &Qp = trust(qp)?;
        let max_sge = qp.queues.limits.recv_sge;
        let post = |request| qp.queues.receive(request);
        recv_list(&qp.requests, qp.parts.pd, max_sge, &mut at, post)
    });
    if result != 0 && !bad_wr.is_null() {
        // SAFETY: the program gave room for it.
        unsafe { *bad_wr = at };
    }
    result
}
