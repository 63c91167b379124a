//! A connected socket with the session that a handshake made for it: the value that a dialer or a
//! node's supervisor gives to [`Qp::adopt`](crate::Qp::adopt).
//!
//! It can also send and receive plain bytes itself, with a time limit, for start-ups and short
//! exchanges. It does no handshake and knows no message.

use crate::error::ConnectError;
use outboard_secure::{NodeId, SecureSession, SessionError};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of one read.
const READ_LEN: usize = 16 * 1024;

/// A socket, its session, and the session's first bytes that came with the handshake.
#[derive(Debug)]
pub struct Secured {
    socket: TcpStream,
    session: SecureSession,
    early: Vec<u8>,
}

/// Why bytes were not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It took too long.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The peer ended its stream.
    #[error("the peer closed the connection")]
    Ended,
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Lost(io::Error),
    /// The session failed.
    #[error(transparent)]
    SecureSession(#[from] SessionError),
}

impl Secured {
    /// Puts together what a handshake left: `early` are bytes that came behind its last message.
    pub fn new(socket: TcpStream, session: SecureSession, early: Vec<u8>) -> Self {
        Self { socket, session, early }
    }

    /// The parts, for handing them to another process.
    pub fn into_parts(self) -> (TcpStream, SecureSession, Vec<u8>) {
        (self.socket, self.session, self.early)
    }

    /// The peer's static identity.
    pub fn peer(&self) -> NodeId {
        self.session.peer()
    }

    /// The session.
    pub fn session(&self) -> &SecureSession {
        &self.session
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The system's, when the peer has gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Sends all of these bytes.
    ///
    /// # Errors
    /// See [`StreamError`]; what was sent of them is not known then.
    pub fn send(&mut self, plain: &[u8], deadline: Instant) -> Result<(), StreamError> {
        let mut bytes = Vec::with_capacity(self.session.sealed_len(plain.len()));
        self.session.seal(plain, &mut bytes)?;
        self.write(&bytes, deadline)
    }

    /// Appends bytes of the peer's as they come, at least one.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn receive(&mut self, plain: &mut Vec<u8>, deadline: Instant) -> Result<(), StreamError> {
        let before = plain.len();
        let early = std::mem::take(&mut self.early);
        self.session.open(&early, plain)?;
        let mut bytes = [0; READ_LEN];
        while plain.len() == before {
            let count = self.read(&mut bytes, deadline)?;
            if count == 0 {
                self.session.handle_end()?;
                return Err(StreamError::Ended);
            }
            self.session.open(&bytes[..count], plain)?;
        }
        Ok(())
    }

    /// Tells the peer that nothing follows; its bytes may still come.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn finish(&mut self, deadline: Instant) -> Result<(), StreamError> {
        let mut bytes = Vec::new();
        self.session.finish(&mut bytes)?;
        self.write(&bytes, deadline)?;
        self.socket.shutdown(Shutdown::Write).map_err(StreamError::Lost)
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), StreamError> {
        self.socket.set_nonblocking(false).map_err(StreamError::Lost)?;
        while !bytes.is_empty() {
            let limit = Some(left(deadline)?);
            self.socket.set_write_timeout(limit).map_err(StreamError::Lost)?;
            let count = retried(self.socket.write(bytes))?;
            bytes = &bytes[count.unwrap_or(0)..];
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8], deadline: Instant) -> Result<usize, StreamError> {
        self.socket.set_nonblocking(false).map_err(StreamError::Lost)?;
        loop {
            let limit = Some(left(deadline)?);
            self.socket.set_read_timeout(limit).map_err(StreamError::Lost)?;
            if let Some(count) = retried(self.socket.read(bytes))? {
                return Ok(count);
            }
        }
    }
}

/// `None` when nothing was transferred and time may be left.
fn retried(result: io::Result<usize>) -> Result<Option<usize>, StreamError> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Ok(None)
            }
            _ => Err(StreamError::Lost(error)),
        },
    }
}

fn left(deadline: Instant) -> Result<Duration, StreamError> {
    // The kernel counts in ticks, and takes zero to mean no limit.
    let left = deadline.checked_duration_since(Instant::now()).ok_or(StreamError::TimedOut)?;
    Ok(left.max(Duration::from_millis(1)))
}

/// In the connection manager's words.
pub(super) fn failed(error: StreamError, peer: SocketAddr, limit: Duration) -> ConnectError {
    match error {
        StreamError::TimedOut => ConnectError::TimedOut { peer, limit, reached: true },
        StreamError::Ended | StreamError::Lost(_) => ConnectError::Closed { peer },
        StreamError::SecureSession(source) => ConnectError::SecureSession { peer, source },
    }
}
