//! What clients and the service tell each other beside executions.
//!
//! What a client has opened by `open` or `create` it says again on each later connection, and it
//! says what it closes: an inode that has lost its names stays until then, and goes when the client
//! does. The service says what a client must no longer keep; the client says when it does not.

use super::structures::FsInode;
use outboard_cluster::codec::{CodecError, Protocol};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of these messages.
pub const NOTES: Protocol = Protocol::version(7);

/// How long a client may keep what it was told, from when it asked.
pub const LEASE: Duration = Duration::from_secs(5);

/// How often a client that has asked for locks says that it is there.
pub const HERE: Duration = Duration::from_secs(3);

/// A client's message. It is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsNote {
    /// A file that was opened over an earlier connection is still open.
    Opened {
        /// What the client calls the opening.
        opening: u64,
        /// Which file.
        inode: FsInode,
        /// Whether it may map the file.
        maps: bool,
    },
    /// A file has been closed, or the client no longer waits for its opening.
    Closed {
        /// What the client calls the opening.
        opening: u64,
    },
    /// This client keeps names and attributes for [`LEASE`], and says what it keeps no longer.
    Keeps,
    /// This client is there, and has the locks that it has: said every [`HERE`].
    Here,
    /// This client ends, and keeps nothing any more.
    KeepsNothing,
    /// What a notice named is no longer kept here.
    InvalidatedAck {
        /// The notice's number.
        number: u64,
    },
}

/// The service's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsNotice {
    /// Others have changed something: it must not be kept; answered by
    /// [`FsNote::InvalidatedAck`].
    Invalidate {
        /// The notice's number.
        number: u64,
        /// Of which inode.
        inode: FsInode,
        /// What of it.
        what: StalePart,
    },
    /// The client was not heard for too long: its locks are others' now.
    LocksLost,
    /// A lock that waited under this number is the client's now.
    Granted {
        /// Which.
        wait: u64,
    },
}

/// What a client may keep of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StalePart {
    /// Its attributes.
    Attr,
    /// Its attributes and bytes.
    Data,
    /// A directory's names.
    Names,
}

impl FsNote {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        NOTES.encode(self)
    }

    /// The note of these bytes.
    ///
    /// # Errors
    /// [`CodecError`]: the client's fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        NOTES.decode(bytes)
    }
}

impl FsNotice {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        NOTES.encode(self)
    }

    /// The notice of these bytes.
    ///
    /// # Errors
    /// [`CodecError`]: the service's fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        NOTES.decode(bytes)
    }
}
