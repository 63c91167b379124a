//! Owners of files: numbers, and the names that this machine's account files give them.
//!
//! Reads `/etc/passwd` and `/etc/group` only: an account from elsewhere (LDAP) travels as its
//! number.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;

/// Owners in a manifest, at most.
pub(super) const OWNERS_MAX: usize = 64 << 10;
/// Bytes in the name of a user or group, at most.
const ACCOUNT_LEN_MAX: usize = 255;

/// A user and a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryOwner {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The user's name at the source; empty when it is not known there.
    pub user: String,
    /// The group's name at the source; empty when it is not known there.
    pub group: String,
}

impl EntryOwner {
    pub(super) fn is_legal(&self) -> bool {
        self.user.len() <= ACCOUNT_LEN_MAX && self.group.len() <= ACCOUNT_LEN_MAX
    }
}

/// The names of this machine's users and groups.
#[derive(Clone, Debug, Default)]
pub struct AccountNames {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
    user_names: HashMap<u32, usize>,
    group_names: HashMap<u32, usize>,
}

impl AccountNames {
    /// Those in `/etc/passwd` and `/etc/group`; none where these cannot be read.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// Those in texts of the same form (passwd(5), group(5)).
    #[must_use]
    pub fn parse(passwd: &str, group: &str) -> Self {
        let (users, groups) = (accounts(passwd), accounts(group));
        let (user_names, group_names) = (by_number(&users), by_number(&groups));
        Self { users, groups, user_names, group_names }
    }

    /// An owner with its names.
    #[must_use]
    pub fn owner(&self, uid: u32, gid: u32) -> EntryOwner {
        let name = |names: &HashMap<u32, usize>, all: &[(String, u32)], number| {
            names.get(&number).map(|&index| all[index].0.clone()).unwrap_or_default()
        };
        let user = name(&self.user_names, &self.users, uid);
        EntryOwner { uid, gid, user, group: name(&self.group_names, &self.groups, gid) }
    }

    /// A user's number.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<u32> {
        number(&self.users, name)
    }

    /// A group's number.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<u32> {
        number(&self.groups, name)
    }

    /// The numbers that an owner's names have here; its own numbers for names unknown here.
    #[must_use]
    pub fn numbers(&self, owner: &EntryOwner) -> (u32, u32) {
        let uid = self.user(&owner.user).unwrap_or(owner.uid);
        (uid, self.group(&owner.group).unwrap_or(owner.gid))
    }
}

fn number(all: &[(String, u32)], name: &str) -> Option<u32> {
    all.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
}

fn accounts(text: &str) -> Vec<(String, u32)> {
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| (1..=ACCOUNT_LEN_MAX).contains(&name.len()))?;
        Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(parse).collect()
}

fn by_number(all: &[(String, u32)]) -> HashMap<u32, usize> {
    // The first line of a number wins, as in getpwuid(3).
    all.iter().enumerate().rev().map(|(index, (_, number))| (*number, index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_both_ways() {
        let passwd = "root:x:0:0:::\ntoor:x:0:0:::\nbroken\nada:x:1000:100:::\n";
        let names = AccountNames::parse(passwd, "users:x:100:\n");
        let ada = names.owner(1000, 100);
        assert_eq!((&*ada.user, &*ada.group), ("ada", "users"));
        assert_eq!(names.owner(0, 7).user, "root");
        assert_eq!(names.owner(0, 7).group, "");
        let elsewhere = AccountNames::parse("ada:x:7:7:::\n", "");
        assert_eq!(elsewhere.numbers(&ada), (7, 100));
        assert_eq!(elsewhere.numbers(&names.owner(5, 6)), (5, 6));
    }
}
