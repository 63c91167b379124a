//! A session as octets, to hand it from the process that did the handshake to the one that serves.
//!
//! ```text
//! version (1) mode (1) node (16) name's length (1) name
//! encrypted: twice, sealing and opening: open or ended (1) count (8) key (32)
//!            opened before (8) length (2) and octets of a record that is not whole
//! ```
//!
//! Integers are big-endian. The octets hold keys: they are for a socket between two processes of
//! one machine and for nothing else. Who makes two sessions of them seals twice with one nonce,
//! which gives AES-GCM's key away; so a session is consumed, and its octets must be used once.

use super::{Direction, LENGTH_LEN, Peer, Records, SEALED_MAX, Session, SessionError, State};
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
/// Octets besides those of a partial record, at most.
const FIXED_MAX: usize =
    3 + NodeId::LEN + ServiceName::LEN_MAX + 2 * (9 + secret::LEN) + 8 + LENGTH_LEN;

/// What is no session that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "these octets are no session that was handed over: both programs must be of one version of \
     Outboard"
)]
pub struct NotASession;

impl Session {
    /// The session as octets, with its keys: for another process of this machine, once. Octets
    /// that were not given to [`Session::open`] yet go along separately.
    ///
    /// # Errors
    /// [`SessionError::Over`] when it has failed before.
    pub fn into_octets(self) -> Result<Zeroizing<Vec<u8>>, SessionError> {
        let partial = match &self.state {
            State::Encrypted(records) => records.partial.len(),
            State::Trusted => 0,
            State::Dead => return Err(SessionError::Over),
        };
        // Room for everything at once: a buffer that grows leaves copies behind.
        let mut out = Zeroizing::new(Vec::with_capacity(FIXED_MAX + partial));
        let mode = if self.mode() == Mode::Trusted { TRUSTED } else { ENCRYPTED };
        out.extend_from_slice(&[VERSION, mode]);
        out.extend_from_slice(self.peer.node.octets());
        let name = self.peer.service.as_str();
        out.push(u8::try_from(name.len()).map_err(|_| SessionError::Internal)?);
        out.extend_from_slice(name.as_bytes());
        if let State::Encrypted(records) = &self.state {
            records.emit(&mut out)?;
        }
        Ok(out)
    }

    /// The session that [`Session::into_octets`] made these of.
    ///
    /// # Errors
    /// [`NotASession`] when they are not such octets.
    pub fn from_octets(octets: &[u8]) -> Result<Self, NotASession> {
        let mut reader = Reader(octets);
        let [VERSION, mode] = reader.array()? else { return Err(NotASession) };
        let node = NodeId::from_octets(reader.array()?);
        let [len] = reader.array()?;
        let name = ServiceName::parse(reader.take(usize::from(len))?);
        let service = name.map_err(|_| NotASession)?;
        let (mode, state) = match mode {
            TRUSTED => (Mode::Trusted, State::Trusted),
            ENCRYPTED => {
                (Mode::Encrypted, State::Encrypted(Box::new(Records::parse(&mut reader)?)))
            }
            _ => return Err(NotASession),
        };
        let Reader([]) = reader else { return Err(NotASession) };
        Ok(Self { peer: Peer { node, service, mode }, state })
    }
}

impl Records {
    fn emit(&self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        for (cipher, direction) in
            [(&self.ciphers.sealing, self.sending), (&self.ciphers.opening, self.receiving)]
        {
            out.push(u8::from(direction == Direction::Ended));
            out.extend_from_slice(&cipher.count().to_be_bytes());
            out.extend_from_slice(cipher.key().octets());
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
