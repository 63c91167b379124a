//! Files of this machine: what they are, where they have bytes, what is attached to them.

use crate::protocol::seconds_of;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of all names of attributes of a file, and of a value, at most (xattr(7)).
const XATTR_MAX: usize = 65536;
const USER: &[u8] = b"user.";

/// Extended attributes with their names.
pub(super) type LocalXattrs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Neither what a link leads to, nor a pipe's other end.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Where a file has bytes.
pub(super) fn data_ranges(file: &File, about: &Metadata) -> io::Result<Vec<Range<u64>>> {
    let size = about.len();
    let (mut ranges, mut at) = (Vec::new(), 0);
    // All of it takes place on the disk.
    if about.blocks().saturating_mul(512) >= size {
        ranges.extend((size > 0).then_some(0..size));
        return Ok(ranges);
    }
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // A file system without holes.
            Err(Errno::INVAL) => {
                ranges.push(at..size);
                break;
            }
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(start))?.min(size);
        if at <= start {
            break;
        }
        ranges.push(start..at);
    }
    Ok(ranges)
}

/// What a user has attached to a file or directory.
pub(super) fn xattrs(path: &Path) -> io::Result<LocalXattrs> {
    let mut names = vec![0; XATTR_MAX];
    let len = match rustix::fs::llistxattr(path, &mut names) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut all = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(USER)) {
        let mut value = vec![0; XATTR_MAX];
        let len = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value)?;
        value.truncate(len);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

/// A time as the system has it.
pub(super) fn timespec(ns: i64) -> rustix::fs::Timespec {
    let (tv_sec, tv_nsec) = seconds_of(ns);
    rustix::fs::Timespec { tv_sec, tv_nsec: tv_nsec.into() }
}
