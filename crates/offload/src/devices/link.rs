//! The runtime's end of a device.

use crate::frames::{FrameFault, FrameStream};
use crate::request::{DeviceEvent, Numbered, PROTOCOL};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes of requests that a device has not taken, beyond which it counts as lost.
const QUEUED_MAX: usize = 1 << 30;

/// A device is lost, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceLost(pub String);

/// See this file's first lines. Nothing here blocks. Dropping it ends the device, with everything
/// on it.
pub trait DeviceLink: Send + fmt::Debug {
    /// What people call it: `host`, `core:1`, `node:big:7411`.
    fn name(&self) -> &str;

    /// Sends a request, with descriptors beside it.
    ///
    /// # Errors
    /// [`DeviceLost`].
    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost>;

    /// The next event.
    ///
    /// # Errors
    /// [`DeviceLost`]; events that came before are given first.
    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost>;

    /// Readable when there may be an event.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Whether the descriptor's being writable is waited for, too; then [`Self::flush`].
    fn wants_write(&self) -> bool;

    /// Sends what is queued.
    ///
    /// # Errors
    /// [`DeviceLost`].
    fn flush(&mut self) -> Result<(), DeviceLost>;

    /// Where other devices ring, if this one shares memory with those that have such a bell.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
}

/// A device at the other end of a socket on this machine.
#[derive(Debug)]
pub(super) struct LocalLink {
    frames: FrameStream,
    bell: OwnedFd,
}

impl LocalLink {
    pub(super) fn new(socket: UnixStream, bell: OwnedFd) -> std::io::Result<Self> {
        Ok(Self { frames: FrameStream::new(socket)?, bell })
    }

    pub(super) fn send(
        &mut self,
        request: &Numbered,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), FrameFault> {
        if self.frames.queued_bytes() > QUEUED_MAX {
            return Err(FrameFault::Stuck(self.frames.queued_bytes()));
        }
        self.frames.send(&PROTOCOL.encode(request), fds)
    }

    pub(super) fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        let received = self.frames.receive().map_err(|error| DeviceLost(error.to_string()))?;
        let Some((bytes, _)) = received else { return Ok(None) };
        PROTOCOL.decode(&bytes).map(Some).map_err(|error| DeviceLost(error.to_string()))
    }

    pub(super) fn frames(&mut self) -> &mut FrameStream {
        &mut self.frames
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.frames)
    }

    pub(super) fn wants_write(&self) -> bool {
        self.frames.wants_write()
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.bell)
    }
}
