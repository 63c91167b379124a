//! Errors: [`TreeError`] on the source's machine, [`ManifestError`] for bytes that are no manifest.

use rustix::io::Errno;
use std::path::PathBuf;

/// Why a tree cannot be cast.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// This machine, or the caller, who may not read it.
    #[error("{path:?} cannot be read: {errno}; see that it is there and readable, or exclude it")]
    Unreadable {
        /// What was read.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// Caller: this process may open no more files.
    #[error(
        "{path:?} cannot be opened: {errno}; it may well be readable: raise the limit of open \
         files (ulimit -n)"
    )]
    Descriptors {
        /// What was to be opened.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// Caller: something wrote while this was cast.
    #[error("{path:?} changed while it was cast: cast it again when nothing writes to it")]
    Changed {
        /// What changed.
        path: PathBuf,
    },
    /// Caller: a source that ends in `/`, `.` or `..` has no name of its own.
    #[error("{path:?} gives no name for the destination: name the directory itself")]
    Nameless {
        /// The source as given.
        path: PathBuf,
    },
    /// Caller: only files and directories can be cast by themselves.
    #[error("{path:?} is neither a file nor a directory: only those are cast")]
    Special {
        /// The source as given.
        path: PathBuf,
    },
    /// Caller: the tree cannot be described.
    #[error("{path:?} cannot be cast: {fault}")]
    Unfit {
        /// The entry in question.
        path: PathBuf,
        /// Which rule it breaks.
        fault: ManifestFault,
    },
    /// Caller: there is no such chunk.
    #[error("caller asks for chunk {chunk} of a stream that has {chunks}")]
    NoSuchChunk {
        /// The chunk asked for.
        chunk: u32,
        /// How many there are.
        chunks: u32,
    },
}

impl TreeError {
    /// What opening or reading `path` failed with.
    pub(super) fn read(path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE => Self::Descriptors { path, errno },
            errno => Self::Unreadable { path, errno },
        }
    }
}

/// Why bytes are no manifest: the source's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source's manifest is refused at entry {entry} ({path:?}): {fault}")]
pub struct ManifestError {
    /// Index of the entry, or how many there are when the fault is the whole's.
    pub entry: u32,
    /// Its name, as far as it is known.
    pub path: PathBuf,
    /// Which rule is broken.
    pub fault: ManifestFault,
}

/// A rule that a manifest breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFault {
    /// Bytes that cannot be decoded.
    #[error("the bytes cannot be decoded")]
    Malformed,
    /// Another version of the format.
    #[error("its format has version {0}, this side reads 1: install the same release on both")]
    Version(u8),
    /// Bytes after the last entry.
    #[error("{0} bytes follow the last entry")]
    Trailing(usize),
    /// The manifest is too long.
    #[error("the manifest would have {len} bytes, {max} are allowed")]
    TooLong {
        /// Its length.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// Too many entries.
    #[error("there are more than {0} entries")]
    TooMany(u32),
    /// Too many owners, or one with an overlong name.
    #[error("the table of owners is too large")]
    Owners,
    /// A name that a directory cannot hold.
    #[error("a name is 1 to 255 bytes without `/` and NUL, and neither `.` nor `..`")]
    Name,
    /// A top-level name that is kept for staging.
    #[error("names that begin with `.outboard-cast-` are not cast")]
    Hidden,
    /// Too many directories in one another, or too long a path.
    #[error("the path has more than 256 names or 4095 bytes")]
    TooDeep,
    /// Its parent is not a directory.
    #[error("it lies in something that is not a directory")]
    NoDirectory,
    /// A name a second time, or out of order.
    #[error("names in a directory must ascend: this one is a duplicate or out of order")]
    Order,
    /// Bits that are no permissions.
    #[error("its mode has bits beyond 07777")]
    Mode,
    /// An owner that is not in the table.
    #[error("its owner is not in the table of owners")]
    Owner,
    /// An extended attribute that is not legal, or on a symbolic link.
    #[error("an extended attribute is malformed, too long, or on a symbolic link")]
    Attribute,
    /// A symbolic link's target.
    #[error("a link's target is 1 to 4095 bytes without NUL")]
    Target,
    /// A length that no file can have.
    #[error("a file of {0} bytes is not possible")]
    Size(u64),
    /// Extents that are empty, overlap, or lie outside the file.
    #[error("its extents are empty, overlap or end behind the file")]
    Extents,
    /// Too many extents in all.
    #[error("there are more than {0} extents")]
    TooManyExtents(u64),
    /// More data than is allowed.
    #[error("the stream would have more than {0} bytes")]
    TooMuch(u64),
}
