//! What a source can do wrong at a node; its session ends with that.

use super::check::CHUNK_LEN_MAX;
use crate::member::{MemberError, PlanPartFault};
use crate::protocol::NODES_MAX;
use crate::sign::SignError;

/// What a source did that no source of this program does, or that this node does not take.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceFault {
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("it begins a cast as node {you} of {nodes}; {NODES_MAX} are possible")]
    Nodes { you: u32, nodes: usize },
    #[error("it sends a cast of {chunks} chunks as if it had one")]
    NotOnly { chunks: u32 },
    #[error("it names a node {name:?}, which is not one host")]
    Name { name: String },
    #[error("it begins a cast with chunks of {len} bytes: {CHUNK_LEN_MAX} are possible")]
    ChunkLen { len: u32 },
    #[error("it sent a plan of {chunks} chunks and {nodes} nodes, which is not this cast's")]
    Plan { chunks: u32, nodes: usize },
    #[error("it sent a plan that cuts a connection of node {node} of {nodes}")]
    Cut { node: u32, nodes: usize },
    #[error(
        "{expected} bytes of memory are needed for this cast's chunks, and {found} are left here: \
         let other casts end, cast with shorter chunks, or raise memory in [cast]"
    )]
    Memory { found: u64, expected: u64 },
    #[error(transparent)]
    Parts(#[from] PlanPartFault),
    #[error("it sent a plan before this node was ready")]
    Early,
    #[error(transparent)]
    Schedule(#[from] crate::schedule::ScheduleError),
    #[error(transparent)]
    Machine(#[from] MemberError),
}
