//! Many peers on one thread: control messages as Sends, bulk data one-sided, one descriptor to
//! sleep on.
//!
//! A hub owns the verbs objects of its connections: a protection domain for each peer, so that none
//! reaches what was exposed to another. It does not interpret messages, does not dial and never
//! waits; [`Hub::turn`] hands out what has happened since.

mod counters;
mod error;
mod peer;
#[cfg(test)]
pub(crate) mod tests;

pub use counters::HubCounters;
pub use error::HubError;
pub use peer::{Admission, Admitted, Exposed, HubOptions, PeerId, PeerMap};

use crate::waker::Waker;
use outboard_verbs::{
    Access, CmChannel, CmEventKind, CompChannel, Completion, Context, Cq, NotifyOn, Operation,
    OwnedBuf, Remote, SendOp, SgList, SharedSlice, Status,
};
use peer::{CLOSED, HubPeer, Purpose};
use rustix::event::epoll;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes of a control message, at most, unless [`HubOptions`] say something else.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Completions taken at a time.
const BATCH: usize = 64;
/// Batches of a turn, at most, so that the caller gets to its other work.
const BATCHES: usize = 64;
/// Completions that the queue holds: more than all peers' requests together.
const COMPLETIONS: usize = 1 << 20;

/// Something that happened to a peer. A tag is the value that the caller gave with its request.
#[derive(Debug)]
pub enum HubEvent<T = u64> {
    /// It sent a message.
    Message {
        /// Which peer.
        peer: PeerId,
        /// The message.
        bytes: Vec<u8>,
    },
    /// It sent immediate data, alone or behind a Write that is there now.
    Immediate {
        /// Which peer.
        peer: PeerId,
        /// The data.
        immediate: u64,
    },
    /// An RDMA Read of its memory is done.
    Read {
        /// Whose memory.
        peer: PeerId,
        /// The request's tag.
        tag: T,
        /// The bytes read; empty if they were read into the caller's memory.
        bytes: Vec<u8>,
    },
    /// An RDMA Write no longer uses the caller's memory, which may change again. The data arrive
    /// before any message that is sent from now on.
    Written {
        /// Whose memory.
        peer: PeerId,
        /// The request's tag.
        tag: T,
    },
    /// An atomic operation is done.
    Atomic {
        /// Whose memory.
        peer: PeerId,
        /// The request's tag.
        tag: T,
        /// The value before it.
        original: u64,
    },
    /// The connection is over; nothing more comes from this peer.
    Gone {
        /// Which peer.
        peer: PeerId,
        /// Why, for people.
        why: String,
    },
}

impl<T> HubEvent<T> {
    /// Which peer it is about.
    pub fn peer(&self) -> PeerId {
        match self {
            Self::Message { peer, .. }
            | Self::Immediate { peer, .. }
            | Self::Read { peer, .. }
            | Self::Written { peer, .. }
            | Self::Atomic { peer, .. }
            | Self::Gone { peer, .. } => *peer,
        }
    }
}

/// See the [module](self). `T` is the type of the tags of requests.
#[derive(Debug)]
pub struct Hub<T = u64> {
    peers: PeerMap<HubPeer<T>>,
    options: HubOptions,
    cq: Cq,
    completions: CompChannel,
    connections: CmChannel,
    context: Context,
    ready: OwnedFd,
    /// Wakes the loop for what a turn has left.
    more: Waker,
    /// The caller sleeps in [`Hub::wait`], which arms the queue by itself.
    waits: Cell<bool>,
    done: Vec<Completion>,
    counters: HubCounters,
}

impl<T> Hub<T> {
    /// A hub without peers, with default sizes.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new() -> Result<Self, HubError> {
        Self::with(HubOptions::default())
    }

    /// A hub without peers.
    ///
    /// # Errors
    /// As [`Hub::new`].
    pub fn with(options: HubOptions) -> Result<Self, HubError> {
        let context = Context::open()?;
        let completions = context.create_comp_channel()?;
        let connections = context.create_cm_channel()?;
        let cq = context.create_cq_on(COMPLETIONS, &completions)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let more = Waker::new()?;
        let fds = [completions.as_fd(), connections.as_fd(), more.as_fd()];
        for (at, fd) in fds.into_iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&ready, fd, data, epoll::EventFlags::IN)?;
        }
        let (peers, done, counters) = (PeerMap::default(), Vec::new(), HubCounters::default());
        Ok(Self {
            peers,
            options,
            cq,
            completions,
            waits: Cell::new(false),
            connections,
            context,
            ready,
            more,
            done,
            counters,
        })
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> HubCounters {
        let waiting = self.peers.values().map(HubPeer::waiting);
        let (requests, bytes) =
            waiting.fold((0, 0), |(requests, bytes), (more, len)| (requests + more, bytes + len));
        HubCounters {
            peers_now: self.peers.len() as u64,
            waiting_now: requests as u64,
            waiting_now_bytes: bytes as u64,
            engine: self.context.counters(),
            ..self.counters
        }
    }

    /// The context of all its connections.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The verbs objects of a new connection, for a thread that sets it up.
    ///
    /// # Errors
    /// This machine's.
    pub fn prepare(&self) -> Result<Admission, HubError> {
        Admission::new(&self.context, &self.cq, &self.connections, self.options)
    }

    /// Adds a new peer. Messages that it has sent before are not lost.
    ///
    /// # Errors
    /// A fault of Outboard: its queue pair takes no receives.
    pub fn enroll(&mut self, admitted: Admitted) -> Result<PeerId, HubError> {
        let peer = admitted.into_peer(self.options)?;
        let id = PeerId(peer.number());
        self.peers.insert(id, peer);
        self.counters.peers += 1;
        Ok(id)
    }

    /// Ends a connection. No event follows.
    pub fn dismiss(&mut self, peer: PeerId) {
        self.counters.peers_gone += u64::from(self.peers.remove(&peer).is_some());
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

    /// Revokes a peer's access to memory: once this returns, the peer can no longer reach it.
    pub fn withdraw(&mut self, peer: PeerId, exposed: Exposed) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.withdraw(exposed);
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`HubError::TooLong`], [`HubError::NoPeer`], [`HubError::TooMuch`]. A connection that fails
    /// later shows as [`HubEvent::Gone`].
    pub fn send(&mut self, peer: PeerId, bytes: &[u8]) -> Result<(), HubError> {
        self.send_list(peer, bytes.len(), SgList::copied(bytes))
    }

    /// Sends messages, in order and together: they cost the peer one wake-up.
    ///
    /// # Errors
    /// As [`Hub::send`]: the messages before the one that is refused are sent.
    pub fn send_all(&mut self, peer: PeerId, messages: &[Vec<u8>]) -> Result<(), HubError> {
        let limit = self.options.message_max;
        let fitting = messages.iter().take_while(|bytes| bytes.len() <= limit).count();
        let (fit, rest) = messages.split_at(fitting);
        self.peer(peer)?.post_messages(fit.iter().map(|bytes| SgList::copied(bytes)))?;
        for bytes in fit {
            self.counters.post(SendOp::Send { invalidate: None }, bytes.len());
        }
        match rest.first() {
            Some(bytes) => Err(HubError::TooLong { found: bytes.len(), limit }),
            None => Ok(()),
        }
    }

    /// As [`Hub::send`], from the caller's memory, which must not change until a later request has
    /// completed.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn send_from(&mut self, peer: PeerId, from: SharedSlice) -> Result<(), HubError> {
        self.send_list(peer, from.len(), from.into())
    }

    fn send_list(&mut self, peer: PeerId, found: usize, local: SgList) -> Result<(), HubError> {
        let limit = self.options.message_max;
        if found > limit {
            return Err(HubError::TooLong { found, limit });
        }
        self.post(peer, SendOp::Send { invalidate: None }, local, Purpose::Quiet)
    }

    /// Sends eight bytes of immediate data.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn send_immediate(&mut self, peer: PeerId, immediate: u64) -> Result<(), HubError> {
        self.post(peer, SendOp::Immediate { immediate }, SgList::new(), Purpose::Quiet)
    }

    /// Reads from a peer's memory; [`HubEvent::Read`] brings it.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn read(&mut self, peer: PeerId, from: Remote, len: usize, tag: T) -> Result<(), HubError> {
        self.read_into(peer, from, vec![0; len], tag)
    }

    /// As [`Hub::read`], as many bytes as `into` has, which comes back with the event.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn read_into(
        &mut self,
        peer: PeerId,
        from: Remote,
        into: Vec<u8>,
        tag: T,
    ) -> Result<(), HubError> {
        let local = OwnedBuf::from(into).into();
        self.post(peer, SendOp::Read { from }, local, Purpose::Read(tag))
    }

    /// As [`Hub::read`], into memory of the caller's: no byte is copied on the way.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn read_to(
        &mut self,
        peer: PeerId,
        from: Remote,
        into: SharedSlice,
        tag: T,
    ) -> Result<(), HubError> {
        self.post(peer, SendOp::Read { from }, into.into(), Purpose::Read(tag))
    }

    /// Writes into a peer's memory. A message sent afterwards arrives after it.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn write(&mut self, peer: PeerId, to: Remote, bytes: Vec<u8>) -> Result<(), HubError> {
        let local = OwnedBuf::from(bytes).into();
        self.post(peer, SendOp::Write { to }, local, Purpose::Quiet)
    }

    /// As [`Hub::write`], from memory of the caller's; [`HubEvent::Written`] tells when it may
    /// change again.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn write_from(
        &mut self,
        peer: PeerId,
        to: Remote,
        from: SharedSlice,
        tag: T,
    ) -> Result<(), HubError> {
        self.post(peer, SendOp::Write { to }, from.into(), Purpose::Write(tag))
    }

    /// As [`Hub::write_from`], with immediate data that tells the peer of it.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn write_immediate(
        &mut self,
        peer: PeerId,
        to: Remote,
        (from, immediate): (SharedSlice, u64),
        tag: T,
    ) -> Result<(), HubError> {
        let op = SendOp::WriteWithImm { to, immediate };
        self.post(peer, op, from.into(), Purpose::Write(tag))
    }

    /// Adds to eight aligned bytes of a peer's memory; [`HubEvent::Atomic`] tells what was there.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn fetch_add(
        &mut self,
        peer: PeerId,
        at: Remote,
        add: u64,
        tag: T,
    ) -> Result<(), HubError> {
        let local = OwnedBuf::zeroed(8).into();
        self.post(peer, SendOp::fetch_add(at, add), local, Purpose::Atomic(tag))
    }

    /// Replaces eight aligned bytes of a peer's memory, `(compare, swap)`, if they are the first;
    /// [`HubEvent::Atomic`] tells what was there.
    ///
    /// # Errors
    /// As [`Hub::send`].
    pub fn compare_swap(
        &mut self,
        peer: PeerId,
        at: Remote,
        (compare, swap): (u64, u64),
        tag: T,
    ) -> Result<(), HubError> {
        let local = OwnedBuf::zeroed(8).into();
        self.post(peer, SendOp::compare_swap(at, compare, swap), local, Purpose::Atomic(tag))
    }

    fn post(
        &mut self,
        peer: PeerId,
        op: SendOp,
        local: SgList,
        purpose: Purpose<T>,
    ) -> Result<(), HubError> {
        let len = local.len();
        self.peer(peer)?.post(op, local, purpose)?;
        self.counters.post(op, len);
        Ok(())
    }

    /// Hands out what has happened since the last turn, or much of it: then the descriptor stays
    /// readable. Does not wait: sleep on the descriptor.
    ///
    /// # Errors
    /// [`HubError`]: a fault of this machine or of Outboard; the hub cannot be used any more.
    pub fn turn(&mut self, events: &mut Vec<HubEvent<T>>) -> Result<(), HubError> {
        self.more.clear();
        // Completions that are there are taken before the queue is armed, so that they cause no
        // wake-up; those that arrive between the last poll and arming are found by the poll after
        // arming.
        let mut batches = BATCHES;
        self.take(&mut batches, events)?;
        while self.completions.try_next().is_some() {}
        if !self.waits.take() {
            self.cq.request_notify(NotifyOn::Any);
            self.take(&mut batches, events)?;
        }
        if batches == 0 {
            self.more.wake();
        }
        while let Some(event) = self.connections.try_next() {
            if let CmEventKind::Disconnected = event.kind {
                self.lose(event.qp, CLOSED, events);
            }
        }
        self.forget_async_events();
        Ok(())
    }

    /// Completions and the connection manager tell the same of each peer; what else the context
    /// knows is for the log.
    fn forget_async_events(&self) {
        while let Some(event) = self.context.poll_async_event() {
            tracing::debug!("asynchronous event: {event:?}");
        }
    }

    /// Sleeps until one of these descriptors is readable, its own or one that has it, and serves
    /// its connections meanwhile: so a message costs one wake-up. The engine's own thread serves
    /// peers that read and write memory while the caller does something else; it begins within
    /// 8 ms, or at once after [`Context::rest`]. A caller that sleeps here once sleeps here always.
    pub fn wait(&self, timeout: Option<Duration>, fds: &[BorrowedFd<'_>]) {
        self.waits.set(true);
        self.cq.wait_readable(timeout, fds);
    }

    /// As [`Self::wait`], and ends as well when peers have read or written memory: for a caller
    /// that [looks](Self::look) while they do.
    pub fn wait_traffic(&self, timeout: Option<Duration>, fds: &[BorrowedFd<'_>]) {
        self.waits.set(true);
        self.cq.wait_traffic(timeout, fds);
    }

    /// Serves its connections once without sleeping, as [`Self::wait`] does; true when a turn has
    /// something to do, or peers have read or written memory.
    #[must_use]
    pub fn look(&self) -> bool {
        self.waits.set(true);
        let before = self.context.received_bytes();
        // A queue that has overflowed is the next turn's error.
        let found = self.cq.poll_by(|| self.cq.waiting()).is_ok_and(|found| found > 0);
        found || self.context.received_bytes() != before
    }

    fn take(&mut self, batches: &mut usize, events: &mut Vec<HubEvent<T>>) -> Result<(), HubError> {
        let mut done = std::mem::take(&mut self.done);
        // Nothing is driven here: the sleep that this turn follows has served the connections, or
        // the engine's own thread has.
        while *batches > 0 && self.cq.take(&mut done, BATCH)? > 0 {
            *batches -= 1;
            for completion in done.drain(..) {
                self.complete(completion, events);
            }
        }
        self.done = done;
        Ok(())
    }

    fn complete(&mut self, completion: Completion, events: &mut Vec<HubEvent<T>>) {
        let id = PeerId(completion.qp);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if completion.status != Status::Success {
            let why = peer.why(completion.status);
            return self.lose(id.0, &why, events);
        }
        let result = match completion.operation {
            Operation::Receive => {
                let len = completion.bytes as usize;
                self.counters.receive(len);
                let buffer = completion.local.into_owned();
                let bytes = buffer.as_ref().map(|buffer| buffer[..len].to_vec());
                events.extend(bytes.map(|bytes| HubEvent::Message { peer: id, bytes }));
                buffer.map_or(Ok(()), |buffer| peer.receive(buffer))
            }
            Operation::ReceiveImmediate => {
                let immediate = completion.immediate.unwrap_or_default();
                self.counters.receive(0);
                events.push(HubEvent::Immediate { peer: id, immediate });
                completion.local.into_owned().map_or(Ok(()), |buffer| peer.receive(buffer))
            }
            _ => peer.completed(completion.wr_id).map(|purpose| {
                let local = completion.local.into_owned().map(OwnedBuf::into_vec);
                events.extend(event(id, purpose, local.unwrap_or_default()));
            }),
        };
        if let Err(error) = result {
            self.lose(id.0, &error.to_string(), events);
        }
    }

    fn lose(&mut self, number: u32, why: &str, events: &mut Vec<HubEvent<T>>) {
        if self.peers.remove(&PeerId(number)).is_some() {
            self.counters.peers_gone += 1;
            events.push(HubEvent::Gone { peer: PeerId(number), why: why.to_owned() });
        }
    }

    fn peer(&mut self, id: PeerId) -> Result<&mut HubPeer<T>, HubError> {
        self.peers.get_mut(&id).ok_or(HubError::NoPeer)
    }
}

/// The caller's event for a request that is done.
fn event<T>(peer: PeerId, purpose: Option<Purpose<T>>, bytes: Vec<u8>) -> Option<HubEvent<T>> {
    match purpose? {
        Purpose::Quiet => None,
        Purpose::Write(tag) => Some(HubEvent::Written { peer, tag }),
        Purpose::Read(tag) => Some(HubEvent::Read { peer, tag, bytes }),
        Purpose::Atomic(tag) => {
            let original = bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes);
            Some(HubEvent::Atomic { peer, tag, original })
        }
    }
}

impl<T> AsFd for Hub<T> {
    /// Readable when a turn has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
