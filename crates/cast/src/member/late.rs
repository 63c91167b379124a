//! What a member has to do with nodes that come late: its own chunks, if it is one, and how busy it
//! is, if such a node reads from it.

use super::limit::Headroom;
use super::{CastMember, KeepFault};
use crate::late::{ChunkNeed, LendRoom};
use std::time::Instant;

impl CastMember {
    /// Whether a chunk is to be read from another node's memory.
    pub(crate) fn need(&self, chunk: u32) -> ChunkNeed {
        if self.relay.held().contains(chunk) {
            ChunkNeed::Held
        } else if self.relay.is_expected(chunk) || !self.setup.store.is_signed(chunk) {
            ChunkNeed::NotNow
        } else {
            ChunkNeed::Wanted
        }
    }

    /// A chunk is read.
    pub(crate) fn reads(&mut self, chunk: u32) {
        self.relay.reads(chunk);
    }

    /// It was checked and written, or does not come.
    pub(crate) fn read_ended(&mut self, chunk: u32, outcome: Option<&Result<(), KeepFault>>) {
        let is_here = matches!(outcome, Some(Ok(())));
        self.read_chunks += u64::from(is_here);
        self.relay.read_ended(chunk, is_here);
        self.note_claims();
    }

    /// Chunks that this node has read from others' memory.
    pub(crate) fn read_chunks(&self) -> u64 {
        self.read_chunks
    }

    /// What this node has to spare for those that read from it.
    pub(crate) fn room_to_lend(&self) -> LendRoom {
        match self.limit.headroom(Instant::now()) {
            Headroom::Waits => LendRoom::Owes,
            _ if !self.relay.owes().is_empty() => LendRoom::Owes,
            Headroom::Unlimited => LendRoom::Idle,
            Headroom::Free => LendRoom::Limited,
            Headroom::Spent => LendRoom::Spent,
        }
    }

    /// A peer reads a chunk from this node: that counts as sending it.
    pub(crate) fn note_lent(&mut self, bytes: u64) {
        self.limit.charge(Instant::now(), bytes);
    }
}
