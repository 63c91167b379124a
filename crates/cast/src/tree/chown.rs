//! `--chown`: other owners than the files have at the source.
//!
//! What a receiver makes of owners is its administrator's matter.

use super::owner::{AccountNames, EntryOwner};

/// Why an owner is refused: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChownError {
    /// Nothing is named.
    #[error("{found:?} names no owner: write USER, USER:GROUP or :GROUP, as names or numbers")]
    Empty {
        /// As given.
        found: String,
    },
    /// This machine does not know the name.
    #[error(
        "{found:?} is no {what} in this machine's {file}: write a name that is there, or a number"
    )]
    Unknown {
        /// The name.
        found: String,
        /// Of a user or of a group.
        what: &'static str,
        /// Where it was looked for.
        file: &'static str,
    },
}

/// An account: its number, and its name if it has one here.
type Account = (u32, String);

/// The owner, the group or both that everything in a cast gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    user: Option<Account>,
    group: Option<Account>,
}

impl OwnerChange {
    /// Reads `USER`, `USER:GROUP` or `:GROUP`, as names of this machine or as numbers.
    ///
    /// # Errors
    /// [`ChownError`].
    pub fn parse(text: &str, names: &AccountNames) -> Result<Self, ChownError> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() && group.is_empty() {
            return Err(ChownError::Empty { found: text.to_owned() });
        }
        let user = part(user, |name| names.user(name), |number| names.owner(number, 0).user);
        let group = part(group, |name| names.group(name), |number| names.owner(0, number).group);
        let unknown = |what, file| move |found| ChownError::Unknown { found, what, file };
        Ok(Self {
            user: user.map_err(unknown("user", "/etc/passwd"))?,
            group: group.map_err(unknown("group", "/etc/group"))?,
        })
    }

    /// An owner after the change.
    pub(super) fn apply(&self, owner: EntryOwner) -> EntryOwner {
        let EntryOwner { uid, gid, user, group } = owner;
        let (uid, user) = self.user.clone().unwrap_or((uid, user));
        let (gid, group) = self.group.clone().unwrap_or((gid, group));
        EntryOwner { uid, gid, user, group }
    }
}

/// An account by its number or name; nothing if the text is empty.
fn part(
    text: &str,
    number_of: impl Fn(&str) -> Option<u32>,
    name_of: impl Fn(u32) -> String,
) -> Result<Option<Account>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match (number_of(text), text.parse::<u32>()) {
        (Some(number), _) => Ok(Some((number, text.to_owned()))),
        // The highest number means "no change" to chown(2).
        (None, Ok(number)) if number < u32::MAX => Ok(Some((number, name_of(number)))),
        (None, _) => Err(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> AccountNames {
        AccountNames::parse("root:x:0:0:::\nada:x:1000:100:::\n7:x:5:5:::\n", "users:x:100:\n")
    }

    #[test]
    fn owners_are_names_or_numbers() {
        let was = names().owner(0, 3);
        let after = |text| OwnerChange::parse(text, &names()).expect("an owner").apply(was.clone());
        let owner = |uid, gid, user: &str, group: &str| EntryOwner {
            uid,
            gid,
            user: user.to_owned(),
            group: group.to_owned(),
        };
        assert_eq!(after("ada:users"), owner(1000, 100, "ada", "users"));
        assert_eq!(after("1000"), owner(1000, 3, "ada", ""));
        assert_eq!(after("ada:"), owner(1000, 3, "ada", ""));
        assert_eq!(after(":99"), owner(0, 99, "root", ""));
        assert_eq!(after("7"), owner(5, 3, "7", ""), "a name that looks like a number");
    }

    #[test]
    fn unknown_names_are_refused() {
        let parse = |text| OwnerChange::parse(text, &names());
        assert!(matches!(parse(":"), Err(ChownError::Empty { .. })));
        for (text, what) in [("bob", "user"), ("ada:none", "group"), ("4294967295", "user")] {
            let error = parse(text).expect_err("unknown");
            assert!(matches!(error, ChownError::Unknown { what: of, .. } if of == what), "{text}");
        }
    }
}
