//! What peers say to a node, and for which cast.

use super::{CastService, LAUNCHED, PeerPart};
use crate::member::{CastHub, SessionId};
use crate::protocol::CastMessage;
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
                let session = self.of_cast(cast);
                let session = session.filter(|session| session.admits(node, &token));
                let session = session.ok_or("it joins a cast in which it has no part here")?;
                let (id, joined) = (session.id, session.join(hub, node, peer));
                self.set_part(peer, PeerPart::Relay(id, node));
                self.check(hub, id, joined);
            }
            (PeerPart::New, CastMessage::JoinToRead { cast, node, token }) => {
                let session = self.of_cast(cast);
                let session = session.ok_or("it joins a cast that is not here, to read")?;
                session.admit_reader(hub, peer, (node, &token))?;
                let id = session.id;
                self.set_part(peer, PeerPart::Reader(id));
            }
            (PeerPart::Holder(id, node), message) => {
                let session = self.sessions.get_mut(&id);
                return session.map_or(Ok(()), |session| session.holder_says(node, message));
            }
            (PeerPart::Reader(id), CastMessage::Borrow { chunks }) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.borrow(hub, peer, chunks)?;
                }
            }
            (PeerPart::Reached(id, node), CastMessage::Joined) => {
                self.set_part(peer, PeerPart::Relay(id, node));
                if let Some(session) = self.sessions.get_mut(&id) {
                    let joined = session.was_joined(hub, node, peer);
                    self.check(hub, id, joined);
                }
            }
            (PeerPart::Source(id) | PeerPart::Relay(id, _), message) => {
                return self.of_member(hub, (peer, part, id), message);
            }
            (_, message) => return Err(unexpected(&message)),
        }
        Ok(())
    }

    /// A message of a peer that has a part in a cast.
    fn of_member(
        &mut self,
        hub: &mut CastHub,
        (peer, part, id): (PeerId, PeerPart, SessionId),
        message: CastMessage,
    ) -> Result<(), ServiceError> {
        // What comes for a cast that has failed here is not for anyone.
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        let node = if let PeerPart::Relay(_, node) = part { node } else { 0 };
        if node == 0 && session.source() != peer {
            // The source has another connection by now.
            return Ok(());
        }
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
            CastMessage::Over if node == 0 => drop(self.end_session(id, "the cast is over")),
            message if node == 0 => {
                if let Some(other) = session.source_says(hub, message)? {
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
