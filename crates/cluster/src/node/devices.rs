//! Devices of services: where udev does not let everybody open one, as in small virtual machines,
//! the node lets the service's user, and no other, do so by an access control list (acl(5)).
//!
//! What is in a list stays as it is: other nodes' users, and what an administrator has put there.

use super::user::User;
use rustix::fs::{FileType, XattrFlags, getxattr, setxattr, stat};
use rustix::io::{Errno, Result};
use std::path::Path;

const LIST: &str = "system.posix_acl_access";
/// The version of the list's layout (linux/posix_acl_xattr.h).
const VERSION: u32 = 2;
/// Bytes of an entry: its tag, what it lets do, and whom.
const ENTRY_LEN: usize = 8;
/// Longer lists stay as they are.
const LIST_MAX: usize = 4 + 128 * ENTRY_LEN;
/// How often a list is changed, at most.
const TRIES: u32 = 4;
/// To read and to write.
const READ_WRITE: u16 = 0o6;
/// Entries' tags, in the order in which the kernel wants them.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The number of an entry that has none.
const NONE: u32 = u32::MAX;

/// Lets a user open a device. If that fails, the service reports what it lacks.
pub(super) fn give(path: &Path, user: User) -> Result<()> {
    let found = stat(path)?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    if !is_device || found.st_mode & 0o006 == 0o006 {
        return Ok(());
    }
    // Another node may write its own list between a look and a change.
    for _ in 0..TRIES {
        let mut bytes = [0; LIST_MAX];
        let new = match getxattr(path, LIST, &mut bytes[..]) {
            Err(Errno::NODATA) => Some(list(found.st_mode, user.uid)),
            Ok(len) => added(&bytes[..len], user.uid),
            Err(error) => return Err(error),
        };
        let Some(new) = new else { return Ok(()) };
        setxattr(path, LIST, &new, XattrFlags::empty())?;
    }
    Ok(())
}

/// A list with an entry for the user; `None` if it has one, or lets no user read and write.
fn added(list: &[u8], user: u32) -> Option<Vec<u8>> {
    let (version, entries) = list.split_first_chunk()?;
    let (entries, []) = entries.as_chunks::<ENTRY_LEN>() else { return None };
    let field = |entry: &[u8; ENTRY_LEN], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let id = |entry: &[u8; ENTRY_LEN]| u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
    let lets_users = |entry: &[u8; ENTRY_LEN]| {
        field(entry, 0) == MASK && field(entry, 2) & READ_WRITE == READ_WRITE
    };
    let has_user = |entry: &[u8; ENTRY_LEN]| field(entry, 0) == USER && id(entry) == user;
    if u32::from_le_bytes(*version) != VERSION
        || !entries.iter().any(lets_users)
        || entries.iter().any(has_user)
    {
        return None;
    }
    // The kernel wants users in the order of their numbers.
    let is_before = |entry: &[u8; ENTRY_LEN]| {
        field(entry, 0) < USER || field(entry, 0) == USER && id(entry) < user
    };
    let (before, after) = entries.split_at(entries.partition_point(is_before));
    let own = entry((USER, READ_WRITE, user));
    Some([&version[..], before.as_flattened(), &own, after.as_flattened()].concat())
}

fn entry((tag, bits, id): (u16, u16, u32)) -> [u8; ENTRY_LEN] {
    let [tag, bits, id] = [u64::from(tag), u64::from(bits) << 16, u64::from(id) << 32];
    (tag | bits | id).to_le_bytes()
}

/// What the mode says, and the user.
fn list(mode: u32, user: u32) -> Vec<u8> {
    let bits = |shift: u32| u16::try_from(mode >> shift & 0o7).expect("three bits");
    let entries = [
        (OWNER, bits(6), NONE),
        (USER, READ_WRITE, user),
        (GROUP, bits(3), NONE),
        (MASK, bits(3) | READ_WRITE, NONE),
        (OTHER, bits(0), NONE),
    ];
    VERSION.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, makedev, mknodat};
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_device_of_roots_is_let_to_the_services_user_alone() {
        let own = std::env::temp_dir().join(format!("outboard-devices-{}", std::process::id()));
        let (device, mode) = (makedev(1, 3), Mode::RUSR | Mode::WUSR);
        if mknodat(CWD, &own, FileType::CharacterDevice, mode, device).is_err() {
            println!("skipped: only root makes devices");
            return;
        }
        let opens = |uid: u32| {
            use std::os::unix::process::CommandExt;
            let mut dd = Command::new("dd");
            dd.args(["count=0", "if=/dev/zero"]).arg(format!("of={}", own.display()));
            dd.arg("conv=notrunc").uid(uid).gid(uid);
            dd.output().expect("dd").status.success()
        };
        assert!(!opens(61_300));
        give(&own, User { uid: 61_300, gid: 61_300 }).expect("a list");
        let outcome = (opens(61_300), opens(61_301));
        // Another node's user, with a lower number, and the first one's once more.
        for uid in [61_299, 61_300] {
            give(&own, User { uid, gid: uid }).expect("a longer list");
        }
        let after = (opens(61_299), opens(61_300), opens(61_301));
        fs::remove_file(&own).expect("removed");
        assert_eq!((outcome, after), ((true, false), (true, true, false)));
    }

    #[test]
    fn an_administrators_list_stays() {
        let [owner, group, other] = [OWNER, GROUP, OTHER].map(|tag| entry((tag, 6, NONE)));
        let version = VERSION.to_le_bytes();
        let of = |entries: &[[u8; ENTRY_LEN]]| [&version[..], entries.as_flattened()].concat();
        let [open, shut] = [6, 4].map(|bits| entry((MASK, bits, NONE)));
        let (refused, user) = (entry((USER, 0, 7)), entry((USER, 6, 8)));
        assert_eq!(added(&of(&[owner, refused, group, open, other]), 7), None, "refused");
        assert_eq!(added(&of(&[owner, user, group, shut, other]), 7), None, "the mask");
        let longer = of(&[owner, entry((USER, 6, 7)), user, group, open, other]);
        assert_eq!(added(&of(&[owner, user, group, open, other]), 7), Some(longer));
        assert_eq!(added(&[3, 0, 0, 0], 7), None, "another version");
        assert_eq!(added(b"2", 7), None);
    }
}
