//! Records of the metadata log, each in a frame with a check.
//!
//! ```text
//! frame:  length of the record (u32) | check (u32) | record (postcard)
//! check:  first 4 bytes of BLAKE3 (epoch (u64) | place in the log (u64) | record)
//! ```
//!
//! All integers of frames are little-endian. A server that reads the log one-sided may do so while
//! a new epoch overwrites it: then the check fails, and the record is not used. The check is no
//! protection against a client that lies about its own files.

use crate::path;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes before a record.
pub(crate) const FRAME_LEN: usize = 8;
/// Bytes of a record, at most: a directory of some 40,000 names.
pub const RECORD_LEN_MAX: usize = 4 << 20;

/// A position in the metadata log: up to where a job's submission was published, or a server has
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Position {
    /// Counts the epochs of the log; never decreases.
    pub epoch: u64,
    /// Bytes of this epoch's log.
    pub length: u64,
}

/// A file or directory as the client saw it. For a directory `size`, `mtime_ns` and `version` are
/// 0, because they change with every object that a build writes into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attr {
    /// The client's device number.
    pub dev: u64,
    /// The client's inode number.
    pub ino: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The state of the file: each state has another number, which the client never reuses.
    pub version: u64,
}

/// One state of one file; a file whose contents change gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// The client's device number.
    pub dev: u64,
    /// The client's inode number.
    pub ino: u64,
    /// The client's count of this file's states.
    pub version: u64,
}

impl FileVersion {
    /// The state of a file that has these attributes.
    #[must_use]
    pub fn of(attr: &Attr) -> Self {
        Self { dev: attr.dev, ino: attr.ino, version: attr.version }
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileNode {
    /// A regular file.
    File(Attr),
    /// A directory.
    Directory(Attr),
    /// A symbolic link; the server follows it.
    Symlink {
        /// Its target, as written.
        target: Arc<[u8]>,
        /// Its own attributes.
        attr: Attr,
    },
    /// Something that exists and is not exported: a device, a pipe, a socket.
    Withheld,
}

/// A snapshot of a file in the client's memory. Valid if the bytes read there [open](Self::open).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The client's device number.
    pub dev: u64,
    /// The client's inode number.
    pub ino: u64,
    /// The state of the file.
    pub version: u64,
    /// BLAKE3 of the contents.
    pub hash: [u8; 32],
    /// Offset of the snapshot in the exported region.
    pub at: u64,
    /// Length of the contents in bytes.
    pub len: u64,
    /// Length of the snapshot in bytes: fewer if it is packed.
    pub packed: u64,
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LogRecord<'a> {
    /// A root: a directory that servers may request, with everything beneath it.
    Root {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        attr: Attr,
    },
    /// A symbolic link outside the roots that leads to one.
    RootSymlink {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        #[serde(borrow, with = "serde_bytes")]
        target: &'a [u8],
        attr: Attr,
    },
    /// The full listing of a directory (but names that are withheld).
    Directory {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        #[serde(borrow)]
        entries: Vec<DirEntry<'a>>,
    },
    /// One name of a directory that was listed before stands for something else now.
    DirEntry {
        #[serde(borrow, with = "serde_bytes")]
        dir: &'a [u8],
        #[serde(borrow)]
        entry: DirEntry<'a>,
    },
    /// The location of a file's contents.
    Contents(Contents),
    /// Withdraws the listings of a directory and of all beneath it.
    Forget {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
    },
    /// A path outside the roots at which there is nothing, or no longer nothing.
    NegativeEntry {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        is_filled: bool,
    },
}

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirEntry<'a> {
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) name: &'a [u8],
    #[serde(borrow)]
    pub(crate) what: NodeRecord<'a>,
}

/// The node of a directory entry, as encoded in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NodeRecord<'a> {
    Absent,
    File(Attr),
    Directory(Attr),
    Symlink {
        #[serde(borrow, with = "serde_bytes")]
        target: &'a [u8],
        attr: Attr,
    },
    Withheld,
}

impl FileNode {
    /// The attributes, if they are exported.
    #[must_use]
    pub fn attr(&self) -> Option<&Attr> {
        match self {
            Self::File(attr) | Self::Directory(attr) | Self::Symlink { attr, .. } => Some(attr),
            Self::Withheld => None,
        }
    }

    /// Whether both are the same directory.
    pub(crate) fn is_same_directory(&self, other: Option<&Self>) -> bool {
        match (self, other) {
            (Self::Directory(a), Some(Self::Directory(b))) => (a.dev, a.ino) == (b.dev, b.ino),
            _ => false,
        }
    }
}

impl<'a> NodeRecord<'a> {
    pub(crate) fn of(node: Option<&'a FileNode>) -> Self {
        match node {
            None => Self::Absent,
            Some(FileNode::File(attr)) => Self::File(*attr),
            Some(FileNode::Directory(attr)) => Self::Directory(*attr),
            Some(FileNode::Symlink { target, attr }) => Self::Symlink { target, attr: *attr },
            Some(FileNode::Withheld) => Self::Withheld,
        }
    }

    /// `None` if the name is absent.
    pub(crate) fn to_node(self) -> Option<FileNode> {
        Some(match self {
            Self::Absent => return None,
            Self::File(attr) => FileNode::File(attr),
            Self::Directory(attr) => FileNode::Directory(attr),
            Self::Symlink { target, attr } => FileNode::Symlink { target: target.into(), attr },
            Self::Withheld => FileNode::Withheld,
        })
    }
}

/// A request to the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ask {
    /// Publish a directory's listing.
    List {
        /// The directory.
        #[serde(with = "serde_bytes")]
        dir: Vec<u8>,
    },
    /// Publish a file's contents.
    Offer {
        /// The file.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// The version that the server knows.
        version: u64,
    },
    /// Say whether there is anything at a path outside the exported roots.
    Name {
        /// The path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
    },
}

impl Ask {
    /// The path that it concerns.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        use std::os::unix::ffi::OsStrExt;
        let (Self::List { dir: path } | Self::Offer { path, .. } | Self::Name { path }) = self;
        std::ffi::OsStr::from_bytes(path).as_ref()
    }

    /// Whether it can be answered: paths must be absolute and without `.` and `..`.
    #[must_use]
    pub fn is_legal(&self) -> bool {
        match self {
            Self::List { dir: path } | Self::Offer { path, .. } | Self::Name { path } => {
                path::is_path(path)
            }
        }
    }
}

/// The answer to an [`Ask`]. The positions say up to where to read the log before looking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The log has it, up to this position.
    Published(Position),
    /// The request is outdated; the log has the present state, up to this position.
    Changed(Position),
    /// Not exported: outside the roots, or beneath a name that is withheld.
    Withheld,
    /// A directory that is not exported: the names in it can be requested one by one.
    Directory,
    /// The file is larger than the memory for snapshots allows.
    TooLarge {
        /// The file's size in bytes.
        len: u64,
        /// The limit in bytes.
        len_max: u64,
    },
    /// The client's system refused: its error number.
    Failed(i32),
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// More bytes are needed.
    Partial,
    /// Longer than a record may be.
    TooLong { len: usize },
    /// The check does not match.
    Torn,
    /// The check matches and the record cannot be decoded.
    Codec,
}

fn check_of(epoch: u64, place: u64, record: &[u8]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&epoch.to_le_bytes()).update(&place.to_le_bytes()).update(record);
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    [a, b, c, d]
}

/// A record in its frame, in the memory of `out`; `None` if it is too long.
pub(crate) fn emit(record: &LogRecord, at: Position, mut out: Vec<u8>) -> Option<Vec<u8>> {
    out.clear();
    out.extend_from_slice(&[0; FRAME_LEN]);
    let mut out = postcard::to_extend(record, out).ok()?;
    let len = out.len() - FRAME_LEN;
    if len > RECORD_LEN_MAX {
        return None;
    }
    let check = check_of(at.epoch, at.length, &out[FRAME_LEN..]);
    out[..4].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    out[4..FRAME_LEN].copy_from_slice(&check);
    Some(out)
}

/// The first record of `bytes`, which begin at `at` in the log, and the length of its frame.
pub(crate) fn parse(bytes: &[u8], at: Position) -> Result<(LogRecord<'_>, usize), FrameError> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_LEN>().ok_or(FrameError::Partial)?;
    let [a, b, c, d, check @ ..] = *head;
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if len > RECORD_LEN_MAX {
        return Err(FrameError::TooLong { len });
    }
    let record = rest.get(..len).ok_or(FrameError::Partial)?;
    if check_of(at.epoch, at.length, record) != check {
        return Err(FrameError::Torn);
    }
    match postcard::take_from_bytes(record) {
        Ok((record, [])) => Ok((record, FRAME_LEN + len)),
        _ => Err(FrameError::Codec),
    }
}
