//! Interfaces: finding one, and listing which of them can be devices.
//!
//! Never remembers: every function asks the kernel, in the network namespace of its thread.

use std::fs;

use rustix::thread::CapabilitySet;

use crate::error::NicError;
use crate::route::{RouteLink, RouteSocket};

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// The other end of the wire is there.
const IFF_LOWER_UP: u32 = 1 << 16;

/// An interface as it was when the kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetInterface {
    /// The number by which the kernel knows it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is switched on and has a wire.
    pub up: bool,
    /// Whether it only leads back to this machine.
    pub loopback: bool,
    /// Bytes of a packet at most, without the Ethernet header.
    pub mtu: u32,
    /// What kind of virtual interface ("veth", "bridge"), or the driver of its hardware.
    pub driver: String,
    /// The XDP program in its path, if there is one: 0 if the kernel does not say which.
    pub xdp_program: Option<u32>,
}

impl NetInterface {
    /// The interface of that name.
    ///
    /// # Errors
    /// [`NicError::NoSuchInterface`]; [`NicError::System`] when the kernel cannot be asked.
    pub fn named(name: &str) -> Result<Self, NicError> {
        let links = RouteSocket::asking()?.links()?;
        let link = links.into_iter().find(|link| link.name == name);
        let missing = || NicError::NoSuchInterface { name: name.to_owned() };
        link.map(|link| Self::of(&link)).ok_or_else(missing)
    }

    /// The interface with that index.
    ///
    /// # Errors
    /// As [`NetInterface::named`].
    pub fn indexed(index: u32) -> Result<Self, NicError> {
        let link = RouteSocket::asking()?.link(index)?;
        let missing = || NicError::NoSuchInterface { name: format!("with index {index}") };
        link.map(|link| Self::of(&link)).ok_or_else(missing)
    }

    pub(crate) fn of(link: &RouteLink) -> Self {
        Self {
            index: link.index,
            name: link.name.clone(),
            up: is_up(link),
            loopback: link.flags & IFF_LOOPBACK != 0,
            mtu: link.mtu,
            driver: driver(link),
            xdp_program: (link.xdp.0 != 0).then(|| link.xdp.1.unwrap_or_default()),
        }
    }
}

pub(crate) fn is_up(link: &RouteLink) -> bool {
    link.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP
}

/// Why an interface is no device at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It leads back to this machine.
    #[error("a loopback interface carries this machine's own services and is never used")]
    Loopback,
    /// Another program is in its path.
    #[error("XDP program {program} is in its path already")]
    Occupied {
        /// The kernel's number of that program; 0 if it does not say.
        program: u32,
    },
    /// This process may not attach programs.
    #[error("this process lacks {missing}")]
    Capability {
        /// Which capabilities.
        missing: String,
    },
}

/// An interface as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicDevice {
    /// The interface.
    pub interface: NetInterface,
    /// How many addresses it has.
    pub addresses: usize,
    /// Why it cannot be used, if it cannot.
    pub unusable: Option<Unusable>,
}

/// All interfaces of this network namespace, by their indices.
///
/// # Errors
/// [`NicError::System`] when the kernel cannot be asked.
pub fn devices() -> Result<Vec<NicDevice>, NicError> {
    let mut socket = RouteSocket::asking()?;
    let addresses = socket.addresses()?;
    let missing = missing_capabilities();
    let device = |link: &RouteLink| {
        let interface = NetInterface::of(link);
        let addresses = addresses.get(&link.index).copied().unwrap_or_default();
        let unusable = unusable(&interface, missing.as_deref());
        NicDevice { interface, addresses, unusable }
    };
    let mut devices: Vec<NicDevice> = socket.links()?.iter().map(device).collect();
    devices.sort_by_key(|device| device.interface.index);
    Ok(devices)
}

fn unusable(interface: &NetInterface, missing: Option<&str>) -> Option<Unusable> {
    if interface.loopback {
        return Some(Unusable::Loopback);
    }
    if let Some(program) = interface.xdp_program {
        return Some(Unusable::Occupied { program });
    }
    missing.map(|missing| Unusable::Capability { missing: missing.to_owned() })
}

/// The capabilities for loading and attaching that this thread lacks, or none. In a user namespace
/// of its own a process may seem to have them; the kernel then refuses by itself.
pub(crate) fn missing_capabilities() -> Option<String> {
    let Ok(sets) = rustix::thread::capabilities(None) else { return None };
    let has = |capability| sets.effective.contains(capability);
    // CAP_SYS_ADMIN stands for what was once part of it.
    let admin = has(CapabilitySet::SYS_ADMIN);
    let bpf = admin || has(CapabilitySet::BPF);
    let needed = [(bpf, "CAP_BPF"), (has(CapabilitySet::NET_ADMIN), "CAP_NET_ADMIN")];
    let missing: Vec<&str> =
        needed.iter().filter(|(there, _)| !there).map(|(_, name)| *name).collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// The kind of a virtual interface, else the driver of the hardware, else its bus.
fn driver(link: &RouteLink) -> String {
    if let Some(kind) = &link.kind {
        return kind.clone();
    }
    let directory = format!("/sys/class/net/{}", link.name);
    // The directory is that of the namespace in which it was mounted: it may be another's.
    let ours = fs::read_to_string(format!("{directory}/ifindex"))
        .is_ok_and(|index| index.trim() == link.index.to_string());
    let driver = || fs::read_link(format!("{directory}/device/driver")).ok();
    let named = ours.then(driver).flatten();
    let named = named.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    named.or_else(|| link.bus.clone()).unwrap_or_else(|| "virtual".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_and_never_usable() {
        let devices = devices().unwrap();
        let lo = devices.iter().find(|device| device.interface.name == "lo").unwrap();
        assert_eq!(lo.unusable, Some(Unusable::Loopback));
        assert_eq!(NetInterface::named("lo").unwrap(), lo.interface);
        assert_eq!(NetInterface::indexed(lo.interface.index).unwrap(), lo.interface);
    }

    #[test]
    fn a_name_that_is_not_there_is_said() {
        let error = NetInterface::named("no-such-0").unwrap_err().to_string();
        assert!(error.starts_with("there is no network interface no-such-0 here"), "{error}");
        assert!(NetInterface::indexed(u32::MAX >> 1).is_err());
    }

    #[test]
    fn the_first_reason_is_the_strongest() {
        let mut interface = NetInterface {
            index: 9,
            name: "e".into(),
            up: false,
            loopback: false,
            mtu: 1500,
            driver: "veth".into(),
            xdp_program: None,
        };
        assert_eq!(unusable(&interface, None), None);
        let lacks = Unusable::Capability { missing: "CAP_BPF".into() };
        assert_eq!(unusable(&interface, Some("CAP_BPF")), Some(lacks));
        interface.xdp_program = Some(3);
        let occupied = Some(Unusable::Occupied { program: 3 });
        assert_eq!(unusable(&interface, Some("CAP_BPF")), occupied);
        interface.loopback = true;
        assert_eq!(unusable(&interface, None), Some(Unusable::Loopback));
    }
}
