//! Devices: one for each IPv4 address of this machine that the environment does not leave out.
//! They are made once and live as long as the process.

use crate::abi::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::{ibv_device, ibv_node_type, ibv_transport_type};
use crate::config::{Personality, config};
use crate::guard::{Errno, Outcome, fail, minus_one, pointer};
use crate::interface::hardware_address;
use crate::object::{Kind, Object, Shown, find, give};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::mem::offset_of;
use std::net::Ipv4Addr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Device {
    shown: Shown<ibv_device>,
    tag: Kind,
    /// The IPv4 address of the device's connections.
    pub(crate) address: Ipv4Addr,
    /// The interface that has the address.
    pub(crate) interface: String,
    /// Its number, from 0.
    pub(crate) index: usize,
    /// The Ethernet address of the interface, or one made up from the IPv4 address.
    pub(crate) mac: [u8; 6],
}

// SAFETY: the structure is the first field.
unsafe impl Object for Device {
    type C = ibv_device;
    const KIND: Kind = Kind::Device;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl Device {
    /// Eight bytes that no other device has: the second half of the Ethernet address distinguishes
    /// machines, the IPv4 address the devices of one machine. 02 marks a locally administered
    /// address.
    pub(crate) fn guid(&self) -> [u8; 8] {
        let [_, _, _, x, y, z] = self.mac;
        let [a, b, c, d] = self.address.octets();
        [2, x, y, z, a, b, c, d]
    }

    /// Its only GID: the IPv4 address mapped to IPv6 on RoCE; on iWARP the Ethernet address and
    /// zeros, as siw has it.
    pub(crate) fn gid(&self) -> [u8; 16] {
        match config().personality {
            Personality::Roce => self.address.to_ipv6_mapped().octets(),
            Personality::Iwarp => {
                let mut gid = [0; 16];
                gid[..6].copy_from_slice(&self.mac);
                gid
            }
        }
    }
}

/// A C pointer to a device that lives for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevicePtr(pub(crate) *mut ibv_device);

// SAFETY: devices never change and are never freed.
unsafe impl Send for DevicePtr {}
// SAFETY: as above.
unsafe impl Sync for DevicePtr {}

/// All devices, in order.
pub(crate) fn devices() -> &'static [DevicePtr] {
    static DEVICES: LazyLock<Vec<DevicePtr>> = LazyLock::new(|| {
        crate::fork::watch();
        let addresses = addresses(config().devices.as_deref());
        if addresses.is_empty() {
            say!("{}", why_none(config().devices.as_deref()));
        }
        addresses.into_iter().enumerate().map(|(index, found)| publish(index, found)).collect()
    });
    &DEVICES
}

fn why_none(chosen: Option<&[String]>) -> &'static str {
    match chosen {
        Some(_) => {
            "no device: OUTBOARD_DEVICES leaves out every address of this machine; unset it, or \
             name interfaces or IPv4 addresses as `ip -4 address` lists them"
        }
        None => {
            "no device: no interface of this machine is up and has an IPv4 address; \
             `ip link set lo up` gives at least loopback"
        }
    }
}

fn publish(index: usize, (interface, address): (String, Ipv4Addr)) -> DevicePtr {
    let shown = Shown::<ibv_device>::zeroed();
    let (node_type, transport_type): (ibv_node_type, ibv_transport_type) =
        match config().personality {
            Personality::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
            Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        };
    let name = format!("outboard{index}");
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    c.node_type = node_type;
    c.transport_type = transport_type;
    put(&mut c.name, &name);
    put(&mut c.dev_name, &format!("uverbs{index}"));
    // Programs may look there for more properties; they treat an empty directory as "unknown".
    put(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/{name}"));
    put(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    let [a, b, c, d] = address.octets();
    let mac = hardware_address(&interface).unwrap_or([2, 0, a, b, c, d]);
    let device = Device { shown, tag: Kind::Device, address, interface, index, mac };
    DevicePtr(give(Box::new(device)))
}

/// Copies a text into a C array, with a zero at the end.
pub(crate) fn put(array: &mut [libc::c_char], text: &str) {
    let room = array.len() - 1;
    for (to, from) in array[..room].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
}

/// Interfaces and their IPv4 addresses: those chosen, in the order chosen; otherwise all that are
/// up, loopback last.
fn addresses(chosen: Option<&[String]>) -> Vec<(String, Ipv4Addr)> {
    let mut all = interfaces();
    let Some(chosen) = chosen else {
        all.sort_by_key(|(_, address)| address.is_loopback());
        return all;
    };
    let named = |name: &String| {
        let found: Vec<_> = all
            .iter()
            .filter(|(interface, address)| interface == name || address.to_string() == *name)
            .cloned()
            .collect();
        if found.is_empty() {
            say!(
                "OUTBOARD_DEVICES names {name:?}, which is neither an interface that is \
                 up and has an IPv4 address nor such an address; it is left out{}",
                if name == "lo" { " (`ip link set lo up` would bring it)" } else { "" }
            );
        }
        found
    };
    chosen.iter().flat_map(named).collect()
}

fn interfaces() -> Vec<(String, Ipv4Addr)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: on success `list` is a list that freeifaddrs takes back.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: every entry is valid until the list is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        found.extend(address_of(entry));
        next = entry.ifa_next;
    }
    // SAFETY: nothing of the list is kept.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn address_of(entry: &libc::ifaddrs) -> Option<(String, Ipv4Addr)> {
    let up = entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
    if !up || entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: an address has at least a family, and an IPv4 one is a sockaddr_in.
    let address = unsafe {
        if i32::from((*entry.ifa_addr).sa_family) != libc::AF_INET {
            return None;
        }
        (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr
    };
    // SAFETY: interface names end with a zero.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
    Some((name, Ipv4Addr::from(u32::from_be(address))))
}

/// Lists given to the program, by address.
static LISTS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Locks the lists: for a moment, or over a fork.
pub(crate) fn lists() -> MutexGuard<'static, BTreeSet<usize>> {
    LISTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A list of all devices with a null at the end.
fn list() -> Outcome<*mut *mut ibv_device> {
    let devices = devices();
    // SAFETY: asks for zeroed memory.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    let list = list.cast::<*mut ibv_device>();
    if list.is_null() {
        return fail(libc::ENOMEM);
    }
    for (at, device) in devices.iter().enumerate() {
        // SAFETY: within what was asked for.
        unsafe { *list.add(at) = device.0 };
    }
    lists().insert(list.addr());
    Ok(list)
}

/// ibv_get_device_list(3).
///
/// # Safety
/// `num` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num: *mut libc::c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", || {
        let list = list();
        let count = if list.is_ok() { devices().len() } else { 0 };
        // SAFETY: the caller's word.
        if let Some(num) = unsafe { num.as_mut() } {
            *num = count.try_into().unwrap_or(libc::c_int::MAX);
        }
        list
    })
}

/// ibv_free_device_list(3). The devices stay as they are.
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    minus_one("ibv_free_device_list", || {
        if !lists().remove(&list.addr()) {
            return fail(libc::EINVAL);
        }
        // SAFETY: `list` made it, and it was not freed until now.
        unsafe { libc::free(list.cast()) };
        Ok(0)
    });
}

/// ibv_get_device_name(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const libc::c_char {
    pointer("ibv_get_device_name", || {
        let found: &Device = find(device)?;
        // SAFETY: the name never changes.
        Ok(unsafe { &raw mut (*found.shown.get()).name }.cast())
    })
}

/// ibv_get_device_guid(3): network order; 0 for what is no device.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let mut guid = 0;
    minus_one("ibv_get_device_guid", || {
        guid = u64::from_ne_bytes(find::<Device>(device)?.guid());
        Ok(0)
    });
    guid
}

/// ibv_get_device_index(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> libc::c_int {
    minus_one("ibv_get_device_index", || {
        find::<Device>(device)?.index.try_into().map_err(|_| Errno(libc::EOVERFLOW))
    })
}
