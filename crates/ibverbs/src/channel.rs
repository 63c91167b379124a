//! Completion channels (ibv_create_comp_channel(3), ibv_get_cq_event(3)), and the count of events
//! that programs must acknowledge before the event's object may be destroyed.

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::adapter::Adapter;
use crate::context::Context;
use crate::cq::{Cq, lock};
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer, sleep_on};
use crate::object::{Kind, Object, Shown, find, give, take};
use libc::{c_int, c_uint, c_void};
use outboard_verbs::CompChannel as Native;
use std::collections::{BTreeSet, HashMap};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A completion channel.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompChannel {
    shown: Shown<ibv_comp_channel>,
    tag: Kind,
    adapter: Arc<Adapter>,
    pub(crate) native: Native,
    /// Completion queues whose events come here, by number.
    cqs: Mutex<HashMap<u32, &'static Cq>>,
    /// Queues that were armed since the program last slept here.
    asked: Mutex<BTreeSet<u32>>,
    /// Completion queues that must be destroyed first.
    pub(crate) users: AtomicU32,
}

// SAFETY: the structure is the first field.
unsafe impl Object for CompChannel {
    type C = ibv_comp_channel;
    const KIND: Kind = Kind::CompChannel;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl CompChannel {
    /// Adds a new queue, which is removed before it is destroyed.
    pub(crate) fn attach(&self, number: u32, cq: &'static Cq) {
        self.users.fetch_add(1, Ordering::SeqCst);
        lock(&self.cqs).insert(number, cq);
    }

    /// Stops the delivery of this queue's events; the queue still counts as a user.
    pub(crate) fn detach(&self, number: u32) {
        lock(&self.cqs).remove(&number);
    }

    #[cfg(test)]
    pub(crate) fn queues(&self) -> usize {
        lock(&self.cqs).len()
    }

    /// The next queue with an event, which counts as delivered.
    fn next(&self) -> Option<&'static Cq> {
        // Queues leave the map before they wait for acknowledgements.
        let cqs = lock(&self.cqs);
        while let Some(number) = self.native.try_next() {
            if let Some(cq) = cqs.get(&number) {
                cq.events.deliver();
                return Some(cq);
            }
        }
        None
    }

    /// Arms a queue. Completions that are still in it raise an event at once if the program may
    /// sleep in its own poll(2). If it sleeps in [`ibv_get_cq_event`], they raise one only then:
    /// perftest arms the queue before it polls, and treats an event without a completion as an
    /// error.
    pub(crate) fn ask(&self, number: u32, cq: &Cq) {
        if self.never_blocks() {
            cq.recall();
        } else {
            lock(&self.asked).insert(number);
        }
    }

    /// The program is about to sleep: completions that are left in armed queues raise an event.
    fn recall(&self) {
        let asked = std::mem::take(&mut *lock(&self.asked));
        let cqs = lock(&self.cqs);
        asked.iter().filter_map(|number| cqs.get(number)).for_each(|cq| cq.recall());
    }

    fn never_blocks(&self) -> bool {
        // SAFETY: asks about a descriptor of this object.
        let flags = unsafe { libc::fcntl(self.native.as_fd().as_raw_fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK != 0
    }
}

/// Events about one object that the program has taken and not yet acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    fewer: Condvar,
}

impl Unacknowledged {
    fn count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program takes an event.
    pub(crate) fn deliver(&self) {
        *self.count() += 1;
    }

    /// The program has acknowledged this many events.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut count = self.count();
        *count = count.saturating_sub(events);
        self.fewer.notify_all();
    }

    /// Returns when no event is unacknowledged, as ibv_destroy_cq(3) and similar functions promise.
    pub(crate) fn wait(&self) {
        let mut count = self.count();
        while *count > 0 {
            count = self.fewer.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// ibv_create_comp_channel(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", || {
        let found: &Context = find(context)?;
        let native = found.native.create_comp_channel().map_err(|_| Errno(libc::EMFILE))?;
        let fd = native.as_fd().as_raw_fd();
        may_block(fd)?;
        let shown = Shown::<ibv_comp_channel>::zeroed();
        // SAFETY: no other code has the structure yet.
        let c = unsafe { &mut *shown.get() };
        (c.context, c.fd) = (context, fd);
        Ok(give(Box::new(CompChannel {
            shown,
            tag: Kind::CompChannel,
            adapter: found.adapter(),
            native,
            cqs: Mutex::default(),
            asked: Mutex::default(),
            users: AtomicU32::new(0),
        })))
    })
}

/// Descriptors block unless the program changes that. This one is read only when it is readable.
pub(crate) fn may_block(fd: c_int) -> Outcome<()> {
    // SAFETY: changes only the flags of this object's descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// ibv_destroy_comp_channel(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    code("ibv_destroy_comp_channel", || {
        if find::<CompChannel>(channel)?.users.load(Ordering::SeqCst) > 0 {
            return fail(libc::EBUSY);
        }
        take::<CompChannel>(channel).map(drop)
    })
}

/// ibv_get_cq_event(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // Cancellation unwinds through here: there is nothing to drop.
        let found = try_event(channel, cq, cq_context);
        if found != NOTHING {
            return found;
        }
        // SAFETY: the channel was found just now, and programs do not destroy what they wait for.
        let error = sleep_on(unsafe { (*channel).fd });
        if error != 0 {
            return minus_one("ibv_get_cq_event", || fail(error));
        }
    }
}

/// There is no event, and the program wants to wait for one.
const NOTHING: c_int = 1;

/// One look for an event: 0 with one, -1, or [`NOTHING`].
fn try_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    minus_one("ibv_get_cq_event", || {
        let found: &CompChannel = find(channel)?;
        if cq.is_null() || cq_context.is_null() {
            return fail(libc::EINVAL);
        }
        let next = found.next().or_else(|| {
            found.recall();
            found.next()
        });
        if let Some(queue) = next {
            // SAFETY: the program gave room for both.
            unsafe { (*cq, *cq_context) = (queue.shown().cast(), queue.cq_context()) };
            return Ok(0);
        }
        if found.never_blocks() {
            return fail(libc::EAGAIN);
        }
        // Driving the engine here would cost more: its thread would have to stand down and come
        // back for every message.
        found.adapter.native.rest();
        Ok(NOTHING)
    })
}

/// ibv_ack_cq_events(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    let _done = code("ibv_ack_cq_events", || {
        find::<Cq>(cq)?.acknowledge(nevents);
        Ok(())
    });
}
