//! A source begins a cast, or takes up one that goes on without a source.

use super::{CastService, PeerPart};
use crate::member::{CastHub, SessionId, send};
use crate::protocol::{CastBegin, CastMessage};
use crate::server::room::SessionRoom;
use crate::server::session::CastSession;
use crate::server::source_fault::SourceFault;
use crate::sign::CastHeader;
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_secure::NodeId;

/// Casts at a time.
const CASTS_MAX: usize = 64;
impl CastService {
    /// A source begins a cast.
    pub(super) fn begin(
        &mut self,
        hub: &mut CastHub,
        (peer, identity): (PeerId, NodeId),
        begin: CastBegin,
    ) -> Result<(), ServiceError> {
        if self.sessions.len() >= CASTS_MAX {
            let why = format!("it takes part in {CASTS_MAX} casts already");
            send(hub, peer, &CastMessage::Failed { why });
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
        self.leaving.retain(|(_, files)| files.strong_count() > 0);
        let same_place = self.leaving.iter().filter(|(place, _)| *place == begin.destination);
        let leaving = same_place.map(|(_, files)| files.clone()).collect();
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
