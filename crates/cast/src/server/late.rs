//! A late node's side of a late join: it dials holders, and reads what it lacks out of their
//! memory.
//!
//! It has a connection of its own with each: if a holder revokes what is being read, that
//! connection ends, and no other. No plan contains this node. When the source puts it
//! into one, or everything is here, it leaves the holders.

use super::session::CastSession;
use super::source_fault::SourceFault;
use crate::late::{LateReader, ReadAction, ReadFault, ReadOutcome};
use crate::member::{
    CastHub, CastTag, KeepFault, LinkPurpose, MemberError, MemberResult, WorkDone, send,
};
use crate::protocol::CastMessage;
use crate::schedule::{NodeRole, Schedule, ScheduleKind, Situation};
use outboard_cluster::hub::{Exposed, PeerId};
use outboard_cluster::service::ServiceError;
use outboard_verbs::Remote;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers that are kept for the next chunks.
const SPARE_MAX: usize = 16;
/// What a tag has in place of a chunk, if the bitmap is read.
const BITMAP: u32 = u32::MAX;

/// See the [module](self).
pub(super) struct LateJoin {
    reader: LateReader,
    /// Holders that are connected.
    peers: BTreeMap<u32, PeerId>,
    spare: Vec<Vec<u8>>,
}

impl CastSession {
    /// The source says that this node came late, and names those to read from.
    pub(super) fn read_from(
        &mut self,
        hub: &mut CastHub,
        holders: &[u32],
    ) -> Result<(), SourceFault> {
        let (you, nodes) = (self.begin.you, self.begin.nodes.len());
        if you as usize >= nodes {
            return Err(SourceFault::Nodes { you, nodes });
        }
        let is_node = |node: &&u32| **node != you && **node > 0 && (**node as usize) < nodes;
        let holders: Vec<u32> = holders.iter().filter(is_node).copied().collect();
        if self.member.is_none() {
            self.start(hub, &source_alone(nodes, self.chunks())?)?;
            self.member.as_mut().map_or(Ok(()), |member| member.leave_schedule(hub))?;
        }
        let (shape, now) = (self.shape(), Instant::now());
        let late = self.late.get_or_insert_with(|| LateJoin {
            reader: LateReader::new(you, shape),
            peers: BTreeMap::new(),
            spare: Vec::new(),
        });
        late.reader.name(&holders, now);
        Ok(())
    }

    /// Holders that this node is connected with.
    pub(super) fn holders(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.late.iter().flat_map(|late| late.peers.values().copied())
    }

    /// When there is something to read, or a holder has taken too long.
    pub(super) fn read_deadline(&self) -> Option<Instant> {
        self.late.as_ref().and_then(|late| late.reader.deadline())
    }

    pub(super) fn reads_held_up(&mut self, now: Instant, late: Duration) {
        self.late.iter_mut().for_each(|join| join.reader.held_up(now, late));
    }

    /// This node reads no more by itself.
    pub(super) fn end_reading(&mut self, why: &'static str) {
        let Some(late) = self.late.take() else { return };
        let pending = late.reader.reading();
        if let Some(member) = &mut self.member {
            pending.into_iter().for_each(|chunk| member.read_ended(chunk, None));
        }
        self.ends.extend(late.peers.into_values().map(|peer| (peer, why)));
    }

    /// A holder that was dialled is connected.
    pub(super) fn reached_holder(
        &mut self,
        hub: &mut CastHub,
        node: u32,
        peer: PeerId,
    ) -> Result<(), ServiceError> {
        let late = self.late.as_mut().filter(|late| late.reader.awaits(node));
        let late = late.ok_or("nothing is to be read from it any more")?;
        late.peers.insert(node, peer);
        let (cast, node, token) = (self.cast, self.begin.you, self.begin.token.clone());
        send(hub, peer, &CastMessage::JoinToRead { cast, node, token });
        Ok(())
    }

    /// A holder says something.
    pub(super) fn holder_says(
        &mut self,
        node: u32,
        message: CastMessage,
    ) -> Result<(), ServiceError> {
        let (Some(late), now) = (&mut self.late, Instant::now()) else { return Ok(()) };
        let said: Result<(), ReadFault> = match message {
            CastMessage::Readable { bitmap } => late.reader.opened(node, bitmap, now),
            CastMessage::Lent { chunks } => late.reader.lent(node, chunks, now),
            message => {
                late.reader.spoil(node);
                return Err(super::service::unexpected(&message));
            }
        };
        if said.is_err() {
            late.reader.spoil(node);
        }
        Ok(said?)
    }

    /// Bytes of a holder's memory were read.
    pub(super) fn was_read(&mut self, node: u32, what: u32, bytes: Vec<u8>) -> MemberResult {
        let (Some(late), now) = (&mut self.late, Instant::now()) else { return Ok(()) };
        if what == BITMAP {
            late.reader.bitmap(node, &bytes, now);
        } else if late.reader.read(node, what, now)
            && let Some(store) = self.store.clone()
        {
            return self.reach.threads.run(self.id, move || {
                let outcome = store.keep_bytes(what, &bytes);
                WorkDone::ReadKept { from: node, chunk: what, outcome, bytes }
            });
        }
        Ok(())
    }

    /// A chunk that was read was checked and written, or refused.
    pub(super) fn read_kept(
        &mut self,
        (node, chunk): (u32, u32),
        outcome: &Result<(), KeepFault>,
        bytes: Vec<u8>,
    ) -> MemberResult {
        if let Err(KeepFault::Local(why)) = outcome {
            return Err(MemberError(why.clone()));
        }
        if let Some(member) = &mut self.member {
            member.read_ended(chunk, Some(outcome));
        }
        let Some(late) = &mut self.late else { return Ok(()) };
        let known = match outcome {
            Ok(()) => ReadOutcome::Kept,
            Err(KeepFault::Forged(why)) => {
                tracing::warn!(chunk, why, host = self.begin.nodes[node as usize], "a bad chunk");
                ReadOutcome::Bad
            }
            Err(_) => ReadOutcome::Unknown,
        };
        late.reader.kept(node, chunk, known, Instant::now());
        if late.spare.len() < SPARE_MAX {
            late.spare.push(bytes);
        }
        Ok(())
    }

    /// The connection with a holder is over, or cannot be made.
    pub(super) fn holder_gone(&mut self, node: u32, peer: Option<PeerId>) {
        let Some(late) = &mut self.late else { return };
        if peer.is_some() && late.peers.get(&node).copied() != peer {
            return;
        }
        late.peers.remove(&node);
        let reading = late.reader.lost(node, Instant::now());
        if let Some(member) = &mut self.member {
            reading.into_iter().for_each(|chunk| member.read_ended(chunk, None));
        }
    }

    /// Programs at this node wait for chunks.
    pub(super) fn demand_reads(&mut self, chunks: &[u32]) {
        self.late.iter_mut().for_each(|late| late.reader.demand(chunks));
    }

    /// Reads what can be read.
    pub(super) fn read_on(&mut self, hub: &mut CastHub, now: Instant) {
        let (Some(late), Some(member)) = (&mut self.late, &self.member) else { return };
        if member.relay().is_complete() {
            return self.end_reading("this node has everything");
        }
        late.reader.go_on(now, &|chunk| member.need(chunk));
        while let Some(action) = self.late.as_mut().and_then(|late| late.reader.next_action()) {
            self.read_action(hub, action);
        }
    }

    fn read_action(&mut self, hub: &mut CastHub, action: ReadAction) {
        let Some(late) = &mut self.late else { return };
        let tag = |to, slot| CastTag { session: self.id, to, slot };
        let done = match action {
            ReadAction::Dial { node } => {
                let host = &self.begin.nodes[node as usize];
                self.reach.begin(hub, self.id, (node, LinkPurpose::Read), host);
                Ok(())
            }
            ReadAction::Feed => {
                tracing::warn!("no node can be read from: the source is asked to send");
                send(hub, self.source(), &CastMessage::Feed);
                Ok(())
            }
            ReadAction::End { node, why } => {
                self.ends.extend(late.peers.get(&node).map(|peer| (*peer, why)));
                Ok(())
            }
            ReadAction::Look { node, bitmap } => match (late.peers.get(&node), whole(bitmap)) {
                (Some(&peer), Some((from, len))) => hub.read(peer, from, len, tag(node, BITMAP)),
                _ => Ok(()),
            },
            ReadAction::Borrow { node, chunks } => {
                if let Some(&peer) = late.peers.get(&node) {
                    send(hub, peer, &CastMessage::Borrow { chunks });
                }
                Ok(())
            }
            ReadAction::Read { node, lent } => match (late.peers.get(&node), whole(lent.memory)) {
                (Some(&peer), Some((from, len))) => {
                    let mut into = late.spare.pop().unwrap_or_default();
                    into.resize(len, 0);
                    self.member.iter_mut().for_each(|member| member.reads(lent.chunk));
                    hub.read_into(peer, from, into, tag(node, lent.chunk))
                }
                _ => Ok(()),
            },
        };
        if let Err(error) = done {
            // Its connection has ended; what was to be read comes from another.
            tracing::debug!(%error, "not read");
        }
    }
}

/// Where all of a holder's memory is, and how many bytes it has.
fn whole(memory: Exposed) -> Option<(Remote, usize)> {
    Some((memory.range(0, memory.len())?, usize::try_from(memory.len()).ok()?))
}

/// The schedule of a cast in which only the source takes part.
fn source_alone(nodes: usize, chunks: u32) -> Result<Arc<Schedule>, SourceFault> {
    let mut situation = Situation::fresh(u32::try_from(nodes).unwrap_or(u32::MAX), chunks);
    situation.nodes.iter_mut().skip(1).for_each(|node| node.role = NodeRole::Dead);
    Ok(Schedule::new(ScheduleKind::Star, situation)?)
}
