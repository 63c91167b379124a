//! The key of one cast (Ed25519). It is made for the cast, never stored, and gone with its source.

use super::error::SignError;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes in a signature.
pub(super) const SIGNATURE_LEN: usize = 64;

/// The secret half, which only the source has.
#[derive(Debug)]
pub struct CastKey {
    pair: Ed25519KeyPair,
}

/// The public half, which receivers get from what started the cast.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastPublicKey([u8; Self::LEN]);

impl CastKey {
    /// A new key.
    ///
    /// # Errors
    /// [`SignError::NoEntropy`].
    pub fn generate() -> Result<Self, SignError> {
        let random = SystemRandom::new();
        let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| SignError::NoEntropy)?;
        let pair =
            Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| SignError::NoEntropy)?;
        Ok(Self { pair })
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> CastPublicKey {
        let mut bytes = [0; CastPublicKey::LEN];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        CastPublicKey(bytes)
    }

    /// `body` with a signature of `context` and `body` behind it.
    pub(super) fn sign(&self, context: &[u8], mut body: Vec<u8>) -> Vec<u8> {
        let signature = self.pair.sign(&[context, &body].concat());
        body.extend_from_slice(signature.as_ref());
        body
    }
}

impl CastPublicKey {
    /// Bytes in a key.
    pub const LEN: usize = 32;

    /// A key from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Whether the secret half has signed `context` and `body`.
    pub(super) fn has_signed(&self, context: &[u8], body: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(&[context, body].concat(), signature).is_ok()
    }
}

impl fmt::Debug for CastPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SignError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SignError::NoEntropy)?;
    Ok(bytes)
}
