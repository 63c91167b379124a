//! A session as bytes, to hand it from the process that did the handshake to the one that serves.
//!
//! ```text
//! version (1) mode (1) node (16) name's length (1) name
//! encrypted: twice, sealing and opening: open or ended (1) count (8) key (32)
//!            opened before (8) length (2) and bytes of a record that is not whole
//! ```
//!
//! Integers are big-endian. The bytes hold keys: they are for a socket between two processes of
//! one machine and for nothing else. Two sessions made of them would seal twice with one nonce,
//! which reveals AES-GCM's key; so a session is consumed, and its bytes must be used once.

use super::{
    AgreedPeer, Direction, LENGTH_LEN, RecordState, Records, SEALED_MAX, SecureSession,
    SessionError,
};
use crate::cipher::Cipher;
use crate::credentials::Mode;
use crate::identity::NodeId;
use crate::name::ServiceName;
use crate::noise::Ciphers;
use crate::secret::{self, Secret};
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const TRUSTED: u8 = 0;
const ENCRYPTED: u8 = 1;
/// Bytes besides those of a partial record, at most.
const FIXED_MAX: usize =
    3 + NodeId::LEN + ServiceName::LEN_MAX + 2 * (9 + secret::LEN) + 8 + LENGTH_LEN;

/// What is no session that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "these bytes are no session that was handed over: both programs must be of one version of \
     Outboard"
)]
pub struct NotASession;

impl SecureSession {
    /// The session as bytes, with its keys: for another process of this machine, once. Bytes
    /// that were not given to [`SecureSession::open`] yet go along separately.
    ///
    /// # Errors
    /// [`SessionError::Over`] when it has failed before.
    pub fn into_bytes(self) -> Result<Zeroizing<Vec<u8>>, SessionError> {
        let partial = match &self.state {
            RecordState::Encrypted(records) => records.partial.len(),
            RecordState::Trusted => 0,
            RecordState::Dead => return Err(SessionError::Over),
        };
        // Room for everything at once: a buffer that grows leaves copies behind.
        let mut out = Zeroizing::new(Vec::with_capacity(FIXED_MAX + partial));
        let mode = if self.mode() == Mode::Trusted { TRUSTED } else { ENCRYPTED };
        out.extend_from_slice(&[VERSION, mode]);
        out.extend_from_slice(self.peer.node.bytes());
        let name = self.peer.service.as_str();
        out.push(u8::try_from(name.len()).map_err(|_| SessionError::Internal)?);
        out.extend_from_slice(name.as_bytes());
        if let RecordState::Encrypted(records) = &self.state {
            records.emit(&mut out)?;
        }
        Ok(out)
    }

    /// The session that [`SecureSession::into_bytes`] made these of.
    ///
    /// # Errors
    /// [`NotASession`] when they are not such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotASession> {
        let mut reader = Reader(bytes);
        let [VERSION, mode] = reader.array()? else { return Err(NotASession) };
        let node = NodeId::from_bytes(reader.array()?);
        let [len] = reader.array()?;
        let name = ServiceName::parse(reader.take(usize::from(len))?);
        let service = name.map_err(|_| NotASession)?;
        let (mode, state) = match mode {
            TRUSTED => (Mode::Trusted, RecordState::Trusted),
            ENCRYPTED => {
                (Mode::Encrypted, RecordState::Encrypted(Box::new(Records::parse(&mut reader)?)))
            }
            _ => return Err(NotASession),
        };
        let Reader([]) = reader else { return Err(NotASession) };
        Ok(Self { peer: AgreedPeer { node, service, mode }, state })
    }
}

impl Records {
    fn emit(&self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        for (cipher, direction) in
            [(&self.ciphers.sealing, self.sending), (&self.ciphers.opening, self.receiving)]
        {
            out.push(u8::from(direction == Direction::Ended));
            out.extend_from_slice(&cipher.count().to_be_bytes());
            out.extend_from_slice(cipher.key().bytes());
        }
        out.extend_from_slice(&self.opened_before.to_be_bytes());
        let len = u16::try_from(self.partial.len()).map_err(|_| SessionError::Internal)?;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&self.partial);
        Ok(())
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, NotASession> {
        let (sealing, sending) = reader.cipher()?;
        let (opening, receiving) = reader.cipher()?;
        let opened_before = u64::from_be_bytes(reader.array()?);
        let len = usize::from(u16::from_be_bytes(reader.array()?));
        let partial = reader.take(len)?.to_vec();
        if opened_before > opening.count() || len >= LENGTH_LEN + SEALED_MAX {
            return Err(NotASession);
        }
        let ciphers = Ciphers { sealing, opening };
        Ok(Self { ciphers, opened_before, partial, sending, receiving })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], NotASession> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(NotASession)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotASession> {
        self.take(N)?.try_into().map_err(|_| NotASession)
    }

    fn cipher(&mut self) -> Result<(Cipher, Direction), NotASession> {
        let direction = match self.array()? {
            [0] => Direction::Open,
            [1] => Direction::Ended,
            _ => return Err(NotASession),
        };
        let count = u64::from_be_bytes(self.array()?);
        let key: &[u8; secret::LEN] =
            self.take(secret::LEN)?.try_into().map_err(|_| NotASession)?;
        Ok((Cipher::new(Secret::of(key), count), direction))
    }
}
