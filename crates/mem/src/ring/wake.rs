//! How the other side is woken: by its descriptor, which it polls while it sleeps.
//!
//! Never waits: a wake-up that finds no room is not needed, since one is there already.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Wakes the other side of a ring, which has announced that it sleeps.
pub trait RingWake: Send + Sync + std::fmt::Debug {
    /// Makes the other side's descriptor readable. Must not wait, whatever the other side does. An
    /// error cannot be repaired here: who sleeps needs another sign that its peer is gone.
    fn wake(&self);
}

/// An eventfd. Only between threads of one process, or processes that trust each other: whoever
/// else has it can fill it and take O_NONBLOCK from it, and `wake` would wait for ever.
#[derive(Debug)]
pub struct WakeByEventFd(File);

impl WakeByEventFd {
    /// Writes to `eventfd`, which has been made with EFD_NONBLOCK.
    #[must_use]
    pub fn new(eventfd: OwnedFd) -> Self {
        Self(eventfd.into())
    }
}

impl RingWake for WakeByEventFd {
    fn wake(&self) {
        // Full means readable.
        let _full = (&self.0).write(&1_u64.to_ne_bytes());
    }
}

/// One end of a socket pair; the other side polls and drains the other end. Also for peers that are
/// not trusted: they cannot change whether this end waits.
#[derive(Debug)]
pub struct WakeBySocket(UnixStream);

impl WakeBySocket {
    /// Writes to `socket`, which no other process has.
    ///
    /// # Errors
    /// The system's, when it cannot be made non-blocking.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl RingWake for WakeBySocket {
    fn wake(&self) {
        // Full means readable; closed means that nobody sleeps there.
        let _full = (&self.0).write(&[1]);
    }
}
