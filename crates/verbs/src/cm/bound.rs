//! Addresses that are bound before they are used: rdma_cm programs bind first, and connect or
//! listen later.

use crate::error::{ConnectError, VerbsError};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Connections that the kernel keeps for a listener at least; it cuts this to `net.core.somaxconn`.
const KERNEL_QUEUE: usize = 1024;

/// A TCP address of this machine, reserved for this value; dropping it frees the address.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
}

impl Bound {
    /// Takes an address; with port 0 a free port.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the address cannot be bound.
    pub fn new(address: SocketAddr) -> Result<Self, VerbsError> {
        let bound = Self::unbound(address)?;
        let reuse = || {
            let system = |error| VerbsError::system("cannot reuse an address", error);
            bound.socket.set_reuse_address(true).map_err(system)
        };
        // A server that starts again must get its port although old connections still use it, so
        // the option is set before bind(2). A port chosen by the kernel must be wholly free, so
        // there it is set afterwards.
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
    /// [`VerbsError::System`] when the kernel does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, VerbsError> {
        let system = |error| VerbsError::system("cannot learn a socket's address", error);
        let address = self.socket.local_addr().map_err(system)?;
        address.as_socket().ok_or_else(|| system(io::ErrorKind::AddrNotAvailable.into()))
    }

    /// Sets the type-of-service byte of the IPv4 header (RFC 2474), here and on connections that a
    /// listener at this address accepts.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel does not allow it.
    pub fn set_type_of_service(&self, byte: u8) -> Result<(), VerbsError> {
        let system = |error| VerbsError::system("cannot set the type of service", error);
        self.socket.set_tos_v4(byte.into()).map_err(system)
    }

    /// A non-blocking socket on its way to the peer, and whether that was refused already, as it is
    /// when the peer is on this machine.
    pub(super) fn connect(self, peer: SocketAddr) -> Result<(TcpStream, Dialed), ConnectError> {
        let system = |error| VerbsError::system("cannot turn Nagle's algorithm off", error);
        self.socket.set_tcp_nodelay(true).map_err(system)?;
        let unreachable = |source| ConnectError::Unreachable { peer, source };
        let dialed = dial(&self.socket, peer).map_err(unreachable)?;
        Ok((self.socket.into(), dialed))
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

/// The outcome of a call to connect(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialed {
    /// TCP is connecting, or connected.
    OnItsWay,
    /// No program listens there.
    Refused,
}

/// Connects a non-blocking socket, which keeps its address when it is refused.
pub(super) fn dial(socket: &Socket, peer: SocketAddr) -> io::Result<Dialed> {
    loop {
        match socket.connect(&peer.into()) {
            Ok(()) => return Ok(Dialed::OnItsWay),
            Err(error) if is_pending(&error) => return Ok(Dialed::OnItsWay),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Dialed::Refused);
            }
            // Linux: the attempt before, which was refused, ends with this call only.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A connect on a non-blocking socket goes on by itself.
pub(super) fn is_pending(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.kind() == io::ErrorKind::NotConnected
        || error.raw_os_error() == Some(libc::EINPROGRESS)
}
