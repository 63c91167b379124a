//! One direction's cipher after the handshake: AES-256-GCM with Noise's nonces and rekeying (Noise
//! Protocol Framework, revision 34, §4.2, §5.1 and §12.4), by ring.
//!
//! The Noise library has one as well, but keeps its key to itself, so that a session could not be
//! handed to another process; a test holds the two against each other. It does not know records.

use crate::noise::{NoiseError, TAG_LEN};
use crate::secret::{self, Secret};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;
use zeroize::Zeroizing;

/// The last nonce is for rekeying (§4.2).
const REKEY_NONCE: u64 = u64::MAX;

/// A key and the number of its next message, which goes on when the key changes.
pub(crate) struct Cipher {
    key: Secret,
    aead: LessSafeKey,
    count: u64,
}

impl Cipher {
    /// A cipher whose next message is number `count`, from 0. No two may seal with the same.
    pub(crate) fn new(key: Secret, count: u64) -> Self {
        let aead = aead(key.bytes());
        Self { key, aead, count }
    }

    /// Messages so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn key(&self) -> &Secret {
        &self.key
    }

    /// Appends `plain`, sealed, which is [`TAG_LEN`] longer.
    pub(crate) fn seal(&mut self, plain: &[u8], to: &mut Vec<u8>) -> Result<(), NoiseError> {
        let (nonce, start) = (self.nonce()?, to.len());
        to.reserve(plain.len() + TAG_LEN);
        to.extend_from_slice(plain);
        let sealed = self.aead.seal_in_place_separate_tag(nonce, Aad::empty(), &mut to[start..]);
        to.extend_from_slice(sealed.map_err(|_| NoiseError::Refused)?.as_ref());
        self.count += 1;
        Ok(())
    }

    /// Appends what was sealed; on an error, nothing.
    pub(crate) fn open(&mut self, sealed: &[u8], to: &mut Vec<u8>) -> Result<(), NoiseError> {
        let (nonce, start) = (self.nonce()?, to.len());
        to.extend_from_slice(sealed);
        let opened = self.aead.open_in_place(nonce, Aad::empty(), &mut to[start..]);
        let opened = opened.map(|plain| plain.len());
        to.truncate(start + opened.unwrap_or(0));
        opened.map_err(|_| NoiseError::Forged)?;
        self.count += 1;
        Ok(())
    }

    /// A new key for what follows (§4.2).
    pub(crate) fn rekey(&mut self) {
        let mut bytes = Zeroizing::new([0; secret::LEN]);
        let sealed =
            self.aead.seal_in_place_separate_tag(nonce(REKEY_NONCE), Aad::empty(), &mut bytes[..]);
        let _tag = sealed.expect("32 bytes are not too long for AES-GCM");
        self.key.bytes_mut().copy_from_slice(&bytes[..]);
        self.aead = aead(self.key.bytes());
    }

    fn nonce(&self) -> Result<Nonce, NoiseError> {
        if self.count == REKEY_NONCE {
            return Err(NoiseError::Refused);
        }
        Ok(nonce(self.count))
    }
}

/// §12.4: 32 bits of zeros, then the number, big-endian.
fn nonce(count: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn aead(key: &[u8; secret::LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("its keys have 32 bytes"))
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cipher {{ count: {} }}", self.count)
    }
}
