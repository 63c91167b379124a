//! The socket that wrappers connect to, in a directory of the user's. Only processes of the same
//! user are accepted.
//!
//! The listener closes without losing a wrapper that is just about to connect.

use super::ManagerError;
use outboard_cc::leftovers;
use outboard_cc::place::ManagerPlace;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags, sockopt};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

/// The listener's token in epoll.
pub(super) const LISTENER: u64 = 0;

/// The listening socket for a manager: its standard input if that is one, as when a wrapper started
/// the manager; otherwise a socket that is bound now in the user's directory.
///
/// # Errors
/// Another manager listens there, or the directory cannot be used.
pub fn listen() -> io::Result<(UnixListener, ManagerPlace)> {
    let place = ManagerPlace::of_user()?;
    let stdin = io::stdin();
    if sockopt::socket_acceptconn(&stdin).unwrap_or(false) {
        return Ok((stdin.as_fd().try_clone_to_owned()?.into(), place));
    }
    let lock = open_lock(&place)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let socket = place.socket();
    if UnixStream::connect(&socket).is_ok() {
        return Err(io::Error::other("another manager is there already"));
    }
    leftovers::remove(&place);
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok((UnixListener::bind(socket)?, place)),
    }
}

/// The listening socket.
#[derive(Debug)]
pub(super) struct WrapperListener {
    listener: OwnedFd,
    place: Option<ManagerPlace>,
    /// The socket's device and inode.
    socket: Option<(u64, u64)>,
    /// Accepting is paused, as the manager has no room for another wrapper.
    is_paused: bool,
    is_open: bool,
}

impl WrapperListener {
    /// `listener` is bound in `place`; its file there is removed when the listener closes.
    pub(super) fn new(
        listener: OwnedFd,
        place: Option<ManagerPlace>,
        epoll: &OwnedFd,
    ) -> Result<Self, ManagerError> {
        rustix::io::ioctl_fionbio(&listener, true)
            .map_err(ManagerError::of("opening its socket"))?;
        let socket = place.as_ref().and_then(identity);
        let listener = Self { listener, place, socket, is_paused: false, is_open: true };
        listener.watch(epoll).map_err(ManagerError::of("opening its socket"))?;
        Ok(listener)
    }

    fn watch(&self, epoll: &OwnedFd) -> Result<(), Errno> {
        epoll::add(epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)
    }

    /// Accepts the next connection; those of other users are closed.
    pub(super) fn accept(&mut self, epoll: &OwnedFd) -> Option<OwnedFd> {
        loop {
            match net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(stream) if is_ours(&stream) => return Some(stream),
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => {
                    self.pause(epoll);
                    return None;
                }
            }
        }
    }

    /// Stops accepting: wrappers wait in the socket's queue until [`Self::resume`].
    pub(super) fn pause(&mut self, epoll: &OwnedFd) {
        self.is_paused |= epoll::delete(epoll, &self.listener).is_ok();
    }

    /// Accepts again after a pause: a wrapper has disconnected and freed its descriptor.
    pub(super) fn resume(&mut self, epoll: &OwnedFd) {
        if self.is_paused {
            self.is_paused = self.watch(epoll).is_err();
        }
    }

    /// Whether wrappers can still connect.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Closes the listener, unless a wrapper holds the lock to start a manager just now: then the
    /// caller tries again later. Connections that are in the queue must still be accepted.
    pub(super) fn close(&mut self) {
        let Some(place) = &self.place else {
            self.is_open = false;
            return;
        };
        match open_lock(place) {
            Ok(lock) if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                // A socket with another inode belongs to another manager: the directory was removed
                // and made again.
                if identity(place) == self.socket {
                    let _ = fs::remove_file(place.socket());
                }
                self.is_open = false;
            }
            // The whole directory has been removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_open = false,
            _ => {}
        }
    }
}

fn identity(place: &ManagerPlace) -> Option<(u64, u64)> {
    fs::symlink_metadata(place.socket()).ok().map(|found| (found.dev(), found.ino()))
}

fn open_lock(place: &ManagerPlace) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(place.lock())
}

fn is_ours(stream: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own)
}
