//! Messages between the service, a supervisor and its slot sandboxes: packets of one local socket,
//! with file descriptors beside them.
//!
//! Neither side trusts a message beyond its types: a slot sandbox runs beside hostile code.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use outboard_unix::rights;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::{JobEnd, JobUsage};
use super::service::SlotSandboxSpec;

/// Bytes of one message. Descriptions of jobs may be longer and are sent as files.
const MESSAGE_MAX: usize = 128 << 10;

/// The set-up step that failed, and its error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SetUpFailure {
    /// The step.
    pub(super) step: String,
    /// The system's error number.
    pub(super) errno: i32,
}

/// From the service to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToSupervisor {
    /// Fork a slot sandbox; beside it: the slot sandbox's end of its channel.
    SlotSandbox(SlotSandboxSpec),
}

/// From a supervisor or a slot sandbox to the service, once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SetUp {
    /// Done. A supervisor sends the FUSE device with it.
    Ready,
    Failed(SetUpFailure),
}

/// From the service to a slot sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToSlot {
    /// Run a job; beside it: its description, its standard output, its standard error.
    Run,
    /// Stop the job.
    Stop,
}

/// From a slot sandbox to the service: a job has ended. The object that the job left, if any, is
/// sent with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobReport {
    pub(super) end: JobEnd,
    pub(super) usage: JobUsage,
}

/// One end of a channel.
#[derive(Debug)]
pub(super) struct SandboxChannel(OwnedFd);

impl AsFd for SandboxChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for SandboxChannel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<SandboxChannel> for OwnedFd {
    fn from(channel: SandboxChannel) -> Self {
        channel.0
    }
}

impl SandboxChannel {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(here), Self(there)))
    }

    /// Sends a message; waits for room.
    pub(super) fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(SendFlags::empty(), message, fds)
    }

    /// As [`Self::send`], but fails where that would wait: the other end has stopped reading.
    pub(super) fn send_now(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.send_with(SendFlags::DONTWAIT, message, fds)
    }

    fn send_with(
        &self,
        flags: SendFlags,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
        if bytes.len() > MESSAGE_MAX {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        rights::send(&self.0, &bytes, fds, flags)?;
        Ok(())
    }

    /// Sets how long receives wait at most; `None`: for ever.
    pub(super) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, patience)?)
    }

    /// The next message; an error of kind `UnexpectedEof` when the other end is gone.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        self.receive_with(RecvFlags::empty())
    }

    /// As [`Self::receive`], but fails where that would wait, with `WouldBlock`.
    pub(super) fn receive_now<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        self.receive_with(RecvFlags::DONTWAIT)
    }

    fn receive_with<T: DeserializeOwned>(&self, flags: RecvFlags) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let received = rights::receive(&self.0, &mut bytes, flags)?;
        if received.len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = postcard::from_bytes(&bytes[..received.len]).map_err(io::Error::other)?;
        Ok((message, received.fds))
    }
}
