//! An application with all that it needs: its layout file, the packages of its offcodes, and the
//! offcodes that these require in turn.
//!
//! Never decides where an offcode runs.

mod priority;
mod resolve;
#[cfg(test)]
mod tests;

use super::app::{AppDevices, AppOffcode, ChannelSettings, DevicePin, WhenLoaded, WhenLost};
use super::fault::DescribeError;
use super::name::{OffcodeName, PortName};
use super::offcode::{AttributeSet, ReferenceKind};
use super::package::OffcodePackage;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of all packages of an application, at most.
pub const APPLICATION_LEN_MAX: usize = 256 << 20;

/// An application, ready to be laid out.
#[derive(Clone, Debug)]
pub struct Application {
    /// Its layout file.
    pub path: PathBuf,
    /// Its name.
    pub name: OffcodeName,
    /// Its offcodes: those of the file in its order, then those that others require.
    pub offcodes: Vec<ApplicationOffcode>,
    /// Which offcode serves each import of each.
    pub references: Vec<ApplicationReference>,
    /// Constraints of the file.
    pub constraints: Vec<ApplicationConstraint>,
    /// Channels of the file.
    pub channels: Vec<ApplicationChannel>,
    /// Devices that may be used, besides the host.
    pub devices: AppDevices,
}

/// An offcode of an application.
#[derive(Clone, Debug)]
pub struct ApplicationOffcode {
    /// Its name in the application.
    pub name: OffcodeName,
    /// Its package; several offcodes may share one.
    pub package: Arc<OffcodePackage>,
    /// Where it must run.
    pub on: Option<DevicePin>,
    /// Its priority: its own, or inherited along references until a Link.
    pub priority: u8,
    /// Why it has that priority.
    pub priority_source: PrioritySource,
    /// Attributes: those of the layout file over those of the description.
    pub attributes: AttributeSet,
    /// What happens when its device is lost.
    pub when_lost: WhenLost,
    /// What happens when its device has too much to do.
    pub when_loaded: WhenLoaded,
    /// Why it is part of the application.
    pub origin: OffcodeOrigin,
}

/// Where a priority comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrioritySource {
    /// Nobody has set one.
    Default,
    /// The offcode's description.
    Description,
    /// The layout file.
    LayoutFile,
    /// The reference of this index sets it.
    Reference(usize),
    /// It is the priority of whoever requires it, by the reference of this index.
    Inherited(usize),
}

/// Why an offcode is part of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffcodeOrigin {
    /// The layout file lists it, in this line.
    Listed {
        /// The line.
        line: u32,
    },
    /// An import names its package, and nothing that is listed serves it.
    Required {
        /// The index of the offcode that imports it.
        by: usize,
        /// The index of the import there.
        import: usize,
    },
}

/// A reference: an import, and the offcode that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationReference {
    /// The index of the offcode that imports.
    pub from: usize,
    /// The index of the import there.
    pub import: usize,
    /// The index of the offcode that serves it.
    pub to: usize,
    /// The index, there, of the interface that is called.
    pub interface: usize,
    /// What it asks of the layout.
    pub kind: ReferenceKind,
}

/// A constraint of the layout file, by indices of offcodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationConstraint {
    /// What it asks.
    pub kind: ReferenceKind,
    /// Between which offcodes.
    pub offcodes: Vec<usize>,
    /// The line of the layout file.
    pub line: u32,
}

/// A channel, by indices of offcodes and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationChannel {
    /// The end that sends.
    pub from: ApplicationEnd,
    /// The ends that receive; several of a multicast channel.
    pub to: Vec<ApplicationEnd>,
    /// Its settings.
    pub settings: ChannelSettings,
    /// The line of the layout file.
    pub line: u32,
}

/// An end of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ApplicationEnd {
    /// The application itself.
    App(Option<PortName>),
    /// A port of an offcode.
    Port {
        /// The index of the offcode.
        offcode: usize,
        /// The index of the port there.
        port: usize,
    },
}

impl Application {
    /// Reads a layout file and all packages that it needs.
    ///
    /// # Errors
    /// [`DescribeError`]: the first fault of a file, with its line and what to write.
    pub fn read(path: &Path) -> Result<Self, DescribeError> {
        resolve::read(path)
    }

    /// The index of the offcode of this name.
    #[must_use]
    pub fn index(&self, name: &OffcodeName) -> Option<usize> {
        self.offcodes.iter().position(|offcode| offcode.name == *name)
    }
}

impl ApplicationOffcode {
    /// An offcode that the file lists; its priority is not known yet.
    fn listed(listed: AppOffcode, package: Arc<OffcodePackage>) -> Self {
        let description = &package.file.attributes;
        let attributes = listed.attributes.over(description);
        let own = listed.priority.or(listed.attributes.offload_priority);
        let (priority, priority_source) = match (own, description.offload_priority) {
            (Some(priority), _) => (priority, PrioritySource::LayoutFile),
            (None, Some(priority)) => (priority, PrioritySource::Description),
            (None, None) => (0, PrioritySource::Default),
        };
        Self {
            name: listed.name,
            on: listed.on,
            priority,
            priority_source,
            attributes,
            when_lost: listed.when_lost,
            when_loaded: listed.when_loaded,
            origin: OffcodeOrigin::Listed { line: listed.line },
            package,
        }
    }

    /// An offcode that an import of another one requires.
    fn required(name: OffcodeName, package: Arc<OffcodePackage>, by: usize, import: usize) -> Self {
        let attributes = package.file.attributes.clone();
        let (priority, priority_source) = match attributes.offload_priority {
            Some(priority) => (priority, PrioritySource::Description),
            None => (0, PrioritySource::Default),
        };
        Self {
            name,
            package,
            on: None,
            priority,
            priority_source,
            attributes,
            when_lost: WhenLost::default(),
            when_loaded: WhenLoaded::default(),
            origin: OffcodeOrigin::Required { by, import },
        }
    }
}
