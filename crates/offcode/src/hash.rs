//! A module's name: the BLAKE3 hash of its bytes. Knowing a hash grants nothing.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The BLAKE3 hash of a module's bytes; written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleHash(pub [u8; 32]);

/// A text is no module's hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no module's hash: 64 hexadecimal digits")]
pub struct ModuleHashError {
    found: String,
}

impl ModuleHash {
    /// The hash of a module's bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for ModuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER_PERMISSIVE.encode(&self.0))
    }
}

impl fmt::Debug for ModuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ModuleHash {
    type Err = ModuleHashError;

    fn from_str(text: &str) -> Result<Self, ModuleHashError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| ModuleHashError { found: text.chars().take(80).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_64_digits() {
        let hash = ModuleHash::of(b"module");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().len(), 64);
        for wrong in ["", "ab", &"g".repeat(64), &"a".repeat(65), &"é".repeat(32)] {
            wrong.parse::<ModuleHash>().expect_err(wrong);
        }
    }
}
