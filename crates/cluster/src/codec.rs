//! How control messages become bytes and back: a version, then the message in postcard's format.
//!
//! Each service has a [`Protocol`] of its own, whose version grows by itself. The transport bounds
//! the length of messages; decoding allocates no more than the message has bytes.

use serde::{Deserialize, Serialize};

/// A service's protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    version: u8,
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {found} of the protocol, this side {own}: install the same \
         release on both"
    )]
    Version {
        /// The peer's version.
        found: u8,
        /// What this side speaks.
        own: u8,
    },
    /// The peer sent bytes that are no message of this version.
    #[error("the peer sent {len} bytes that are no message of version {own}")]
    Malformed {
        /// How many.
        len: usize,
        /// What this side speaks.
        own: u8,
    },
}

impl Protocol {
    /// A version of a service's protocol. One that changes a message changes its number.
    #[must_use]
    pub const fn version(version: u8) -> Self {
        Self { version }
    }

    /// A message's bytes.
    ///
    /// # Panics
    /// For types that have no fixed shape, such as sequences of unknown length: messages have none.
    #[must_use]
    pub fn encode<T: Serialize>(self, message: &T) -> Vec<u8> {
        postcard::to_extend(message, vec![self.version]).expect("messages are plain data")
    }

    /// The message of these bytes, all of them. It may borrow from them.
    ///
    /// # Errors
    /// [`CodecError`]: the peer's fault.
    pub fn decode<'a, T: Deserialize<'a>>(self, bytes: &'a [u8]) -> Result<T, CodecError> {
        let mut rest = self.open_batch(bytes)?;
        match self.decode_next(&mut rest) {
            Ok(Some(message)) if rest.is_empty() => Ok(message),
            _ => Err(CodecError::Malformed { len: bytes.len(), own: self.version }),
        }
    }

    /// Appends a message to a batch: messages one behind the other, which are sent as one. An empty
    /// batch gets the version first.
    ///
    /// # Panics
    /// As [`Self::encode`].
    pub fn append<T: Serialize>(self, message: &T, batch: &mut Vec<u8>) {
        if batch.is_empty() {
            batch.push(self.version);
        }
        let bytes = std::mem::take(batch);
        *batch = postcard::to_extend(message, bytes).expect("messages are plain data");
    }

    /// The messages of a batch, for [`Self::decode_next`].
    ///
    /// # Errors
    /// [`CodecError`]: the peer's fault.
    pub fn open_batch(self, batch: &[u8]) -> Result<&[u8], CodecError> {
        let own = self.version;
        match batch.split_first() {
            Some((found, messages)) if *found == own => Ok(messages),
            Some((&found, _)) => Err(CodecError::Version { found, own }),
            None => Err(CodecError::Malformed { len: 0, own }),
        }
    }

    /// Takes the next message off a batch; `None` behind the last.
    ///
    /// # Errors
    /// [`CodecError`]: the peer's fault.
    pub fn decode_next<'a, T: Deserialize<'a>>(
        self,
        rest: &mut &'a [u8],
    ) -> Result<Option<T>, CodecError> {
        if rest.is_empty() {
            return Ok(None);
        }
        let malformed = |_| CodecError::Malformed { len: rest.len(), own: self.version };
        let (message, behind) = postcard::take_from_bytes(rest).map_err(malformed)?;
        *rest = behind;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol::version(1);

    #[test]
    fn what_was_encoded_comes_back() {
        let message = (7_u32, String::from("seven"), vec![1_u8, 2]);
        assert_eq!(PROTOCOL.decode(&PROTOCOL.encode(&message)), Ok(message));
    }

    #[test]
    fn a_batch_brings_its_messages_in_order_and_they_may_borrow() {
        let mut batch = Vec::new();
        for number in 0..3_u32 {
            PROTOCOL.append(&(number, "text"), &mut batch);
        }
        let mut rest = PROTOCOL.open_batch(&batch).expect("its version");
        for number in 0..3_u32 {
            assert_eq!(PROTOCOL.decode_next::<(u32, &str)>(&mut rest), Ok(Some((number, "text"))));
        }
        assert_eq!(PROTOCOL.decode_next::<(u32, &str)>(&mut rest), Ok(None));
        let mut cut = PROTOCOL.open_batch(&batch[..batch.len() - 1]).expect("its version");
        let taken =
            std::iter::from_fn(|| PROTOCOL.decode_next::<(u32, &str)>(&mut cut).transpose());
        assert_eq!(taken.take(3).filter(Result::is_ok).count(), 2);
        assert!(PROTOCOL.decode::<(u32, &str)>(&batch).is_err(), "more than one");
        assert_eq!(PROTOCOL.open_batch(&[]), Err(CodecError::Malformed { len: 0, own: 1 }));
    }

    #[test]
    fn other_versions_and_garbage_are_told_apart() {
        let mut bytes = PROTOCOL.encode(&(7_u32, 9_u32));
        let decode = |bytes: &[u8]| PROTOCOL.decode::<(u32, u32)>(bytes);
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(CodecError::Malformed { len: 4, own: 1 }));
        bytes[0] = 9;
        assert_eq!(decode(&bytes), Err(CodecError::Version { found: 9, own: 1 }));
        assert_eq!(Protocol::version(9).decode(&bytes[..3]), Ok((7_u32, 9_u32)));
        assert_eq!(decode(&[]), Err(CodecError::Malformed { len: 0, own: 1 }));
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let lie = [1, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let decoded = PROTOCOL.decode::<Vec<u8>>(&lie);
        assert_eq!(decoded, Err(CodecError::Malformed { len: 6, own: 1 }));
    }
}
