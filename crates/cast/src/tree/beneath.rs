//! System calls on files beneath an open directory: never through a symbolic link, never through
//! `..`, never out of the directory.

use super::manifest::TreeManifest;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags, Timespec};
use rustix::io::{Errno, Result, pread, retry_on_intr};

/// How often an opening is tried that a rename elsewhere disturbs.
const ATTEMPTS_MAX: usize = 16;
const NS_PER_S: i64 = 1_000_000_000;

/// Opens `path` relative to `directory`; an empty path is the directory itself. `mode` is for files
/// that are created.
pub(crate) fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    open_resolved(directory, path, flags, mode, ResolveFlags::empty())
}

/// As [`open_beneath`], and what is mounted beneath is [`Errno::XDEV`].
pub(crate) fn open_on_same_mount(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd> {
    open_resolved(directory, path, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

/// Gives the owner of a directory, who is this process's user, all rights in it. What is in its
/// place when it is looked at, a link or another user's directory, stays as it is.
pub(crate) fn unlock_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let found = open_beneath(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let stat = fs::fstat(&found)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777) | Mode::RWXU;
    // A descriptor that was opened for its path alone takes no fchmod(2).
    fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), mode)
}

fn open_resolved(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    further: ResolveFlags,
) -> Result<OwnedFd> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    let resolve =
        further | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for _ in 0..ATTEMPTS_MAX {
        // A concurrent mount or rename elsewhere may make the kernel answer EAGAIN.
        match fs::openat2(directory, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Reads at a place in a file until `into` is full.
///
/// # Errors
/// The file system's; [`Errno::NODATA`] when the file ends before.
pub(crate) fn read_exactly_at(file: impl AsFd, mut into: &mut [u8], mut at: u64) -> Result<()> {
    while !into.is_empty() {
        match retry_on_intr(|| pread(&file, &mut *into, at))? {
            0 => return Err(Errno::NODATA),
            len => (into, at) = (&mut into[len..], at + len as u64),
        }
    }
    Ok(())
}

/// Nanoseconds since 1970; the greatest or least number for a time that it cannot tell.
pub(crate) fn nanoseconds(seconds: i64, rest: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(NS_PER_S).saturating_add(rest.try_into().unwrap_or_default())
}

/// The reverse of [`nanoseconds`].
pub(crate) fn timespec(nanoseconds: i64) -> Timespec {
    let (tv_sec, tv_nsec) = (nanoseconds.div_euclid(NS_PER_S), nanoseconds.rem_euclid(NS_PER_S));
    Timespec { tv_sec, tv_nsec }
}

/// Opens the directories that entries lie in; keeps the last, since neighbours share it.
#[derive(Debug)]
pub(crate) struct ParentCursor<'a> {
    base: BorrowedFd<'a>,
    manifest: &'a TreeManifest,
    last: Option<(u32, OwnedFd)>,
}

impl<'a> ParentCursor<'a> {
    /// For a tree whose top-level entries lie in `base`.
    pub(crate) fn new(base: BorrowedFd<'a>, manifest: &'a TreeManifest) -> Self {
        Self { base, manifest, last: None }
    }

    /// The directory that an entry lies in.
    pub(crate) fn of(&mut self, entry: u32) -> Result<BorrowedFd<'_>> {
        let Some(parent) = self.manifest.parent(entry) else { return Ok(self.base) };
        if self.last.as_ref().is_none_or(|(last, _)| *last != parent) {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let path = self.manifest.path(parent);
            self.last = Some((parent, open_beneath(self.base, &path, flags, Mode::empty())?));
        }
        Ok(self.last.as_ref().map_or(self.base, |(_, directory)| directory.as_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn only_a_directory_of_ones_own_is_unlocked_and_gets_no_special_bits() {
        let place = tempfile::tempdir().expect("a directory");
        let at = |name: &str| place.path().join(name);
        let mode = |name: &str| at(name).metadata().expect("there").mode() & 0o7777;
        std::fs::create_dir(at("own")).expect("made");
        std::fs::write(at("file"), b"").expect("written");
        for (name, given) in [("own", 0o1053), ("file", 0o640)] {
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(given)).expect("set");
        }
        symlink("file", at("link")).expect("linked");
        symlink("own", at("shortcut")).expect("linked");
        let parent = std::fs::File::open(place.path()).expect("open");
        for name in ["link", "shortcut", "file", "nothing"] {
            assert!(unlock_directory(parent.as_fd(), name.as_bytes()).is_err(), "{name}");
        }
        assert_eq!((mode("own"), mode("file")), (0o1053, 0o640));
        unlock_directory(parent.as_fd(), b"own").expect("unlocked");
        assert_eq!(mode("own"), 0o753);
    }
}
