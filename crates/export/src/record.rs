//! What the catalogue says: records of a log, each in a frame that shows whether it is whole.
//!
//! ```text
//! frame:  length of the record (u32) | check (u32) | record (postcard)
//! check:  first 4 octets of BLAKE3 (epoch (u64) | place in the log (u64) | record)
//! ```
//!
//! All integers of frames are little-endian. Somebody who reads the log one-sided may see it while
//! a new epoch overwrites it: then the check is wrong, and nothing of the record is used. The check
//! is no protection against a client that lies about its own files.

use crate::path;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Octets before a record.
pub(crate) const FRAME_LEN: usize = 8;
/// Octets of a record, at most: a directory of some 40,000 names.
pub const RECORD_LEN_MAX: usize = 4 << 20;

/// How far the catalogue has come: what a job was submitted with, and what a server has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Position {
    /// Counts how often everything was forgotten; never runs backwards.
    pub epoch: u64,
    /// Octets of this epoch's log.
    pub length: u64,
}

/// A file or directory as it was seen. Of a directory only what it is counts: `size`, `mtime_ns`
/// and `version` are 0, because they change with every object that a build writes into it.
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
    /// Which state of the file: another state has another number. Never reused by a client.
    pub version: u64,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File(Attr),
    /// A directory.
    Directory(Attr),
    /// A symbolic link; it is for the asker to follow.
    Symlink {
        /// Where it points to, as it is written.
        target: Arc<[u8]>,
        /// Its own attributes.
        attr: Attr,
    },
    /// Something that is there and is not shown: a device, a pipe, a socket.
    Withheld,
}

/// A snapshot of a file in the client's memory. Valid if what is read there [opens](Self::open).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The client's device number.
    pub dev: u64,
    /// The client's inode number.
    pub ino: u64,
    /// Which state of the file.
    pub version: u64,
    /// BLAKE3 of the contents.
    pub hash: [u8; 32],
    /// Where they are: octets from the beginning of the exported region.
    pub at: u64,
    /// How many octets they are.
    pub len: u64,
    /// How many octets lie there: fewer if they are packed.
    pub packed: u64,
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    /// A directory that may be asked for, and everything beneath it.
    Root {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        attr: Attr,
    },
    /// A symbolic link outside the roots, on the way to one.
    Way {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        #[serde(borrow, with = "serde_bytes")]
        target: &'a [u8],
        attr: Attr,
    },
    /// Everything that a directory holds (but names that begin with a dot).
    Directory {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        #[serde(borrow)]
        entries: Vec<Entry<'a>>,
    },
    /// One name of a directory that was listed before is something else now.
    Entry {
        #[serde(borrow, with = "serde_bytes")]
        dir: &'a [u8],
        #[serde(borrow)]
        entry: Entry<'a>,
    },
    /// A file's contents lie ready.
    Contents(Contents),
    /// Nothing that was said of what a directory holds, and of all beneath it, counts any more.
    Forget {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
    },
    /// A path outside the roots at which there is nothing, or no longer nothing.
    Gap {
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        is_filled: bool,
    },
}

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry<'a> {
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) name: &'a [u8],
    #[serde(borrow)]
    pub(crate) what: What<'a>,
}

/// What a record says a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What<'a> {
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

impl Node {
    /// Its attributes, if they are shown.
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

impl<'a> What<'a> {
    pub(crate) fn of(node: Option<&'a Node>) -> Self {
        match node {
            None => Self::Absent,
            Some(Node::File(attr)) => Self::File(*attr),
            Some(Node::Directory(attr)) => Self::Directory(*attr),
            Some(Node::Symlink { target, attr }) => Self::Symlink { target, attr: *attr },
            Some(Node::Withheld) => Self::Withheld,
        }
    }

    /// Nothing if the name is absent.
    pub(crate) fn to_node(self) -> Option<Node> {
        Some(match self {
            Self::Absent => return None,
            Self::File(attr) => Node::File(attr),
            Self::Directory(attr) => Node::Directory(attr),
            Self::Symlink { target, attr } => Node::Symlink { target: target.into(), attr },
            Self::Withheld => Node::Withheld,
        })
    }
}

/// What the client can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ask {
    /// What a directory holds.
    List {
        /// The directory.
        #[serde(with = "serde_bytes")]
        dir: Vec<u8>,
    },
    /// A file's contents.
    Offer {
        /// The file.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// The version that is known of it.
        version: u64,
    },
}

impl Ask {
    /// Whether it can be answered at all: paths must be absolute and without `.` and `..`.
    #[must_use]
    pub fn is_legal(&self) -> bool {
        match self {
            Self::List { dir: path } | Self::Offer { path, .. } => path::is_path(path),
        }
    }
}

/// What becomes of an [`Ask`]. The positions say how far to read the log before looking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is in the log, up to there.
    Published(Position),
    /// It is not what the asker thinks; what it is instead is in the log, up to there.
    Changed(Position),
    /// It is not shown: outside the roots, or beneath a name that begins with a dot.
    Withheld,
    /// It is larger than the memory for it allows.
    TooLarge {
        /// Octets that it has.
        len: u64,
        /// Octets that it may have.
        len_max: u64,
    },
    /// The client's system refused: its error number.
    Failed(i32),
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// More octets are needed.
    Partial,
    /// Longer than a record may be.
    TooLong { len: usize },
    /// The check is wrong.
    Torn,
    /// The check is right and the record makes no sense.
    Codec,
}

fn check_of(epoch: u64, place: u64, record: &[u8]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&epoch.to_le_bytes()).update(&place.to_le_bytes()).update(record);
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    [a, b, c, d]
}

/// A record in its frame, in place of what `out` held; nothing if it is too long to be one.
pub(crate) fn emit(record: &Record, at: Position, mut out: Vec<u8>) -> Option<Vec<u8>> {
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

/// The first record of `octets`, which stand at `at` of the log, and the length of its frame.
pub(crate) fn parse(octets: &[u8], at: Position) -> Result<(Record<'_>, usize), FrameError> {
    let (head, rest) = octets.split_first_chunk::<FRAME_LEN>().ok_or(FrameError::Partial)?;
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
