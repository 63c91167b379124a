//! One connection of a client: what it has attached, requests of it that wait for their turn, and
//! answers that leave together.

use crate::protocol::{ATTACHED_MAX, ActiveAnswer, BATCH_MAX, PROTOCOL, UNDER_WAY_MAX};
use outboard_cluster::hub::Exposed;
use outboard_offcode::store::TenantId;
use outboard_secure::NodeId;
use std::collections::{HashSet, VecDeque};

/// Bytes of requests that may wait for their turn. A client has fewer under way
/// ([`UNDER_WAY_MAX`]).
const WAITING_MAX: usize = 2 * UNDER_WAY_MAX;

/// A region of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRegion {
    /// Which of the service's.
    pub(super) index: usize,
    pub(super) exposed: Exposed,
    pub(super) head: Exposed,
    pub(super) may_write: bool,
}

/// A batch of requests, of which some are done.
#[derive(Debug)]
pub(super) struct WaitingBatch {
    pub(super) bytes: Vec<u8>,
    /// Where the next request begins.
    pub(super) at: usize,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct ActiveSession {
    pub(super) node: NodeId,
    /// The client, bound to its identity, once it has said who it is.
    pub(super) client: Option<[u8; 16]>,
    regions: Vec<Option<SessionRegion>>,
    pub(super) waiting: VecDeque<WaitingBatch>,
    waiting_len: usize,
    /// It is among those whose turn comes.
    pub(super) has_turn: bool,
    /// It has been replaced, or has broken the rules: nothing of it is handled any more.
    pub(super) is_over: bool,
    /// Answers that have not been sent.
    pub(super) answers: Vec<u8>,
    /// Modules that are being read from its client's memory.
    pub(super) reading: usize,
    /// The tokens of executions on threads that it gets the answers of.
    pub(super) deferred: HashSet<u64>,
}

impl ActiveSession {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            client: None,
            regions: Vec::new(),
            waiting: VecDeque::new(),
            waiting_len: 0,
            has_turn: false,
            is_over: false,
            answers: Vec::new(),
            reading: 0,
            deferred: HashSet::new(),
        }
    }

    pub(super) fn region(&self, handle: u32) -> Option<SessionRegion> {
        self.regions.get(handle as usize).copied().flatten()
    }

    /// Gives a region a handle; the region that had it. `Err`: there is no such handle.
    pub(super) fn attach(
        &mut self,
        handle: u32,
        region: SessionRegion,
    ) -> Result<Option<SessionRegion>, ()> {
        if handle >= ATTACHED_MAX {
            return Err(());
        }
        let at = handle as usize;
        if self.regions.len() <= at {
            self.regions.resize(at + 1, None);
        }
        Ok(self.regions[at].replace(region))
    }

    pub(super) fn detach(&mut self, handle: u32) -> Option<SessionRegion> {
        self.regions.get_mut(handle as usize).and_then(Option::take)
    }

    /// Lets a batch wait behind the others; the error says that there is too much.
    pub(super) fn wait(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        if self.waiting_len + bytes.len() > WAITING_MAX {
            return Err(format!("{WAITING_MAX} bytes of its requests wait for their turn"));
        }
        self.waiting_len += bytes.len();
        // The version was looked at.
        self.waiting.push_back(WaitingBatch { bytes, at: 0 });
        Ok(())
    }

    /// The batch whose turn it is.
    pub(super) fn next_batch(&mut self) -> Option<WaitingBatch> {
        let batch = self.waiting.pop_front()?;
        self.waiting_len -= batch.bytes.len();
        Some(batch)
    }

    /// Puts a batch back of which not all is done.
    pub(super) fn put_back(&mut self, batch: WaitingBatch) {
        self.waiting_len += batch.bytes.len();
        self.waiting.push_front(batch);
    }

    /// Appends an answer. If it does not fit behind the others, they are returned, to be sent
    /// before.
    pub(super) fn answer(&mut self, answer: &ActiveAnswer<'_>) -> Option<Vec<u8>> {
        let old = self.answers.len();
        PROTOCOL.append(answer, &mut self.answers);
        if self.answers.len() <= BATCH_MAX || old == 0 {
            return None;
        }
        let mut next = self.answers[..1].to_vec();
        next.extend_from_slice(&self.answers[old..]);
        self.answers.truncate(old);
        Some(std::mem::replace(&mut self.answers, next))
    }
}

/// An identity as modules and the store know it: its bytes, and zeroes.
pub(super) fn tenant_of(node: NodeId) -> TenantId {
    let mut tenant = [0; 32];
    tenant[..NodeId::LEN].copy_from_slice(node.bytes());
    TenantId(tenant)
}

/// A client's number bound to its identity, so that no other identity finds its answers.
pub(super) fn bound(node: NodeId, client: [u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(node.bytes()).update(&client);
    let mut bound = [0; 16];
    hasher.finalize_xof().fill(&mut bound);
    bound
}
