//! The holder's side of a late join: a node that came late reads this one's bitmap, and the chunks
//! that it borrows.
//!
//! What is read is served by the connection's engine; this has chunks mapped by a thread, exposes
//! them to one peer, and revokes that again.

use super::session::CastSession;
use crate::late::{LendStep, LenderFault};
use crate::member::{CastHub, MemberError, MemberResult, WorkDone, send};
use crate::protocol::{CastMessage, JoinToken, LentChunk};
use crate::receive::LentMemory;
use outboard_cluster::hub::{HubError, PeerId};
use outboard_cluster::service::ServiceError;
use outboard_verbs::Access;
use std::sync::Arc;
use std::time::Instant;

impl CastSession {
    /// A node wants to read from this one.
    pub(super) fn admit_reader(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        (node, token): (u32, &JoinToken),
    ) -> Result<(), ServiceError> {
        let is_node = node > 0 && (node as usize) < self.begin.nodes.len();
        if !self.is_known(token) || !is_node || node == self.begin.you {
            return Err("it joins a cast in which it has no part, to read".into());
        }
        let store = self.store.as_ref().filter(|_| self.member.is_some());
        let store = store.ok_or("it comes to read before this node has begun")?;
        self.lender.admits(node)?;
        let memory = store.bitmap();
        let slice = memory.slice(0..memory.len())?;
        let bitmap = hub.expose(peer, slice, Access::REMOTE_READ)?;
        self.lender.admit(peer, node, Instant::now());
        send(hub, peer, &CastMessage::Readable { bitmap });
        Ok(())
    }

    /// It wants to read these chunks next.
    pub(super) fn borrow(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        chunks: Vec<u32>,
    ) -> Result<(), LenderFault> {
        let shape = self.shape();
        let of = (shape.chunks(), shape.chunk_len().bytes());
        let returned = self.lender.borrow(peer, chunks, of, Instant::now())?;
        returned.into_iter().for_each(|memory| hub.withdraw(peer, memory));
        Ok(())
    }

    /// A node that read from this one has left; its connection's end has revoked all.
    pub(super) fn reader_gone(&mut self, peer: PeerId) {
        self.lender.forget(peer);
    }

    /// Does what can be done for the nodes that read from this one.
    pub(super) fn lend(&mut self, hub: &mut CastHub, now: Instant) -> MemberResult {
        for peer in self.lender.silent(now) {
            self.lender.forget(peer);
            self.ends.push((peer, "it reads nothing of what it may read here"));
        }
        let chunk_len = self.shape().chunk_len().bytes();
        let (Some(member), Some(store)) = (&self.member, &self.store) else { return Ok(()) };
        let sent = member.progress().sent_chunks();
        while let Some(step) = self.lender.next(member.room_to_lend(), sent, chunk_len) {
            match step {
                LendStep::Refuse { reader } => {
                    send(hub, reader, &CastMessage::Lent { chunks: Vec::new() });
                }
                LendStep::Prepare { reader, chunks, room } => {
                    let store = Arc::clone(store);
                    self.reach.threads.run(self.id, move || WorkDone::Lent {
                        reader,
                        chunks: store.lend(&chunks, room),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Chunks were prepared for a reader.
    pub(super) fn lent(
        &mut self,
        hub: &mut CastHub,
        reader: PeerId,
        prepared: Vec<(u32, LentMemory)>,
    ) -> MemberResult {
        if !self.lender.prepared(reader) {
            return Ok(());
        }
        let mut chunks = Vec::new();
        for (chunk, LentMemory { slice, copied_bytes }) in prepared {
            let bytes = slice.len() as u64;
            let memory = match hub.expose(reader, slice, Access::REMOTE_READ) {
                Ok(memory) => memory,
                // Its end follows.
                Err(HubError::NoPeer) => return Ok(()),
                Err(error) => return Err(MemberError(error.to_string())),
            };
            self.lender.lend(reader, memory, copied_bytes);
            self.member.iter_mut().for_each(|member| member.note_lent(bytes));
            chunks.push(LentChunk { chunk, memory });
        }
        send(hub, reader, &CastMessage::Lent { chunks });
        Ok(())
    }
}
