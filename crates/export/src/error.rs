//! What can go wrong: [`ExportError`] on the client, [`CatalogueError`] on a server that reads what
//! a client published.

use crate::replica::{CONTENTS_LEN_MAX, CONTENTS_MAX, ENTRIES_MAX, PLACES_MAX};
use outboard_mem::MemError;
use rustix::io::Errno;
use std::path::PathBuf;

/// A directory is not exported, or the export cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Caller: the sizes are too small to be of use, or too large to be followed.
    #[error(
        "an export with {arena} bytes for contents and {log} for its catalogue: give either at \
         least 1 MiB, and the catalogue at most 1 GiB"
    )]
    Sizes {
        /// Bytes for contents.
        arena: usize,
        /// Bytes for the catalogue.
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
    /// Caller: a root would show more than somebody who names it means to.
    #[error("{} is the home directory, or above it: allow directories within it", path.display())]
    TooWide {
        /// The root as it resolves.
        path: PathBuf,
    },
    /// Caller: names that begin with a dot are never shown.
    #[error("{} has a name that begins with a dot, and such are never exported", path.display())]
    Hidden {
        /// The root as given.
        path: PathBuf,
    },
    /// Caller: not a directory.
    #[error("{} is no directory, so that nothing beneath it can be exported", path.display())]
    NotADirectory {
        /// The path as far as it was followed.
        path: PathBuf,
    },
    /// Caller: a file system that is the kernel's view of itself.
    #[error("{} is on a file system of the kernel's own (proc, sysfs)", path.display())]
    Pseudo {
        /// The root as it resolves.
        path: PathBuf,
    },
    /// Caller: there are enough.
    #[error("{count} directories are exported already: allow one that is above many of them")]
    TooManyRoots {
        /// How many there are.
        count: usize,
    },
    /// Caller or this machine: the system refuses.
    #[error("{} cannot be exported: {errno}; see that it is there and readable", path.display())]
    Refused {
        /// The path as far as it was followed.
        path: PathBuf,
        /// What the system says.
        errno: Errno,
    },
}

/// What a client published makes no sense. Only `Torn` happens between honest ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Nobody's fault, if it passes: the client began anew while its log was being read.
    #[error("the log at {place} of epoch {epoch} was overwritten: read the header again")]
    Torn {
        /// The epoch that was expected.
        epoch: u64,
        /// Where in the log.
        place: u64,
    },
    /// Caller: the octets do not follow what was read before.
    #[error("octets of epoch {epoch} from {place} are not what is wanted next")]
    NotWanted {
        /// Their epoch.
        epoch: u64,
        /// Where in the log.
        place: u64,
    },
    /// Peer: no header, or one that cannot be.
    #[error("the peer's memory does not begin with the header of an export")]
    Header,
    /// Peer: the log ends within a record.
    #[error("the peer's log has a record cut off at {place}")]
    Partial {
        /// Where in the log.
        place: u64,
    },
    /// Peer: a record is longer than allowed.
    #[error("the peer's log has a record of {len} octets at {place}")]
    TooLong {
        /// Its length.
        len: usize,
        /// Where in the log.
        place: u64,
    },
    /// Peer: a record cannot be read.
    #[error("the peer's log has a record at {place} that cannot be decoded")]
    Codec {
        /// Where in the log.
        place: u64,
    },
    /// Peer: a path or name that is not in the form that they have.
    #[error("the peer's log has a path or name at {place} that cannot be")]
    Path {
        /// Where in the log.
        place: u64,
    },
    /// Peer: a record about something outside the directories that it exports.
    #[error("the peer's log speaks at {place} of something outside its roots")]
    Outside {
        /// Where in the log.
        place: u64,
    },
    /// Peer: contents that are not where contents are.
    #[error("the peer's log has contents at {place} that lie outside the memory for them")]
    Contents {
        /// Where in the log.
        place: u64,
    },
    /// Peer: contents that no client hands out.
    #[error(
        "the peer's log has contents of {len} octets at {place}, and files have at most \
         {CONTENTS_LEN_MAX}"
    )]
    TooLarge {
        /// Their length.
        len: u64,
        /// Where in the log.
        place: u64,
    },
    /// Peer: more than a server will remember.
    #[error(
        "the peer publishes more than {ENTRIES_MAX} names, {CONTENTS_MAX} contents or \
         {PLACES_MAX} roots"
    )]
    TooMuch,
}
