//! One node's relay over connections: it does what the relay says, and tells it what peers do.
//!
//! Knows the source and other nodes by their numbers alone. A peer may write into a slot only from
//! the time that the slot is asked of it until its chunk has come. Files are read and written by
//! threads. Who may be a peer, and what happens when one is lost, the owner decides.
//!
//! Modules: `perform` (what the relay wants done), `work` (what threads do), `claims` (what may be
//! here already), `reach` (dialling), `plan_parts` (plans as messages), `report` (what it says of
//! itself), `limit` (how fast it sends), `late` (nodes that come late).

mod claims;
mod late;
mod limit;
mod perform;
mod plan_parts;
mod reach;
mod report;
mod work;

pub(crate) use plan_parts::{PlanPartFault, PlanParts};
pub use reach::DialNode;
pub(crate) use reach::NodeReach;
pub(crate) use work::{
    CastWork, ChunkStore, KeepFault, LinkPurpose, SessionId, WorkDone, WorkThreads,
};

use crate::protocol::{CastMessage, NodeReport, PROTOCOL, SLOTS_MAX, WantedSlot};
use crate::relay::{Action, ChunkWant, DemandFrom, Relay, RelayFault};
use crate::schedule::{ChunkSet, Schedule};
use crate::sign::{StreamShape, VerifiedMemory};
use claims::ClaimChecks;
use limit::SendLimit;
use outboard_cluster::hub::{Exposed, Hub, PeerId};
use outboard_verbs::SharedRegion;
pub(crate) use report::{MemberProgress, SendReach, short};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a node's window, unless its administrator allows less.
pub(crate) const WINDOW_BYTES: u64 = 32 << 20;
/// Slots of a window, at most.
pub(crate) const WINDOW_SLOTS_MAX: u64 = 128;
/// Slots of a window, at least: fewer are no pipeline.
pub(crate) const WINDOW_SLOTS_MIN: u64 = 4;

/// What tells a member's Writes apart: the session, the receiver and the own slot.
#[derive(Clone, Copy, Debug)]
pub struct CastTag {
    pub(crate) session: SessionId,
    pub(crate) to: u32,
    pub(crate) slot: u32,
}

/// A hub of casts.
pub(crate) type CastHub = Hub<CastTag>;

/// What a peer did that no peer of this program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemberFault {
    #[error(transparent)]
    Relay(#[from] RelayFault),
    #[error("it wants a chunk in slot {slot}: {SLOTS_MAX} are possible")]
    Slot { slot: u32 },
    #[error("it wants a chunk of {expected} bytes in memory of {found}")]
    Memory { found: u64, expected: u64 },
}

/// What this machine cannot do: the node takes no part any more. For people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MemberError(pub(crate) String);

/// What a member is made from.
pub(crate) struct MemberSetup {
    pub(crate) session: SessionId,
    pub(crate) node: u32,
    pub(crate) shape: StreamShape,
    /// Bytes of its window, about.
    pub(crate) window: u64,
    /// Bytes a second that it sends, at most.
    pub(crate) rate: Option<NonZeroU64>,
    pub(crate) store: Arc<dyn ChunkStore>,
    pub(crate) threads: WorkThreads,
}

/// See the [module](self).
pub(crate) struct CastMember {
    setup: MemberSetup,
    relay: Relay,
    window: SharedRegion,
    /// The nodes whose connections are up.
    links: BTreeMap<u32, PeerId>,
    /// Sent when all has been done, so that they wake each peer once.
    messages: BTreeMap<PeerId, Vec<Vec<u8>>>,
    /// For nodes whose connections are not up yet.
    untold: BTreeMap<u32, Vec<Action>>,
    /// By own slot, to which peer it is exposed.
    exposed: BTreeMap<u32, (PeerId, Exposed)>,
    /// By node and its slot, where to write.
    targets: BTreeMap<(u32, u32), Exposed>,
    /// By own slot, which node wrote the chunk that is checked.
    senders: BTreeMap<u32, u32>,
    /// Chunks and slots that cannot be checked before their run comes.
    unsigned: Vec<(u32, u32)>,
    progress: MemberProgress,
    checks: ClaimChecks,
    limit: SendLimit,
    /// Chunks that it has read from others' memory.
    read_chunks: u64,
    /// When to look for what threads have kept.
    look_at: Option<Instant>,
    /// Chunks that were checked, with their slots, and are written when peers have been served.
    unwritten: Vec<((u32, u32), VerifiedMemory)>,
}

impl CastMember {
    pub(crate) fn new(setup: MemberSetup, schedule: &Arc<Schedule>) -> Result<Self, MemberError> {
        let len = u64::from(setup.shape.chunk_len().bytes());
        let slots = (setup.window / len).clamp(WINDOW_SLOTS_MIN, WINDOW_SLOTS_MAX);
        let slots = slots.min(setup.store.slots_max());
        let bytes = usize::try_from(slots * len).unwrap_or(usize::MAX);
        let window = SharedRegion::zeroed_in_large_pages(bytes);
        let window = window.map_err(|error| MemberError(format!("no memory: {error}")))?;
        let claimed = setup.store.take_claims().unwrap_or_default();
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let relay = Relay::claiming(setup.node, schedule, slots, claimed);
        let limit = SendLimit::new(setup.rate);
        Ok(Self {
            setup,
            relay,
            window,
            links: BTreeMap::new(),
            messages: BTreeMap::new(),
            untold: BTreeMap::new(),
            exposed: BTreeMap::new(),
            targets: BTreeMap::new(),
            senders: BTreeMap::new(),
            unsigned: Vec::new(),
            progress: MemberProgress::default(),
            checks: ClaimChecks::default(),
            limit,
            read_chunks: 0,
            look_at: None,
            unwritten: Vec::new(),
        })
    }

    pub(crate) fn relay(&self) -> &Relay {
        &self.relay
    }

    pub(crate) fn links(&self) -> &BTreeMap<u32, PeerId> {
        &self.links
    }

    /// A node's connection is up.
    pub(crate) fn link(&mut self, hub: &mut CastHub, node: u32, peer: PeerId) -> MemberResult {
        self.links.insert(node, peer);
        self.relay.back(node);
        let untold = self.untold.remove(&node).unwrap_or_default();
        untold.into_iter().try_for_each(|action| self.perform(hub, action))?;
        self.act(hub)
    }

    /// A node's connection is over, or cannot be made.
    pub(crate) fn lost(&mut self, hub: &mut CastHub, node: u32) -> MemberResult {
        if let Some(peer) = self.links.remove(&node) {
            // Its connection may end a little later: what it could write to is given to others.
            for (_, (_, memory)) in self.exposed.extract_if(.., |_, (to, _)| *to == peer) {
                hub.withdraw(peer, memory);
            }
        }
        self.progress.lost(Instant::now(), node);
        self.untold.remove(&node);
        self.limit.forget(node);
        self.targets.retain(|(of, _), _| *of != node);
        self.relay.lost(node);
        self.act(hub)
    }

    /// Goes on by another schedule.
    pub(crate) fn replan(&mut self, hub: &mut CastHub, schedule: &Arc<Schedule>) -> MemberResult {
        self.relay.replan(schedule);
        self.act(hub)
    }

    /// Goes on without a schedule.
    pub(crate) fn leave_schedule(&mut self, hub: &mut CastHub) -> MemberResult {
        self.relay.leave_schedule();
        self.act(hub)
    }

    /// A peer says what it holds: chunks of this cast.
    pub(crate) fn peer_holds(
        &mut self,
        hub: &mut CastHub,
        node: u32,
        holds: ChunkSet,
    ) -> MemberResult {
        self.relay.peer_holds(node, holds);
        self.act(hub)
    }

    /// A peer says what it wants.
    pub(crate) fn wanted(
        &mut self,
        by: u32,
        chunk: u32,
        into: Option<WantedSlot>,
    ) -> Result<(), MemberFault> {
        let Some(WantedSlot { slot, memory }) = into else {
            return Ok(self.relay.wanted(by, chunk, ChunkWant::Nothing)?);
        };
        if slot >= SLOTS_MAX {
            return Err(MemberFault::Slot { slot });
        }
        let (found, expected) = (memory.len(), self.setup.shape.len_of(chunk) as u64);
        if found < expected {
            return Err(MemberFault::Memory { found, expected });
        }
        self.targets.insert((by, slot), memory);
        Ok(self.relay.wanted(by, chunk, ChunkWant::Into { slot })?)
    }

    /// A peer waits for what it wants.
    pub(crate) fn hurried(&mut self, by: u32, chunk: u32) -> Result<(), MemberFault> {
        Ok(self.relay.hurried(by, chunk)?)
    }

    /// A program at this node waits for chunks.
    pub(crate) fn demand(
        &mut self,
        hub: &mut CastHub,
        chunks: &[u32],
        from: DemandFrom,
    ) -> MemberResult {
        chunks.iter().for_each(|chunk| self.relay.demand(*chunk, from));
        self.act(hub)
    }

    /// A peer has written a chunk.
    pub(crate) fn arrived(
        &mut self,
        hub: &mut CastHub,
        from: u32,
        (chunk, slot): (u32, u32),
    ) -> Result<(), MemberFault> {
        self.relay.arrived(from, chunk, slot)?;
        self.progress.arrived(Instant::now(), from);
        self.senders.insert(slot, from);
        self.withdraw(hub, slot);
        Ok(())
    }

    /// A peer drops what was taken back.
    pub(crate) fn dropped(
        &mut self,
        hub: &mut CastHub,
        by: u32,
        slot: u32,
    ) -> Result<(), MemberFault> {
        self.relay.dropped(by, slot)?;
        self.withdraw(hub, slot);
        Ok(())
    }

    /// The own memory that was written to a peer may change again.
    pub(crate) fn written(&mut self, to: u32, slot: u32) {
        self.progress.sent(Instant::now(), to, u64::from(self.setup.shape.chunk_len().bytes()));
        self.relay.sent(to, slot);
    }

    /// What has come and gone.
    pub(crate) fn progress(&self) -> &MemberProgress {
        &self.progress
    }

    /// How this node is doing.
    pub(crate) fn report(&mut self, version: u32) -> NodeReport {
        self.progress.report(Instant::now(), version, &self.relay)
    }

    /// A run has come: what waited for it is checked.
    pub(crate) fn run_came(&mut self) -> MemberResult {
        let waiting = std::mem::take(&mut self.unsigned);
        waiting.into_iter().try_for_each(|(chunk, slot)| self.keep(chunk, slot))
    }

    /// A chunk is what the source signed, and is being written.
    pub(crate) fn verified(&mut self, (chunk, slot): (u32, u32)) {
        self.progress.verified((chunk, slot));
        self.relay.verified(chunk, slot);
    }

    /// A chunk was checked and written. Returns the node that sent it, if that is not what the
    /// source signed.
    pub(crate) fn kept(
        &mut self,
        (chunk, slot): (u32, u32),
        outcome: Result<(), KeepFault>,
    ) -> Result<Option<u32>, MemberError> {
        self.progress.kept((chunk, slot));
        match outcome {
            Ok(()) => {
                self.relay.kept(chunk, slot, true);
                self.note_claims();
            }
            // The run may have come while the thread looked.
            Err(KeepFault::NoRunYet) if self.setup.store.is_signed(chunk) => {
                self.keep(chunk, slot)?;
            }
            Err(KeepFault::NoRunYet) => self.unsigned.push((chunk, slot)),
            Err(KeepFault::Ended) => {}
            Err(KeepFault::Forged(why)) => {
                tracing::warn!(chunk, why, "chunk refused");
                self.relay.kept(chunk, slot, false);
                return Ok(self.senders.get(&slot).copied());
            }
            Err(KeepFault::Local(why)) => return Err(MemberError(why)),
        }
        Ok(None)
    }

    /// A chunk was read.
    pub(crate) fn loaded(
        &mut self,
        (chunk, slot): (u32, u32),
        outcome: Result<(), String>,
    ) -> MemberResult {
        outcome.map_err(MemberError)?;
        self.relay.loaded(chunk, slot);
        Ok(())
    }

    /// All that threads had done at this time was taken.
    pub(crate) fn has_looked(&mut self, at: Instant) {
        self.look_at = self.look_at.filter(|due| *due > at);
    }

    /// Does what the relay wants done.
    pub(crate) fn act(&mut self, hub: &mut CastHub) -> MemberResult {
        self.check_claims()?;
        // What must wait is tried again in the next turn.
        let mut waiting = usize::MAX;
        loop {
            while let Some(action) = self.limit.next(Instant::now()) {
                self.send(hub, action)?;
            }
            while let Some(action) = self.relay.next_action() {
                self.perform(hub, action)?;
            }
            for (peer, messages) in std::mem::take(&mut self.messages) {
                if let Err(error) = hub.send_all(peer, &messages) {
                    tracing::debug!(%error, "not sent");
                }
            }
            if self.unwritten.is_empty() || self.unwritten.len() == waiting {
                return Ok(());
            }
            self.write()?;
            waiting = self.unwritten.len();
        }
    }

    /// When [`Self::act`] has something to do again, if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (sends, look) = (self.limit.deadline(), self.look_at);
        sends.into_iter().chain(look).min()
    }
}

pub(crate) type MemberResult = Result<(), MemberError>;

fn of_machine(error: impl std::fmt::Display) -> MemberError {
    MemberError(error.to_string())
}

/// Sends a message. A connection that fails shows as the end of its peer.
pub(crate) fn send(hub: &mut CastHub, peer: PeerId, message: &CastMessage) {
    if let Err(error) = hub.send(peer, &PROTOCOL.encode(message)) {
        tracing::debug!(%error, "not sent");
    }
}
