//! Identifiers (rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3)): a local address, a
//! listener, a connection request or a connection.

use super::channel::{EventChannel, rdma_destroy_event_channel};
use super::event::{News, Plain, rdma_ack_cm_event};
use super::nic::Nic;
use super::{address, news};
use crate::abi::{
    IBV_QPT_RC, RDMA_PS_TCP, ibv_qp, ibv_qp_init_attr, ibv_qp_type, rdma_cm_id, rdma_event_channel,
    rdma_port_space,
};
use crate::absent::{Absent, refuse};
use crate::channel::Unacknowledged;
use crate::cq::lock;
use crate::guard::{Outcome, fail, minus_one};
use crate::object::{Kind, Object, Shown, find, find_shared, give_shared, take_shared};
use crate::qp::Qp;
use libc::{c_int, c_void, sockaddr_storage};
use outboard_verbs::{Bound, CmChannel, ConnectRequest, Listener};
use std::mem::offset_of;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[cfg(test)]
thread_local! {
    /// Counts the queue pairs that were examined to find an identifier's.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An identifier.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CmId {
    shown: Shown<rdma_cm_id>,
    tag: Kind,
    me: Weak<Self>,
    /// Marks its events; no other identifier has had it.
    key: u64,
    state: Mutex<IdState>,
    /// Number of the native queue pair that was the connection's when last looked for.
    native_qp: AtomicU32,
    pub(crate) unacknowledged: Unacknowledged,
}

// SAFETY: the structure is the first field.
unsafe impl Object for CmId {
    type C = rdma_cm_id;
    const KIND: Kind = Kind::CmId;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

/// The state of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmPhase {
    /// It has no address.
    Idle,
    /// It has an address of this machine.
    Bound,
    /// It knows the peer's address and the device towards it.
    AddrResolved,
    /// It may connect.
    RouteResolved,
    Listening,
    /// A peer waits for an answer.
    Requested,
    Connecting,
    Connected,
    /// The connection, or the attempt, is over.
    Over,
    /// The program has destroyed it.
    Gone,
}

/// The part of an identifier that changes.
#[derive(Debug)]
pub(crate) struct IdState {
    pub(crate) phase: CmPhase,
    pub(crate) channel: Arc<EventChannel>,
    /// The channel is its own, and calls wait for their events (rdma_create_id(3)).
    pub(crate) is_sync: bool,
    pub(crate) nic: Option<Nic>,
    /// The state that programs see.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// Addresses taken; with a wildcard one of each device.
    pub(crate) bound: Vec<(Nic, Bound)>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) request: Option<ConnectRequest>,
    /// The read depths that the peer, or later the program, asks for: towards us, and towards the
    /// peer.
    pub(crate) depths: (u8, u8),
    /// The native channel, under the identifier's key, on which the engine tells news, and its
    /// device.
    told: Option<(CmChannel, Nic)>,
    /// Number of the connected queue pair.
    pub(crate) qp_num: u32,
    pub(crate) type_of_service: Option<u8>,
    /// The timeout that queries of queue pairs report; only TCP's own timeouts take effect.
    pub(crate) ack_timeout: Option<u8>,
    /// Private data that the endpoint's address information brought along.
    pub(crate) connect_data: Vec<u8>,
    /// The attributes of queue pairs for the endpoint's requests.
    pub(crate) qp_attr: Option<QpAttr>,
}

/// The arguments of rdma_create_ep(3) that are kept for later.
#[derive(Clone, Copy)]
pub(crate) struct QpAttr(pub(crate) ibv_qp_init_attr);

// SAFETY: the pointers are only handed on to ibv_create_qp(3), which checks them.
unsafe impl Send for QpAttr {}

impl std::fmt::Debug for QpAttr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QpAttr")
    }
}

impl IdState {
    fn new(channel: Arc<EventChannel>, is_sync: bool) -> Self {
        Self {
            phase: CmPhase::Idle,
            channel,
            is_sync,
            nic: None,
            source: None,
            destination: None,
            bound: Vec::new(),
            listeners: Vec::new(),
            request: None,
            depths: (0, 0),
            told: None,
            qp_num: 0,
            type_of_service: None,
            ack_timeout: None,
            connect_data: Vec::new(),
            qp_attr: None,
        }
    }

    /// # Errors
    /// EINVAL in any other phase.
    pub(crate) fn need(&self, phases: &[CmPhase]) -> Outcome<()> {
        if phases.contains(&self.phase) { Ok(()) } else { fail(libc::EINVAL) }
    }

    /// The device.
    pub(crate) fn nic(&self) -> Outcome<Nic> {
        self.nic.map_or_else(|| fail(libc::ENODEV), Ok)
    }
}

impl CmId {
    /// Makes an identifier on a channel, or on one of its own.
    pub(crate) fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        space: rdma_port_space,
        qp_type: ibv_qp_type,
    ) -> Outcome<Arc<Self>> {
        let is_sync = channel.is_null();
        let channel =
            if is_sync { EventChannel::create()? } else { find_shared::<EventChannel>(channel)? };
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = Arc::new_cyclic(|me| Self {
            shown: Shown::zeroed(),
            tag: Kind::CmId,
            me: Weak::clone(me),
            key: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            state: Mutex::new(IdState::new(Arc::clone(&channel), is_sync)),
            native_qp: AtomicU32::new(0),
            unacknowledged: Unacknowledged::default(),
        });
        // SAFETY: no other code has the structure yet.
        let c = unsafe { &mut *id.shown.get() };
        (c.channel, c.context) = (channel.pointer(), context);
        (c.ps, c.qp_type) = (space, qp_type);
        give_shared(Arc::clone(&id));
        Ok(id)
    }

    pub(crate) fn pointer(&self) -> *mut rdma_cm_id {
        self.shown.get()
    }

    pub(crate) fn me(&self) -> &Weak<Self> {
        &self.me
    }

    /// Its number in event channels.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, IdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an event for the program.
    pub(crate) fn push_event(&self, state: &IdState, plain: Plain) {
        state.channel.push(self, News::Plain(plain));
    }

    /// Assigns it to a device.
    pub(crate) fn use_nic(&self, state: &mut IdState, nic: Nic) {
        state.nic = Some(nic);
        let c = self.shown.get();
        // SAFETY: programs do not touch these fields; they may use the rest of the structure.
        unsafe {
            ((*c).verbs, (*c).port_num) = (nic.verbs, 1);
            if (*c).pd.is_null() {
                (*c).pd = nic.pd;
            }
            // The only partition.
            (*c).route.addr.addr.ibaddr.pkey = 0xFFFF;
        }
    }

    /// Sets its address of this machine.
    pub(crate) fn set_source(&self, state: &mut IdState, source: SocketAddr) {
        state.source = Some(source);
        // SAFETY: programs leave the field alone; an address's storage is its first member.
        unsafe {
            let route = &raw mut (*self.shown.get()).route.addr;
            address::write((&raw mut (*route).__bindgen_anon_1).cast::<sockaddr_storage>(), source);
            if let Ok(v4) = address::v4(source) {
                (*route).addr.ibaddr.sgid.raw = v4.ip().to_ipv6_mapped().octets();
            }
        }
    }

    /// Sets its peer's address.
    pub(crate) fn set_destination(&self, state: &mut IdState, peer: SocketAddr) {
        state.destination = Some(peer);
        // SAFETY: as in `set_source`.
        unsafe {
            let route = &raw mut (*self.shown.get()).route.addr;
            address::write((&raw mut (*route).__bindgen_anon_2).cast::<sockaddr_storage>(), peer);
            if let Ok(v4) = address::v4(peer) {
                (*route).addr.ibaddr.dgid.raw = v4.ip().to_ipv6_mapped().octets();
            }
        }
    }

    /// The peer's address.
    pub(crate) fn peer(state: &IdState) -> Outcome<SocketAddrV4> {
        state.destination.map_or_else(|| fail(libc::EDESTADDRREQ), address::v4)
    }

    /// Where the engine puts its events from now on.
    pub(crate) fn told(&self, state: &mut IdState, nic: Nic) -> Outcome<CmChannel> {
        if state.told.is_none() {
            state.told = Some((state.channel.register(nic, self)?, nic));
        }
        state.told.as_ref().map_or_else(|| fail(libc::EIO), |(native, _)| Ok(native.clone()))
    }

    /// Wants no more of the engine's events: what waits is dropped, and nothing wakes the program.
    pub(crate) fn silence(&self, state: &mut IdState) {
        if let Some((native, _)) = state.told.take() {
            native.silence();
            state.channel.unregister(self);
        }
    }

    /// The queue pair that the program made with it.
    pub(crate) fn qp(&self) -> *mut ibv_qp {
        // SAFETY: programs may set the field, between calls.
        unsafe { (*self.shown.get()).qp }
    }

    /// Calls a function with the connection's queue pair: the identifier's own, or the one with the
    /// given number. The program may be destroying it in another thread, which waits until this is
    /// done.
    pub(crate) fn with_connected_qp<T>(
        &self,
        state: &IdState,
        work: impl FnOnce(&Qp) -> T,
    ) -> Outcome<T> {
        let own = self.qp();
        let context = state.nic()?.context()?;
        // Queue pairs in the map are not destroyed while it is locked.
        let qps = lock(&context.qps);
        let is_it = |address: &usize| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            let qp = find::<Qp>(std::ptr::with_exposed_provenance_mut(*address)).ok()?;
            let is_it = match own.is_null() {
                true => qp.shown_number() == state.qp_num,
                false => own.addr() == *address,
            };
            is_it.then_some(qp)
        };
        // A program may put another queue pair into the identifier: only then are all examined.
        let noted = qps.get(&self.native_qp.load(Ordering::Relaxed)).and_then(is_it);
        let Some(qp) = noted.or_else(|| qps.values().find_map(is_it)) else {
            return fail(libc::EINVAL);
        };
        self.note_qp(qp);
        Ok(work(qp))
    }

    /// Remembers its queue pair, so that it need not be searched for.
    pub(crate) fn note_qp(&self, qp: &Qp) {
        self.native_qp.store(qp.native.number(), Ordering::Relaxed);
    }

    /// Ends its connection, listener or attempt, without further events.
    fn end(&self) {
        // So that few events are left to be looked through for those that nobody wants any more.
        let channel = Arc::clone(&self.lock().channel);
        channel.gather();
        let mut state = self.lock();
        let connected = matches!(state.phase, CmPhase::Connecting | CmPhase::Connected);
        state.phase = CmPhase::Gone;
        self.silence(&mut state);
        let left = state.channel.take_of(self);
        let (listeners, request) = (std::mem::take(&mut state.listeners), state.request.take());
        state.bound.clear();
        let native = |qp: &Qp| Arc::clone(&qp.native);
        let qp = if connected { self.with_connected_qp(&state, native).ok() } else { None };
        drop(state);
        drop((left, listeners));
        if let Some(request) = request {
            // The peer learns that there will be no answer; if it has gone, nothing is lost.
            let _told = request.reject(&[]);
        }
        if let Some(qp) = qp {
            qp.disconnect();
        }
    }

    /// Moves it to another channel, with its events.
    fn migrate(&self, to: Arc<EventChannel>, is_sync: bool) -> Outcome<()> {
        let from = Arc::clone(&self.lock().channel);
        if Arc::ptr_eq(&from, &to) {
            return Ok(());
        }
        // What the engine has told so far goes first, and no other thread has taken some of it.
        let held = from.hold();
        from.gather_locked(&held);
        let mut state = self.lock();
        if let Some((native, nic)) = &mut state.told {
            let there = to.register(*nic, self)?;
            native.move_to(&there).map_err(|error| news::errno(&error))?;
            from.unregister(self);
        }
        for news in from.take_of(self) {
            to.push(self, news);
        }
        // SAFETY: programs leave the field alone.
        unsafe { (*self.shown.get()).channel = to.pointer() };
        (state.channel, state.is_sync) = (to, is_sync);
        Ok(())
    }
}

/// rdma_create_id(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_create_id")]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    minus_one("rdma_create_id", || {
        if id.is_null() {
            return fail(libc::EINVAL);
        }
        if ps != RDMA_PS_TCP {
            return refuse(Absent::of_space(ps));
        }
        let made = CmId::create(channel, context, ps, IBV_QPT_RC)?;
        // SAFETY: the program gave room for a pointer.
        unsafe { *id = made.pointer() };
        Ok(0)
    })
}

/// rdma_destroy_id(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_destroy_id")]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    minus_one("rdma_destroy_id", || {
        let found = find_shared::<CmId>(id)?;
        found.end();
        ack_kept(&found);
        found.unacknowledged.wait();
        take_shared::<CmId>(id)?;
        if found.lock().is_sync {
            let channel = found.lock().channel.pointer();
            // SAFETY: made with the identifier, and used by it alone.
            unsafe { rdma_destroy_event_channel(channel) };
        }
        Ok(0)
    })
}

/// Acknowledges the event that a synchronous call has left in the identifier.
pub(crate) fn ack_kept(id: &CmId) {
    let c = id.pointer();
    // SAFETY: the field is ours; a foreign pointer in it is refused.
    unsafe {
        let event = std::mem::replace(&mut (*c).event, std::ptr::null_mut());
        if !event.is_null() {
            rdma_ack_cm_event(event);
        }
    }
}

/// rdma_migrate_id(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_migrate_id")]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    minus_one("rdma_migrate_id", || {
        let found = find_shared::<CmId>(id)?;
        let was_sync = found.lock().is_sync;
        if was_sync && channel.is_null() {
            return fail(libc::EINVAL);
        }
        let old = found.lock().channel.pointer();
        let to = if channel.is_null() { EventChannel::create()? } else { find_shared(channel)? };
        found.migrate(to, channel.is_null())?;
        if was_sync {
            ack_kept(&found);
            // SAFETY: made with the identifier, and used by it alone.
            unsafe { rdma_destroy_event_channel(old) };
        }
        // Events that the program still holds came through the old channel.
        found.unacknowledged.wait();
        Ok(0)
    })
}
