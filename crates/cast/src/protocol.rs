//! What nodes of a cast say to each other, over the connections of a hub.
//!
//! The source dials every node: `Begin`, which the node answers with `Ready` (or `Failed`), then
//! `Plan`, from which every node computes the same schedule. A `Begin` that brings the only chunk
//! of a short cast is answered with `Done` at once, and no plan follows. Nodes that the schedule
//! connects dial each other, the lower number the higher: `Join`, answered by `Joined`. Chunks are
//! Writes with immediate data into memory that a `Want` named. A node that comes late dials
//! holders, and reads chunks: `JoinToRead`, `Borrow`. Nothing here checks what a message says: both
//! sides do where they take it.

use crate::lazy::ShowMode;
use crate::receive::{FlushMode, OwnerWish, PublishMode};
use crate::schedule::{ChunkSet, ScheduleKind};
use crate::sign::{CastId, CastPublicKey};
use outboard_cluster::codec::Protocol;
use outboard_cluster::hub::Exposed;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// This service's protocol.
pub(crate) const PROTOCOL: Protocol = Protocol::version(1);
/// The service's name.
pub const SERVICE: &str = "cast";
/// Nodes of a cast, the source among them: their names fit into one message.
pub const NODES_MAX: usize = 2048;
/// Slots that a node may have.
pub(crate) const SLOTS_MAX: u32 = 1024;

/// A source that sends nothing for this long has left: it asks for a report several times a
/// second.
pub(crate) const SOURCE_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Publishing is given up when nothing of it was done for this long: an entry's attributes, a
/// rename;
const PUBLISH_STEP_MAX: Duration = Duration::from_secs(120);
/// a flush may take longer, at this many bytes a second.
const FLUSHED_A_SECOND: u64 = 4 << 20;

/// What relays of one cast show each other; the source gives it to all of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken(pub(crate) [u8; 16]);

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken")
    }
}

/// The beginning of a cast.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CastBegin {
    /// The public half of the cast's key.
    pub(crate) key: CastPublicKey,
    /// The signed header.
    #[serde(with = "serde_bytes")]
    pub(crate) header: Vec<u8>,
    /// Where the nodes are, by number; the source, which is number 0, has no name. Empty when the
    /// only chunk comes with this message: then no node needs another.
    pub(crate) nodes: Vec<String>,
    /// The receiving node's number.
    pub(crate) you: u32,
    /// What kind of schedule every plan is made to.
    pub(crate) kind: ScheduleKind,
    /// What a relay shows to join.
    pub(crate) token: JoinToken,
    /// The directory in which the names appear: an absolute path.
    #[serde(with = "serde_bytes")]
    pub(crate) destination: Vec<u8>,
    /// What to do with names that are there.
    pub(crate) publish: PublishMode,
    /// When to flush.
    pub(crate) flush: FlushMode,
    /// When names are seen.
    pub(crate) show: ShowMode,
    /// Whose owners files get.
    pub(crate) owners: OwnerWish,
    /// Bytes a second that a node sends, at most.
    pub(crate) rate: Option<NonZeroU64>,
    /// All there is to send, if it is short.
    pub(crate) only: Option<OnlyChunk>,
}

/// The chunk of a cast that has no other, and the run that its hash is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnlyChunk {
    #[serde(with = "serde_bytes")]
    pub(crate) run: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub(crate) bytes: Vec<u8>,
}

/// Memory of the receiver for one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedSlot {
    /// The receiver's number for it.
    pub(crate) slot: u32,
    /// Where to write.
    pub(crate) memory: Exposed,
}

/// A part of a plan, which is a [`Situation`](crate::schedule::Situation).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanPart {
    /// Which plan.
    pub(crate) version: u32,
    /// Which part of it, from 0 on.
    pub(crate) part: u32,
    /// How many there are.
    pub(crate) parts: u32,
    /// Its bytes.
    #[serde(with = "serde_bytes")]
    pub(crate) bytes: Vec<u8>,
}

/// How a node is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    /// For which plan it was asked.
    pub(crate) version: u32,
    /// The chunks that it holds.
    pub(crate) held: ChunkSet,
    /// By sender, the chunk that it has waited for longest, if it has for a while.
    pub(crate) waits: Vec<ChunkWait>,
    /// The nodes that want of it what it holds and has not begun to send to them.
    pub(crate) owes: Vec<u32>,
    /// Steps that it has done of making the tree and of publishing it: entries made, attributes
    /// given, names moved.
    pub(crate) steps: u64,
    /// Chunks that others have sent to it.
    pub(crate) arrived_chunks: u64,
    /// Chunks that it has sent to others.
    pub(crate) sent_chunks: u64,
    /// Chunks that it has checked and not written yet.
    pub(crate) unwritten_chunks: u64,
    /// How fast it sends, if it has lately: to all together, and to each.
    pub(crate) rates: Vec<SentRate>,
}

/// How long a node that has everything may take for one step of publishing.
pub(crate) fn publish_step_max(flush: FlushMode, stream_len: u64) -> Duration {
    let flushing = match flush {
        FlushMode::Later => 0,
        FlushMode::BeforePublishing => stream_len / FLUSHED_A_SECOND,
    };
    PUBLISH_STEP_MAX.saturating_add(Duration::from_secs(flushing))
}

/// How fast a node sends while it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentRate {
    /// The node that they went to; `None`: to all together.
    pub(crate) to: Option<u32>,
    /// Bytes a second.
    pub(crate) bytes_per_second: u64,
    /// No chunk has been sent wholly: it is not more than this.
    pub(crate) is_at_most: bool,
}

/// A chunk that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkWait {
    /// The node that it was asked of.
    pub(crate) of: u32,
    /// Which chunk.
    pub(crate) chunk: u32,
    /// It was taken back, and the other node has not said that it drops it.
    pub(crate) is_taken_back: bool,
}

/// A control message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CastMessage {
    /// Source to node, first of all.
    Begin(Box<CastBegin>),
    /// Node to source: it can receive.
    Ready,
    /// Node to source: it takes no part any more.
    Failed {
        /// Why, for people.
        why: String,
    },
    /// Source to node: a signed run of chunk hashes.
    Run(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Source to node: go on from this situation, when all its parts have come.
    Plan(PlanPart),
    /// Source to node: say what you hold.
    Report {
        /// For which plan.
        version: u32,
    },
    /// Node to source: its report. Node to node, when the source has left: what it holds.
    Held(Box<NodeReport>),
    /// Node to source: this node's connection to another relay has ended or cannot be made, or the
    /// other one sent what the source has not signed.
    Lost {
        /// Which relay.
        node: u32,
    },
    /// Relay to relay, first of all.
    Join {
        /// Which cast.
        cast: CastId,
        /// The number of the relay that dials.
        node: u32,
        /// What the source gave it.
        token: JoinToken,
    },
    /// The answer to that.
    Joined,
    /// To a sender: what is wanted of it.
    Want {
        /// Which chunk.
        chunk: u32,
        /// Where; `None` if it is not wanted, or no longer.
        into: Option<WantedSlot>,
    },
    /// To a sender: what is wanted of it is waited for.
    Hurry {
        /// Which chunk.
        chunk: u32,
    },
    /// From a sender: a chunk that was no longer wanted was not sent and will not be.
    Dropped {
        /// The receiver's slot for it.
        slot: u32,
    },
    /// Source to node: the cast is over.
    Over,
    /// Node to source: all is published.
    Done {
        /// How many top-level names.
        names: u32,
        /// Chunks that it has read from other nodes by itself, because it came late.
        read_chunks: u64,
    },
    /// Source to a node that has come late, in place of a plan: it reads what it lacks from these
    /// nodes, which may hold some of it only.
    ReadFrom {
        /// Their numbers.
        holders: Vec<u32>,
    },
    /// Node to source: it cannot read from any of them, and wants to be in the plan.
    Feed,
    /// Late node to holder, first of all.
    JoinToRead {
        /// Which cast.
        cast: CastId,
        /// The number of the node that dials.
        node: u32,
        /// What the source gave it.
        token: JoinToken,
    },
    /// The answer to that.
    Readable {
        /// A bit for each chunk that the holder has, the first one lowest, in words of 64.
        bitmap: Exposed,
    },
    /// Late node to holder: which chunks it reads next. It reads none any more of those that it
    /// was lent before.
    Borrow {
        /// Chunks that the holder has.
        chunks: Vec<u32>,
    },
    /// The answer to that: those of them that can be read now, perhaps none.
    Lent {
        /// Chunks, and where each is.
        chunks: Vec<LentChunk>,
    },
    /// Node to source, as the answer to `Begin`: it takes part in this cast already, under another
    /// number.
    SameNode {
        /// Which.
        node: u32,
    },
}

/// A chunk that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LentChunk {
    /// Which chunk.
    pub(crate) chunk: u32,
    /// Its bytes.
    pub(crate) memory: Exposed,
}

/// The immediate data of a Write: which chunk it was, and which of the receiver's slots it is in.
pub(crate) fn immediate(chunk: u32, slot: u32) -> u64 {
    u64::from(chunk) << 32 | u64::from(slot)
}

/// Chunk and slot of immediate data.
#[expect(clippy::cast_possible_truncation, reason = "two halves")]
pub(crate) fn of_immediate(immediate: u64) -> (u32, u32) {
    ((immediate >> 32) as u32, immediate as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_has_both_numbers() {
        assert_eq!(of_immediate(immediate(7, u32::MAX)), (7, u32::MAX));
        assert_eq!(of_immediate(immediate(u32::MAX, 9)), (u32::MAX, 9));
    }

    #[test]
    fn a_message_comes_back() {
        let report = NodeReport { held: ChunkSet::below(70), ..NodeReport::default() };
        let bytes = PROTOCOL.encode(&CastMessage::Held(Box::new(report.clone())));
        match PROTOCOL.decode(&bytes) {
            Ok(CastMessage::Held(held)) => assert_eq!(*held, report),
            other => panic!("{other:?}"),
        }
    }
}
