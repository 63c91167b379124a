//! Completion queues (ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3)).

use crate::abi::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_OP_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
    IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc,
    ibv_wc__bindgen_ty_1, ibv_wc_opcode, ibv_wc_status, verbs_context,
};
use crate::adapter::Adapter;
use crate::channel::{CompChannel, Unacknowledged};
use crate::context::Context;
use crate::cq_ex::Cursor;
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer};
use crate::object::{Kind, Object, Shown, Trusted, find, give, take, trust};
use crate::queues::{Queues, SeenCompletion};
use libc::{c_int, c_void};
use outboard_verbs::{Completion, Cq as Native, CqOverflow, NotifyOn, Operation, Status};
use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Completions that a queue can hold.
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;

/// A completion queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cq {
    shown: Shown<ibv_cq_ex>,
    tag: Kind,
    generation: u32,
    adapter: Arc<Adapter>,
    pub(crate) native: Native,
    /// The channel for its events; it outlives the queue, because it counts its users.
    channel: Option<&'static CompChannel>,
    /// Completion events.
    pub(crate) events: Unacknowledged,
    /// Asynchronous events.
    pub(crate) async_events: Unacknowledged,
    /// Queue pairs that must be destroyed first.
    pub(crate) users: AtomicU32,
    polled: Mutex<Polled>,
    /// State for programs that poll entry by entry.
    pub(crate) cursor: Cursor,
}

/// The state between polls.
#[derive(Default)]
struct Polled {
    /// Completions on their way to the program; empty between calls.
    taken: Vec<Completion>,
    /// On RoCE, completions as the program will see them, until it polls them.
    seen: VecDeque<ibv_wc>,
    /// RoCE's queue pairs by native number, and the numbers that programs know.
    known: HashMap<u32, (u32, Arc<Queues>)>,
}

// SAFETY: `ibv_cq_ex` begins with the fields of `ibv_cq`, and is the first field.
unsafe impl Object for Cq {
    type C = ibv_cq;
    const KIND: Kind = Kind::Cq;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl Trusted for Cq {
    fn generation(&self) -> u32 {
        self.generation
    }
}

/// The parameters of a new completion queue.
#[derive(Debug)]
pub(crate) struct CqRequest {
    pub(crate) context: *mut ibv_context,
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
}

impl Cq {
    /// Makes a queue; `more` fills in what only extended queues have.
    pub(crate) fn create(
        wanted: &CqRequest,
        more: impl FnOnce(&mut ibv_cq_ex),
    ) -> Outcome<*mut ibv_cq> {
        let context: &Context = find(wanted.context)?;
        // SAFETY: the context is live; the number is set once.
        let vectors = unsafe { (*wanted.context).num_comp_vectors };
        if wanted.vector >= vectors.unsigned_abs() {
            return fail(libc::EINVAL);
        }
        let capacity = capacity(wanted.cqe)?;
        let channel: Option<&'static CompChannel> =
            if wanted.channel.is_null() { None } else { Some(find(wanted.channel)?) };
        let native = native(context, channel, capacity)?;
        let number = native.number();
        let shown = Shown::<ibv_cq_ex>::zeroed();
        // SAFETY: no other code has the structure yet.
        let c = unsafe { &mut *shown.get() };
        (c.context, c.channel, c.cq_context) = (wanted.context, wanted.channel, wanted.cq_context);
        (c.handle, c.cqe) = (number, capacity.cast_signed());
        more(c);
        let given = give(Box::new(Self {
            shown,
            tag: Kind::Cq,
            generation: crate::fork::generation(),
            adapter: context.adapter(),
            native,
            channel,
            events: Unacknowledged::default(),
            async_events: Unacknowledged::default(),
            users: AtomicU32::new(0),
            polled: Mutex::default(),
            cursor: Cursor::default(),
        }));
        if let Some(channel) = channel {
            channel.attach(number, find(given)?);
        }
        lock(&context.cqs).insert(number, given.expose_provenance());
        Ok(given)
    }

    /// The structure that programs see.
    pub(crate) fn shown(&self) -> *mut ibv_cq_ex {
        self.shown.get()
    }

    /// Arms the queue. Completions that came before and were not polled also raise an event:
    /// programs, perftest among them, sleep with completions left behind.
    fn request_notify(&self, arm: NotifyOn) {
        self.native.request_notify(arm);
        if let Some(channel) = self.channel {
            channel.ask(self.native.number(), self);
        }
    }

    /// Raises the event if the queue is armed and a completion is there.
    pub(crate) fn recall(&self) {
        let kept = !lock(&self.polled).seen.is_empty();
        self.native.recall(kept);
    }

    pub(crate) fn cq_context(&self) -> *mut c_void {
        // SAFETY: live as long as the queue; the field is the program's own.
        unsafe { (*self.shown.get()).cq_context }
    }

    /// The program has acknowledged completion events.
    pub(crate) fn acknowledge(&self, events: u32) {
        // SAFETY: an aligned field, live as long as the queue, which only this function writes.
        let count =
            unsafe { AtomicU32::from_ptr(&raw mut (*self.shown.get()).comp_events_completed) };
        count.fetch_add(events, Ordering::Relaxed);
        self.events.acknowledge(events.into());
    }

    /// Completions of this queue pair are to show another number than its native one.
    pub(crate) fn rename(&self, queues: &Arc<Queues>, shown: u32) {
        let known = (shown, Arc::clone(queues));
        lock(&self.polled).known.insert(queues.native.number(), known);
    }

    /// Drops the completions of a queue pair that have not been polled.
    pub(crate) fn purge(&self, native: u32, shown: u32) {
        self.native.purge(native);
        lock(&self.polled).seen.retain(|wc| wc.qp_num != shown);
    }

    /// Forgets a queue pair and its completions.
    pub(crate) fn forget(&self, native: u32, shown: u32) {
        self.purge(native, shown);
        lock(&self.polled).known.remove(&native);
    }

    /// Takes up to `room` completions. Threads that poll the same queue wait for each other's
    /// translation, never for the engine's work in the other's poll.
    fn poll(&self, room: usize, mut give: impl FnMut(ibv_wc)) -> Outcome<()> {
        let taken = self.native.poll_by(|| lock(&self.polled).take(&self.native, room, &mut give));
        taken.map(drop).map_err(|_| Errno(libc::EOVERFLOW))
    }

    #[cfg(test)]
    pub(crate) fn is_being_polled(&self) -> bool {
        self.polled.try_lock().is_err()
    }

    /// Takes one completion.
    pub(crate) fn take_one(&self) -> Outcome<Option<ibv_wc>> {
        let mut found = None;
        self.poll(1, |wc| found = Some(wc))?;
        Ok(found)
    }
}

impl Polled {
    /// Takes up to `room` completions that are there, and returns how many.
    fn take(
        &mut self,
        native: &Native,
        room: usize,
        give: &mut impl FnMut(ibv_wc),
    ) -> Result<usize, CqOverflow> {
        let Self { taken, seen, known } = self;
        if known.is_empty() && seen.is_empty() {
            let count = native.take(taken, room)?;
            taken.drain(..).for_each(|completion| give(counted(translate(&completion))));
            return Ok(count);
        }
        while seen.is_empty() && native.take(taken, room)? > 0 {
            for completion in taken.drain(..) {
                match known.get(&completion.qp) {
                    Some((number, queues)) => look(&completion, *number, queues, seen),
                    None => seen.push_back(counted(translate(&completion))),
                }
            }
        }
        let count = seen.len().min(room);
        seen.drain(..count).for_each(give);
        Ok(count)
    }
}

impl std::fmt::Debug for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polled").field("seen", &self.seen.len()).finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As on hardware, queues are a little larger than requested.
fn capacity(cqe: u32) -> Outcome<u32> {
    if cqe == 0 || cqe > MAX_CQE {
        return fail(libc::EINVAL);
    }
    Ok((cqe + 1).next_power_of_two() - 1)
}

fn native(adapter: &Adapter, channel: Option<&CompChannel>, capacity: u32) -> Outcome<Native> {
    let capacity = capacity as usize;
    let Some(channel) = channel else { return Ok(adapter.native.create_cq(capacity)) };
    let made = adapter.native.create_cq_on(capacity, &channel.native);
    made.map_err(|_| Errno(libc::EINVAL))
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.context.ops.poll_cq = Some(poll_cq);
    c.context.ops.req_notify_cq = Some(req_notify_cq);
    crate::cq_ex::set_operations(c);
}

/// ibv_create_cq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer("ibv_create_cq", || {
        let (Ok(cqe), Ok(vector)) = (cqe.try_into(), comp_vector.try_into()) else {
            return fail(libc::EINVAL);
        };
        Cq::create(&CqRequest { context, cqe, cq_context, channel, vector }, |_| ())
    })
}

/// ibv_resize_cq(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    code("ibv_resize_cq", || {
        let found: &Cq = find(cq)?;
        let capacity = capacity(cqe.try_into().map_err(|_| Errno(libc::EINVAL))?)?;
        found.native.resize(capacity as usize).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: live as long as the queue; programs only read the field.
        unsafe { (*found.shown.get()).cqe = capacity.cast_signed() };
        Ok(())
    })
}

/// ibv_destroy_cq(3). Returns when all events are acknowledged.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    code("ibv_destroy_cq", || {
        let found: &Cq = find(cq)?;
        if found.users.load(Ordering::SeqCst) > 0 {
            return fail(libc::EBUSY);
        }
        // No event can be delivered from here on.
        lock(&found.adapter.cqs).remove(&found.native.number());
        if let Some(channel) = found.channel {
            channel.detach(found.native.number());
        }
        found.events.wait();
        found.async_events.wait();
        let gone = take::<Cq>(cq)?;
        if let Some(channel) = gone.channel {
            channel.users.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    })
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    minus_one("ibv_poll_cq", || {
        let found: &Cq = trust(cq)?;
        let Ok(room) = usize::try_from(num_entries) else { return fail(libc::EINVAL) };
        if wc.is_null() && room > 0 {
            return fail(libc::EINVAL);
        }
        let mut count = 0;
        found.poll(room, |seen| {
            // SAFETY: the program gave room for `num_entries`, and no more are taken.
            unsafe { wc.add(count).write(seen) };
            count += 1;
        })?;
        if count > 0 {
            found.native.rest_if_idle();
        }
        // At most `num_entries`.
        Ok(c_int::try_from(count).unwrap_or(num_entries))
    })
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    code("ibv_req_notify_cq", || {
        let arm = if solicited_only == 0 { NotifyOn::Any } else { NotifyOn::SolicitedOnly };
        let found: &Cq = trust(cq)?;
        found.request_notify(arm);
        // A program that arms a queue is about to sleep until the event, perhaps in its own
        // poll(2).
        found.native.rest();
        Ok(())
    })
}

/// A completion as a program on RoCE sees it.
fn look(completion: &Completion, number: u32, queues: &Queues, seen: &mut VecDeque<ibv_wc>) {
    queues.look(completion, |SeenCompletion { wr_id, status, operation, bytes }| {
        let opcode = opcode(operation);
        let wc = translate(completion);
        let wc = ibv_wc { wr_id, status, opcode, byte_len: bytes, qp_num: number, ..wc };
        seen.push_back(counted(wc));
    });
}

/// The completion that the program is about to get.
fn counted(wc: ibv_wc) -> ibv_wc {
    crate::stats::completed(&wc);
    wc
}

/// A completion as programs see it.
fn translate(completion: &Completion) -> ibv_wc {
    let (extra, wc_flags) = extra(completion);
    ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion.status),
        opcode: opcode(completion.operation),
        vendor_err: 0,
        byte_len: completion.bytes,
        __bindgen_anon_1: extra,
        qp_num: completion.qp,
        src_qp: 0,
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// The extra fields of a receive, and the flags that mark them as valid.
fn extra(completion: &Completion) -> (ibv_wc__bindgen_ty_1, u32) {
    if completion.status != Status::Success {
        (ibv_wc__bindgen_ty_1 { imm_data: 0 }, 0)
    } else if let Some(immediate) = completion.immediate {
        (ibv_wc__bindgen_ty_1 { imm_data: imm_data(immediate) }, IBV_WC_WITH_IMM)
    } else if let Some(stag) = completion.invalidated {
        (ibv_wc__bindgen_ty_1 { invalidated_rkey: stag.0 }, IBV_WC_WITH_INV)
    } else {
        (ibv_wc__bindgen_ty_1 { imm_data: 0 }, 0)
    }
}

/// Verbs' four bytes of immediate data are the first of RDMAP's eight; they stay in network order.
fn imm_data(immediate: u64) -> u32 {
    let [a, b, c, d, ..] = immediate.to_be_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

pub(crate) fn status(status: Status) -> ibv_wc_status {
    match status {
        Status::Success => IBV_WC_SUCCESS,
        Status::LocalLength => IBV_WC_LOC_LEN_ERR,
        Status::LocalProtection => IBV_WC_LOC_PROT_ERR,
        Status::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => IBV_WC_REM_OP_ERR,
        Status::Flushed => IBV_WC_WR_FLUSH_ERR,
    }
}

fn opcode(operation: Operation) -> ibv_wc_opcode {
    match operation {
        Operation::Send | Operation::Immediate => IBV_WC_SEND,
        Operation::Write => IBV_WC_RDMA_WRITE,
        Operation::Read => IBV_WC_RDMA_READ,
        Operation::FetchAdd => IBV_WC_FETCH_ADD,
        Operation::CompareSwap => IBV_WC_COMP_SWAP,
        Operation::Receive => IBV_WC_RECV,
        Operation::ReceiveImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}
