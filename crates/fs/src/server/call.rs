//! A client's request while the service has it: what it is, and what it waits for.

use super::entries::EntryKind;
use super::group::RemovedGroup;
use super::leasing::LookWork;
use crate::plan::ChangePlan;
use crate::protocol::{FsBlocksRun, FsChangeArgs, FsExtent, FsGrant, FsInode, TouchedInodes};
use outboard_cluster::hub::PeerId;
use outboard_offcode::Outcome;
use outboard_offcode::executor::Request;
use outboard_secure::NodeId;

/// A request.
#[derive(Debug)]
pub(super) struct FsCall {
    pub(super) peer: PeerId,
    pub(super) kind: EntryKind,
    /// The request, while it is not being executed.
    pub(super) request: Option<Box<Request>>,
    pub(super) work: FsWork,
}

impl FsCall {
    /// Whether it needs its client's memory now.
    pub(super) fn is_fetching(&self) -> bool {
        matches!(&self.work, FsWork::Write(work) if matches!(work.stage, WriteStage::Fetching))
    }
}

/// What else it needs.
#[derive(Debug)]
pub(super) enum FsWork {
    /// Nothing: it is executed.
    None,
    /// It looks at what its client keeps.
    Look(LookWork),
    /// It changes what others may keep.
    Change(TouchedInodes),
    /// As well; its client is granted what it wants of the file.
    Create { touched: TouchedInodes, node: NodeId, want: u32 },
    /// What a tenant has and may have is added to its answer; 0: nobody's.
    Stats(u16),
    /// Bytes are read.
    Read(ReadWork),
    /// Bytes are written.
    Write(Box<WriteWork>),
    /// Changes are made one after the other.
    Batch(Box<BatchWork>),
    /// Files are looked through; this ends it.
    Scan,
    /// Its outcome waits until a commit is durable.
    Durable(Outcome),
    /// Its outcome waits until others keep no longer what it has changed.
    Recalling {
        outcome: Outcome,
        /// Then it waits until it is durable.
        is_synced: bool,
    },
}

/// A batch: what is still to be done, the last first, and what came of the rest.
#[derive(Debug, Default)]
pub(super) struct BatchWork {
    pub(super) flags: u32,
    /// Entries and arguments.
    pub(super) changes: Vec<(String, Vec<u8>)>,
    /// What the one that is executed changes.
    pub(super) touched: TouchedInodes,
    /// How many were begun.
    pub(super) place: u64,
    pub(super) result: Vec<u8>,
    /// The last commit of them.
    pub(super) seq: u64,
    /// Names that are being removed together.
    pub(super) group: RemovedGroup,
    /// The next change is executed by itself.
    pub(super) is_alone: bool,
}

/// A read: where it is, and how often it was begun.
#[derive(Debug)]
pub(super) struct ReadWork {
    pub(super) offset: u64,
    pub(super) len: usize,
    /// What its client is granted by it: it opens the file.
    pub(super) grant: Option<FsGrant>,
    /// The version of the record with whose extents the bytes are read, and the last commit then.
    pub(super) version: u64,
    pub(super) seq: u64,
    /// The answer, while it is asked whether it is right.
    pub(super) bytes: Vec<u8>,
    pub(super) tries: u32,
}

/// A write: what is to be changed, and how far it is.
#[derive(Debug)]
pub(super) struct WriteWork {
    pub(super) change: FsChangeArgs,
    pub(super) bytes: Vec<u8>,
    pub(super) stage: WriteStage,
    pub(super) tries: u32,
}

/// How far a write is.
#[derive(Debug)]
pub(super) enum WriteStage {
    /// Its bytes are being fetched from the client's memory.
    Fetching,
    /// The file is looked at: its record, or its blocks as well.
    Looking {
        /// The size, if it is known already.
        size: Option<u64>,
    },
    /// It waits for blocks.
    Waiting(ChangePlan),
    /// A thread writes.
    Writing(ChangePlan, Vec<FsBlocksRun>, Vec<FsExtent>),
    /// The module maps the blocks.
    Mapping(Vec<FsBlocksRun>),
}

/// What one of the service's own executions is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnWork {
    /// A look for a client's request.
    Look {
        /// The request's token.
        of: u64,
    },
    /// Whether what was read for a client's request is right.
    Verify {
        /// The request's token.
        of: u64,
    },
    /// A change of a client's batch.
    Batch {
        /// The batch's token.
        of: u64,
        /// It may take the last name of an inode.
        removes: bool,
    },
    /// A file system is made.
    Make,
    /// Who pays for something already, from a number on.
    Tenants {
        /// The first.
        first: u64,
    },
    /// Limits of an identity.
    Quota(NodeId),
    /// Blocks are reserved.
    Reserve,
    /// An inode that nobody has open any more is given up.
    Release(FsInode),
    /// What inodes without names have is given back.
    Reap,
    /// Inodes that were open when the service ended before.
    Orphans,
    /// Blocks that were reserved when the service ended before.
    Sweep,
}
