//! The users that services run as where the supervisor is root: one for each service, by number, or
//! the one that the operator names (of /etc/passwd, or two numbers) for all of them.
//!
//! A service's own number follows from its name, so that files that it keeps stay its own.

use super::ConfigError;
use std::fs;

/// User ids for services: the range that systemd also uses for services without a user. They are
/// below
/// 65,536, which is all that many containers have.
const OWN: std::ops::Range<u32> = 61_184..65_520;

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

    /// A service's own user: no number of a person, of a group or of another service.
    pub(super) fn own(service: &str, taken: &[Self]) -> Self {
        let lists = ["/etc/passwd", "/etc/group"];
        let lists = lists.map(|path| fs::read_to_string(path).unwrap_or_default());
        Self::unused(service, |id| {
            taken.iter().any(|user| user.uid == id) || lists.iter().any(|list| names(list, id))
        })
    }

    /// The first number from the one that the name gives that is not in use.
    fn unused(service: &str, is_used: impl Fn(u32) -> bool) -> Self {
        let count = OWN.end - OWN.start;
        // FNV-1a: the same in every version of every program.
        let hash = service
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let numbers = (0..count).map(|step| OWN.start + (hash % count + step) % count);
        let mut numbers = numbers.filter(|id| !is_used(*id));
        // All of them are in use: one is shared.
        let id = numbers.next().unwrap_or(OWN.start + hash % count);
        Self { uid: id, gid: id }
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

/// Whether a list of users or groups has that number.
fn names(list: &str, id: u32) -> bool {
    let id = id.to_string();
    list.lines().any(|line| line.split(':').nth(2) == Some(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_a_user_of_its_own() {
        let one = User::unused("compile", |_| false);
        assert!(OWN.contains(&one.uid) && one.gid == one.uid);
        assert_eq!(one, User::unused("compile", |_| false), "its files stay its own");
        assert_ne!(one, User::unused("cast", |_| false));
        let next = User::unused("compile", |id| id == one.uid);
        assert!(OWN.contains(&next.uid) && next != one);
        assert_ne!(User::own("compile", &[]), User::own("compile", &[User::own("compile", &[])]));
        assert!(names("x:x:61200:1::\n", 61_200) && !names("x:x:612001:61200::\n", 61_200));
    }

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
