//! Whom services are where the supervisor is root: a name of /etc/passwd, or two numbers.

use super::ConfigError;
use std::fs;

/// An ordinary user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Finds `name`, or reads `uid:gid`. Root is refused.
    pub(super) fn find(name: &str) -> Result<Self, ConfigError> {
        let unknown = || ConfigError::User { name: name.into() };
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = Self::numbers(name).or_else(|| Self::named(&passwd, name));
        let user = user.ok_or_else(unknown)?;
        if user.uid == 0 || user.gid == 0 { Err(unknown()) } else { Ok(user) }
    }

    fn numbers(text: &str) -> Option<Self> {
        let (uid, gid) = text.split_once(':')?;
        Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    }

    fn named(passwd: &str, name: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let mut number = || fields.next()?.parse().ok();
            let _password = number();
            Some(Self { uid: number()?, gid: number()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let passwd = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbad:x\n";
        let nobody = User { uid: 65534, gid: 65533 };
        assert_eq!(User::named(passwd, "nobody"), Some(nobody));
        assert_eq!(User::named(passwd, "bad"), None);
        assert_eq!(User::named(passwd, "nobod"), None);
        assert_eq!(User::find("12:34").expect("numbers"), User { uid: 12, gid: 34 });
        for wrong in ["root", "0:5", "5:0", "", "no such user", "1:2:3"] {
            assert!(matches!(User::find(wrong), Err(ConfigError::User { .. })), "{wrong:?}");
        }
    }
}
