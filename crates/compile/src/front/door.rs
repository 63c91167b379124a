//! Who may come in: wrappers of this user, through a socket in a directory of this user's.
//!
//! The door also decides when nobody comes any more, without losing who is just about to.

use super::FrontError;
use outboard_cc::place::Place;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags, sockopt};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// What epoll calls the door.
pub(super) const DOOR: u64 = 0;

/// The listening socket for a manager: what it was started with as its standard input, or else the
/// user's place, bound now.
///
/// # Errors
/// Another manager serves the place, or the place cannot be used.
pub fn listen() -> io::Result<(UnixListener, Place)> {
    let place = Place::of_user()?;
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
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok((UnixListener::bind(socket)?, place)),
    }
}

/// Has the manager at `socket` write its statistics, if there is one, and waits until it has.
pub fn settle(socket: &Path) {
    // Without a manager everything is written already.
    let Ok(mut stream) = UnixStream::connect(socket) else { return };
    // It takes a wrapper that says nothing for that.
    let _ = stream.shutdown(Shutdown::Write).and_then(|()| stream.read(&mut [0]));
}

/// The listening socket.
#[derive(Debug)]
pub(super) struct Door {
    listener: OwnedFd,
    place: Option<Place>,
    /// Which file the socket is.
    socket: Option<(u64, u64)>,
    /// Somebody could not be let in, so that nobody is looked for.
    is_full: bool,
    is_open: bool,
}

impl Door {
    /// `listener` is in `place`, which is cleared when the door closes.
    pub(super) fn new(
        listener: OwnedFd,
        place: Option<Place>,
        epoll: &OwnedFd,
    ) -> Result<Self, FrontError> {
        rustix::io::ioctl_fionbio(&listener, true).map_err(FrontError::of("opens its socket"))?;
        let socket = place.as_ref().and_then(identity);
        let door = Self { listener, place, socket, is_full: false, is_open: true };
        door.watch(epoll).map_err(FrontError::of("opens its socket"))?;
        Ok(door)
    }

    fn watch(&self, epoll: &OwnedFd) -> Result<(), Errno> {
        epoll::add(epoll, &self.listener, EventData::new_u64(DOOR), EventFlags::IN)
    }

    /// The next who waits; others' wrappers are sent away.
    pub(super) fn let_in(&mut self, epoll: &OwnedFd) -> Option<OwnedFd> {
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

    /// Nobody more can be let in: they wait in the socket's queue until somebody has left.
    pub(super) fn pause(&mut self, epoll: &OwnedFd) {
        self.is_full |= epoll::delete(epoll, &self.listener).is_ok();
    }

    /// Somebody has left, so that there is a descriptor again.
    pub(super) fn somebody_left(&mut self, epoll: &OwnedFd) {
        if self.is_full {
            self.is_full = self.watch(epoll).is_err();
        }
    }

    /// Whether wrappers can still come.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Closes the door unless a wrapper is just making one: then try later. Who came before is
    /// still to be let in.
    pub(super) fn close(&mut self) {
        let Some(place) = &self.place else {
            self.is_open = false;
            return;
        };
        match open_lock(place) {
            Ok(lock) if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                // Another one there is another manager's, after the place had gone for a while.
                if identity(place) == self.socket {
                    let _ = fs::remove_file(place.socket());
                }
                self.is_open = false;
            }
            // The place has gone as a whole.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_open = false,
            _ => {}
        }
    }
}

fn identity(place: &Place) -> Option<(u64, u64)> {
    fs::symlink_metadata(place.socket()).ok().map(|found| (found.dev(), found.ino()))
}

fn open_lock(place: &Place) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(place.lock())
}

fn is_ours(stream: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own)
}
