//! Devices of services: where udev does not let everybody open one, as in small virtual machines,
//! the node lets the service's user, and no other, do so by an access control list (acl(5)).
//!
//! What an administrator has put into a list stays as it is.

use super::user::User;
use rustix::fs::{FileType, XattrFlags, getxattr, setxattr, stat};
use rustix::io::{Errno, Result};
use std::path::Path;

const LIST: &str = "system.posix_acl_access";
/// The version of the list's layout (linux/posix_acl_xattr.h).
const VERSION: u32 = 2;
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
    match getxattr(path, LIST, &mut [0_u8; 0][..]) {
        Err(Errno::NODATA) => {
            setxattr(path, LIST, &list(found.st_mode, user.uid), XattrFlags::CREATE)
        }
        other => other.map(drop),
    }
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
    let entry = |(tag, bits, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
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
        // A list that is there stays.
        give(&own, User { uid: 61_301, gid: 61_301 }).expect("nothing to do");
        let after = opens(61_301);
        fs::remove_file(&own).expect("removed");
        assert_eq!((outcome, after), ((true, false), false));
    }
}
