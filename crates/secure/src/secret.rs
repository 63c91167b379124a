//! Thirty-two secret bytes: wiped when dropped, never printed, never compared.
//!
//! They stand on the heap, so that moving a key leaves no copy behind on a stack.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of every key.
pub(crate) const LEN: usize = 32;

/// This machine has no random numbers to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine gives no random numbers: see whether getrandom is forbidden to this process")]
pub struct NoEntropy;

pub(crate) struct Secret(Box<Zeroizing<[u8; LEN]>>);

impl Secret {
    pub(crate) fn random() -> Result<Self, NoEntropy> {
        let mut secret = Self::zero();
        fill_random(&mut secret.0[..])?;
        Ok(secret)
    }

    /// All zeros, for the caller to fill.
    pub(crate) fn zero() -> Self {
        Self(Box::new(Zeroizing::new([0; LEN])))
    }

    pub(crate) fn of(bytes: &[u8; LEN]) -> Self {
        let mut secret = Self::zero();
        secret.0.copy_from_slice(bytes);
        secret
    }

    pub(crate) fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; LEN] {
        &mut self.0
    }

    /// From 64 hexadecimal digits.
    pub(crate) fn parse(digits: &str) -> Option<Self> {
        let mut secret = Self::zero();
        if digits.len() != 2 * LEN {
            return None;
        }
        HEXLOWER_PERMISSIVE.decode_mut(digits.as_bytes(), &mut secret.0[..]).ok()?;
        Some(secret)
    }

    /// Appends 64 hexadecimal digits. `text` must have room, or a copy is left behind.
    pub(crate) fn emit(&self, text: &mut String) {
        HEXLOWER.encode_append(&self.0[..], text);
    }
}

impl Clone for Secret {
    fn clone(&self) -> Self {
        Self::of(self.bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), NoEntropy> {
    SystemRandom::new().fill(bytes).map_err(|_| NoEntropy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_and_debug_shows_nothing() {
        let secret = Secret::random().expect("random numbers");
        let mut text = String::new();
        secret.emit(&mut text);
        assert_eq!(text.len(), 64);
        let upper = text.to_uppercase();
        for form in [&text, &upper] {
            assert_eq!(Secret::parse(form).expect("64 digits").bytes(), secret.bytes());
        }
        assert_eq!(format!("{secret:?}"), "(secret)");
    }

    #[test]
    fn only_64_hexadecimal_digits_are_a_secret() {
        let wrong = ["".to_owned(), "0".repeat(63), "0".repeat(65), "g".repeat(64), "ü".repeat(32)];
        for text in wrong {
            assert!(Secret::parse(&text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn two_random_secrets_differ() {
        let [a, b] = [Secret::random(), Secret::random()].map(|it| it.expect("random numbers"));
        assert_ne!(a.bytes(), b.bytes());
    }
}
