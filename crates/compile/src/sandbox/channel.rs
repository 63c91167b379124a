//! Messages between the service, an anchor and its cells: packets of one local socket, with file
//! descriptors beside them.
//!
//! What a message says is trusted in neither direction further than its types go: a cell runs
//! hostile code, if only beside itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::{End, Usage};
use super::service::CellSpec;

/// Octets of one message. Jobs, which may be longer, go as files.
const MESSAGE_MAX: usize = 128 << 10;
/// Descriptors beside one message.
const FDS_MAX: usize = 3;

/// What a step of setting up failed with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Failure {
    /// What was tried.
    pub(super) step: String,
    /// The system's error number.
    pub(super) errno: i32,
}

/// From the service to an anchor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToAnchor {
    /// Fork a cell; beside it: the cell's end of its channel.
    Cell(CellSpec),
}

/// From an anchor or a cell to the service, once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SetUp {
    /// Done. Beside an anchor's: the FUSE device.
    Ready,
    Failed(Failure),
}

/// From the service to a cell.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToCell {
    /// Run a job; beside it: its description, its standard output, its standard error.
    Run,
    /// Stop the job.
    Stop,
}

/// From a cell to the service: a job has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) end: End,
    pub(super) usage: Usage,
}

/// One end of a channel.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl Channel {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(here), Self(there)))
    }

    pub(super) fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let octets = postcard::to_stdvec(message).map_err(io::Error::other)?;
        if octets.len() > MESSAGE_MAX || fds.len() > FDS_MAX {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(fds));
        }
        let octets = [IoSlice::new(&octets)];
        rustix::io::retry_on_intr(|| sendmsg(&self.0, &octets, &mut beside, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// The next message; an error of kind `UnexpectedEof` when the other end is gone.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut octets = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut octets)];
            recvmsg(&self.0, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut fds = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let message = postcard::from_bytes(&octets[..received.bytes]).map_err(io::Error::other)?;
        Ok((message, fds))
    }
}
