//! Bytes with file descriptors beside them over a local socket (`SCM_RIGHTS`, unix(7)).
//!
//! Never interprets the bytes. Received descriptors are closed when a program is executed, and when
//! the caller drops them.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors beside one message, at most.
pub const RIGHTS_MAX: usize = 3;

/// What one call has received.
#[derive(Debug)]
pub struct WithRights {
    /// Bytes received; 0 when the other end is gone.
    pub len: usize,
    /// The descriptors that came beside them, at most [`RIGHTS_MAX`].
    pub fds: Vec<OwnedFd>,
    /// The sender sent more descriptors than that, or this process may have no more: the rest is
    /// closed.
    pub is_cut: bool,
}

/// Sends `bytes` and `fds` in one call, without a signal when the other end is gone. Returns how
/// many bytes were taken: on a socket for packets, all.
///
/// # Errors
/// The system's; `TOOMANYREFS` when too many descriptors of this user are on their way, `INVAL` for
/// more than [`RIGHTS_MAX`].
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    // The space is rounded up, and one more might fit.
    let is_room = fds.len() <= RIGHTS_MAX;
    if !is_room || !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let (socket, bytes) = (socket.as_fd(), [IoSlice::new(bytes)]);
    retry_on_intr(|| sendmsg(socket, &bytes, &mut beside, flags | SendFlags::NOSIGNAL))
}

/// Receives one message, or the next bytes of a stream, with the descriptors beside them.
///
/// # Errors
/// The system's.
pub fn receive(socket: impl AsFd, into: &mut [u8], flags: RecvFlags) -> Result<WithRights, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let socket = socket.as_fd();
    let received = retry_on_intr(|| {
        let mut into = [IoSliceMut::new(into)];
        recvmsg(socket, &mut into, &mut beside, flags | RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > RIGHTS_MAX;
    fds.truncate(RIGHTS_MAX);
    Ok(WithRights { len: received.bytes, fds, is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives_with_its_bytes() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"contents").expect("written");
        send(&here, b"take", &[file.as_fd()], SendFlags::empty()).expect("sent");
        let mut bytes = [0; 16];
        let got = receive(&there, &mut bytes, RecvFlags::empty()).expect("received");
        assert_eq!((&bytes[..got.len], got.fds.len(), got.is_cut), (&b"take"[..], 1, false));
        let mut same = File::from(got.fds.into_iter().next().expect("one"));
        let mut text = String::new();
        same.rewind().and_then(|()| same.read_to_string(&mut text)).expect("read");
        assert_eq!(text, "contents");
    }

    #[test]
    fn more_descriptors_than_there_is_room_for_are_said() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let all = [here.as_fd(); RIGHTS_MAX + 1];
        assert_eq!(send(&here, b"x", &all, SendFlags::empty()), Err(Errno::INVAL));
        send(&here, b"x", &all[..RIGHTS_MAX], SendFlags::empty()).expect("sent");
        let got = receive(&there, &mut [0; 1], RecvFlags::empty()).expect("received");
        assert_eq!((got.len, got.fds.len()), (1, RIGHTS_MAX));
    }

    #[test]
    fn an_end_that_is_gone_is_no_signal() {
        let (here, there) = UnixStream::pair().expect("a pair");
        drop(there);
        assert_eq!(send(&here, b"x", &[], SendFlags::empty()), Err(Errno::PIPE));
        assert_eq!(receive(&here, &mut [0; 1], RecvFlags::empty()).expect("its end").len, 0);
    }
}
