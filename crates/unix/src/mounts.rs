//! The mount table: lines of `/proc/self/mountinfo`, proc_pid_mountinfo(5).

use std::path::{Path, PathBuf};
use std::{ffi::OsStr, fs, io, os::unix::ffi::OsStrExt};

/// Where the kernel lists this process's mounts.
pub const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The file system's device number, as the kernel writes it.
    pub device: Vec<u8>,
    /// The directory of the file system that is mounted.
    pub root: Vec<u8>,
    /// The mount point.
    pub at: Vec<u8>,
    /// The file system's type.
    pub kind: Vec<u8>,
    /// What is mounted, as its type names it.
    pub source: Vec<u8>,
    /// The file system's own options.
    pub options: Vec<u8>,
}

impl Mount {
    /// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let (device, root, at) = (fields.nth(1)?, fields.next()?, fields.next()?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (fields.next()?, fields.next()?);
        Some(Self {
            id,
            device: device.to_vec(),
            root: unescaped(root),
            at: unescaped(at),
            kind: unescaped(kind),
            source: unescaped(source),
            options: unescaped(fields.next().unwrap_or_default()),
        })
    }

    /// The mount point as a path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.at))
    }
}

/// The mounts of a table, in the kernel's order: of several at one path, the last is visible.
pub fn mounts_of(table: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    table.split(|byte| *byte == b'\n').filter_map(Mount::parse)
}

/// This process's mounts.
///
/// # Errors
/// The system's, where /proc is missing.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(mounts_of(&fs::read(MOUNT_TABLE)?).collect())
}

/// The mount points of a file system, by its device number.
///
/// # Errors
/// As of [`mounts`].
pub fn mount_points(device: &[u8]) -> io::Result<Vec<PathBuf>> {
    let mounts = mounts()?.into_iter().filter(|mount| mount.device == device);
    Ok(mounts.map(|mount| mount.path().to_owned()).collect())
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
    fn a_line_of_the_table_is_read() {
        let line = br"36 35 98:0 /a /point/a\040b\134c rw shared:7 - overlay o\040p lowerdir=/l:m";
        let mount = Mount::parse(line).expect("a mount");
        assert_eq!((mount.id, &mount.device[..], &mount.root[..]), (36, &b"98:0"[..], &b"/a"[..]));
        assert_eq!(mount.path(), Path::new("/point/a b\\c"));
        assert_eq!((&mount.kind[..], &mount.source[..]), (&b"overlay"[..], &b"o p"[..]));
        assert_eq!(mount.options, b"lowerdir=/l:m");
        for other in [&b""[..], b"1 2 3 4 /srv", b"x 35 98:0 / / rw - ext4 d rw"] {
            assert_eq!(Mount::parse(other), None);
        }
    }

    #[test]
    fn the_root_is_mounted() {
        let mounts = mounts().expect("a table");
        let root = mounts.iter().rfind(|mount| mount.at == b"/").expect("a root");
        assert!(mount_points(&root.device).expect("a table").contains(&PathBuf::from("/")));
    }
}
