//! The device `host`: a thread of the application's own process.

use super::link::{DeviceLink, DeviceLost, LocalLink};
use crate::device::{Device, DeviceLimits, WasmCodes};
use crate::frames::FrameStream;
use crate::request::{DeviceEvent, Numbered};
use crate::serve::{DeviceWaits, serve};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

/// See this file's first lines. The thread ends when this is dropped.
#[derive(Debug)]
pub struct HostDevice {
    name: String,
    link: LocalLink,
}

impl HostDevice {
    /// Starts the thread.
    ///
    /// # Errors
    /// This machine's: no thread, no descriptors.
    pub fn start(name: &str, limits: DeviceLimits, codes: WasmCodes) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let (ring, bell) = UnixStream::pair()?;
        run(name, far, bell, (limits, codes), Arc::new(()))?;
        Ok(Self { name: name.to_owned(), link: LocalLink::new(near, ring.into())? })
    }

    /// Starts the thread of a device that shares no memory with others, and gives the frames
    /// between it and whoever passes them on. It ends when these are dropped; `alive` is dropped
    /// when it has.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_apart(
        name: &str,
        limits: DeviceLimits,
        codes: WasmCodes,
        alive: Arc<()>,
    ) -> io::Result<FrameStream> {
        let (near, far) = UnixStream::pair()?;
        // Nobody rings at it.
        let (_, bell) = UnixStream::pair()?;
        run(name, far, bell, (limits, codes), alive)?;
        FrameStream::new(near)
    }
}

/// Runs a device on a thread of its own.
fn run(
    name: &str,
    socket: UnixStream,
    bell: UnixStream,
    (limits, codes): (DeviceLimits, WasmCodes),
    alive: Arc<()>,
) -> io::Result<()> {
    let mut frames = FrameStream::new(socket)?;
    let thread = thread::Builder::new().name(format!("offload-{name}"));
    thread.spawn(move || {
        let mut device = Device::new(limits, codes);
        let bell = OwnedFd::from(bell);
        if let Err(error) = serve(&mut device, &mut frames, &bell, DeviceWaits::Sleeps) {
            tracing::warn!("device host: {error}");
        }
        drop(device);
        drop(alive);
    })?;
    Ok(())
}

impl DeviceLink for HostDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        self.link.send(request, fds).map_err(|error| DeviceLost(error.to_string()))
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        self.link.poll()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    fn wants_write(&self) -> bool {
        self.link.wants_write()
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        self.link.frames().flush().map_err(|error| DeviceLost(error.to_string()))
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.bell())
    }
}
