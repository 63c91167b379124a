//! How control messages become octets and back: a version, then the message in postcard's format.
//!
//! Lengths are the carrier's to bound; decoding allocates no more than the octets that are there.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version that this side speaks.
pub const VERSION: u8 = 1;

/// Why octets are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {found} of the protocol, this side {VERSION}: install the same \
         release on both"
    )]
    Version {
        /// What it speaks.
        found: u8,
    },
    /// The peer sent what is no message of this version.
    #[error("the peer sent {len} octets that are no message of version {VERSION}")]
    Malformed {
        /// How many.
        len: usize,
    },
}

/// A message's octets.
///
/// # Panics
/// For types that have no fixed shape, such as sequences of unknown length: messages have none.
#[must_use]
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("messages are plain data")
}

/// The message of these octets, all of them.
///
/// # Errors
/// [`CodecError`]: the peer's fault.
pub fn decode<T: DeserializeOwned>(octets: &[u8]) -> Result<T, CodecError> {
    match octets.split_first() {
        Some((&VERSION, body)) => match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            _ => Err(CodecError::Malformed { len: octets.len() }),
        },
        Some((&found, _)) => Err(CodecError::Version { found }),
        None => Err(CodecError::Malformed { len: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_comes_back() {
        let message = (7_u32, String::from("seven"), vec![1_u8, 2]);
        assert_eq!(decode(&encode(&message)), Ok(message));
    }

    #[test]
    fn other_versions_and_garbage_are_told_apart() {
        let mut octets = encode(&(7_u32, 9_u32));
        octets.push(0);
        assert_eq!(decode::<(u32, u32)>(&octets), Err(CodecError::Malformed { len: 4 }));
        octets[0] = 9;
        assert_eq!(decode::<(u32, u32)>(&octets), Err(CodecError::Version { found: 9 }));
        assert_eq!(decode::<(u32, u32)>(&[]), Err(CodecError::Malformed { len: 0 }));
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let lie = [VERSION, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(decode::<Vec<u8>>(&lie), Err(CodecError::Malformed { len: 6 }));
    }
}
