//! Many peers on one thread: control messages as Sends, bulk data one-sided, one descriptor to
//! sleep on.
//!
//! A hub owns the verbs objects of its connections: a protection domain for each peer, so that none
//! reaches what was exposed to another. It knows no message's meaning, dials nobody and never
//! waits; [`Hub::turn`] hands out what has happened since.

mod error;
mod peer;
#[cfg(test)]
mod tests;

pub use error::HubError;
pub use peer::{Admission, Admitted, Exposed, PeerId};

use outboard_verbs::{
    Access, Arm, CmChannel, CmEventKind, CompChannel, Completion, Context, Cq, Operation, OwnedBuf,
    Remote, SendOp, SendRequest, SgList, SharedSlice, Status,
};
use peer::Peer;
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets of a control message, at most.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Completions taken at a time.
const BATCH: usize = 64;
/// Completions that the queue holds: more than all peers' requests together.
const COMPLETIONS: usize = 1 << 20;

/// Something that happened to a peer.
#[derive(Debug)]
pub enum HubEvent {
    /// It sent a message.
    Message {
        /// Who.
        peer: PeerId,
        /// The message.
        octets: Vec<u8>,
    },
    /// What we asked for from its memory is here.
    Read {
        /// Whose memory.
        peer: PeerId,
        /// The caller's name for it.
        tag: u64,
        /// What is there.
        octets: Vec<u8>,
    },
    /// The connection is over; nothing more comes from this peer.
    Gone {
        /// Who.
        peer: PeerId,
        /// Why, for people.
        why: String,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub struct Hub {
    peers: HashMap<u32, Peer>,
    cq: Cq,
    completions: CompChannel,
    connections: CmChannel,
    context: Context,
    ready: OwnedFd,
    done: Vec<Completion>,
}

impl Hub {
    /// A hub without peers.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new() -> Result<Self, HubError> {
        let context = Context::open()?;
        let completions = context.create_comp_channel()?;
        let connections = context.create_cm_channel()?;
        let cq = context.create_cq_on(COMPLETIONS, &completions)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, fd) in [completions.as_fd(), connections.as_fd()].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&ready, fd, data, epoll::EventFlags::IN)?;
        }
        let (peers, done) = (HashMap::new(), Vec::new());
        Ok(Self { peers, cq, completions, connections, context, ready, done })
    }

    /// The context of all its connections.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// What a new connection needs, for a thread that has time to wait for it.
    ///
    /// # Errors
    /// This machine's.
    pub fn prepare(&self) -> Result<Admission, HubError> {
        Admission::new(&self.context, &self.cq, &self.connections)
    }

    /// Takes a new peer in. Nothing that it has sent is lost meanwhile.
    ///
    /// # Errors
    /// A fault of Outboard: its queue pair takes no receives.
    pub fn enroll(&mut self, admitted: Admitted) -> Result<PeerId, HubError> {
        let peer = admitted.into_peer()?;
        let id = PeerId(peer.number());
        self.peers.insert(id.0, peer);
        Ok(id)
    }

    /// Ends a connection. No event follows.
    pub fn dismiss(&mut self, peer: PeerId) {
        self.peers.remove(&peer.0);
    }

    /// Lets a peer reach memory, until it is withdrawn or gone.
    ///
    /// # Errors
    /// [`HubError::NoPeer`], or the STag table is full.
    pub fn expose(
        &mut self,
        peer: PeerId,
        memory: SharedSlice,
        access: Access,
    ) -> Result<Exposed, HubError> {
        self.peer(peer)?.expose(memory, access)
    }

    /// Takes memory back from a peer: once this returns it reaches it no more.
    pub fn withdraw(&mut self, peer: PeerId, exposed: Exposed) {
        if let Some(peer) = self.peers.get_mut(&peer.0) {
            peer.withdraw(exposed);
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`HubError::TooLong`], [`HubError::NoPeer`]. A connection that fails later shows as
    /// [`HubEvent::Gone`].
    pub fn send(&mut self, peer: PeerId, octets: &[u8]) -> Result<(), HubError> {
        if octets.len() > MESSAGE_MAX {
            return Err(HubError::TooLong { found: octets.len() });
        }
        let op = SendOp::Send { invalidate: None };
        self.peer(peer)?.post(SendRequest::new(0, op, SgList::copied(octets)))
    }

    /// Reads from a peer's memory; [`HubEvent::Read`] brings it.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn read(
        &mut self,
        peer: PeerId,
        from: Remote,
        len: usize,
        tag: u64,
    ) -> Result<(), HubError> {
        self.read_into(peer, from, vec![0; len], tag)
    }

    /// As [`Hub::read`], as many octets as `into` has, which comes back with the event.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn read_into(
        &mut self,
        peer: PeerId,
        from: Remote,
        into: Vec<u8>,
        tag: u64,
    ) -> Result<(), HubError> {
        let op = SendOp::Read { from };
        self.peer(peer)?.post(SendRequest::new(tag, op, OwnedBuf::from(into).into()))
    }

    /// Writes into a peer's memory. A message sent afterwards arrives after it.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn write(&mut self, peer: PeerId, to: Remote, octets: Vec<u8>) -> Result<(), HubError> {
        let op = SendOp::Write { to };
        self.peer(peer)?.post(SendRequest::new(0, op, OwnedBuf::from(octets).into()))
    }

    /// Hands out what has happened since the last turn. Does not wait: sleep on the descriptor.
    ///
    /// # Errors
    /// [`HubError`]: this machine's or our own; the hub is of no use any more.
    pub fn turn(&mut self, events: &mut Vec<HubEvent>) -> Result<(), HubError> {
        while self.completions.try_next().is_some() {}
        // Arm first, then look: what comes in between makes an event.
        self.cq.arm(Arm::Any);
        let mut done = std::mem::take(&mut self.done);
        while self.cq.poll(&mut done, BATCH)? > 0 {
            for completion in done.drain(..) {
                self.complete(completion, events);
            }
        }
        self.done = done;
        while let Some(event) = self.connections.try_next() {
            if let CmEventKind::Disconnected = event.kind {
                self.lose(event.qp, "the peer has closed the connection", events);
            }
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion, events: &mut Vec<HubEvent>) {
        let id = PeerId(completion.qp);
        let Some(peer) = self.peers.get_mut(&id.0) else { return };
        if completion.status != Status::Success {
            let why = peer.why(completion.status);
            return self.lose(id.0, &why, events);
        }
        let result = match completion.operation {
            Operation::Receive => {
                let len = completion.bytes as usize;
                let buffer = completion.local.into_owned();
                let octets = buffer.as_ref().map(|buffer| buffer[..len].to_vec());
                events.extend(octets.map(|octets| HubEvent::Message { peer: id, octets }));
                buffer.map_or(Ok(()), |buffer| peer.receive(buffer))
            }
            operation => {
                let octets = completion.local.into_owned().map(OwnedBuf::into_vec);
                if let (Operation::Read, Some(octets)) = (operation, octets) {
                    events.push(HubEvent::Read { peer: id, tag: completion.wr_id, octets });
                }
                peer.completed()
            }
        };
        if let Err(error) = result {
            self.lose(id.0, &error.to_string(), events);
        }
    }

    fn lose(&mut self, number: u32, why: &str, events: &mut Vec<HubEvent>) {
        if self.peers.remove(&number).is_some() {
            events.push(HubEvent::Gone { peer: PeerId(number), why: why.to_owned() });
        }
    }

    fn peer(&mut self, id: PeerId) -> Result<&mut Peer, HubError> {
        self.peers.get_mut(&id.0).ok_or(HubError::NoPeer)
    }
}

impl AsFd for Hub {
    /// Readable when a turn has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
