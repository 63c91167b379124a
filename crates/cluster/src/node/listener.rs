//! A port of a service that runs outside a node: it accepts, and shakes hands itself.
//!
//! For processes that serve one task with a key of their own, such as a cast's receivers. The
//! limits for peers without the key are a node's ([`super::acceptor`]). Never waits.

use super::acceptor::{Acceptor, HandshakeProgress, Session};
use outboard_secure::Credentials;
use outboard_verbs::Secured;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections taken in one turn.
const ACCEPTS: usize = 16;
/// Events taken in one turn.
const EVENTS: usize = 64;
/// How long to leave callers in the kernel's queue when no descriptor is left for them.
const RETRY: Duration = Duration::from_millis(100);
/// The listener's token; handshakes count from the next.
const LISTENER: u64 = 0;

/// Takes sessions for one service, outside a node.
#[derive(Debug)]
pub struct SessionListener {
    socket: TcpListener,
    epoll: OwnedFd,
    credentials: Arc<Credentials>,
    acceptor: Acceptor,
    next: u64,
    /// Until when it does not accept.
    resting: Option<Instant>,
}

impl SessionListener {
    /// Listens; port 0 lets the system choose.
    ///
    /// # Errors
    /// The system's: the address is not this machine's, or the port is taken.
    pub fn bind(address: SocketAddr, credentials: Arc<Credentials>) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &socket, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let acceptor = Acceptor::default();
        Ok(Self { socket, epoll, credentials, acceptor, next: LISTENER + 1, resting: None })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// When to call [`Self::turn`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.acceptor.deadline().into_iter().chain(self.resting).min()
    }

    /// Goes on with what has come; returns the peers that have proven the key.
    ///
    /// # Errors
    /// The system's: no peer can cause it.
    pub fn turn(&mut self, now: Instant) -> io::Result<Vec<Secured>> {
        self.acceptor.expire(now);
        if self.resting.is_some_and(|until| until <= now) {
            self.resting = None;
            let listener = EventData::new_u64(LISTENER);
            epoll::add(&self.epoll, &self.socket, listener, EventFlags::IN)?;
        }
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once))
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut proven = Vec::new();
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(now)?,
                token => proven.extend(self.advance(token)),
            }
        }
        Ok(proven)
    }

    fn accept(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..ACCEPTS {
            match self.socket.accept() {
                Ok(caller) => self.begin(caller, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_of_no_descriptors(&error) => {
                    tracing::warn!(%error, "cannot accept");
                    self.resting = Some(now + RETRY);
                    return Ok(epoll::delete(&self.epoll, &self.socket)?);
                }
                // The caller's: it has gone.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, (socket, from): (TcpStream, SocketAddr), now: Instant) {
        let token = self.next;
        self.next += 1;
        // Without this option a handshake is slower, but works.
        let _set = socket.set_nodelay(true);
        let watched = socket.set_nonblocking(true).is_ok()
            && epoll::add(&self.epoll, &socket, EventData::new_u64(token), EventFlags::IN).is_ok();
        if watched {
            self.acceptor.begin(token, (socket, from), &self.credentials, now);
        }
    }

    fn advance(&mut self, token: u64) -> Option<Secured> {
        match self.acceptor.advance(token) {
            HandshakeProgress::Waits => None,
            HandshakeProgress::Refused(from, error) => {
                tracing::info!(%from, %error, "handshake refused");
                None
            }
            HandshakeProgress::Proven(Session { stream, .. }) => {
                // Its events are of no interest here any more.
                let _gone = epoll::delete(&self.epoll, stream.socket());
                Some(stream)
            }
        }
    }
}

fn is_of_no_descriptors(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

impl AsFd for SessionListener {
    /// Readable when a turn has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::{credentials, dial};
    use outboard_secure::ClusterKey;
    use std::thread;

    #[test]
    fn a_peer_with_the_key_is_let_in_and_no_other() {
        let [key, other] = [ClusterKey::generate(), ClusterKey::generate()];
        let (key, other) = (key.expect("random numbers"), other.expect("random numbers"));
        let here = "127.0.0.1:0".parse().expect("an address");
        let mut listener = SessionListener::bind(here, credentials(&key, "cast")).expect("a port");
        let address = listener.address().expect("bound");
        let dial = |key: &ClusterKey| {
            let own = credentials(key, "cast");
            let (node, limit) = (own.identity.node(), Duration::from_secs(10));
            (node, thread::spawn(move || dial(&own, "cast", address, limit)))
        };
        let ((_, refused), (known, let_in)) = (dial(&other), dial(&key));
        let mut proven = Vec::new();
        while !(refused.is_finished() && let_in.is_finished() && !proven.is_empty()) {
            proven.extend(listener.turn(Instant::now()).expect("a turn"));
            thread::sleep(Duration::from_millis(1));
        }
        assert!(refused.join().expect("no panic").is_err());
        assert!(let_in.join().expect("no panic").is_ok());
        assert_eq!(proven.iter().map(Secured::peer).collect::<Vec<_>>(), [known]);
    }
}
