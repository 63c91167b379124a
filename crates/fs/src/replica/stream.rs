//! Messages on a session, one whole one after the other. Waits, but never beyond a limit; keeps no
//! more than one message of the peer's.

use super::messages::{FRAME_MAX, PROTOCOL};
use outboard_verbs::{Secured, StreamError};
use serde::{Deserialize, Serialize};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Why a replica, or its server, is not heard any more.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The session.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// What came is no message.
    #[error("the peer says what is no message of a replica's: install the same release on both")]
    Foreign,
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// A later server has the file system.
    #[error("it has epoch {epoch}, which is later than this server's")]
    Superseded {
        /// Its epoch.
        epoch: u64,
    },
    /// It is not reached.
    #[error("{0}")]
    Unreachable(String),
    /// The store of this machine.
    #[error(transparent)]
    Store(#[from] crate::store::FsStoreError),
    /// Its disk.
    #[error("{what}: {source}")]
    Disk {
        /// Which file.
        what: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// What the server sends cannot be.
    #[error("the server sends what no server does: {0}")]
    Hostile(String),
    /// More has changed than was kept for the replica.
    #[error("too much has changed since: the replica is copied anew")]
    TooFar,
    /// This side ends.
    #[error("the server ends")]
    Over,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct ReplicaStream {
    session: Secured,
    received: Vec<u8>,
    /// Where the next message begins.
    at: usize,
}

impl ReplicaStream {
    pub(super) fn new(session: Secured) -> Self {
        Self { session, received: Vec::new(), at: 0 }
    }

    /// Another handle of its socket, to end it from elsewhere.
    pub(super) fn socket(&self) -> Option<TcpStream> {
        self.session.socket().try_clone().ok()
    }

    pub(super) fn send(
        &mut self,
        message: &impl Serialize,
        limit: Duration,
    ) -> Result<(), ReplicaError> {
        let bytes = PROTOCOL.encode(message);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        Ok(self.session.send(&[&len[..], &bytes].concat(), Instant::now() + limit)?)
    }

    /// The next message, whose bytes are there until the one after it.
    pub(super) fn receive<'a, T: Deserialize<'a>>(
        &'a mut self,
        limit: Duration,
    ) -> Result<T, ReplicaError> {
        let deadline = Instant::now() + limit;
        self.received.drain(..self.at);
        self.at = 0;
        let end = loop {
            let len = self.received.first_chunk().map(|len| u32::from_le_bytes(*len));
            let len = len.map(|len| usize::try_from(len).unwrap_or(usize::MAX));
            if len.is_some_and(|len| len > FRAME_MAX) {
                return Err(ReplicaError::Foreign);
            }
            match len.map(|len| len + 4).filter(|end| *end <= self.received.len()) {
                Some(end) => break end,
                None => self.session.receive(&mut self.received, deadline)?,
            }
        };
        self.at = end;
        PROTOCOL.decode(&self.received[4..end]).map_err(|_| ReplicaError::Foreign)
    }

    /// Ends it for both.
    pub(super) fn end(&self) {
        // It may be over.
        let _shut = self.session.socket().shutdown(Shutdown::Both);
    }
}
