//! Addresses that are taken before it is known what for: rdma_cm programs bind first, and connect
//! or listen later.

use crate::error::{ConnectError, VerbsError};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Connections that the kernel keeps for a listener at least; it cuts this to `net.core.somaxconn`.
const KERNEL_QUEUE: usize = 1024;

/// A TCP address of this machine that nobody else gets; dropping it gives it back.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
}

impl Bound {
    /// Takes an address; with port 0 a free port.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the address cannot be had.
    pub fn new(address: SocketAddr) -> Result<Self, VerbsError> {
        let bound = Self::unbound(address)?;
        let reuse = || {
            let system = |error| VerbsError::system("cannot reuse an address", error);
            bound.socket.set_reuse_address(true).map_err(system)
        };
        // A server that starts again finds its port in the way of nobody but old connections. A
        // free port must really be free, so there the order is the other way round.
        if address.port() != 0 {
            reuse()?;
        }
        let system = |error| VerbsError::system("cannot bind the address", error);
        bound.socket.bind(&address.into()).map_err(system)?;
        reuse()?;
        Ok(bound)
    }

    /// No address yet: the kernel chooses one on the way to `peer`.
    pub(super) fn unbound(peer: SocketAddr) -> Result<Self, VerbsError> {
        let system = |what| move |error| VerbsError::system(what, error);
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
            .map_err(system("cannot make a socket"))?;
        socket.set_nonblocking(true).map_err(system("cannot make a socket non-blocking"))?;
        Ok(Self { socket })
    }

    /// The address, with its port.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel does not tell.
    pub fn local_addr(&self) -> Result<SocketAddr, VerbsError> {
        let system = |error| VerbsError::system("cannot learn a socket's address", error);
        let address = self.socket.local_addr().map_err(system)?;
        address.as_socket().ok_or_else(|| system(io::ErrorKind::AddrNotAvailable.into()))
    }

    /// What the IPv4 header's octet says of the traffic (RFC 2474), here and on connections that a
    /// listener at this address takes.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel does not allow it.
    pub fn set_type_of_service(&self, octet: u8) -> Result<(), VerbsError> {
        let system = |error| VerbsError::system("cannot set the type of service", error);
        self.socket.set_tos_v4(octet.into()).map_err(system)
    }

    /// A non-blocking socket on its way to the peer.
    pub(super) fn connect(self, peer: SocketAddr) -> Result<TcpStream, ConnectError> {
        let system = |error| VerbsError::system("cannot turn Nagle's algorithm off", error);
        self.socket.set_tcp_nodelay(true).map_err(system)?;
        match self.socket.connect(&peer.into()) {
            Ok(()) => {}
            Err(error) if is_pending(&error) => {}
            Err(source) => return Err(ConnectError::Unreachable { peer, source }),
        }
        Ok(self.socket.into())
    }

    /// A non-blocking socket that listens.
    pub(super) fn listen(self, backlog: usize) -> Result<TcpListener, VerbsError> {
        // A full queue drops SYNs, which TCP sends again only after seconds.
        let queue = i32::try_from(backlog.max(KERNEL_QUEUE)).unwrap_or(i32::MAX);
        let system = |error| VerbsError::system("cannot listen", error);
        self.socket.listen(queue).map_err(system)?;
        Ok(self.socket.into())
    }
}

/// An operation on a non-blocking socket goes on by itself.
pub(super) fn is_pending(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.kind() == io::ErrorKind::NotConnected
        || error.raw_os_error() == Some(libc::EINPROGRESS)
}
