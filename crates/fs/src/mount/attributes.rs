//! Attributes as the kernel wants them, from records of a service that may say anything.

use crate::client::NewTime;
use crate::protocol::FsRecord;
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The I/O size that `stat` recommends to programs.
const IO_LEN: u32 = 128 << 10;
/// Units of 512 bytes of a block.
const SECTORS: u64 = 8;
/// The kernel takes no file for longer.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The kind of a record; `None` for one that Linux does not have, and for one that is not in use.
pub(super) fn kind(record: &FsRecord) -> Option<FileType> {
    Some(match record.mode & libc::S_IFMT {
        libc::S_IFREG => FileType::RegularFile,
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => return None,
    })
}

/// The attributes of an inode; `None` if the record is none that the kernel could show.
pub(super) fn attributes(node: u64, record: &FsRecord) -> Option<FileAttr> {
    let kind = kind(record)?;
    if record.size > SIZE_MAX {
        return None;
    }
    Some(FileAttr {
        ino: INodeNo(node),
        size: record.size,
        blocks: record.blocks.saturating_mul(SECTORS),
        atime: time(record.atime_ns),
        mtime: time(record.mtime_ns),
        ctime: time(record.ctime_ns),
        crtime: time(record.btime_ns),
        kind,
        perm: u16::try_from(record.mode & 0o7777).unwrap_or_default(),
        nlink: record.nlink,
        uid: record.uid,
        gid: record.gid,
        rdev: u32::try_from(record.rdev).unwrap_or_default(),
        blksize: IO_LEN,
        flags: 0,
    })
}

fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = match ns {
        0.. => UNIX_EPOCH.checked_add(distance),
        _ => UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(UNIX_EPOCH)
}

/// A time that a program sets.
pub(super) fn new_time(time: TimeOrNow) -> NewTime {
    let TimeOrNow::SpecificTime(time) = time else { return NewTime::Now };
    let ns = |length: Duration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
    NewTime::At(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_the_kernel_cannot_show_has_no_attributes() {
        let of = |mode: u32, size: u64| FsRecord { mode, size, ..FsRecord::default() };
        assert!(attributes(9, &of(0o100_644, SIZE_MAX)).is_some());
        assert!(attributes(9, &of(0o100_644, SIZE_MAX + 1)).is_none());
        for mode in [0, 0o644, 0o030_644, 0o170_000, 0x8000_0000] {
            assert!(attributes(9, &of(mode, 0)).is_none(), "{mode:o}");
        }
    }

    #[test]
    fn times_are_what_they_were() {
        for ns in [0, 1, -1, 1_700_000_000_123_456_789, i64::MAX, -i64::MAX] {
            assert_eq!(new_time(TimeOrNow::SpecificTime(time(ns))), NewTime::At(ns));
        }
        assert_eq!(new_time(TimeOrNow::Now), NewTime::Now);
    }
}
