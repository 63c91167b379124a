//! Names in descriptions: each type holds only what it may hold.
//!
//! Never looks a name up.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Bytes of a short name: of an offcode, a port, an import.
const SHORT_LEN_MAX: usize = 63;
/// Bytes of an interface's name and of a host's.
const LONG_LEN_MAX: usize = 255;
/// Bytes of a path inside a package.
const PATH_LEN_MAX: usize = 1024;

/// A text that is no such name. Whoever wrote the description is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no {kind}: write {expected}")]
pub struct NameError {
    kind: &'static str,
    expected: &'static str,
    found: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $checked:ident, $kind:literal, $expected:literal, $is_valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $checked(String);

        impl $checked {
            /// Its text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $checked {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(text) {
                    return Ok(Self(text.to_owned()));
                }
                let found = text.chars().take(SHORT_LEN_MAX).collect();
                Err(NameError { kind: $kind, expected: $expected, found })
            }
        }

        impl fmt::Display for $checked {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of an offcode, of a package or of an application.
    OffcodeName,
    "name of an offcode",
    "1 to 63 of the characters a-z, 0-9 and -",
    |text| is_short(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);
name!(
    /// The name of a port, by which a channel's end is connected.
    PortName,
    "name of a port",
    "1 to 63 of the characters a-z, 0-9, - and _",
    |text| is_short(text, is_word)
);
name!(
    /// The name of an import, by which an offcode calls another one.
    ImportName,
    "name of an import",
    "1 to 63 of the characters a-z, 0-9, - and _",
    |text| is_short(text, is_word)
);
name!(
    /// The name of an attribute.
    AttributeName,
    "name of an attribute",
    "a letter, then up to 62 letters, digits, - or _",
    |text| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && is_short(text, |b| is_word(b) || b.is_ascii_uppercase())
    }
);
name!(
    /// The versioned name of a WIT interface: `demo:packets/counter@1.0.0`.
    QualifiedName,
    "name of an interface",
    "NAMESPACE:PACKAGE/INTERFACE@VERSION, such as demo:packets/counter@1.0.0",
    is_interface
);
name!(
    /// The version of an offcode: three numbers.
    OffcodeVersion,
    "version",
    "three numbers, such as 1.0.0",
    is_version
);
name!(
    /// The path of a file inside a package's directory.
    PackagePath,
    "path inside a package",
    "a path below the directory of the description, without .. and not beginning with /",
    is_inside
);
name!(
    /// A node as a host list names it: `hostA` or `hostA:7411`.
    NodeAddress,
    "node",
    "a host's name or address, with a port if need be, such as hostA:7411",
    |text| {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
        (1..=LONG_LEN_MAX).contains(&text.len()) && text.bytes().all(is_part)
    }
);
name!(
    /// A network interface of this machine: `eth1`.
    NicName,
    "network interface",
    "1 to 15 characters without space and /, such as eth1",
    |text| {
        let is_part = |b: u8| b.is_ascii_graphic() && b != b'/';
        (1..=15).contains(&text.len()) && text.bytes().all(is_part) && !matches!(text, "." | "..")
    }
);

impl NodeAddress {
    /// The host, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        match self.0.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => &self.0,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_'
}

fn is_short(text: &str, is_part: impl Fn(u8) -> bool) -> bool {
    (1..=SHORT_LEN_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

/// A word of WIT: letters and digits in parts that `-` joins, the first part led by a letter.
fn is_kebab(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn is_version(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u32>().is_ok_and(|number| number.to_string() == part);
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

fn is_interface(text: &str) -> bool {
    let (path, version) = match text.split_once('@') {
        Some((path, version)) => (path, Some(version)),
        None => (text, None),
    };
    let parts = path.split_once(':').and_then(|(namespace, rest)| {
        let (package, interface) = rest.split_once('/')?;
        Some([namespace, package, interface])
    });
    text.len() <= LONG_LEN_MAX
        && parts.is_some_and(|parts| parts.into_iter().all(is_kebab))
        && version.is_none_or(is_version)
}

fn is_inside(text: &str) -> bool {
    let parts = || text.split('/');
    (1..=PATH_LEN_MAX).contains(&text.len())
        && !text.contains('\0')
        && parts().all(|part| !matches!(part, "" | "." | ".."))
}

impl AsRef<Path> for PackagePath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr>(valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert!(text.parse::<T>().is_ok(), "{text:?} was refused");
        }
        for text in invalid {
            assert!(text.parse::<T>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn names_hold_only_what_they_may() {
        let long = "a".repeat(64);
        check::<OffcodeName>(&["a", "packet-filter-2"], &["", "A", "a_b", "a.b", "é", &long]);
        check::<PortName>(&["in", "out_1"], &["", "In", "a.b", &long]);
        check::<AttributeName>(&["WATCHDOG_TIME", "greeting"], &["", "1a", "_a", "a b", &long]);
        check::<OffcodeVersion>(&["1.0.0", "0.12.3"], &["1", "1.0", "1.0.0.0", "01.0.0", "1.0.x"]);
        check::<QualifiedName>(
            &["demo:packets/counter@1.0.0", "a:b-c/d2"],
            &["", "counter", "a:b", "a:b/c@1", "a:b/c/d", "a:-b/c", "1:b/c", "a:b--c/d"],
        );
        check::<PackagePath>(
            &["counter.wasm", "built/counter.wasm", "..a"],
            &["", "/etc/passwd", "../a", "a/../b", "a//b", "a/", "./a", "a\0b"],
        );
        check::<NodeAddress>(&["hostA", "hostA:7411", "[::1]:7411"], &["", "a b", "a/b"]);
        check::<NicName>(&["eth1", "veth-a.2"], &["", ".", "..", "a/b", "sixteen-bytes-no"]);
    }

    #[test]
    fn nodes_have_hosts() {
        for (text, host) in [("hostA", "hostA"), ("hostA:7411", "hostA"), ("[::1]:7", "[::1]")] {
            assert_eq!(text.parse::<NodeAddress>().expect("a node").host(), host);
        }
    }

    #[test]
    fn faults_say_what_to_write() {
        let error = "Filter".parse::<OffcodeName>().expect_err("a capital");
        assert_eq!(
            error.to_string(),
            "\"Filter\" is no name of an offcode: write 1 to 63 of the characters a-z, 0-9 and -"
        );
    }
}
