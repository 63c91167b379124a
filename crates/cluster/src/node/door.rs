//! Handshakes under way: whoever connects, until it has proven a service's key or its time is over.
//!
//! Everybody who is there can be a stranger, so that there is a bound on all of them. When it is
//! reached, the address that has most gives up its oldest: one machine that connects a thousand
//! times shuts out itself. All of an IPv6 /64 are one address, because one machine has them all. It
//! waits for nothing and parses nothing but handshakes.

use outboard_secure::{Credentials, Handshake, HandshakeError, Session};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Handshakes under way, at most.
pub(super) const PLACES: usize = 512;
/// How long one may take.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// Octets of a handshake's messages, and some of what may follow.
const READ_LEN: usize = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Door {
    strangers: HashMap<u64, Stranger>,
    /// The oldest first; some may have left.
    order: VecDeque<u64>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Stranger {
    socket: TcpStream,
    from: SocketAddr,
    handshake: Handshake,
    deadline: Instant,
}

/// Somebody who has proven a service's key.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) socket: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) session: Session,
    /// Octets that came behind the handshake.
    pub(super) early: Vec<u8>,
}

/// What an event of a stranger's has led to.
#[derive(Debug)]
pub(super) enum Progress {
    Waits,
    Proven(Guest),
    Refused(SocketAddr, HandshakeError),
}

impl Door {
    pub(super) fn len(&self) -> usize {
        self.strangers.len()
    }

    /// Lets somebody begin, over a non-blocking socket; gives the one that had to go for it.
    pub(super) fn begin(
        &mut self,
        token: u64,
        (socket, from): (TcpStream, SocketAddr),
        credentials: &Arc<Credentials>,
        now: Instant,
    ) -> Option<SocketAddr> {
        let evicted = if self.strangers.len() >= PLACES { self.evict() } else { None };
        let handshake = Handshake::responder(Arc::clone(credentials));
        let stranger = Stranger { socket, from, handshake, deadline: now + LIMIT };
        self.strangers.insert(token, stranger);
        self.order.push_back(token);
        *self.by_address.entry(origin(from)).or_default() += 1;
        evicted
    }

    /// The oldest of the address that has most.
    fn evict(&mut self) -> Option<SocketAddr> {
        let (address, _) = self.by_address.iter().max_by_key(|(_, count)| **count)?;
        let address = *address;
        let from_there = |token: &&u64| {
            self.strangers.get(token).is_some_and(|stranger| origin(stranger.from) == address)
        };
        let oldest = self.order.iter().find(from_there).copied()?;
        self.remove(oldest).map(|stranger| stranger.from)
    }

    fn remove(&mut self, token: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&token)?;
        let address = origin(stranger.from);
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        while self.order.front().is_some_and(|first| !self.strangers.contains_key(first)) {
            self.order.pop_front();
        }
        if self.order.len() > 4 * PLACES {
            self.order.retain(|token| self.strangers.contains_key(token));
        }
        Some(stranger)
    }

    /// Something has come from a stranger.
    pub(super) fn advance(&mut self, token: u64) -> Progress {
        let Some(stranger) = self.strangers.get_mut(&token) else { return Progress::Waits };
        match stranger.hear() {
            Ok(None) => Progress::Waits,
            Ok(Some(early)) => self.remove(token).map_or(Progress::Waits, |gone| gone.leave(early)),
            Err(error) => {
                let from = stranger.from;
                self.remove(token);
                Progress::Refused(from, error)
            }
        }
    }

    /// Shows out those whose time is over; says who they were.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<SocketAddr> {
        let mut gone = Vec::new();
        while let Some(&oldest) = self.order.front() {
            let late = self.strangers.get(&oldest).is_none_or(|one| one.deadline <= now);
            if !late {
                break;
            }
            self.order.pop_front();
            gone.extend(self.remove(oldest).map(|stranger| stranger.from));
        }
        gone
    }

    /// When somebody's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.order.front()?;
        self.strangers.get(oldest).map(|stranger| stranger.deadline)
    }
}

/// What one machine can have many of is one.
fn origin(address: SocketAddr) -> IpAddr {
    match address.ip() {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => {
            IpAddr::V6((ip.to_bits() >> 64 << 64).into())
        }
        ip => ip,
    }
}

impl Stranger {
    /// Octets behind the handshake once it is done.
    fn hear(&mut self) -> Result<Option<Vec<u8>>, HandshakeError> {
        let mut octets = [0; READ_LEN];
        loop {
            let count = match self.socket.read(&mut octets) {
                Ok(0) => return Err(self.handshake.handle_end()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(self.handshake.handle_end()),
            };
            let taken = self.handshake.handle(&octets[..count])?;
            if let Some(message) = self.handshake.poll_transmit() {
                self.send(&message)?;
            }
            if self.handshake.is_done() {
                return Ok(Some(octets[taken..count].to_vec()));
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

    fn leave(self, early: Vec<u8>) -> Progress {
        let Self { socket, from, handshake, .. } = self;
        match handshake.into_session() {
            Some(session) => Progress::Proven(Guest { socket, from, session, early }),
            None => Progress::Refused(from, HandshakeError::Over),
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
