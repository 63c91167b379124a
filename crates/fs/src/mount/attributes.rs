//! Attributes as the kernel wants them, from records of a service that may say anything.

use crate::client::NewTime;
use crate::protocol::{FsRecord, seconds_of, time_ns};
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
    let (seconds, ns) = seconds_of(ns);
    let length = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 { UNIX_EPOCH - length } else { UNIX_EPOCH + length };
    whole + Duration::from_nanos(ns.into())
}

/// A time that a program sets. fuser 0.18 takes the nanoseconds of a time before 1970 off its
/// seconds, to which they are to be added.
pub(super) fn new_time(time: TimeOrNow) -> NewTime {
    let TimeOrNow::SpecificTime(time) = time else { return NewTime::Now };
    let (seconds, ns) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().try_into().unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (0_i64.saturating_sub_unsigned(before.as_secs()), before.subsec_nanos())
        }
    };
    NewTime::At(time_ns(seconds, ns))
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
        for ns in [0, 1, 1_700_000_000_123_456_789, i64::MAX, i64::MIN, -2_000_000_000] {
            assert_eq!(new_time(TimeOrNow::SpecificTime(time(ns))), NewTime::At(ns));
        }
        assert_eq!(new_time(TimeOrNow::Now), NewTime::Now);
        assert_eq!(time(-1), UNIX_EPOCH - Duration::from_nanos(1));
        // What fuser makes of it.
        let one_before = UNIX_EPOCH - Duration::new(1, 999_999_999);
        assert_eq!(new_time(TimeOrNow::SpecificTime(one_before)), NewTime::At(-1));
    }
}
