//! How control messages become bytes and back: a version, then the message in postcard's format.
//!
//! Each service has a [`Protocol`] of its own, whose version grows by itself. The transport bounds
//! the length of messages; decoding allocates no more than the message has bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

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

    /// The message of these bytes, all of them.
    ///
    /// # Errors
    /// [`CodecError`]: the peer's fault.
    pub fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, CodecError> {
        let own = self.version;
        match bytes.split_first() {
            Some((found, body)) if *found == own => match postcard::take_from_bytes(body) {
                Ok((message, [])) => Ok(message),
                _ => Err(CodecError::Malformed { len: bytes.len(), own }),
            },
            Some((&found, _)) => Err(CodecError::Version { found, own }),
            None => Err(CodecError::Malformed { len: 0, own }),
        }
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
