//! System calls on files: always relative to an open directory, never through a symbolic link,
//! never through `..`.
//!
//! Opens only regular files and directories, for reading.

use crate::path::{HiddenNames, Name};
use crate::record::{Attr, FileNode};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::io::Read;

/// Distinguishes the states of a file, besides its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
}

/// Decides which of a directory's names this user can look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirPermissions {
    mode: u32,
    uid: u32,
    gid: u32,
    /// As the kernel says, which also knows access control lists.
    pub(crate) may_search: bool,
}

impl DirPermissions {
    /// The present permissions of an open directory.
    pub(crate) fn of(dir: BorrowedFd) -> Result<Self> {
        let stat = fs::fstat(dir)?;
        let may_search = fs::statat(dir, ".", AtFlags::empty()).is_ok();
        Ok(Self { mode: stat.st_mode, uid: stat.st_uid, gid: stat.st_gid, may_search })
    }
}

/// What a name stands for, with attributes that are not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Absent,
    /// The attributes have no version yet.
    File {
        attr: Attr,
        stamp: FileStamp,
        links: u64,
    },
    Other(FileNode),
}

/// Nanoseconds since 1970; the greatest or least number for a time that it cannot tell.
fn nanoseconds(seconds: i64, rest: u64) -> i64 {
    let rest = i64::try_from(rest).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

impl FileStamp {
    #[allow(clippy::cast_sign_loss)] // st_size of a file is never negative
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            size: stat.st_size as u64,
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Attributes without a version.
pub(crate) fn attr_of(stat: &Stat) -> Attr {
    let stamp = FileStamp::of(stat);
    let attr = Attr { dev: stat.st_dev, ino: stat.st_ino, mode: stat.st_mode, ..Attr::default() };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => attr,
        _ => Attr { size: stamp.size, mtime_ns: stamp.mtime_ns, ..attr },
    }
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens the path `rel` relative to `dir`; an empty `rel` is `dir` itself.
pub(crate) fn open_beneath(dir: BorrowedFd, rel: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let rel: &[u8] = if rel.is_empty() { b"." } else { rel };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // A concurrent mount or rename elsewhere may make the kernel answer EAGAIN.
    for _ in 0..8 {
        match fs::openat2(dir, rel, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a directory by its path, if no part of the path is a symbolic link.
pub(crate) fn open_path(path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    fs::openat2(fs::CWD, path, flags, Mode::empty(), resolve)
}

/// The node that a name stands for.
pub(crate) fn look(dir: BorrowedFd, name: &[u8]) -> Seen {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => classify(dir, name, &stat),
        Err(Errno::NOENT | Errno::NOTDIR) => Seen::Absent,
        Err(_) => Seen::Other(FileNode::Withheld),
    }
}

/// The present attributes of an open file. A file system whose files change elsewhere (FUSE, NFS)
/// caches attributes for a while, unless it is told to fetch them.
pub(crate) fn stat_anew(file: impl AsFd) -> Result<Stat> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match fs::statx(&file, "", flags, fs::StatxFlags::BASIC_STATS) {
        // A file system that does not implement the call caches nothing.
        Ok(_) | Err(Errno::NOSYS | Errno::PERM) => fs::fstat(file),
        Err(errno) => Err(errno),
    }
}

/// The node that a name stands for, looked up by opening it, as a program that reads it would: a
/// network file system then asks its server.
pub(crate) fn look_anew(dir: BorrowedFd, name: &[u8]) -> Seen {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open_beneath(dir, name, flags).and_then(stat_anew) {
        Ok(stat) => classify(dir, name, &stat),
        Err(_) => look(dir, name),
    }
}

#[allow(clippy::useless_conversion)] // the type of st_nlink depends on the machine
fn classify(dir: BorrowedFd, name: &[u8], stat: &Stat) -> Seen {
    let attr = attr_of(stat);
    match FileType::from_raw_mode(stat.st_mode) {
        // Another time would be seen where it is read, as by `__TIMESTAMP__`.
        FileType::RegularFile if [i64::MIN, i64::MAX].contains(&attr.mtime_ns) => {
            Seen::Other(FileNode::Withheld)
        }
        FileType::RegularFile => {
            Seen::File { attr, stamp: FileStamp::of(stat), links: u64::from(stat.st_nlink) }
        }
        FileType::Directory => Seen::Other(FileNode::Directory(attr)),
        FileType::Symlink => match fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => Seen::Other(FileNode::Symlink { target: target.to_bytes().into(), attr }),
            Err(Errno::NOENT) => Seen::Absent,
            Err(_) => Seen::Other(FileNode::Withheld),
        },
        _ => Seen::Other(FileNode::Withheld),
    }
}

/// The names in an open directory that may be exported.
pub(crate) fn names(dir: BorrowedFd, hidden_names: HiddenNames) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for_each_name(dir, |name| {
        let name = name.to_bytes();
        if !hidden_names.withhold(name) && crate::path::is_name(name) {
            names.push(name.into());
        }
    })?;
    Ok(names)
}

/// Reads a file of `len` bytes into `into`, and one byte more if it has grown.
pub(crate) fn read_whole(file: OwnedFd, len: u64, into: &mut Vec<u8>) -> std::io::Result<OwnedFd> {
    into.clear();
    into.reserve(usize::try_from(len + 1).unwrap_or_default());
    let mut limited = File::from(file).take(len + 1);
    limited.read_to_end(into)?;
    Ok(limited.into_inner().into())
}

/// How completely inotify reports changes on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystemKind {
    /// Every change to its files goes through this kernel and is reported under their names.
    Local,
    /// It shows files of other directories, whose owners may change them there unreported.
    Layered,
    /// Other machines may change its files, or this is unknown.
    Elsewhere,
    /// It shows the kernel's own state.
    Pseudo,
}

/// Magic numbers (statfs(2)) of file systems on which a watch reports every change.
const LOCAL: &[u64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // jfs
    0x5265_4973, // reiserfs
    0x73717368,  // squashfs
    0xE0F5_E1E2, // erofs
    0x9660,      // iso9660
];
const OVERLAY: u64 = 0x794C_7630;
const PSEUDO: &[u64] = &[0x9FA0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x6367_7270, 0x2727_6772];

/// The kind of an open file's file system.
pub(crate) fn kind(file: impl AsFd) -> FileSystemKind {
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)] // its type depends on the machine
    let magic = fs::fstatfs(file).map_or(0, |found| found.f_type as u64 & 0xFFFF_FFFF);
    match magic {
        OVERLAY => FileSystemKind::Layered,
        magic if PSEUDO.contains(&magic) => FileSystemKind::Pseudo,
        magic if LOCAL.contains(&magic) => FileSystemKind::Local,
        _ => FileSystemKind::Elsewhere,
    }
}
