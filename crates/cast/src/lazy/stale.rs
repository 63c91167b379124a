//! What views of killed processes have left: dead mounts, links that lead into them, directories.
//!
//! A view whose receiver still holds its staging directory's lock is alive and left alone.

use super::links::remove_links_into;
use super::mount::{SOURCE, unmount_view};
use super::view_prefix;
use crate::receive::{Destination, dead_staging};
use outboard_unix::names::for_each_name;
use rustix::fs::{self, Mode, OFlags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the kernel lists this process's mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Removes dead views at a destination. Asks the disk.
pub(crate) fn remove_dead_views(destination: &Destination) {
    let prefix = view_prefix();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut views = Vec::new();
    let Ok(listing) = fs::openat(destination.fd(), ".", flags, Mode::empty()) else { return };
    let listed = for_each_name(&listing, |name| {
        if name.to_bytes().starts_with(&prefix) {
            views.push(name.to_bytes().to_vec());
        }
    });
    if let Err(errno) = listed {
        tracing::debug!(%errno, "not all dead views were found");
    }
    for view in views {
        if let Some(_dead) = dead_staging(destination, &view[prefix.len()..]) {
            remove_links_into(destination, &view);
            unmount_view(destination, &view, None);
        }
    }
}

/// Removes dead views that are mounted below these directories, when a service starts.
pub(crate) fn remove_dead_views_of<'a>(roots: impl Iterator<Item = &'a Path> + Clone) {
    let mounts = std::fs::read(MOUNTS).unwrap_or_default();
    for mount in mounts.split(|byte| *byte == b'\n').filter_map(view_mount) {
        let is_below = roots.clone().any(|root| mount.starts_with(root));
        let Some(parent) = mount.parent().filter(|_| is_below) else { continue };
        if let Ok(destination) = Destination::open(parent) {
            remove_dead_views(&destination);
        }
    }
}

/// Where a view is mounted, of a line of the kernel's list (proc_pid_mountinfo(5)).
fn view_mount(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let at = fields.nth(4)?;
    let source = fields.skip_while(|field| *field != b"-").nth(2)?;
    (source == SOURCE.as_bytes()).then(|| PathBuf::from(OsString::from_vec(unescaped(at))))
}

/// Three octal digits after a backslash are a byte.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| byte == b'\\') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_known_by_their_source() {
        let line = b"52 28 0:47 / /data/a\\040b/.outboard-cast-view-1 ro,nosuid,nodev shared:7 - \
            fuse.outboard-cast outboard-cast ro,user_id=0";
        let at = Path::new("/data/a b/.outboard-cast-view-1");
        assert_eq!(view_mount(line).as_deref(), Some(at));
        for other in [&b"52 28 0:47 / /srv ro - fuse.sshfs host:/x ro"[..], b"", b"1 2 3 4 /srv"] {
            assert_eq!(view_mount(other), None);
        }
    }
}
