//! The application's own ends of channels.
//!
//! Sending and receiving never block and are bounded by the channels' depths. The runtime's thread
//! carries the messages between an end and the devices.

use crate::device::{Credited, InCarrier, OutCarrier, Port, PortSend};
use crate::request::{ChannelId, ConnectedEnd, Direction, EndId};
use outboard_cluster::waker::Waker;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An end of channels in the application: it sends to all that begin here and receives from all
/// that end here. Clones are the same end.
#[derive(Clone, Debug)]
pub struct AppEnd(pub(super) Arc<EndShared>);

/// What the application's side and the runtime's thread share.
#[derive(Debug)]
pub(super) struct EndShared {
    state: Mutex<EndState>,
    /// Something is to be carried.
    is_due: AtomicBool,
    room: OwnedFd,
    arrived: OwnedFd,
    waker: Waker,
}

/// Messages that leave: the channel, the receiver's end, the bytes.
pub(super) type Outgoing = Vec<(ChannelId, EndId, Vec<u8>)>;
/// Messages that were taken out: the channel, its sender's and its receiver's end, how many.
pub(super) type Credits = Vec<(ChannelId, EndId, EndId, u32)>;

#[derive(Debug, Default)]
struct EndState {
    port: Port,
    outgoing: Outgoing,
    credits: Credits,
}

impl AppEnd {
    /// Sends a message to every channel that begins here. After [`PortSend::Full`] the
    /// descriptor of [`Self::room`] is readable as soon as there is room.
    #[must_use]
    pub fn send(&self, bytes: &[u8]) -> PortSend {
        let mut state = self.0.lock();
        let EndState { port, outgoing, .. } = &mut *state;
        // Nothing arrives inside this process: the runtime carries all messages.
        let outcome = port.send(bytes, &mut Vec::new(), outgoing);
        match outcome {
            PortSend::Full => lower(&self.0.room),
            PortSend::Taken => self.0.is_due(),
            PortSend::TooLong | PortSend::NotConnected => {}
        }
        outcome
    }

    /// As [`Self::send`]; waits for room so long.
    #[must_use]
    pub fn send_within(&self, bytes: &[u8], limit: Duration) -> PortSend {
        let until = Instant::now() + limit;
        loop {
            let outcome = self.send(bytes);
            if outcome != PortSend::Full || !is_readable_until(self.room(), until) {
                return outcome;
            }
        }
    }

    /// The next message, if one has arrived.
    #[must_use]
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut state = self.0.lock();
        let arrival = state.port.receive();
        if !state.port.is_ready() && state.is_connected() {
            lower(&self.0.arrived);
        }
        let arrival = arrival?;
        if let Some(Credited::Elsewhere(channel, sender, receiver)) = arrival.credit {
            state.credit(channel, sender, receiver);
            self.0.is_due();
        }
        Some(arrival.bytes)
    }

    /// As [`Self::receive`]; waits so long for a message, or until nobody sends here any more.
    #[must_use]
    pub fn receive_within(&self, limit: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + limit;
        loop {
            let message = self.receive();
            if message.is_some() || !self.is_connected() {
                return message;
            }
            if !is_readable_until(self.arrived(), until) {
                return None;
            }
        }
    }

    /// Whether any channel still begins or ends here.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.lock().is_connected()
    }

    /// Readable when a message has arrived, or the last channel is gone.
    #[must_use]
    pub fn arrived(&self) -> BorrowedFd<'_> {
        self.0.arrived.as_fd()
    }

    /// Readable when there is room for a message that was turned away.
    #[must_use]
    pub fn room(&self) -> BorrowedFd<'_> {
        self.0.room.as_fd()
    }
}

impl EndState {
    fn is_connected(&self) -> bool {
        self.port.connections().next().is_some()
    }

    fn credit(&mut self, channel: ChannelId, sender: EndId, receiver: EndId) {
        let last = self.credits.last_mut();
        match last.filter(|last| (last.0, last.1, last.2) == (channel, sender, receiver)) {
            Some(last) => last.3 += 1,
            None => self.credits.push((channel, sender, receiver, 1)),
        }
    }
}

impl EndShared {
    pub(super) fn new(waker: Waker) -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (room, arrived) = (eventfd(0, flags)?, eventfd(0, flags)?);
        let (state, is_due) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { state, is_due, room, arrived, waker })
    }

    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Connects one side of a channel, in the place of what carried it before.
    pub(super) fn connect(&self, connection: ConnectedEnd) {
        let depth = connection.depth;
        let mut state = self.lock();
        match connection.direction {
            Direction::Out => {
                state.port.connect_out(connection, OutCarrier::Session { depth, on_way: 0 });
            }
            Direction::In => {
                // Nobody waits any more for room in what carried it before.
                state.credits.retain(|credit| credit.0 != connection.channel);
                state.port.connect_in(connection, InCarrier::session(depth));
            }
        }
        self.show_room(&mut state);
    }

    /// The other end is gone.
    pub(super) fn disconnect(&self, channel: ChannelId, other: EndId) {
        let mut state = self.lock();
        state.port.disconnect(channel, other);
        if !state.is_connected() {
            raise(&self.arrived);
            raise(&self.room);
        }
        self.show_room(&mut state);
    }

    /// Nothing more is sent to that end until it is connected anew.
    pub(super) fn park(&self, channel: ChannelId, other: EndId) {
        self.lock().port.park(channel, other);
    }

    /// A message from a device. False: it is more than the channel holds.
    pub(super) fn deliver(&self, channel: ChannelId, bytes: Vec<u8>) -> bool {
        let is_taken = self.lock().port.arrived(channel, bytes);
        raise(&self.arrived);
        is_taken
    }

    /// A receiver has taken messages out.
    pub(super) fn credited(&self, channel: ChannelId, other: EndId, count: u32) {
        let mut state = self.lock();
        state.port.credited(channel, other, count);
        self.show_room(&mut state);
    }

    fn show_room(&self, state: &mut EndState) {
        if state.port.take_writable() {
            raise(&self.room);
        }
    }

    /// Takes what is to be carried.
    pub(super) fn take_due(&self) -> Option<(Outgoing, Credits)> {
        if !self.is_due.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut state = self.lock();
        Some((std::mem::take(&mut state.outgoing), std::mem::take(&mut state.credits)))
    }
}

/// Makes an eventfd readable.
pub(super) fn raise(fd: &OwnedFd) {
    let _raised = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Makes it unreadable.
pub(super) fn lower(fd: &OwnedFd) {
    let _lowered = rustix::io::read(fd, &mut [0; 8]);
}

/// Waits for a descriptor. False: the time is over.
pub(super) fn is_readable_until(fd: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let found = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
        match found {
            Err(rustix::io::Errno::INTR) => {}
            found => return found.is_ok_and(|count| count > 0),
        }
    }
}
