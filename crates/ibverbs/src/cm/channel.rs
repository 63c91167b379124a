//! Event channels: a descriptor that is readable while an identifier on the channel has an event
//! (rdma_create_event_channel(3), rdma_get_cm_event(3)).
//!
//! The descriptor is an epoll set. It contains an eventfd for events that originate here and, for
//! each identifier that listens or is connected, the engine's descriptor. All events pass through
//! the identifier's lock into one queue, so that the order of one identifier's events is the order
//! in which they happened.

use super::event::{News, Plain, publish};
use super::id::{CmId, Phase};
use super::{news, nic};
use crate::abi::{rdma_cm_event, rdma_event_channel};
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer, sleep_on};
use crate::object::{Kind, Object, Shown, find_shared, give_shared, take_shared};
use libc::c_int;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::collections::{HashMap, VecDeque};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Token of the channel's own queue.
const LOCAL: u64 = 0;
/// There is no event, and the program wants to wait for one.
const NOTHING: c_int = 1;

/// An event channel.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EventChannel {
    shown: Shown<rdma_event_channel>,
    tag: Kind,
    epoll: OwnedFd,
    local: OwnedFd,
    tokens: AtomicU64,
    queue: Mutex<VecDeque<(Weak<CmId>, News)>>,
    watched: Mutex<HashMap<u64, Weak<CmId>>>,
}

// SAFETY: the structure is the first field.
unsafe impl Object for EventChannel {
    type C = rdma_event_channel;
    const KIND: Kind = Kind::EventChannel;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl EventChannel {
    pub(crate) fn create() -> Outcome<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let local = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &local, EventData::new_u64(LOCAL), EventFlags::IN)?;
        let shown = Shown::<rdma_event_channel>::zeroed();
        // SAFETY: no other code has the structure yet.
        unsafe { (*shown.get()).fd = epoll.as_raw_fd() };
        let channel = Arc::new(Self {
            shown,
            tag: Kind::EventChannel,
            epoll,
            local,
            tokens: AtomicU64::new(LOCAL + 1),
            queue: Mutex::default(),
            watched: Mutex::default(),
        });
        give_shared(Arc::clone(&channel));
        Ok(channel)
    }

    pub(crate) fn pointer(&self) -> *mut rdma_event_channel {
        self.shown.get()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<(Weak<CmId>, News)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<u64, Weak<CmId>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event of an identifier, which the caller has locked.
    pub(crate) fn push(&self, about: &Weak<CmId>, news: News) {
        let mut queue = self.queue();
        queue.push_back((Weak::clone(about), news));
        if queue.len() == 1 {
            // The counter cannot overflow: it is 0 or 1.
            let _wrote = rustix::io::write(&self.local, &1u64.to_ne_bytes());
        }
    }

    fn pop(&self) -> Option<(Weak<CmId>, News)> {
        let mut queue = self.queue();
        let first = queue.pop_front();
        if first.is_some() && queue.is_empty() {
            self.clear_local();
        }
        first
    }

    fn clear_local(&self) {
        let mut count = [0; 8];
        let _read = rustix::io::read(&self.local, &mut count);
    }

    /// True while something is queued about an identifier.
    pub(crate) fn has_of(&self, id: &Weak<CmId>) -> bool {
        self.queue().iter().any(|(about, _)| about.ptr_eq(id))
    }

    /// Removes queued events about an identifier, which the caller has locked.
    pub(crate) fn take_of(&self, id: &Weak<CmId>) -> Vec<News> {
        let mut queue = self.queue();
        let (theirs, others) =
            queue.drain(..).partition::<VecDeque<_>, _>(|(about, _)| about.ptr_eq(id));
        *queue = others;
        if queue.is_empty() {
            self.clear_local();
        }
        theirs.into_iter().map(|(_, news)| news).collect()
    }

    /// Adds a descriptor of an identifier to the epoll set.
    pub(crate) fn watch(&self, fd: impl AsFd, id: &Weak<CmId>) -> Outcome<u64> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.watched().insert(token, Weak::clone(id));
        if let Err(error) = epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN) {
            self.watched().remove(&token);
            return Err(error.into());
        }
        Ok(token)
    }

    /// Removes it from the epoll set.
    pub(crate) fn unwatch(&self, fd: impl AsFd, token: u64) {
        // Fails only if it was never added.
        let _gone = epoll::delete(&self.epoll, fd);
        self.watched().remove(&token);
    }

    /// The next event for the program, if there is one now.
    fn next(self: &Arc<Self>) -> Option<*mut rdma_cm_event> {
        loop {
            while let Some((about, news)) = self.pop() {
                let event = about.upgrade().and_then(|id| deliver(&id, news));
                if event.is_some() {
                    return event;
                }
            }
            if !self.gather() {
                return None;
            }
        }
    }

    /// Moves the engine's events into the queue; false if there were none.
    fn gather(self: &Arc<Self>) -> bool {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 16];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room, Some(&now)) else {
            return false;
        };
        let mut something = false;
        for event in &*ready {
            let data = event.data;
            let id = self.watched().get(&data.u64()).and_then(Weak::upgrade);
            something |= data.u64() == LOCAL || id.is_some_and(|id| news::gather(&id));
        }
        something
    }

    fn never_blocks(&self) -> bool {
        // SAFETY: asks about a descriptor of this object.
        let flags = unsafe { libc::fcntl(self.epoll.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK != 0
    }
}

fn deliver(id: &Arc<CmId>, news: News) -> Option<*mut rdma_cm_event> {
    let state = id.lock();
    if state.phase == Phase::Gone {
        return None;
    }
    match news {
        News::Plain(plain) => Some(deliver_plain(id, plain)),
        News::Request(request) => news::deliver_request(id, state, *request),
    }
}

fn deliver_plain(id: &Arc<CmId>, plain: Plain) -> *mut rdma_cm_event {
    publish(Arc::clone(id), id.pointer(), plain)
}

/// rdma_create_event_channel(3).
///
/// # Safety
/// As the manual page says.
#[unsafe(export_name = "outboard_rdma_create_event_channel")]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", || Ok(EventChannel::create()?.pointer()))
}

/// rdma_destroy_event_channel(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_destroy_event_channel")]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let _done = code("rdma_destroy_event_channel", || {
        let channel = take_shared::<EventChannel>(channel)?;
        // Dropped outside of the lock: the end of a request may cause events.
        let left = std::mem::take(&mut *channel.queue());
        drop(left);
        Ok(())
    });
}

/// rdma_get_cm_event(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_get_cm_event")]
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    loop {
        // Cancellation unwinds through here: there is nothing to drop.
        let mut fd = -1;
        let found = try_event(channel, event, &mut fd);
        if found != NOTHING {
            return found;
        }
        let error = sleep_on(fd);
        if error != 0 {
            return minus_one("rdma_get_cm_event", || fail(error));
        }
    }
}

/// One look for an event: 0 with one, -1, or [`NOTHING`] with the descriptor to sleep on.
fn try_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
    fd: &mut c_int,
) -> c_int {
    minus_one("rdma_get_cm_event", || {
        let channel = find_shared::<EventChannel>(channel)?;
        if event.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(next) = channel.next() {
            // SAFETY: the program gave room for a pointer.
            unsafe { *event = next };
            return Ok(0);
        }
        if channel.never_blocks() {
            return fail(libc::EAGAIN);
        }
        nic::rest();
        *fd = channel.epoll.as_raw_fd();
        Ok(NOTHING)
    })
}
