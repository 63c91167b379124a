//! Exclusive memory: handed to the engine with a work request, handed back with its completion.
//!
//! It is never registered with remote rights, so its holder may use plain references.

use std::ops::{Deref, DerefMut};

/// Bytes that belong to exactly one holder at a time.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnedBuf(Vec<u8>);

impl OwnedBuf {
    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self(vec![0; len])
    }

    /// Gives the bytes back without copying.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

/// Shows the length only: buffers are large, and their contents may be confidential.
impl std::fmt::Debug for OwnedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedBuf({} bytes)", self.0.len())
    }
}

impl From<Vec<u8>> for OwnedBuf {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for OwnedBuf {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Deref for OwnedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for OwnedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
