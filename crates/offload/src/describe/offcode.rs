//! The description of one offcode, `offcode.toml`: what it is, its bodies, what it needs.
//!
//! Never looks at the files that it names, and knows no application.

mod parse;
#[cfg(test)]
mod tests;

pub(super) use parse::attributes;

use super::fault::TextFault;
use super::name::{
    AttributeName, ImportName, OffcodeName, OffcodeVersion, PackagePath, PortName, QualifiedName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// The name of the file in a package's directory.
pub const OFFCODE_FILE: &str = "offcode.toml";
/// Bytes of the file, at most.
pub const OFFCODE_FILE_LEN_MAX: usize = 256 << 10;
/// Ports of an offcode, at most.
pub const PORTS_MAX: usize = 64;
/// Imports of an offcode, at most.
pub const IMPORTS_MAX: usize = 64;
/// Interfaces of an offcode, at most.
pub const INTERFACES_MAX: usize = 64;
/// Bodies of an offcode, at most.
pub const BODIES_MAX: usize = 8;
/// Libraries of a body, at most.
pub const LIBRARIES_MAX: usize = 64;
/// Attributes of an offcode's own, at most.
pub const ATTRIBUTES_MAX: usize = 64;
/// Bytes of an attribute's value, at most.
pub const ATTRIBUTE_LEN_MAX: usize = 4096;

/// What an offcode is, as its description says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffcodeFile {
    /// Its name.
    pub name: OffcodeName,
    /// Its version.
    pub version: OffcodeVersion,
    /// What identifies it: pinned, or made of name and version by [`OffcodeFile::derived_guid`].
    pub guid: Uuid,
    /// The interfaces that it offers; a Call names one by its index.
    pub interfaces: Vec<QualifiedName>,
    /// Directories of the package that have the WIT files.
    pub paths: Vec<PackagePath>,
    /// Its ports; the guest names one by its index.
    pub ports: Vec<PortName>,
    /// Its bodies: the same offcode for devices of different kinds.
    pub bodies: Vec<OffcodeBody>,
    /// What it needs of a device.
    pub needs: OffcodeNeeds,
    /// What it calls; the guest names one by its index.
    pub imports: Vec<OffcodeImport>,
    /// Its attributes at first.
    pub attributes: AttributeSet,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// The application's own process.
    Host,
    /// A process of its own on a core of its own.
    Core,
    /// Next to the memory of a node.
    Node,
    /// The kernel's receive path of a network interface.
    Nic,
}

impl DeviceKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Host, Self::Core, Self::Node, Self::Nic];

    /// Its word in descriptions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Core => "core",
            Self::Node => "node",
            Self::Nic => "nic",
        }
    }
}

/// Code of an offcode for some kinds of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffcodeBody {
    /// A WebAssembly module.
    Wasm {
        /// The module.
        file: PackagePath,
        /// Modules that it imports, linked when it is loaded.
        libraries: Vec<PackagePath>,
        /// Who links them.
        link: LinkPlace,
    },
    /// A program for the kernel: an object file by clang.
    Bpf {
        /// The object.
        file: PackagePath,
        /// The program in it.
        program: String,
    },
    /// A part of this program, by name.
    Builtin {
        /// Its name.
        name: OffcodeName,
    },
}

impl OffcodeBody {
    /// The kinds of devices that run it.
    #[must_use]
    pub fn device_kinds(&self) -> &'static [DeviceKind] {
        match self {
            Self::Wasm { .. } => &[DeviceKind::Host, DeviceKind::Core, DeviceKind::Node],
            Self::Bpf { .. } => &[DeviceKind::Nic],
            Self::Builtin { .. } => &[DeviceKind::Host, DeviceKind::Core],
        }
    }

    /// Its word in descriptions.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Wasm { .. } => "wasm",
            Self::Bpf { .. } => "bpf",
            Self::Builtin { .. } => "builtin",
        }
    }
}

/// Who links a body with its libraries (the paper, section 4.2: both ways).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPlace {
    /// The device is given the modules, and links them.
    #[default]
    Device,
    /// The host merges the modules into one, and the device compiles it.
    Host,
}

/// What an offcode needs of the device that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffcodeNeeds {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Whether it reads clocks.
    pub clock: bool,
    /// Whether it sets timers.
    pub timers: bool,
    /// Kinds of devices that it may run on; none says all that a body runs on.
    pub devices: Option<BTreeSet<DeviceKind>>,
    /// Thousandths of a processor that it takes.
    pub cpu_permille: u32,
}

impl OffcodeNeeds {
    /// Bytes of memory if the description says nothing.
    pub const MEMORY_BYTES: u64 = 1 << 20;
    /// Bytes of memory at most: what 32-bit WebAssembly can address.
    pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
    /// Thousandths of a processor if the description says nothing.
    pub const CPU_PERMILLE: u32 = 50;
}

impl Default for OffcodeNeeds {
    fn default() -> Self {
        Self {
            memory_bytes: Self::MEMORY_BYTES,
            clock: false,
            timers: false,
            devices: None,
            cpu_permille: Self::CPU_PERMILLE,
        }
    }
}

/// What a reference asks of the layout (the paper, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReferenceKind {
    /// Both exist, anywhere.
    #[default]
    Link,
    /// Both run on the same device.
    Pull,
    /// Both are offloaded, or neither.
    Gang,
    /// If the first is offloaded, so is the second.
    GangIf,
}

impl ReferenceKind {
    /// Its word in descriptions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Pull => "pull",
            Self::Gang => "gang",
            Self::GangIf => "gang-if",
        }
    }
}

/// Another offcode that this one calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffcodeImport {
    /// Its name in this offcode.
    pub name: ImportName,
    /// The interface that is called.
    pub interface: QualifiedName,
    /// The package that is created if the application names none: a name, or a path from this
    /// package's directory.
    pub offcode: Option<String>,
    /// The GUID that the called offcode must have, if the description pins it.
    pub guid: Option<Uuid>,
    /// What it asks of the layout.
    pub reference: ReferenceKind,
    /// The priority that it gives the called offcode; higher ones are offloaded first.
    pub priority: Option<u8>,
    /// The line of the description.
    pub line: u32,
}

/// Attributes, as a description sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeSet {
    /// `OBSOLETE_TIME`: an offcode that nobody uses for so long is removed.
    pub obsolete_time: Option<Duration>,
    /// `WATCHDOG_TIME`: an entry that takes longer ends the offcode.
    pub watchdog_time: Option<Duration>,
    /// `OFFLOAD_PRIORITY`: higher ones are offloaded first.
    pub offload_priority: Option<u8>,
    /// The offcode's own.
    pub own: BTreeMap<AttributeName, String>,
}

impl AttributeSet {
    /// These, and those of `base` that are not set here.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut own = base.own.clone();
        own.extend(self.own.clone());
        Self {
            obsolete_time: self.obsolete_time.or(base.obsolete_time),
            watchdog_time: self.watchdog_time.or(base.watchdog_time),
            offload_priority: self.offload_priority.or(base.offload_priority),
            own,
        }
    }
}

impl OffcodeFile {
    /// Reads the text of an `offcode.toml`.
    ///
    /// # Errors
    /// The first fault of the text, which its writer made.
    pub fn parse(text: &str) -> Result<Self, TextFault> {
        parse::offcode(text)
    }

    /// The GUID of a name and a version: the UUID of version 5 of `NAME@VERSION` in the space that
    /// interfaces have, too, whose names differ by their colon.
    #[must_use]
    pub fn derived_guid(name: &OffcodeName, version: &OffcodeVersion) -> Uuid {
        let space = Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"outboard.offcode");
        Uuid::new_v5(&space, format!("{name}@{version}").as_bytes())
    }

    /// The kinds of devices that it may run on: those of its bodies that its needs allow.
    #[must_use]
    pub fn device_kinds(&self) -> BTreeSet<DeviceKind> {
        let bodies = self.bodies.iter().flat_map(|body| body.device_kinds());
        let is_allowed = |kind: &DeviceKind| match &self.needs.devices {
            Some(devices) => devices.contains(kind),
            None => true,
        };
        bodies.copied().filter(is_allowed).collect()
    }

    /// The body for a kind of device: the first that runs there.
    #[must_use]
    pub fn body(&self, kind: DeviceKind) -> Option<&OffcodeBody> {
        let is_allowed = self.device_kinds().contains(&kind);
        self.bodies.iter().find(|body| is_allowed && body.device_kinds().contains(&kind))
    }
}
