//! Versioned names of interfaces, `namespace:package/interface@version`.
//!
//! Never looks at what the interface has: see [`crate::Interface::serves`] for that.

use std::fmt;
use std::str::FromStr;

use semver::Version;

use crate::error::InterfaceError;
use crate::guid::Guid;

/// Bytes of a name, at most.
const NAME_LEN_MAX: usize = 256;

/// The name of an interface, such as `hydra:net/checksum@1.0.0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceName {
    /// `namespace:package/interface`.
    path: String,
    version: Version,
}

impl InterfaceName {
    pub(crate) fn new(package: &str, interface: &str, version: Version) -> Self {
        Self { path: format!("{package}/{interface}"), version }
    }

    /// The name without its version.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last part alone, such as `checksum`.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The GUID that it has unless one is pinned.
    #[must_use]
    pub fn guid(&self) -> Guid {
        Guid::of_name(&self.to_string())
    }

    /// Whether who imports `wanted` is served by this: the same path, and a version that is
    /// compatible in the sense of semver and not older. Before 1.0 the minor version tells, before
    /// 0.1 the patch.
    #[must_use]
    pub fn serves(&self, wanted: &Self) -> bool {
        if self.path != wanted.path || self.version < wanted.version {
            return false;
        }
        let (ours, theirs) = (&self.version, &wanted.version);
        match (theirs.major, theirs.minor) {
            // What is pre-released promises nothing but to be itself.
            _ if !theirs.pre.is_empty() || !ours.pre.is_empty() => ours == theirs,
            (0, 0) => ours.major == 0 && ours.minor == 0 && ours.patch == theirs.patch,
            (0, minor) => ours.major == 0 && ours.minor == minor,
            (major, _) => ours.major == major,
        }
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.path, self.version)
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceError;

    /// Reads a name; missing parts of the version are 0, as in `hydra:net/checksum@1.1`.
    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        parse(text).ok_or_else(|| InterfaceError::Name {
            found: text.chars().take(NAME_LEN_MAX).collect(),
        })
    }
}

fn parse(text: &str) -> Option<InterfaceName> {
    let (path, version) = text.split_once('@').filter(|_| text.len() <= NAME_LEN_MAX)?;
    let (package, interface) = path.split_once('/')?;
    let (namespace, package) = package.split_once(':')?;
    if ![namespace, package, interface].into_iter().all(is_id) {
        return None;
    }
    // Only a plain version may be short: `1.0-alpha` is none.
    let dots = if version.contains(['-', '+']) { 2 } else { version.matches('.').count() };
    let padding = [".0.0", ".0", ""].get(dots)?;
    let version = Version::parse(&format!("{version}{padding}")).ok()?;
    Some(InterfaceName { path: path.to_owned(), version })
}

fn is_id(text: &str) -> bool {
    wit_parser::validate_id(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> InterfaceName {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn compatible_versions_serve_and_others_do_not() {
        let table = [
            ("1.1", "1.2", true),
            ("1.1", "1.1.0", true),
            ("1.1.3", "1.1.2", false),
            ("1.1", "2.0", false),
            ("2.0", "1.9", false),
            ("0.1.2", "0.1.9", true),
            ("0.1", "0.2", false),
            ("0.0.1", "0.0.1", true),
            ("0.0.1", "0.0.2", false),
            ("1.0.0-a.1", "1.0.0-a.1", true),
            ("1.0.0-a.1", "1.0.0", false),
            ("1.0.0", "1.1.0-a", false),
        ];
        for (wanted, offered, expected) in table {
            let offered = name(&format!("hydra:net/x@{offered}"));
            assert_eq!(offered.serves(&name(&format!("hydra:net/x@{wanted}"))), expected);
        }
        assert!(!name("hydra:net/y@1.1").serves(&name("hydra:net/x@1.1")));
    }

    #[test]
    fn names_are_read_strictly() {
        let read = name("hydra:net/checksum@1.1");
        assert_eq!(read.to_string(), "hydra:net/checksum@1.1.0");
        assert_eq!((read.path(), read.interface()), ("hydra:net/checksum", "checksum"));
        assert_eq!(read.guid(), Guid::of_name("hydra:net/checksum@1.1.0"));
        for bad in ["", "a:b/c", "a:b/c@", "a:b/c@1.2.3.4", "a:b@1.0.0", "a/b@1.0.0", "a:b/C d@1"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad}");
        }
    }
}
