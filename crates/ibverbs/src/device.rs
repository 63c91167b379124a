//! Devices: one for each IPv4 address of this machine that the environment does not leave out.
//! They are made once and live as long as the process.

use crate::abi::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::{ibv_device, ibv_node_type, ibv_transport_type};
use crate::config::{Personality, config};
use crate::object::{Kind, Object, Shown, give};
use std::ffi::CStr;
use std::mem::offset_of;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

/// A device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Device {
    shown: Shown<ibv_device>,
    tag: Kind,
    /// Where connections of this device come from and go to.
    pub(crate) address: Ipv4Addr,
    /// The interface that has the address.
    pub(crate) interface: String,
    /// Its number, from 0.
    pub(crate) index: usize,
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
        let addresses = addresses(config().devices.as_deref());
        addresses.into_iter().enumerate().map(|(index, found)| publish(index, found)).collect()
    });
    &DEVICES
}

fn publish(index: usize, (interface, address): (String, Ipv4Addr)) -> DevicePtr {
    let shown = Shown::<ibv_device>::zeroed();
    let (node_type, transport_type): (ibv_node_type, ibv_transport_type) =
        match config().personality {
            Personality::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
            Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        };
    let name = format!("outboard{index}");
    // SAFETY: nobody else knows the structure yet.
    let c = unsafe { &mut *shown.get() };
    c.node_type = node_type;
    c.transport_type = transport_type;
    put(&mut c.name, &name);
    put(&mut c.dev_name, &format!("uverbs{index}"));
    // Programs may look there for more; there is nothing, and that they take as "unknown".
    put(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/{name}"));
    put(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    let device = Device { shown, tag: Kind::Device, address, interface, index };
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
            eprintln!(
                "outboard: OUTBOARD_DEVICES names {name:?}, which is neither an interface that is \
                 up and has an IPv4 address nor such an address; it is left out"
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
