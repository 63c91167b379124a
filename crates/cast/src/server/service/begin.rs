//! A source begins a cast, or takes up one that goes on without a source.

use super::{CastService, LeavingCast, PeerPart};
use crate::member::{CastHub, SessionId, send};
use crate::protocol::{CastBegin, CastMessage, JoinToken};
use crate::server::room::SessionRoom;
use crate::server::session::CastSession;
use crate::server::source_fault::SourceFault;
use crate::sign::CastHeader;
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_secure::NodeId;

/// Casts at a time.
const CASTS_MAX: usize = 64;
/// Casts of which the number is kept that this node has in them, though they have ended.
const NUMBERS_MAX: usize = 2 * CASTS_MAX;

/// Which node this one is in a cast.
#[derive(Debug)]
pub(super) struct OwnNumber {
    /// Whose cast.
    source: NodeId,
    /// No two casts have the same.
    token: JoinToken,
    node: u32,
}

impl CastService {
    /// A source begins a cast.
    pub(super) fn begin(
        &mut self,
        hub: &mut CastHub,
        (peer, identity): (PeerId, NodeId),
        begin: CastBegin,
    ) -> Result<(), ServiceError> {
        let is_there =
            |left: &LeavingCast| left.files.strong_count() > 0 || left.tasks.strong_count() > 0;
        self.leaving.retain(is_there);
        if self.sessions.len() + self.leaving.len() >= CASTS_MAX {
            let why = format!(
                "it takes part in {CASTS_MAX} casts already, {} of which have ended and wait for a \
                 disk",
                self.leaving.len()
            );
            send(hub, peer, &CastMessage::Failed { why });
            return Ok(());
        }
        if let Some(node) = self.other_number(identity, &begin) {
            send(hub, peer, &CastMessage::SameNode { node });
            return Ok(());
        }
        if let Some(outcome) = self.take_up(hub, (peer, identity), &begin) {
            return outcome;
        }
        let header = CastHeader::verify(&begin.header, &begin.key);
        if header.is_ok_and(|header| self.of_cast(header.cast).is_some()) {
            return Err("it begins a cast that is under way here".into());
        }
        let own = self.sessions.values().filter(|known| known.identity == identity);
        if let Err(why) = self.allowed.policy.admit_cast(own.count()) {
            send(hub, peer, &CastMessage::Failed { why });
            return Ok(());
        }
        let used: u64 = self.sessions.values().map(|session| session.window).sum();
        let memory = self.memory.saturating_sub(used);
        let of_place = self.leaving.iter().filter(|left| left.destination == begin.destination);
        let leaving = of_place.map(|left| left.files.clone()).collect();
        let room = SessionRoom { memory, leaving };
        self.begun += 1;
        let id = SessionId(self.begun);
        let begun = CastSession::new(id, begin, (peer, identity), &self.allowed, &self.reach, room);
        let session = match begun {
            Err(fault @ SourceFault::Memory { .. }) => {
                send(hub, peer, &CastMessage::Failed { why: fault.to_string() });
                return Ok(());
            }
            begun => begun?,
        };
        self.sessions.insert(id, session);
        self.status.casts += 1;
        self.set_part(peer, PeerPart::Source(id));
        Ok(())
    }

    /// The number that this node has in the cast already, if it is another one: two names of the
    /// source's list lead here. Keeps the first.
    fn other_number(&mut self, source: NodeId, begin: &CastBegin) -> Option<u32> {
        let is_it = |known: &&OwnNumber| known.source == source && known.token == begin.token;
        if let Some(known) = self.numbers.iter().find(is_it) {
            return Some(known.node).filter(|node| *node != begin.you);
        }
        if self.numbers.len() >= NUMBERS_MAX {
            self.numbers.pop_front();
        }
        let (token, node) = (begin.token.clone(), begin.you);
        self.numbers.push_back(OwnNumber { source, token, node });
        None
    }

    /// A source begins what is under way here. The same cast goes on with this connection: what was
    /// left of the former one has not shown its end yet, or the source had left. Another cast for
    /// the same place, whose source has left, makes room.
    fn take_up(
        &mut self,
        hub: &mut CastHub,
        (peer, identity): (PeerId, NodeId),
        begin: &CastBegin,
    ) -> Option<Result<(), ServiceError>> {
        let is_its = |session: &CastSession| {
            let is_same_place = session.begin.destination == begin.destination;
            let goes_on = session.is_of(begin) && !session.is_deceived;
            session.identity == identity && (goes_on || session.is_orphan() && is_same_place)
        };
        let left = self.sessions.iter().filter(|(_, session)| is_its(session));
        let left: Vec<SessionId> = left.map(|(id, _)| *id).collect();
        for id in left {
            let session = self.sessions.get_mut(&id).filter(|session| session.is_of(begin));
            if let Some(session) = session {
                let former = session.source();
                let adopted = session.adopt(hub, peer);
                self.ends.push((former, "its source has another connection".into()));
                self.set_part(peer, PeerPart::Source(id));
                self.check(hub, id, adopted);
                self.waker.wake();
                return Some(Ok(()));
            }
            drop(self.end_session(id, "its source has begun anew"));
        }
        None
    }
}
