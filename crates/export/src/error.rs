//! Errors: [`ExportError`] on the client, [`MetadataLogError`] on a server that reads a client's
//! published memory.

use crate::replica::{CONTENTS_LEN_MAX, CONTENTS_MAX, ENTRIES_MAX, PLACES_MAX};
use outboard_mem::MemError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a directory cannot be exported, or an export cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Caller: the sizes are too small to be useful, or too large for servers to follow.
    #[error(
        "an export with {ring} bytes for contents and {log} for its metadata log: give either at \
         least 1 MiB, and the metadata log at most 1 GiB"
    )]
    Sizes {
        /// Bytes for contents.
        ring: usize,
        /// Bytes for the metadata log.
        log: usize,
    },
    /// This machine: no memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// This machine: no inotify descriptor.
    #[error("cannot watch files: {0}; raise fs.inotify.max_user_instances")]
    Watch(Errno),
    /// This machine: the kernel cannot resolve beneath a directory.
    #[error("this kernel has no openat2 (Linux 5.6) or forbids it: files cannot be exported")]
    NoOpenat2,
    /// Caller: roots are absolute.
    #[error("{} is not an absolute path: give one", path.display())]
    Relative {
        /// The root as given.
        path: PathBuf,
    },
    /// Caller: a root would export a whole home directory, which is more than the user intends.
    #[error("{} is a home directory, or above one: allow directories within it", path.display())]
    TooWide {
        /// The root as it resolves.
        path: PathBuf,
    },
    /// Caller: a root would export files of other users.
    #[error("{} is a directory that all users share: allow directories within it", path.display())]
    Everybodys {
        /// The root as it resolves.
        path: PathBuf,
    },
    /// Caller: this export withholds names that begin with a dot.
    #[error("{} has a name that begins with a dot: such names are not exported", path.display())]
    Hidden {
        /// The root as given.
        path: PathBuf,
    },
    /// Caller: not a directory.
    #[error("{} is no directory, so that nothing beneath it can be exported", path.display())]
    NotADirectory {
        /// The path up to where it stopped being a directory.
        path: PathBuf,
    },
    /// Caller: a file system that presents the kernel's state.
    #[error("{} is on a file system of the kernel's own (proc, sysfs)", path.display())]
    Pseudo {
        /// The root as it resolves.
        path: PathBuf,
    },
    /// Caller or this machine: the system denies access.
    #[error("{} cannot be exported: {errno}; see that it is there and readable", path.display())]
    Refused {
        /// The path up to where it was followed.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
}

/// Why a client's published memory cannot be read. Only `Torn` happens between correct ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataLogError {
    /// Not an error if it passes: the client began a new epoch while its log was being read.
    #[error("the log at {place} of epoch {epoch} was overwritten: read the header again")]
    Torn {
        /// The epoch that was expected.
        epoch: u64,
        /// Offset in the log.
        place: u64,
    },
    /// Caller: the bytes do not continue those read before.
    #[error(
        "bytes of epoch {epoch} from {place} do not continue the log: read what `want` returns"
    )]
    NotWanted {
        /// Their epoch.
        epoch: u64,
        /// Offset in the log.
        place: u64,
    },
    /// Peer: the header is missing or inconsistent.
    #[error("the peer's memory does not begin with the header of an export")]
    Header,
    /// Peer: the log ends within a record.
    #[error("the peer's log has a record cut off at {place}")]
    Partial {
        /// Offset in the log.
        place: u64,
    },
    /// Peer: a record is longer than allowed.
    #[error("the peer's log has a record of {len} bytes at {place}")]
    TooLong {
        /// Its length.
        len: usize,
        /// Offset in the log.
        place: u64,
    },
    /// Peer: a record cannot be decoded.
    #[error("the peer's log has a record at {place} that cannot be decoded")]
    Codec {
        /// Offset in the log.
        place: u64,
    },
    /// Peer: a malformed path or name.
    #[error("the peer's log has a malformed path or name at {place}")]
    Path {
        /// Offset in the log.
        place: u64,
    },
    /// Peer: a record about something outside the directories that it exports.
    #[error("the peer's log names something outside its roots at {place}")]
    Outside {
        /// Offset in the log.
        place: u64,
    },
    /// Peer: contents outside the snapshot ring.
    #[error("the peer's log has contents at {place} outside its snapshot ring")]
    Contents {
        /// Offset in the log.
        place: u64,
    },
    /// Peer: contents longer than any file that is exported.
    #[error(
        "the peer's log has contents of {len} bytes at {place}, and files have at most \
         {CONTENTS_LEN_MAX}"
    )]
    TooLarge {
        /// Their length.
        len: u64,
        /// Offset in the log.
        place: u64,
    },
    /// Peer: more than a server stores.
    #[error(
        "the peer publishes more than {ENTRIES_MAX} names, {CONTENTS_MAX} contents or \
         {PLACES_MAX} roots"
    )]
    TooMuch,
}
