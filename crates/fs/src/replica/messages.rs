//! What a server, or a command, and a replica say to each other. Plain values.
//!
//! Each message is a frame: its bytes' number (4, little-endian), then the bytes. A client of the
//! file system, which says something else, is therefore told apart by its first bytes.

use super::stream::ReplicaError;
use crate::store::StoreShape;
use outboard_cluster::codec::Protocol;
use serde::{Deserialize, Serialize};

/// The version of these messages.
pub(super) const PROTOCOL: Protocol = Protocol::version(1);
/// Bytes of a frame, at most: one commit, with its answer, fits.
pub(super) const FRAME_MAX: usize = 16 << 20;
/// Bytes of blocks, of metadata and of commits that one message has, about.
pub(super) const PIECE: usize = 1 << 20;

/// Which store is followed, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FollowedStore {
    /// The store's own number.
    pub(super) uuid: [u8; 16],
    pub(super) block_count: u64,
    pub(super) region_len: u64,
    pub(super) epoch: u64,
    /// Its region's journal.
    pub(super) incarnation: u64,
    /// What the store's numbers are ahead of that journal's.
    pub(super) base: u64,
}

/// What no number of commits or of epochs reaches.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

impl FollowedStore {
    /// Whether there can be such a store.
    pub(super) fn check(&self) -> Result<(), ReplicaError> {
        let Self { block_count, region_len, .. } = *self;
        StoreShape { block_count, region_len }.check()?;
        match self.epoch < NUMBER_MAX && self.base < NUMBER_MAX {
            true => Ok(()),
            false => Err(ReplicaError::Hostile("its numbers are beyond all".into())),
        }
    }
}

/// A whole copy that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopyHead {
    /// What the copy's checkpoint was made for.
    pub(super) uuid: [u8; 16],
    /// Its commit.
    pub(super) seq: u64,
}

/// The answer to a commit's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShippedAnswer<'a> {
    pub(super) seq: u64,
    pub(super) client: [u8; 16],
    pub(super) number: u64,
    #[serde(with = "serde_bytes")]
    pub(super) bytes: &'a [u8],
}

/// What a replica is asked, and sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReplicaMessage<'a> {
    /// A server wants to be followed.
    Follow(FollowedStore),
    /// How is it? Anybody may ask.
    Status,
    /// It is to be the server from now on.
    Promote,
    /// Everything comes anew: what follows is kept apart until `Copied`.
    Copy(CopyHead),
    /// The next bytes of the metadata.
    Metadata(#[serde(with = "serde_bytes")] &'a [u8]),
    /// Blocks, from this one on.
    Blocks {
        start: u64,
        #[serde(with = "serde_bytes")]
        bytes: &'a [u8],
    },
    /// The copy is whole.
    Copied,
    /// What follows, until `Step`, takes effect as a whole: blocks are among it that the commits
    /// before still have.
    CatchUp,
    /// Commits, as records of the log.
    Commits {
        #[serde(with = "serde_bytes")]
        records: &'a [u8],
        #[serde(borrow)]
        answers: Vec<ShippedAnswer<'a>>,
    },
    /// All commits up to this one were sent: they are to be on the disk.
    Step(u64),
}

/// How a replica is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Whom it follows.
    pub of: Option<[u8; 16]>,
    /// It has had everything at some commit, and has all of that still.
    pub is_whole: bool,
    /// Its epoch.
    pub epoch: u64,
    /// The last commit that it has.
    pub last: u64,
    /// The journal of the server, as it knows it.
    pub incarnation: u64,
    /// What the store's numbers are ahead of that journal's.
    pub base: u64,
    /// Whether a server is connected, and it lacks nothing of what that server has synced.
    pub is_in_step: bool,
    /// Seconds since it had all that its server had.
    pub behind_s: Option<u64>,
}

/// What a replica says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReplicaAnswer {
    State(ReplicaState),
    /// All up to this commit is on its disk.
    Has(u64),
    /// It serves, or will in a moment.
    Promoted {
        epoch: u64,
        commit: u64,
        behind_s: Option<u64>,
    },
    /// It has a later epoch than who asks.
    Superseded {
        epoch: u64,
    },
    Refused(String),
}
