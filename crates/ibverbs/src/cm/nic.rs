//! Devices as the connection manager uses them: each is opened once, for ever, with a protection
//! domain for identifiers that get none from their program.

use crate::abi::{ibv_context, ibv_device, ibv_pd};
use crate::context::Context;
use crate::device::{Device, devices};
use crate::guard::{Errno, Outcome, fail};
use crate::object::find;
use libc::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An open device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nic {
    pub(crate) device: &'static Device,
    pub(crate) verbs: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
}

// SAFETY: the pointers are to objects of this library that live for ever and may be shared.
unsafe impl Send for Nic {}
// SAFETY: as above.
unsafe impl Sync for Nic {}

impl Nic {
    pub(crate) fn context(&self) -> Outcome<&'static Context> {
        find(self.verbs)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By generation of the process and number of the device: a child process has none of its parent's
/// devices.
static OPEN: Mutex<Open> = Mutex::new(Open::new());

type Open = BTreeMap<(u32, usize), Nic>;

/// The lock that this file holds over a fork.
pub(crate) type OpenNics = (MutexGuard<'static, Open>, MutexGuard<'static, BTreeSet<usize>>);

/// Locks it. Opening a device takes other locks of that kind: this comes before them.
pub(crate) fn hold_for_fork() -> OpenNics {
    (locked(&OPEN), locked(&LISTS))
}

/// The calling thread is about to sleep on an event channel.
pub(crate) fn rest() {
    let generation = crate::fork::generation();
    for (_, nic) in locked(&OPEN).iter().filter(|((of, _), _)| *of == generation) {
        if let Ok(context) = nic.context() {
            context.native.rest();
        }
    }
}

/// True for a context that is open here, and stays so.
pub(crate) fn is_open(context: *mut ibv_context) -> bool {
    locked(&OPEN).values().any(|nic| nic.verbs == context)
}

fn open(pointer: *mut ibv_device) -> Outcome<Nic> {
    let device: &'static Device = find(pointer)?;
    let key = (crate::fork::generation(), device.index);
    let mut open = locked(&OPEN);
    if let Some(nic) = open.get(&key) {
        return Ok(*nic);
    }
    let verbs = Context::open(pointer)?;
    // SAFETY: the context has just been made.
    let pd = unsafe { crate::pd::ibv_alloc_pd(verbs) };
    let nic = Nic { device, verbs, pd };
    open.insert(key, nic);
    Ok(nic)
}

/// Every device.
pub(crate) fn all() -> Outcome<Vec<Nic>> {
    devices().iter().map(|device| open(device.0)).collect()
}

/// The device with this address; the loopback's takes the whole loopback network. Where loopback is
/// left out, the first device takes it: host names often stand for a loopback address, and
/// libfabric binds to them.
///
/// # Errors
/// ENODEV when no device has it.
pub(crate) fn at(address: Ipv4Addr) -> Outcome<Nic> {
    let is = |wanted: &dyn Fn(Ipv4Addr) -> bool| {
        devices().iter().find(|pointer| {
            let device: Outcome<&Device> = find(pointer.0);
            device.is_ok_and(|device| wanted(device.address))
        })
    };
    let exact = is(&|has| has == address);
    let within = || is(&|has| has.is_loopback() && address.is_loopback());
    let first = || devices().first().filter(|_| address.is_loopback());
    let found = exact.or_else(within).or_else(first);
    found.map_or_else(|| fail(libc::ENODEV), |pointer| open(pointer.0))
}

/// True for the loopback device if there is no other: it is the last in the list.
pub(crate) fn is_only(nic: Nic) -> bool {
    nic.device.address.is_loopback() && devices().len() == 1
}

/// From which address of this machine packets to `peer` leave.
///
/// # Errors
/// The kernel's error when there is no route.
pub(crate) fn source_towards(peer: SocketAddrV4) -> Outcome<Ipv4Addr> {
    // Nothing is sent: connecting a datagram socket only asks the routing table.
    let probe = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
    let port = if peer.port() == 0 { 1 } else { peer.port() };
    probe.connect(SocketAddrV4::new(*peer.ip(), port))?;
    match probe.local_addr().map(|address: SocketAddr| address.ip())? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => fail(libc::EAFNOSUPPORT),
    }
}

/// Lists that programs hold.
static LISTS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// rdma_get_devices(3).
///
/// # Safety
/// As the manual page says.
#[unsafe(export_name = "outboard_rdma_get_devices")]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let mut count = 0;
    let list = crate::guard::pointer("rdma_get_devices", || {
        let nics = all()?;
        // SAFETY: room for that many pointers and the null behind them.
        let list = unsafe { libc::calloc(nics.len() + 1, size_of::<*mut ibv_context>()) };
        let list = list.cast::<*mut ibv_context>();
        if list.is_null() {
            return fail(libc::ENOMEM);
        }
        for (index, nic) in nics.iter().enumerate() {
            // SAFETY: within the room.
            unsafe { list.add(index).write(nic.verbs) };
        }
        count = c_int::try_from(nics.len()).map_err(|_| Errno(libc::EOVERFLOW))?;
        locked(&LISTS).insert(list.addr());
        Ok(list)
    });
    if !num_devices.is_null() {
        // SAFETY: the program gave room for a number.
        unsafe { *num_devices = count };
    }
    list
}

/// rdma_free_devices(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_free_devices")]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    let _done = crate::guard::code("rdma_free_devices", || {
        if locked(&LISTS).remove(&list.addr()) {
            // SAFETY: `rdma_get_devices` allocated it, and it is freed once.
            unsafe { libc::free(list.cast()) };
        }
        Ok(())
    });
}
