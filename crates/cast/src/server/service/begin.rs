//! A source begins a cast, or takes up one that goes on without a source.

use super::{CastService, PeerPart};
use crate::member::{CastHub, send};
use crate::protocol::{CastBegin, CastMessage};
use crate::server::room::SessionRoom;
use crate::server::session::CastSession;
use crate::server::source_fault::SourceFault;
use crate::sign::CastId;
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
        let own = self.sessions.values().filter(|known| known.identity == identity);
        if let Err(why) = self.allowed.policy.admit_cast(own.count()) {
            send(hub, peer, &CastMessage::Failed { why });
            return Ok(());
        }
        let used: u64 = self.sessions.values().map(|session| session.window).sum();
        let memory = self.memory.saturating_sub(used);
        self.leaving.retain(|files| files.strong_count() > 0);
        let room = SessionRoom { memory, leaving: self.leaving.clone() };
        let begun = CastSession::new(begin, (peer, identity), &self.allowed, &self.reach, room);
        let session = match begun {
            Err(fault @ SourceFault::Memory { .. }) => {
                send(hub, peer, &CastMessage::Failed { why: fault.to_string() });
                return Ok(());
            }
            begun => begun?,
        };
        let cast = session.cast;
        if self.sessions.contains_key(&cast) {
            return Err("it begins a cast that is under way here".into());
        }
        self.sessions.insert(cast, session);
        self.status.casts += 1;
        self.set_part(peer, PeerPart::Source(cast));
        Ok(())
    }

    /// A source begins what goes on here without one: the same cast, whose source it is then, or
    /// another one for the same place, for which that makes room.
    fn take_up(
        &mut self,
        hub: &mut CastHub,
        (peer, identity): (PeerId, NodeId),
        begin: &CastBegin,
    ) -> Option<Result<(), ServiceError>> {
        let is_its = |session: &CastSession| {
            let is_same_place = session.begin.destination == begin.destination;
            session.is_orphan() && session.identity == identity && is_same_place
        };
        let left = self.sessions.iter().filter(|(_, session)| is_its(session));
        let left: Vec<CastId> = left.map(|(cast, _)| *cast).collect();
        for cast in left {
            let session = self.sessions.get_mut(&cast).filter(|session| session.is_of(begin));
            if let Some(session) = session {
                let adopted = session.adopt(hub, peer);
                self.set_part(peer, PeerPart::Source(cast));
                self.check(hub, cast, adopted);
                return Some(Ok(()));
            }
            drop(self.end_session(cast, "its source has begun anew"));
        }
        None
    }
}
