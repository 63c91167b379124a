//! The layout file of an application, `APP.toml`: its offcodes, what connects them, and where they
//! may run, apart from the program.
//!
//! Never reads the packages that it names.

mod parse;
#[cfg(test)]
mod tests;

use super::fault::TextFault;
use super::name::{ImportName, NicName, NodeAddress, OffcodeName, PortName};
use super::offcode::{AttributeSet, DeviceKind, ReferenceKind};
use std::fmt;

/// Bytes of the file, at most.
pub const APP_FILE_LEN_MAX: usize = 1 << 20;
/// Offcodes of an application, at most.
pub const OFFCODES_MAX: usize = 1024;
/// Channels of an application, at most.
pub const CHANNELS_MAX: usize = 4096;
/// Receivers of a multicast channel, at most.
pub const RECEIVERS_MAX: usize = 256;
/// Constraints of a layout, besides those of references.
pub const CONSTRAINTS_MAX: usize = 4096;

/// What an application is made of, as its layout file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppFile {
    /// Its name.
    pub name: OffcodeName,
    /// Its offcodes, in the file's order.
    pub offcodes: Vec<AppOffcode>,
    /// Its channels, in the file's order.
    pub channels: Vec<AppChannel>,
    /// Which offcode serves an import, where the interface alone does not say it.
    pub imports: Vec<AppImport>,
    /// What its layout must obey, besides its references.
    pub constraints: Vec<AppConstraint>,
    /// Which devices may be used, besides the host.
    pub devices: AppDevices,
}

/// An offcode of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOffcode {
    /// Its name in the application.
    pub name: OffcodeName,
    /// Its package's directory, relative to the file.
    pub package: String,
    /// Where it must run.
    pub on: Option<DevicePin>,
    /// Its priority; higher ones are offloaded first.
    pub priority: Option<u8>,
    /// Attributes in place of its description's.
    pub attributes: AttributeSet,
    /// What happens when its device is lost.
    pub when_lost: WhenLost,
    /// What happens when its device has too much to do.
    pub when_loaded: WhenLoaded,
    /// The line of the file.
    pub line: u32,
}

/// A device, or a kind of devices, that an offcode must run on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DevicePin {
    /// Any device of a kind.
    Any(DeviceKind),
    /// The core of this number.
    Core(u32),
    /// This node.
    Node(NodeAddress),
    /// This network interface.
    Nic(NicName),
}

impl DevicePin {
    /// The kind of device.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        match self {
            Self::Any(kind) => *kind,
            Self::Core(_) => DeviceKind::Core,
            Self::Node(_) => DeviceKind::Node,
            Self::Nic(_) => DeviceKind::Nic,
        }
    }
}

impl fmt::Display for DevicePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(kind) => f.write_str(kind.as_str()),
            Self::Core(number) => write!(f, "core:{number}"),
            Self::Node(node) => write!(f, "node:{node}"),
            Self::Nic(nic) => write!(f, "nic:{nic}"),
        }
    }
}

/// What happens to an offcode when its device is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLost {
    /// It ends, and what depends on it.
    #[default]
    End,
    /// It starts anew on another device.
    Move,
}

/// What happens to an offcode when its device has too much to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLoaded {
    /// It stays.
    #[default]
    Stay,
    /// It may be moved.
    Move,
}

/// An end of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelEnd {
    /// The application itself, by a name if it has several ends: `app` or `app.NAME`.
    App(Option<PortName>),
    /// A port of an offcode: `OFFCODE.PORT`.
    Port(OffcodeName, PortName),
}

impl fmt::Display for ChannelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App(None) => f.write_str(APP_END),
            Self::App(Some(name)) => write!(f, "{APP_END}.{name}"),
            Self::Port(offcode, port) => write!(f, "{offcode}.{port}"),
        }
    }
}

/// The word for the application as a channel's end; no offcode may have it as its name.
pub const APP_END: &str = "app";

/// A channel between two ends, or from one to several. An end sends into one channel at most; it
/// may receive from several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppChannel {
    /// The end that sends.
    pub from: ChannelEnd,
    /// The ends that receive: one, or several of a multicast channel.
    pub to: Vec<ChannelEnd>,
    /// Its settings.
    pub settings: ChannelSettings,
    /// The line of the file.
    pub line: u32,
}

impl AppChannel {
    /// Whether each message goes to several ends.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.to.len() > 1
    }
}

/// How a channel behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Whether it pushes back instead of dropping for want of a descriptor.
    pub reliable: bool,
    /// Whether messages are copied.
    pub copy: CopyMode,
    /// Messages that it holds.
    pub depth: u32,
    /// Bytes of a message, at most.
    pub message_bytes_max: u32,
}

impl ChannelSettings {
    /// Messages that a channel holds, at most.
    pub const DEPTH_MAX: u32 = 1 << 16;
    /// Bytes of a message, at most.
    pub const MESSAGE_BYTES_MAX: u32 = 1 << 24;
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self { reliable: true, copy: CopyMode::Copy, depth: 64, message_bytes_max: 64 << 10 }
    }
}

/// Whether a channel copies its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// They are written where the receiver reads them.
    Zero,
    /// They are copied in and out.
    Copy,
}

/// Which offcode serves an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppImport {
    /// The offcode that imports.
    pub offcode: OffcodeName,
    /// The import's name there.
    pub import: ImportName,
    /// The offcode that serves it.
    pub to: OffcodeName,
    /// The line of the file.
    pub line: u32,
}

/// A constraint on a layout, between offcodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppConstraint {
    /// What it asks.
    pub kind: ReferenceKind,
    /// Between which offcodes; of a one-sided Gang, first the one that is offloaded if anything.
    pub offcodes: Vec<OffcodeName>,
    /// The line of the file.
    pub line: u32,
}

/// Devices that may be used, besides the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppDevices {
    /// Processors by their numbers.
    pub cores: Vec<u32>,
    /// Nodes.
    pub nodes: Vec<NodeAddress>,
    /// Network interfaces of this machine.
    pub nics: Vec<NicName>,
}

impl AppDevices {
    /// Whether a pin names one of these devices, or the host.
    #[must_use]
    pub fn has(&self, pin: &DevicePin) -> bool {
        match pin {
            DevicePin::Any(DeviceKind::Host) => true,
            DevicePin::Any(DeviceKind::Core) => !self.cores.is_empty(),
            DevicePin::Any(DeviceKind::Node) => !self.nodes.is_empty(),
            DevicePin::Any(DeviceKind::Nic) => !self.nics.is_empty(),
            DevicePin::Core(number) => self.cores.contains(number),
            DevicePin::Node(node) => self.node(node).is_some(),
            DevicePin::Nic(nic) => self.nics.contains(nic),
        }
    }

    /// The node that a pin means: named as it is, or by its host alone.
    #[must_use]
    pub fn node(&self, pin: &NodeAddress) -> Option<&NodeAddress> {
        let whole = self.nodes.iter().find(|node| *node == pin);
        whole.or_else(|| self.nodes.iter().find(|node| node.host() == pin.as_str()))
    }
}

impl AppFile {
    /// Reads the text of a layout file.
    ///
    /// # Errors
    /// The first fault of the text, which its writer made.
    pub fn parse(text: &str) -> Result<Self, TextFault> {
        parse::app(text)
    }

    /// The offcode of this name.
    #[must_use]
    pub fn offcode(&self, name: &OffcodeName) -> Option<&AppOffcode> {
        self.offcodes.iter().find(|offcode| offcode.name == *name)
    }
}
