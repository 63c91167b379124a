//! Handshakes under way: every connection, until its peer has proven a service's key or its time is
//! over.
//!
//! Anyone who can reach the port can begin a handshake, so their number is bounded. At the bound,
//! the address that has most loses its oldest: a machine that connects a thousand times shuts out
//! only itself. All of an IPv6 /64 are one address, because one machine has them all. It
//! waits for nothing and parses nothing but handshakes.

use outboard_secure::{Credentials, Handshake, HandshakeError};
use outboard_verbs::Secured;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Handshakes under way, at most.
pub(super) const HANDSHAKES_MAX: usize = 512;
/// How long one may take.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a handshake's messages, and some of what may follow.
const READ_LEN: usize = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Acceptor {
    handshakes: HashMap<u64, PendingHandshake>,
    /// The oldest first; some may have left.
    order: VecDeque<u64>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct PendingHandshake {
    socket: TcpStream,
    from: SocketAddr,
    handshake: Handshake,
    deadline: Instant,
}

/// A peer that has proven a service's key.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) from: SocketAddr,
    pub(super) stream: Secured,
}

/// The result of an event of a handshake.
#[derive(Debug)]
pub(super) enum HandshakeProgress {
    Waits,
    Proven(Session),
    Refused(SocketAddr, HandshakeError),
}

impl Acceptor {
    pub(super) fn len(&self) -> usize {
        self.handshakes.len()
    }

    /// Begins a handshake over a non-blocking socket; returns the address of the one evicted for
    /// it.
    pub(super) fn begin(
        &mut self,
        token: u64,
        (socket, from): (TcpStream, SocketAddr),
        credentials: &Arc<Credentials>,
        now: Instant,
    ) -> Option<SocketAddr> {
        let evicted = if self.handshakes.len() >= HANDSHAKES_MAX { self.evict() } else { None };
        let handshake = Handshake::responder(Arc::clone(credentials));
        let handshake =
            PendingHandshake { socket, from, handshake, deadline: now + HANDSHAKE_LIMIT };
        self.handshakes.insert(token, handshake);
        self.order.push_back(token);
        *self.by_address.entry(origin(from)).or_default() += 1;
        evicted
    }

    /// The oldest of the address that has most.
    fn evict(&mut self) -> Option<SocketAddr> {
        let (address, _) = self.by_address.iter().max_by_key(|(_, count)| **count)?;
        let address = *address;
        let from_there = |token: &&u64| {
            self.handshakes.get(token).is_some_and(|handshake| origin(handshake.from) == address)
        };
        let oldest = self.order.iter().find(from_there).copied()?;
        self.remove(oldest).map(|handshake| handshake.from)
    }

    fn remove(&mut self, token: u64) -> Option<PendingHandshake> {
        let handshake = self.handshakes.remove(&token)?;
        let address = origin(handshake.from);
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        while self.order.front().is_some_and(|first| !self.handshakes.contains_key(first)) {
            self.order.pop_front();
        }
        if self.order.len() > 4 * HANDSHAKES_MAX {
            self.order.retain(|token| self.handshakes.contains_key(token));
        }
        Some(handshake)
    }

    /// A handshake's socket is readable.
    pub(super) fn advance(&mut self, token: u64) -> HandshakeProgress {
        let Some(handshake) = self.handshakes.get_mut(&token) else {
            return HandshakeProgress::Waits;
        };
        match handshake.receive() {
            Ok(None) => HandshakeProgress::Waits,
            Ok(Some(early)) => {
                self.remove(token).map_or(HandshakeProgress::Waits, |gone| gone.leave(early))
            }
            Err(error) => {
                let from = handshake.from;
                self.remove(token);
                HandshakeProgress::Refused(from, error)
            }
        }
    }

    /// Ends the handshakes whose time is over; returns their addresses.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<SocketAddr> {
        let mut gone = Vec::new();
        while let Some(&oldest) = self.order.front() {
            let late = self.handshakes.get(&oldest).is_none_or(|one| one.deadline <= now);
            if !late {
                break;
            }
            self.order.pop_front();
            gone.extend(self.remove(oldest).map(|handshake| handshake.from));
        }
        gone
    }

    /// When the oldest handshake's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.order.front()?;
        self.handshakes.get(oldest).map(|handshake| handshake.deadline)
    }
}

/// The addresses that one machine may have are counted as one.
fn origin(address: SocketAddr) -> IpAddr {
    match address.ip() {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => {
            IpAddr::V6((ip.to_bits() >> 64 << 64).into())
        }
        ip => ip,
    }
}

impl PendingHandshake {
    /// Reads and handles bytes; once the handshake is done, returns those that came behind it.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, HandshakeError> {
        let mut bytes = [0; READ_LEN];
        loop {
            let count = match self.socket.read(&mut bytes) {
                Ok(0) => return Err(self.handshake.handle_end()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(self.handshake.handle_end()),
            };
            let taken = self.handshake.handle(&bytes[..count])?;
            if let Some(message) = self.handshake.poll_transmit() {
                self.send(&message)?;
            }
            if self.handshake.is_done() {
                return Ok(Some(bytes[taken..count].to_vec()));
            }
        }
    }

    /// A message always fits the empty buffer of a new connection.
    fn send(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        match self.socket.write(message) {
            Ok(count) if count == message.len() => Ok(()),
            _ => Err(self.handshake.handle_end()),
        }
    }

    fn leave(self, early: Vec<u8>) -> HandshakeProgress {
        let Self { socket, from, handshake, .. } = self;
        match handshake.into_session() {
            Some(session) => HandshakeProgress::Proven(Session {
                from,
                stream: Secured::new(socket, session, early),
            }),
            None => HandshakeProgress::Refused(from, HandshakeError::Over),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_one() {
        let of = |text: &str| origin(format!("{text}:1").parse().expect("an address"));
        assert_eq!(of("[2001:db8::1]"), of("[2001:db8::ffff:0:0:2]"));
        assert_ne!(of("[2001:db8::1]"), of("[2001:db8:0:1::1]"));
        assert_ne!(of("[::ffff:10.0.0.1]"), of("[::ffff:10.0.0.2]"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
