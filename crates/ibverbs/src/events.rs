//! Asynchronous events (ibv_get_async_event(3)): events of the engine with the program's objects in
//! them. An object is not destroyed before its events are acknowledged.

use crate::abi::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR,
    IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context,
    ibv_cq, ibv_event_type, ibv_qp, ibv_srq,
};
use crate::channel::Unacknowledged;
use crate::context::Context;
use crate::cq::Cq;
use crate::guard::{Errno, Outcome, fail, minus_one, sleep_on};
use crate::object::{Object, find};
use crate::qp::Qp;
use crate::srq::Srq;
use libc::c_int;
use outboard_verbs::AsyncEvent;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// An event as programs know it: what happened, and the object's address.
type Named = (ibv_event_type, usize);

/// Takes events until one is about an object that still exists; `None` when there are no more.
fn next(context: &Context) -> Option<Named> {
    loop {
        if let Some(named) = name(context, &context.native.poll_async_event()?) {
            return Some(named);
        }
    }
}

fn name(context: &Context, event: &AsyncEvent) -> Option<Named> {
    let (what, object) = match event {
        AsyncEvent::CqOverflow { cq, .. } => {
            (IBV_EVENT_CQ_ERR, taken::<Cq>(&context.cqs, *cq, |cq| Some(&cq.async_events))?)
        }
        AsyncEvent::PeerFault { qp, code } => {
            // Layer RDMAP, remote protection error (RFC 5040 figure 9), or layer DDP, tagged buffer
            // error (RFC 5041 section 7.2).
            let protection = matches!((code.layer, code.etype), (0 | 1, 1));
            let what = if protection { IBV_EVENT_QP_ACCESS_ERR } else { IBV_EVENT_QP_REQ_ERR };
            (what, taken::<Qp>(&context.qps, *qp, |qp| Some(&qp.async_events))?)
        }
        AsyncEvent::PeerTerminated { qp, .. }
        | AsyncEvent::SessionFailed { qp, .. }
        | AsyncEvent::EngineFailed { qp } => {
            (IBV_EVENT_QP_FATAL, taken::<Qp>(&context.qps, *qp, |qp| Some(&qp.async_events))?)
        }
        AsyncEvent::LastReceive { qp } => {
            let told = |qp: &'static Qp| qp.queues.takes_last_receive().then_some(&qp.async_events);
            (IBV_EVENT_QP_LAST_WQE_REACHED, taken(&context.qps, *qp, told)?)
        }
        AsyncEvent::SrqLimit { srq } => {
            let fired = |srq: &'static Srq| {
                // The limit is armed once.
                srq.limit.store(0, Ordering::SeqCst);
                Some(&srq.async_events)
            };
            let object = taken::<Srq>(&context.srqs, *srq, fired)?;
            (IBV_EVENT_SRQ_LIMIT_REACHED, object)
        }
    };
    Some((what, object))
}

/// The object with this number; one more event to acknowledge is counted in `events`, if given.
fn taken<T: Object + 'static>(
    map: &Mutex<HashMap<u32, usize>>,
    number: u32,
    events: impl FnOnce(&'static T) -> Option<&'static Unacknowledged>,
) -> Option<usize> {
    // Objects leave the map before they wait for acknowledgements: counted while it is locked.
    let map = map.lock().unwrap_or_else(PoisonError::into_inner);
    let address = *map.get(&number)?;
    let object: &'static T = find(std::ptr::with_exposed_provenance_mut(address)).ok()?;
    events(object)?.deliver();
    Some(address)
}

/// One try: the event, or the descriptor to sleep on.
fn attempt(context: *mut ibv_context, event: *mut ibv_async_event) -> Outcome<Option<c_int>> {
    let found: &Context = find(context)?;
    if event.is_null() {
        return fail(libc::EINVAL);
    }
    let Some((event_type, object)) = next(found) else {
        // SAFETY: the program may change the descriptor's flags but not the number.
        let fd = unsafe { (*context).async_fd };
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let blocks = flags >= 0 && flags & libc::O_NONBLOCK == 0;
        return if blocks { Ok(Some(fd)) } else { fail(libc::EAGAIN) };
    };
    let element =
        ibv_async_event__bindgen_ty_1 { qp: std::ptr::with_exposed_provenance_mut(object) };
    // SAFETY: the caller's word.
    unsafe { event.write(ibv_async_event { element, event_type }) };
    Ok(None)
}

/// ibv_get_async_event(3). A cancellation point while it sleeps.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        let mut fd = -1;
        let code = minus_one("ibv_get_async_event", || match attempt(context, event)? {
            None => Ok(0),
            Some(wanted) => {
                fd = wanted;
                Ok(1)
            }
        });
        if code != 1 {
            return code;
        }
        let error = sleep_on(fd);
        if error != 0 {
            return minus_one("ibv_get_async_event", || Err(Errno(error)));
        }
    }
}

/// ibv_ack_async_event(3).
///
/// # Safety
/// As the manual page says; null and foreign events are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    minus_one("ibv_ack_async_event", || {
        // SAFETY: null, or the caller's word.
        let event = unsafe { event.as_ref() }.ok_or(Errno(libc::EINVAL))?;
        // SAFETY: every member of the union is as long as what was written, or shorter.
        acknowledge(event.event_type, unsafe { event.element.qp }.addr())?;
        Ok(0)
    });
}

fn acknowledge(event_type: ibv_event_type, object: usize) -> Outcome<()> {
    match event_type {
        IBV_EVENT_CQ_ERR => {
            let shown = std::ptr::with_exposed_provenance_mut::<ibv_cq>(object);
            let cq: &Cq = find(shown)?;
            // SAFETY: found just now.
            count(unsafe { &raw mut (*shown).async_events_completed }, &cq.async_events);
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            let shown = std::ptr::with_exposed_provenance_mut::<ibv_srq>(object);
            let srq: &Srq = find(shown)?;
            // SAFETY: found just now.
            count(unsafe { &raw mut (*shown).events_completed }, &srq.async_events);
        }
        IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
            let shown = std::ptr::with_exposed_provenance_mut::<ibv_qp>(object);
            let qp: &Qp = find(shown)?;
            // SAFETY: found just now.
            count(unsafe { &raw mut (*shown).events_completed }, &qp.async_events);
        }
        _ => return fail(libc::EINVAL),
    }
    Ok(())
}

/// Counts an acknowledgement in the field that programs see, and then for the thread that destroys
/// the object.
fn count(shown: *mut u32, events: &Unacknowledged) {
    // SAFETY: an aligned field of a live object, which only this function writes.
    unsafe { AtomicU32::from_ptr(shown) }.fetch_add(1, Ordering::Relaxed);
    events.acknowledge(1);
}

#[cfg(test)]
mod tests;
