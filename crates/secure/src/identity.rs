//! A node's or user's static key pair, and the short name that its public key gives it.
//!
//! Only the private key is kept in the file; the public one follows from it (X25519, RFC 7748).
//! Identifies an end; the service keys decide what it may do.

use crate::key::line;
use crate::keyfile::{self, Holding, KeyFileError};
use crate::noise;
use crate::secret::{NoEntropy, Secret};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A static X25519 key pair.
#[derive(Clone, Debug)]
pub struct Identity {
    private: Secret,
    node: NodeId,
}

/// An identity: the first 16 bytes of the BLAKE3 hash of a public key, printed as 32
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; Self::LEN]);

/// What is not a node's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node's id has 32 hexadecimal digits: copy it as `outboard key show` prints it")]
pub struct NodeIdError;

impl Identity {
    /// A new key pair.
    ///
    /// # Errors
    /// [`NoEntropy`] when this machine gives no random numbers.
    pub fn generate() -> Result<Self, NoEntropy> {
        Secret::random().map(Self::from_private)
    }

    /// Reads the key pair.
    ///
    /// # Errors
    /// [`KeyFileError`] when there is none, it is not an identity, it is another user's or others
    /// have rights to it.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        keyfile::load(path, Holding::Identity, Self::parse)
    }

    /// Reads the key pair, and makes it first if there is none, with its directory.
    ///
    /// # Errors
    /// As [`Self::load`], and when the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        keyfile::load_or_create(path, Holding::Identity, Self::parse, || {
            Ok(line(&[Holding::Identity.label()], &Secret::random()?))
        })
    }

    fn parse(line: &str) -> Option<Self> {
        let (_, digits) = line.split_once(' ')?;
        Secret::parse(digits).map(Self::from_private)
    }

    fn from_private(private: Secret) -> Self {
        let node = NodeId::of(&noise::public_key(&private));
        Self { private, node }
    }

    /// What others know this end as.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn private(&self) -> &Secret {
        &self.private
    }
}

impl NodeId {
    /// Bytes of an id.
    pub const LEN: usize = 16;

    /// The id that belongs to a public key.
    #[must_use]
    pub fn of(public_key: &[u8; 32]) -> Self {
        let mut id = [0; Self::LEN];
        blake3::Hasher::new().update(public_key).finalize_xof().fill(&mut id);
        Self(id)
    }
}

impl NodeId {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(digits: &str) -> Result<Self, Self::Err> {
        let mut id = [0; Self::LEN];
        if digits.len() != 2 * Self::LEN {
            return Err(NodeIdError);
        }
        HEXLOWER_PERMISSIVE.decode_mut(digits.as_bytes(), &mut id).map_err(|_| NodeIdError)?;
        Ok(Self(id))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_text_and_back() {
        let node = NodeId::of(&[7; 32]);
        let text = node.to_string();
        assert_eq!(text.len(), 32);
        assert_eq!(text.parse(), Ok(node));
        assert_eq!(text.to_uppercase().parse(), Ok(node));
        assert_eq!(format!("{node:?}"), format!("NodeId({text})"));
        for wrong in ["", &text[1..], &format!("{text}0"), "zz08b7f54ae2b9c1b0f7d4c3e2a19080"] {
            assert_eq!(wrong.parse::<NodeId>(), Err(NodeIdError), "{wrong:?}");
        }
    }
}
