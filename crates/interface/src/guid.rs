//! GUIDs of interfaces and offcodes.
//!
//! Never asks whether anything of that GUID exists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// The name space in which Outboard's versioned names are hashed: UUIDv5 of
/// `outboard.offcode` in the name space of DNS.
const NAMESPACE: Uuid = Uuid::from_u128(0xe7fc_a256_ec3d_507b_937b_a119_0247_d26c);

/// The first ten bytes of GUIDs that stand for an integer: "hydra" in ASCII, then version 8 and
/// the variant of RFC 9562 §5.8.
const INTEGER_PREFIX: [u8; 10] = *b"hydra\0\x80\0\x80\0";

/// Identifies an interface or an offcode, as HYDRA does.
///
/// # Examples
///
/// ```
/// use outboard_interface::Guid;
///
/// let guid = Guid::of_name("hydra:net/checksum@1.0.0");
/// assert_eq!(guid.to_string().parse::<Guid>()?, guid);
/// let of_paper: Guid = "6060842".parse()?;
/// assert_eq!(of_paper.to_string(), "68796472-6100-8000-8000-0000005c7b2a");
/// # Ok::<(), outboard_interface::GuidError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid([u8; 16]);

impl Guid {
    /// Integers below this have GUIDs: 48 bits are free behind the prefix.
    pub const INTEGER_END: u64 = 1 << 48;

    /// UUIDv5 (RFC 9562 §5.5) of a versioned name such as `hydra:net/checksum@1.0.0`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        Self(*Uuid::new_v5(&NAMESPACE, name.as_bytes()).as_bytes())
    }

    /// The GUID for an integer such as the paper's 6060842 (HYDRA, figure 2): a UUIDv8 that begins
    /// with "hydra" and ends with the integer, big-endian. `None` from [`Self::INTEGER_END`] on.
    #[must_use]
    pub fn of_integer(integer: u64) -> Option<Self> {
        if integer >= Self::INTEGER_END {
            return None;
        }
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&integer.to_be_bytes());
        bytes[..10].copy_from_slice(&INTEGER_PREFIX);
        Some(Self(bytes))
    }

    /// The GUID with these bytes, in the order in which it is written.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order in which it is written.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).as_hyphenated().fmt(formatter)
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Guid({self})")
    }
}

/// The text is no GUID: the user's or the file's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is no GUID: write 8-4-4-4-12 hexadecimal digits, or a number below 2^48")]
pub struct GuidError {
    /// What stands there, at most 64 characters of it.
    found: String,
}

impl FromStr for Guid {
    type Err = GuidError;

    fn from_str(text: &str) -> Result<Self, GuidError> {
        let fault = || GuidError { found: text.chars().take(64).collect() };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().and_then(Self::of_integer).ok_or_else(fault);
        }
        // The library also reads braces, URNs and plain digits: one spelling is enough.
        if text.len() != 36 {
            return Err(fault());
        }
        Uuid::try_parse(text).map(|uuid| Self(*uuid.as_bytes())).map_err(|_| fault())
    }
}

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            // An owned text: TOML's and JSON's are not always there to be borrowed.
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_space_is_what_it_says() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"outboard.offcode"));
        let guid = Guid::of_name("hydra:net/checksum@1.0.0");
        assert_eq!(guid.as_bytes()[6] >> 4, 5, "{guid}");
        assert_ne!(guid, Guid::of_name("hydra:net/checksum@1.0.1"));
    }

    #[test]
    fn integers_and_hyphenated_text_parse_and_nothing_else() {
        let guid: Guid = "6060842".parse().unwrap();
        assert_eq!(Some(guid), Guid::of_integer(6_060_842));
        assert_eq!(guid.to_string().parse(), Ok(guid));
        assert_eq!(Guid::of_integer(Guid::INTEGER_END), None);
        for bad in ["", "-1", "0x5", "281474976710656", "99999999999999999999999", "hydra:net/x"] {
            assert!(bad.parse::<Guid>().is_err(), "{bad}");
        }
        let bare = guid.to_string().replace('-', "");
        assert!(bare.parse::<Guid>().is_err());
        assert!(format!("{{{guid}}}").parse::<Guid>().is_err());
    }

    #[test]
    fn serde_writes_text_for_people_and_bytes_for_machines() {
        let guid = Guid::of_name("a:b/c@1.0.0");
        let text = serde_json::to_string(&guid).unwrap();
        assert_eq!(text, format!("\"{guid}\""));
        assert_eq!(serde_json::from_str::<Guid>(&text).unwrap(), guid);
        let bytes = postcard::to_stdvec(&guid).unwrap();
        assert_eq!(bytes, guid.as_bytes());
        assert_eq!(postcard::from_bytes::<Guid>(&bytes).unwrap(), guid);
    }
}
