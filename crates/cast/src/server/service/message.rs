//! What peers say to a node, and for which cast.

use super::{CastService, LAUNCHED, PeerPart};
use crate::member::CastHub;
use crate::protocol::CastMessage;
use crate::sign::CastId;
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_secure::NodeId;

impl CastService {
    pub(super) fn message(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        message: CastMessage,
    ) -> Result<(), ServiceError> {
        let Some(&(part, identity)) = self.peers.get(&peer) else { return Ok(()) };
        match (part, message) {
            (PeerPart::New, CastMessage::Begin(begin)) => {
                if self.only_source.is_some_and(|source| source != identity) {
                    return Err("it is not the source that this receiver was started by".into());
                }
                // Such a source is met only once; what it leaves is its user's, as this process.
                let identity = self.only_source.map_or(identity, |_| NodeId::of(LAUNCHED));
                return self.begin(hub, (peer, identity), *begin);
            }
            (PeerPart::New, CastMessage::Join { cast, node, token }) => {
                let session = self.sessions.get_mut(&cast);
                let session = session.filter(|session| session.admits(node, &token));
                let session = session.ok_or("it joins a cast in which it has no part here")?;
                let joined = session.join(hub, node, peer);
                self.set_part(peer, PeerPart::Relay(cast, node));
                self.check(hub, cast, joined);
            }
            (PeerPart::New, CastMessage::JoinToRead { cast, node, token }) => {
                let session = self.sessions.get_mut(&cast);
                let session = session.ok_or("it joins a cast that is not here, to read")?;
                session.admit_reader(hub, peer, (node, &token))?;
                self.set_part(peer, PeerPart::Reader(cast));
            }
            (PeerPart::Holder(cast, node), message) => {
                let session = self.sessions.get_mut(&cast);
                return session.map_or(Ok(()), |session| session.holder_says(node, message));
            }
            (PeerPart::Reader(cast), CastMessage::Borrow { chunks }) => {
                if let Some(session) = self.sessions.get_mut(&cast) {
                    session.borrow(hub, peer, chunks)?;
                }
            }
            (PeerPart::Reached(cast, node), CastMessage::Joined) => {
                self.set_part(peer, PeerPart::Relay(cast, node));
                if let Some(session) = self.sessions.get_mut(&cast) {
                    let joined = session.was_joined(hub, node, peer);
                    self.check(hub, cast, joined);
                }
            }
            (PeerPart::Source(cast) | PeerPart::Relay(cast, _), message) => {
                return self.of_member(hub, (peer, part, cast), message);
            }
            (_, message) => return Err(unexpected(&message)),
        }
        Ok(())
    }

    /// A message of a peer that has a part in a cast.
    fn of_member(
        &mut self,
        hub: &mut CastHub,
        (_peer, part, cast): (PeerId, PeerPart, CastId),
        message: CastMessage,
    ) -> Result<(), ServiceError> {
        // What comes for a cast that has failed here is not for anyone.
        let Some(session) = self.sessions.get_mut(&cast) else { return Ok(()) };
        let node = if let PeerPart::Relay(_, node) = part { node } else { 0 };
        session.hear(node);
        match message {
            CastMessage::Want { chunk, into } => {
                let member = session.member().ok_or("it wants a chunk before there is a plan")?;
                member.wanted(node, chunk, into)?;
            }
            CastMessage::Hurry { chunk } => {
                let member = session.member().ok_or("it waits for a chunk before a plan")?;
                member.hurried(node, chunk)?;
            }
            CastMessage::Dropped { slot } => {
                let member = session.member().ok_or("it drops a chunk before there is a plan")?;
                member.dropped(hub, node, slot)?;
            }
            CastMessage::Held(report) if node > 0 => {
                session.neighbour_holds(hub, node, report.held)?;
            }
            CastMessage::Over if node == 0 => drop(self.end_session(cast, "the cast is over")),
            message if node == 0 => {
                if let Some(other) = session.told(hub, message)? {
                    return Err(unexpected(&other));
                }
            }
            message => return Err(unexpected(&message)),
        }
        Ok(())
    }
}

pub(in crate::server) fn unexpected(message: &CastMessage) -> ServiceError {
    let shown: String = format!("{message:?}").chars().take(40).collect();
    format!("it sent a message that has no place here: {shown}").into()
}
