//! The side that connects: TCP and the handshake, within a limit of time.
//!
//! Nothing but the handshake is sent to a host before it has proven the service's key, and no host
//! can make this wait beyond the caller's deadline. A failed connection is not retried here.

use crate::NODE_PORT;
use crate::hosts::Host;
use crate::keys::{self, KeyPaths, KeysError};
use crate::known::{KnownError, KnownNodes};
use outboard_secure::{Credentials, Handshake, HandshakeError, NodeId, SecureSession, ServiceName};
use outboard_verbs::Secured;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the messages of a handshake, and some of what may follow.
const READ_LEN: usize = 1024;

/// Connects to services with one set of credentials.
#[derive(Clone, Debug)]
pub struct Dialer {
    credentials: Arc<Credentials>,
    known: Option<KnownNodes>,
}

/// Why a host's service was not reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No such host.
    #[error("{host}: the name is not known: {source}; see OUTBOARD_HOSTS and the resolver")]
    Unresolved {
        /// As the host list has it.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// It took too long.
    #[error(
        "{host} did not answer in time ({step}): it is down, busy or unreachable, or a firewall \
         drops what it gets"
    )]
    TimedOut {
        /// As the host list has it.
        host: String,
        /// What it did not answer.
        step: Step,
    },
    /// No connection.
    #[error("{}: {source}{}", with_address(host, *address), advice(source))]
    Unreachable {
        /// As the host list has it.
        host: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The handshake failed.
    #[error("{host}, service {service}: {source}")]
    Handshake {
        /// As the host list has it.
        host: String,
        /// What was asked for.
        service: ServiceName,
        /// Why.
        source: HandshakeError,
    },
    /// The node there is not the one that was met at this address before.
    #[error(transparent)]
    Known(#[from] KnownError),
}

/// The host as the list has it, and the address unless that is the same.
fn with_address(host: &str, address: SocketAddr) -> String {
    let address = address.to_string();
    if host == address { address } else { format!("{host} ({address})") }
}

/// What to do about an error of connect(2).
fn advice(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::CONNREFUSED) => "; is `outboard node` running there?",
        Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN) => {
            "; check the address, and this machine's network"
        }
        Some(Errno::ACCESS | Errno::PERM) => "; a firewall or policy of this machine forbids it",
        Some(Errno::ADDRNOTAVAIL) => {
            "; this machine has no address for it, or no port left: `ss -s` shows its connections"
        }
        Some(Errno::AFNOSUPPORT | Errno::INVAL) => {
            "; this machine cannot use such an address: name another of the host's"
        }
        Some(Errno::MFILE | Errno::NFILE) => "; raise this machine's limit of open files",
        Some(Errno::CONNRESET | Errno::PROTO) => {
            "; another program listens there, or a firewall ends what it does not know"
        }
        _ => "",
    }
}

/// The step that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The name lookup.
    Name,
    /// TCP.
    Connect,
    /// The handshake.
    Handshake,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Name => "looking up its name",
            Self::Connect => "TCP",
            Self::Handshake => "handshake",
        })
    }
}

impl Dialer {
    /// Connects with these credentials, wherever the key leads.
    #[must_use]
    pub fn new(credentials: Arc<Credentials>) -> Self {
        Self { credentials, known: None }
    }

    /// As [`Self::new`], to nodes that are the same as last time: `known_nodes` says which were.
    #[must_use]
    pub fn to_known(credentials: Arc<Credentials>, known_nodes: &Path) -> Self {
        Self { credentials, known: Some(KnownNodes::at(known_nodes)) }
    }

    /// Connects to these services with this user's key and identity, to nodes that are the same as
    /// last time. Pass `|name| std::env::var_os(name)`.
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        services: &[ServiceName],
    ) -> Result<Self, KeysError> {
        let places = KeyPaths::from_environment(&variable)?;
        let credentials = Arc::new(places.client(services, keys::fabric(&variable)?)?);
        Ok(Self::to_known(credentials, &places.known_nodes))
    }

    /// This end's identity.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.credentials.identity.node()
    }

    /// Connects to a host's service.
    ///
    /// # Errors
    /// See [`DialError`]; no later than `deadline`.
    pub fn dial(
        &self,
        host: &Host,
        service: &ServiceName,
        deadline: Instant,
    ) -> Result<Secured, DialError> {
        let handshake = Handshake::initiator(Arc::clone(&self.credentials), service);
        let attempt = Attempt { host, service, deadline };
        let handshake = handshake.map_err(|source| attempt.refused(source))?;
        let socket = attempt.connect(&attempt.addresses()?)?;
        let (session, early) = attempt.shake_hands(&socket, handshake)?;
        if let Some(known) = &self.known {
            known.check(&format!("{}:{}", host.name(), host.port_or(NODE_PORT)), session.peer())?;
        }
        Ok(Secured::new(socket, session, early))
    }
}

struct Attempt<'a> {
    host: &'a Host,
    service: &'a ServiceName,
    deadline: Instant,
}

impl Attempt<'_> {
    fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let port = self.host.port_or(NODE_PORT);
        if let Ok(address) = self.host.name().parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        // A resolver may take half a minute and cannot be stopped.
        let (sender, found_addresses) = mpsc::channel();
        let name = self.host.name().to_owned();
        thread::spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            // The caller may have given up.
            let _sent = sender.send(found);
        });
        let unresolved = |source| DialError::Unresolved { host: self.host.to_string(), source };
        let left = self.left(Step::Name)?;
        let found = found_addresses.recv_timeout(left).map_err(|_| self.timed_out(Step::Name))?;
        let found: Vec<SocketAddr> = found.map_err(unresolved)?;
        if found.is_empty() {
            return Err(unresolved(io::ErrorKind::NotFound.into()));
        }
        Ok(found)
    }

    /// Tries each address for its share of the time.
    fn connect(&self, addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
        let mut last = self.timed_out(Step::Connect);
        for (index, address) in addresses.iter().enumerate() {
            let shares = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let limit = (self.left(Step::Connect)? / shares).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(address, limit) {
                Ok(socket) => {
                    // Without this option a handshake is slower, but works.
                    let _set = socket.set_nodelay(true);
                    return Ok(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(source) => {
                    let (host, address) = (self.host.to_string(), *address);
                    last = DialError::Unreachable { host, address, source };
                }
            }
        }
        Err(last)
    }

    fn shake_hands(
        &self,
        socket: &TcpStream,
        mut handshake: Handshake,
    ) -> Result<(SecureSession, Vec<u8>), DialError> {
        let mut early = Vec::new();
        let mut bytes = [0; READ_LEN];
        loop {
            while let Some(message) = handshake.poll_transmit() {
                if !self.write(socket, &message)? {
                    return Err(self.refused(handshake.handle_end()));
                }
            }
            if handshake.is_done() {
                let session = handshake.into_session();
                return Ok((session.ok_or_else(|| self.refused(HandshakeError::Over))?, early));
            }
            let count = self.read(socket, &mut bytes)?;
            if count == 0 {
                return Err(self.refused(handshake.handle_end()));
            }
            let heard = handshake.handle(&bytes[..count]);
            let taken = heard.map_err(|source| self.refused(source))?;
            early.extend_from_slice(&bytes[taken..count]);
        }
    }

    /// False when the peer has gone.
    fn write(&self, mut socket: &TcpStream, mut bytes: &[u8]) -> Result<bool, DialError> {
        while !bytes.is_empty() {
            let limit = Some(self.left(Step::Handshake)?);
            let written = socket.set_write_timeout(limit).and_then(|()| socket.write(bytes));
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_late(&error) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Zero when the peer has gone, in order or not.
    fn read(&self, mut socket: &TcpStream, bytes: &mut [u8]) -> Result<usize, DialError> {
        loop {
            let limit = Some(self.left(Step::Handshake)?);
            match socket.set_read_timeout(limit).and_then(|()| socket.read(bytes)) {
                Ok(count) => return Ok(count),
                Err(error) if is_late(&error) => {}
                Err(_) => return Ok(0),
            }
        }
    }

    fn left(&self, step: Step) -> Result<Duration, DialError> {
        let left = self.deadline.checked_duration_since(Instant::now());
        // The kernel takes a timeout of zero to mean none.
        left.map(|left| left.max(Duration::from_millis(1))).ok_or_else(|| self.timed_out(step))
    }

    fn timed_out(&self, step: Step) -> DialError {
        DialError::TimedOut { host: self.host.to_string(), step }
    }

    fn refused(&self, source: HandshakeError) -> DialError {
        DialError::Handshake { host: self.host.to_string(), service: self.service.clone(), source }
    }
}

/// A little time may still be left.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests;
