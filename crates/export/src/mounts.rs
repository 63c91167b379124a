//! The mount table of this process (`/proc/self/mountinfo`): which file system is mounted where,
//! and when that changes.
//!
//! inotify does not report a mount over a watched directory; the table shows it. Never touches the
//! mounted file systems: a hung one cannot block the export.

use crate::path::{Path, behind, is_path};
use outboard_unix::mounts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, statat};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek};

/// Bytes of a mount table that are read, at most.
const TABLE_LEN_MAX: u64 = 16 << 20;
/// Options of an overlay that name its layers' directories.
const LAYERS: &[&[u8]] = &[b"lowerdir=", b"lowerdir+=", b"datadir+=", b"upperdir="];

/// The mount point of the file system that a path lies on; the path itself if that is the root. The
/// file system is not touched, and links are not followed.
#[must_use]
pub fn mount_of(path: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mounts = Mounts::new();
    let mount = mounts.above(path.as_os_str().as_bytes()).filter(|mount| *mount.at != *b"/");
    mount.map_or_else(|| path.into(), |mount| std::ffi::OsStr::from_bytes(&mount.at).into())
}

/// The mount table as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// Absent without /proc: then no directory is watched, and everything is looked at each time.
    table: Option<File>,
    /// In the kernel's order: of several mounts at one path, the last is visible.
    held: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mount {
    id: u64,
    at: Path,
    /// The directory of the file system that is mounted, and the file system's device number.
    source: Vec<u8>,
    options: Vec<u8>,
}

impl Mounts {
    pub(crate) fn new() -> Self {
        let mut mounts = Self { table: File::open(mounts::MOUNT_TABLE).ok(), held: Vec::new() };
        mounts.held = mounts.read();
        mounts
    }

    /// The paths at which something was mounted or unmounted since the last call. Costs one system
    /// call if there was no change.
    pub(crate) fn changed(&mut self) -> HashSet<Path> {
        if !self.is_news() {
            return HashSet::new();
        }
        let now = self.read();
        let before = std::mem::replace(&mut self.held, now);
        let (old, new): (HashSet<&Mount>, HashSet<&Mount>) =
            (before.iter().collect(), self.held.iter().collect());
        old.symmetric_difference(&new).map(|mount| mount.at.clone()).collect()
    }

    fn is_news(&self) -> bool {
        let Some(table) = &self.table else { return false };
        let mut fds = [PollFd::new(table, PollFlags::PRI)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn read(&mut self) -> Vec<Mount> {
        let Some(table) = &mut self.table else { return Vec::new() };
        let mut text = Vec::new();
        let read = table.rewind().and_then(|()| table.take(TABLE_LEN_MAX).read_to_end(&mut text));
        if read.is_err() {
            return Vec::new();
        }
        mounts::mounts_of(&text).filter_map(mount_of_table).collect()
    }

    /// The mount that a path lies on: the last of the deepest.
    fn above(&self, path: &[u8]) -> Option<&Mount> {
        let above = self.held.iter().filter(|mount| behind(&mount.at, path).is_some());
        above.max_by_key(|mount| mount.at.len())
    }

    /// Whether a path lies on an overlay whose layers this process can see, so that their owner may
    /// change them directly. The layers of a container's image are not visible.
    pub(crate) fn has_layers_in_sight(&self, path: &[u8]) -> bool {
        let Some(mount) = self.above(path) else { return true };
        let is_seen = |layer: &[u8]| {
            layer.first() != Some(&b'/') || statat(CWD, layer, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        layers(&mount.options).any(is_seen)
    }
}

fn layers(options: &[u8]) -> impl Iterator<Item = &[u8]> {
    let values = options
        .split(|&byte| byte == b',')
        .filter_map(|option| LAYERS.iter().find_map(|name| option.strip_prefix(*name)));
    values.flat_map(|value| value.split(|&byte| byte == b':')).filter(|at| !at.is_empty())
}

/// A mount of the table, where its mount point is a path.
fn mount_of_table(mount: mounts::Mount) -> Option<Mount> {
    let mounts::Mount { id, device, root, at, options, .. } = mount;
    let source = [&device[..], b" ", &root].concat();
    is_path(&at).then(|| Mount { id, at: at.into(), source, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_a_path() {
        let read = |line: &[u8]| mounts::Mount::parse(line).and_then(mount_of_table);
        let line =
            br"36 35 98:0 /a /point/a\040b\134c rw - overlay o lowerdir=/l:m,x=/y,upperdir=/u";
        let mount = read(line).unwrap();
        assert_eq!((mount.id, &*mount.at), (36, &b"/point/a b\\c"[..]));
        assert_eq!(layers(&mount.options).collect::<Vec<_>>(), [&b"/l"[..], b"m", b"/u"]);
        assert_eq!(read(b"36 35 98:0 /a relative rw - x y z"), None);
    }

    #[test]
    fn the_deepest_and_last_mount_is_the_one_that_is_seen() {
        let mount = |at: &[u8], options: &[u8]| Mount {
            id: 0,
            at: at.into(),
            source: Vec::new(),
            options: options.to_vec(),
        };
        let held = vec![
            mount(b"/", b"lowerdir=/no/where,upperdir=/no/where/else"),
            mount(b"/a", b"lowerdir=/"),
            mount(b"/a/b", b"lowerdir=/"),
            mount(b"/a/b", b"lowerdir=/no/where"),
        ];
        let mounts = Mounts { table: None, held };
        let seen = [&b"/x"[..], b"/a", b"/a/x", b"/a/b/c"].map(|at| mounts.has_layers_in_sight(at));
        assert_eq!(seen, [false, true, true, false]);
    }
}
