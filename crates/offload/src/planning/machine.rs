//! Devices: which of those that an application may use are there, and why others are not.
//!
//! It looks at this machine, opens nothing and connects to nobody: a node is taken to be there
//! until it is used.

use crate::describe::app::{AppDevices, DevicePin};
use crate::describe::offcode::DeviceKind;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;
use std::path::Path;

/// Bytes of memory for offcodes on one device of this machine, at most.
const MEMORY_BYTES: u64 = 2 << 30;

/// A device that offcodes may be placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineDevice {
    /// What people call it: `host`, `core:1`, `node:big:7411`, `nic:eth1`.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// As a layout file names it.
    pub pin: DevicePin,
    /// Why it cannot be used; `None`: it can.
    pub unusable: Option<String>,
    /// Bytes of memory for offcodes.
    pub memory_bytes: Option<u64>,
    /// Processor time for offcodes, in thousandths of a processor.
    pub load_per_mille: Option<u64>,
}

/// All devices that are asked for, the host first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The devices.
    pub devices: Vec<MachineDevice>,
}

impl Machine {
    /// The host, and the devices that a layout file allows.
    #[must_use]
    pub fn with(allowed: &AppDevices) -> Self {
        let processors = processors();
        let mut devices = vec![host(&processors)];
        devices.extend(allowed.cores.iter().map(|number| core(*number, &processors)));
        devices.extend(allowed.nodes.iter().map(|node| MachineDevice {
            name: format!("node:{node}"),
            kind: DeviceKind::Node,
            pin: DevicePin::Node(node.clone()),
            unusable: None,
            memory_bytes: None,
            load_per_mille: None,
        }));
        devices.extend(
            allowed.nics.iter().map(|nic| interface(nic.as_str(), DevicePin::Nic(nic.clone()))),
        );
        Self { devices }
    }

    /// What this machine itself has: the host, its processors, its network interfaces.
    #[must_use]
    pub fn here() -> Self {
        let processors = processors();
        let mut devices = vec![host(&processors)];
        devices.extend(processors.iter().map(|number| core(*number, &processors)));
        let mut names: Vec<String> = fs::read_dir("/sys/class/net")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        for name in names {
            if let Ok(nic) = name.parse() {
                devices.push(interface(&name, DevicePin::Nic(nic)));
            }
        }
        Self { devices }
    }
}

/// The processors that this process may run on.
fn processors() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let is_set = |number: &u32| set.is_set(*number as usize);
    (0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(1024)).filter(is_set).collect()
}

fn host(processors: &[u32]) -> MachineDevice {
    MachineDevice {
        name: "host".to_owned(),
        kind: DeviceKind::Host,
        pin: DevicePin::Any(DeviceKind::Host),
        unusable: None,
        memory_bytes: Some(MEMORY_BYTES),
        load_per_mille: Some(1000 * processors.len().max(1) as u64),
    }
}

fn core(number: u32, processors: &[u32]) -> MachineDevice {
    let not_there = || {
        let own: Vec<String> = processors.iter().map(u32::to_string).collect();
        format!("this process may run on processors {} alone", own.join(", "))
    };
    MachineDevice {
        name: format!("core:{number}"),
        kind: DeviceKind::Core,
        pin: DevicePin::Core(number),
        unusable: (!processors.contains(&number)).then(not_there),
        memory_bytes: Some(MEMORY_BYTES),
        load_per_mille: Some(1000),
    }
}

fn interface(name: &str, pin: DevicePin) -> MachineDevice {
    MachineDevice {
        name: format!("nic:{name}"),
        kind: DeviceKind::Nic,
        pin,
        unusable: unusable_interface(name),
        memory_bytes: Some(MEMORY_BYTES),
        load_per_mille: None,
    }
}

fn unusable_interface(name: &str) -> Option<String> {
    if name == "lo" {
        return Some("a program there could cut this machine off from itself".to_owned());
    }
    if !Path::new("/sys/class/net").join(name).exists() {
        return Some("there is no such interface".to_owned());
    }
    let may = rustix::process::geteuid().is_root();
    (!may).then(|| "programs in the kernel need root's rights".to_owned())
}
