//! Event channels: a descriptor that is readable while an identifier on the channel has an event
//! (rdma_create_event_channel(3), rdma_get_cm_event(3)).
//!
//! The descriptor is an epoll set. It contains an eventfd for events that originate here and, for
//! each device in use, the descriptor of the native channel on which its engine reports events of
//! all identifiers of this channel. All events pass through the identifier's lock into one queue,
//! in the order in which they happened.

use super::event::{News, Plain, publish};
use super::event_queue::EventQueue;
use super::id::{CmId, CmPhase};
use super::nic::Nic;
use super::{news, nic};
use crate::abi::{rdma_cm_event, rdma_event_channel};
use crate::cq::lock;
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer, sleep_on};
use crate::object::{Kind, Object, Shown, find_shared, give_shared, take_shared};
use libc::c_int;
use outboard_verbs::CmChannel;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

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
    queue: Mutex<EventQueue<Waiting>>,
    /// Held by the thread that moves the engines' events into the queue: comes before the lock of
    /// an identifier, all others after it.
    gathering: Mutex<()>,
    /// Where the engines put events, by the address of the context.
    natives: Mutex<HashMap<usize, CmChannel>>,
    /// Identifiers with events there, by key.
    ids: Mutex<HashMap<u64, Weak<CmId>>>,
}

/// An event, and the identifier that it is about.
type Waiting = (Weak<CmId>, News);

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
        watch(&epoll, &local)?;
        let shown = Shown::<rdma_event_channel>::zeroed();
        // SAFETY: no other code has the structure yet.
        unsafe { (*shown.get()).fd = epoll.as_raw_fd() };
        let channel = Arc::new(Self {
            shown,
            tag: Kind::EventChannel,
            epoll,
            local,
            queue: Mutex::default(),
            gathering: Mutex::default(),
            natives: Mutex::default(),
            ids: Mutex::default(),
        });
        give_shared(Arc::clone(&channel));
        Ok(channel)
    }

    pub(crate) fn pointer(&self) -> *mut rdma_event_channel {
        self.shown.get()
    }

    /// Adds an event of an identifier, which the caller has locked.
    pub(crate) fn push(&self, id: &CmId, news: News) {
        let mut queue = lock(&self.queue);
        queue.push(id.key(), (Weak::clone(id.me()), news));
        if queue.len() == 1 {
            // The counter cannot overflow: it is 0 or 1.
            let _wrote = rustix::io::write(&self.local, &1u64.to_ne_bytes());
        }
    }

    /// Works on the queue, which is readable afterwards if something is left.
    fn reduce<T>(&self, work: impl FnOnce(&mut EventQueue<Waiting>) -> T) -> T {
        let mut queue = lock(&self.queue);
        let before = queue.len();
        let result = work(&mut queue);
        if before > 0 && queue.len() == 0 {
            let mut count = [0; 8];
            let _read = rustix::io::read(&self.local, &mut count);
        }
        result
    }

    fn pop(&self) -> Option<Waiting> {
        self.reduce(EventQueue::pop)
    }

    /// True while something is queued about an identifier.
    pub(crate) fn has_of(&self, id: &CmId) -> bool {
        lock(&self.queue).has(id.key())
    }

    /// Removes queued events about an identifier, which the caller has locked.
    pub(crate) fn take_of(&self, id: &CmId) -> Vec<News> {
        let taken = self.reduce(|queue| queue.take(id.key()));
        taken.into_iter().map(|(_, news)| news).collect()
    }

    /// The native channel for an identifier on this device, whose events are looked for from now
    /// on.
    pub(crate) fn register(&self, nic: Nic, id: &CmId) -> Outcome<CmChannel> {
        let native = self.native(nic)?.keyed(id.key());
        lock(&self.ids).insert(id.key(), Weak::clone(id.me()));
        Ok(native)
    }

    /// Forgets an identifier, whose native channel is silent or has moved.
    pub(crate) fn unregister(&self, id: &CmId) {
        lock(&self.ids).remove(&id.key());
    }

    fn native(&self, nic: Nic) -> Outcome<CmChannel> {
        let mut natives = lock(&self.natives);
        if let Some(known) = natives.get(&nic.verbs.addr()) {
            return Ok(known.clone());
        }
        let native = nic.context()?.native.create_cm_channel_without_established();
        let native = native.map_err(|error| news::errno(&error))?;
        watch(&self.epoll, &native)?;
        natives.insert(nic.verbs.addr(), native.clone());
        Ok(native)
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

    /// Moves the engines' events into the queue; false if there were none for the program.
    pub(crate) fn gather(&self) -> bool {
        self.gather_locked(&self.hold())
    }

    /// No other thread gathers until the guard is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.gathering)
    }

    pub(crate) fn gather_locked(&self, _held: &MutexGuard<'_, ()>) -> bool {
        let natives: Vec<CmChannel> = lock(&self.natives).values().cloned().collect();
        let mut something = false;
        for event in natives.iter().flat_map(|native| std::iter::from_fn(|| native.try_next())) {
            // Unlocked again before the identifier is locked.
            let id = lock(&self.ids).get(&event.key).and_then(Weak::upgrade);
            something |= id.is_some_and(|id| news::gather(&id, event.kind));
        }
        something
    }

    fn never_blocks(&self) -> bool {
        // SAFETY: asks about a descriptor of this object.
        let flags = unsafe { libc::fcntl(self.epoll.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK != 0
    }
}

fn watch(epoll: &OwnedFd, fd: impl AsFd) -> Outcome<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(0), EventFlags::IN)?)
}

fn deliver(id: &Arc<CmId>, news: News) -> Option<*mut rdma_cm_event> {
    let state = id.lock();
    if state.phase == CmPhase::Gone {
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
        let left = std::mem::take(&mut *lock(&channel.queue));
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
