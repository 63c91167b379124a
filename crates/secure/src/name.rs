//! The names of services, as they stand in key files and in a handshake's first message.
//!
//! A value of this type is legal. It does not say which node offers the service.

use std::fmt;
use std::str::FromStr;

/// A service's name: 1 to 32 lower-case letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName(Box<str>);

/// What is not a service's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceNameError {
    /// Nothing, or too much.
    #[error("a service's name has 1 to {max} characters, not {found}", max = ServiceName::LEN_MAX)]
    Length {
        /// Its bytes.
        found: usize,
    },
    /// Something else than a lower-case letter, a digit or `-`.
    #[error(
        "a service's name has lower-case letters, digits and '-' only; number {position} of this \
         one is something else"
    )]
    Character {
        /// Of the first wrong byte, from 1.
        position: usize,
    },
}

impl ServiceName {
    /// Bytes of the longest name.
    pub const LEN_MAX: usize = 32;

    /// The name in the bytes of a message.
    ///
    /// # Errors
    /// [`ServiceNameError`] when it is not one.
    pub fn parse(bytes: &[u8]) -> Result<Self, ServiceNameError> {
        if bytes.is_empty() || bytes.len() > Self::LEN_MAX {
            return Err(ServiceNameError::Length { found: bytes.len() });
        }
        let legal = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if let Some(wrong) = bytes.iter().position(|byte| !legal(byte)) {
            return Err(ServiceNameError::Character { position: wrong + 1 });
        }
        Ok(Self(bytes.iter().copied().map(char::from).collect()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServiceName {
    type Err = ServiceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_lower_case_words() {
        for good in ["a", "compile", "fs-2", "-", &"x".repeat(32)] {
            assert_eq!(good.parse::<ServiceName>().expect(good).to_string(), good);
        }
        let character = |position| ServiceNameError::Character { position };
        for (bad, error) in [
            ("", ServiceNameError::Length { found: 0 }),
            (&"x".repeat(33), ServiceNameError::Length { found: 33 }),
            ("Compile", character(1)),
            ("com pile", character(4)),
            ("compile\n", character(8)),
            ("übersetzen", character(1)),
            ("a/b", character(2)),
            ("a\0", character(2)),
        ] {
            assert_eq!(bad.parse::<ServiceName>(), Err(error), "{bad:?}");
        }
    }
}
