//! What a view asks its source: names, attributes and contents of a client's files.
//!
//! Look-ups never wait. A name that is not known yet is requested with [`Source::ask`] and looked
//! up again once the answer has arrived. A source may answer from any thread, but never while it
//! holds a lock of its own that a look-up takes.

use std::sync::Arc;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A file's attributes at the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Device number at the client.
    pub dev: u64,
    /// Inode number at the client.
    pub ino: u64,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// One state of one file; a file whose contents change gets another `NodeId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Device number at the client.
    pub dev: u64,
    /// Inode number at the client.
    pub ino: u64,
    /// The client's count of this file's states.
    pub version: u64,
}

/// The result of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A regular file in this state.
    File {
        /// Its attributes.
        attr: Attr,
        /// The client's count of its states.
        version: u64,
    },
    /// A directory.
    Directory {
        /// Its attributes.
        attr: Attr,
    },
    /// A symbolic link, not followed.
    Symlink {
        /// Its attributes.
        attr: Attr,
        /// Where it points, as written.
        target: Arc<[u8]>,
    },
    /// The client has no such name.
    Absent,
    /// The client has it and does not export it.
    Withheld,
    /// Not beneath anything that the client exports; [`Ask::Name`] says whether it exists.
    Outside,
    /// Not known yet: ask first.
    Unknown,
}

/// The result of listing a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Every name that the client exports.
    Entries(Vec<(Vec<u8>, FileKind)>),
    /// Not beneath anything that the client exports.
    Outside,
    /// Not known yet: ask first.
    Unknown,
}

/// A request to the client for something that is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// All names of a directory.
    List {
        /// Its absolute path.
        dir: Vec<u8>,
    },
    /// A file's contents.
    Contents {
        /// An absolute path of the file.
        path: Vec<u8>,
        /// The state that is wanted.
        node: NodeId,
    },
    /// Whether there is anything at a path outside what the client exports.
    Name {
        /// The path, which is absolute.
        path: Vec<u8>,
    },
}

/// Why a request to the client failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The file has another state by now.
    #[error("the file has changed since the job was submitted")]
    Changed,
    /// The client's own attempt failed with this error number.
    #[error("the client's system says error {0}")]
    Failed(i32),
    /// The client does not hand it out.
    #[error("the client does not hand it out: {0}")]
    Refused(String),
    /// The client is gone, or took too long.
    #[error("the client does not answer")]
    Gone,
}

/// Contents of a file, shared by all that need them.
pub type Contents = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The function called when an [`Ask`] has been answered.
pub type Done = Box<dyn FnOnce(Result<(), AskError>) + Send>;

/// Where a view's names, attributes and contents come from.
pub trait Source: Send + Sync {
    /// What `name` in the directory `dir` (an absolute path, `/` for the root) stands for. Never
    /// waits.
    fn look_up(&self, dir: &[u8], name: &[u8]) -> Found;

    /// The names in `dir`. Never waits.
    fn list(&self, dir: &[u8]) -> Listing;

    /// Requests something that is not known yet and calls `done` exactly once, within a time limit
    /// that the source sets: until then a process of the job may wait where not even SIGKILL
    /// reaches it.
    fn ask(&self, ask: Ask, done: Done);

    /// A file's contents in this state, if this machine has them. Never waits.
    fn contents(&self, node: &NodeId) -> Option<Contents>;
}
