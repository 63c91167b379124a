//! Bytes both ways once the handshake is over: records, or the bytes themselves where both
//! operators trust the fabric.
//!
//! ```text
//!  0         2
//! +---------+----------------------------------------+
//! | length  | AES-256-GCM: up to 16 KiB, tag (16)    |   `length` bytes follow, big-endian
//! +---------+----------------------------------------+
//! ```
//!
//! A record's nonce is its number, so that an altered, omitted, repeated or moved record does not
//! open. An empty record ends its direction: an attacker who cuts the connection cannot forge it.
//! Both ends change a direction's key after every 65,536 of its records, 1 GiB at most (Noise
//! §11.3; far below what AES-GCM bears, NIST SP 800-38D §8).
//!
//! After an error the session cannot be used in either direction. Never waits and never keeps more
//! than one record that is not whole yet.

mod handover;

pub use handover::NotASession;

use crate::credentials::Mode;
use crate::identity::NodeId;
use crate::name::ServiceName;
use crate::noise::{Ciphers, NoiseError, TAG_LEN};
use std::mem;

/// Plain bytes in a record, at most. From 8 to 64 KiB the ciphers are equally fast; 16 KiB stays
/// in a processor's first cache, and the receiver waits less for its first record.
pub const RECORD_PLAIN_MAX: usize = 16 * 1024;

const LENGTH_LEN: usize = 2;
const SEALED_MAX: usize = RECORD_PLAIN_MAX + TAG_LEN;
const REKEY_RECORDS: u64 = 1 << 16;

/// Both directions after a handshake.
#[derive(Debug)]
pub struct SecureSession {
    peer: AgreedPeer,
    state: RecordState,
}

/// What the handshake found out and agreed on.
#[derive(Debug)]
pub(crate) struct AgreedPeer {
    pub(crate) node: NodeId,
    pub(crate) service: ServiceName,
    pub(crate) mode: Mode,
}

#[derive(Debug)]
enum RecordState {
    Trusted,
    Encrypted(Box<Records>),
    Dead,
}

#[derive(Debug)]
struct Records {
    ciphers: Ciphers,
    /// Messages that these ciphers opened in the handshake.
    opened_before: u64,
    /// What is there of a record that is not whole.
    partial: Vec<u8>,
    sending: Direction,
    receiving: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Ended,
}

/// Why a session cannot be used any more, or a call to it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The peer's record cannot have that length.
    #[error(
        "the peer's record {record} cannot have {found} bytes, but {TAG_LEN} to {SEALED_MAX}: it \
         was altered on the way"
    )]
    Length {
        /// Its number, from 1.
        record: u64,
        /// The length that it says it has.
        found: usize,
    },
    /// The peer's record does not open.
    #[error(
        "the peer's record {record} was altered, left out, repeated or moved on the way: connect \
         again, and look for a device that alters it"
    )]
    Altered {
        /// Its number, from 1.
        record: u64,
    },
    /// The peer's bytes end before it has said that they do.
    #[error(
        "the connection was cut after the peer's record {record}, and the peer has not ended it: \
         it has failed, or someone in between cut it"
    )]
    Truncated {
        /// The number of the last whole record; 0 is none.
        record: u64,
    },
    /// There are bytes behind the peer's end.
    #[error("there are bytes behind the end of the peer's stream: they were added on the way")]
    BehindEnd,
    /// The caller seals after having finished.
    #[error("this end has finished its stream: nothing can follow")]
    Finished,
    /// The caller goes on after an error.
    #[error("this session has failed before: connect again")]
    Over,
    /// The Noise library refuses a call that it should take.
    #[error("the Noise library refuses a correct call: this is a fault of Outboard, report it")]
    Internal,
}

impl From<NoiseError> for SessionError {
    fn from(_: NoiseError) -> Self {
        Self::Internal
    }
}

impl SecureSession {
    pub(crate) fn new(ciphers: Ciphers, peer: AgreedPeer) -> Self {
        let state = match peer.mode {
            Mode::Trusted => RecordState::Trusted,
            Mode::Encrypted => RecordState::Encrypted(Box::new(Records::new(ciphers))),
        };
        Self { peer, state }
    }

    /// The peer's identity.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        self.peer.node
    }

    /// The service whose key both ends hold.
    #[must_use]
    pub fn service(&self) -> &ServiceName {
        &self.peer.service
    }

    /// What passes. In [`Mode::Trusted`], sealing and opening only copy, so a caller may leave
    /// them out.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.peer.mode
    }

    /// Bytes that [`Self::seal`] makes of `plain_len` bytes.
    #[must_use]
    pub fn sealed_len(&self, plain_len: usize) -> usize {
        match self.peer.mode {
            Mode::Trusted => plain_len,
            Mode::Encrypted => {
                plain_len + plain_len.div_ceil(RECORD_PLAIN_MAX) * (LENGTH_LEN + TAG_LEN)
            }
        }
    }

    /// Appends records with all of `plain` to `out`. Small pieces cost a record each: gather first.
    ///
    /// # Errors
    /// [`SessionError::Finished`] and [`SessionError::Over`] when the caller goes on after the end.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        let result = match &mut self.state {
            RecordState::Trusted => {
                out.extend_from_slice(plain);
                Ok(())
            }
            RecordState::Encrypted(records) => records.seal(plain, out),
            RecordState::Dead => Err(SessionError::Over),
        };
        self.settle(result)
    }

    /// Appends what tells the peer that nothing follows: a record of nothing, or nothing at all in
    /// [`Mode::Trusted`]. Call it before shutting the socket down for writing.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        let result = match &mut self.state {
            RecordState::Trusted => Ok(()),
            RecordState::Encrypted(records) => records.finish(out),
            RecordState::Dead => Err(SessionError::Over),
        };
        self.settle(result)
    }

    /// Takes the peer's bytes, cut anywhere, and appends the plain bytes of every record that is
    /// whole now to `plain`. That is never more than came in, now and before.
    ///
    /// # Errors
    /// [`SessionError`] when a record is wrong. What was appended up to there is the peer's, what
    /// follows is lost, and the session is over.
    pub fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        let result = match &mut self.state {
            RecordState::Trusted => {
                plain.extend_from_slice(bytes);
                Ok(())
            }
            RecordState::Encrypted(records) => records.open(bytes, plain),
            RecordState::Dead => Err(SessionError::Over),
        };
        self.settle(result)
    }

    /// Takes the end of the peer's bytes.
    ///
    /// # Errors
    /// [`SessionError::Truncated`] when the peer has not ended its stream: it has failed, or
    /// the connection was cut. [`Mode::Trusted`] cannot tell.
    pub fn handle_end(&mut self) -> Result<(), SessionError> {
        let result = match &self.state {
            RecordState::Trusted => Ok(()),
            RecordState::Encrypted(records) => records.check_end(),
            RecordState::Dead => Err(SessionError::Over),
        };
        self.settle(result)
    }

    fn settle(&mut self, result: Result<(), SessionError>) -> Result<(), SessionError> {
        if !matches!(result, Ok(()) | Err(SessionError::Finished)) {
            self.state = RecordState::Dead;
        }
        result
    }
}

impl Records {
    fn new(ciphers: Ciphers) -> Self {
        let (sending, receiving) = (Direction::Open, Direction::Open);
        let opened_before = ciphers.opening.count();
        Self { ciphers, opened_before, partial: Vec::new(), sending, receiving }
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        if self.sending == Direction::Ended {
            return Err(SessionError::Finished);
        }
        plain.chunks(RECORD_PLAIN_MAX).try_for_each(|piece| self.seal_record(piece, out))
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        if self.sending == Direction::Ended {
            return Err(SessionError::Finished);
        }
        self.sending = Direction::Ended;
        self.seal_record(&[], out)
    }

    fn seal_record(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        let len = u16::try_from(piece.len() + TAG_LEN).map_err(|_| SessionError::Internal)?;
        out.extend_from_slice(&len.to_be_bytes());
        self.ciphers.sealing.seal(piece, out)?;
        if self.ciphers.sealing.count().is_multiple_of(REKEY_RECORDS) {
            self.ciphers.sealing.rekey();
        }
        Ok(())
    }

    fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        plain.reserve(bytes.len());
        while !bytes.is_empty() {
            bytes = if self.partial.is_empty() {
                self.open_first(bytes, plain)?
            } else {
                self.open_partial(bytes, plain)?
            };
        }
        Ok(())
    }

    /// Opens the record that begins `bytes` where it lies, or keeps them if it is not whole; gives
    /// what follows.
    fn open_first<'a>(
        &mut self,
        bytes: &'a [u8],
        plain: &mut Vec<u8>,
    ) -> Result<&'a [u8], SessionError> {
        let missing = self.missing(bytes)?;
        if missing > 0 {
            self.partial.reserve(bytes.len() + missing);
            self.partial.extend_from_slice(bytes);
            return Ok(&[]);
        }
        let record_len = LENGTH_LEN + usize::from(length(bytes).unwrap_or_default());
        let (record, rest) = bytes.split_at(record_len);
        self.open_record(record, plain)?;
        Ok(rest)
    }

    /// Completes the record that was not whole as far as `bytes` go; gives what follows.
    fn open_partial<'a>(
        &mut self,
        bytes: &'a [u8],
        plain: &mut Vec<u8>,
    ) -> Result<&'a [u8], SessionError> {
        let missing = self.missing(&self.partial)?;
        let (more, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.reserve(missing);
        self.partial.extend_from_slice(more);
        if self.missing(&self.partial)? == 0 {
            // Given back, not kept: a session at rest holds no buffer.
            let record = mem::take(&mut self.partial);
            self.open_record(&record, plain)?;
        }
        Ok(rest)
    }

    /// How many bytes are missing until the record that begins `bytes` is whole, at least.
    fn missing(&self, bytes: &[u8]) -> Result<usize, SessionError> {
        if self.receiving == Direction::Ended {
            return Err(SessionError::BehindEnd);
        }
        let Some(found) = length(bytes) else { return Ok(LENGTH_LEN - bytes.len()) };
        let found = usize::from(found);
        if !(TAG_LEN..=SEALED_MAX).contains(&found) {
            return Err(SessionError::Length { record: self.opened() + 1, found });
        }
        Ok((LENGTH_LEN + found).saturating_sub(bytes.len()))
    }

    fn open_record(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        let sealed = &record[LENGTH_LEN..];
        self.ciphers.opening.open(sealed, plain).map_err(|error| match error {
            NoiseError::Forged => SessionError::Altered { record: self.opened() + 1 },
            _ => SessionError::Internal,
        })?;
        if sealed.len() == TAG_LEN {
            self.receiving = Direction::Ended;
        }
        if self.ciphers.opening.count().is_multiple_of(REKEY_RECORDS) {
            self.ciphers.opening.rekey();
        }
        Ok(())
    }

    /// Records opened so far.
    fn opened(&self) -> u64 {
        self.ciphers.opening.count() - self.opened_before
    }

    fn check_end(&self) -> Result<(), SessionError> {
        if self.receiving == Direction::Ended {
            return Ok(());
        }
        Err(SessionError::Truncated { record: self.opened() })
    }
}

/// The length of the sealed part of the record that begins `bytes`.
fn length(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]))
}

#[cfg(test)]
mod tests;
