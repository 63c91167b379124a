//! Devices as the runtime sees them: something that takes requests and gives events.

mod core;
mod host;
mod link;
mod nic;
mod node;

pub use self::core::{CoreDevice, CoreSpec, serve_core};
pub use self::host::HostDevice;
pub use link::{DeviceLink, DeviceLost};
pub use nic::NicLink;
pub use node::{NodeDevice, SERVICE};
