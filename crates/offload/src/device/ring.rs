//! Ends of channels in memory that is shared with another device of this machine.
//!
//! Whatever the other side writes there, only its own channel is harmed: it is over then.

use crate::request::ConnectedEnd;
use outboard_mem::ring::{
    BeforeSleep, ReceiveOutcome, RingFault, RingReceiver, RingSender, RingSpec, RingWake,
    SendOutcome,
};
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;

/// A device's doorbell: one end of a pair of sockets, whose other end the device polls. It never
/// waits, whatever the other side makes of it.
#[derive(Debug)]
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    /// Rings at the other end of `socket`.
    #[must_use]
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl RingWake for Doorbell {
    fn wake(&self) {
        // Full means that it has rung; closed, that nobody sleeps there.
        let _rung = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// The measures of a channel's ring. The depth is rounded up to a power of two.
///
/// # Errors
/// In words: too large.
pub fn ring_spec(connection: &ConnectedEnd) -> Result<RingSpec, String> {
    let depth = connection.depth.next_power_of_two();
    RingSpec::new(depth, connection.message_max.max(1)).map_err(|error| error.to_string())
}

/// The ring's memfd, and the doorbell of the other device.
fn beside(fds: Vec<OwnedFd>) -> Result<(OwnedFd, Option<Box<dyn RingWake>>), String> {
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next()) {
        (Some(memfd), Some(bell)) => Ok((memfd, Some(Box::new(Doorbell::new(bell))))),
        _ => Err("the ring's descriptors did not come beside the request".to_owned()),
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub struct RingOut {
    sender: RingSender,
    fault: Option<RingFault>,
}

impl RingOut {
    /// Attaches to the ring whose descriptors are `fds`.
    ///
    /// # Errors
    /// In words: descriptors or measures do not fit.
    pub fn attach(connection: &ConnectedEnd, fds: Vec<OwnedFd>) -> Result<Self, String> {
        let (memfd, bell) = beside(fds)?;
        let sender = RingSender::attach(&memfd, ring_spec(connection)?, bell);
        Ok(Self { sender: sender.map_err(|error| error.to_string())?, fault: None })
    }

    /// Whether a message would be taken.
    pub fn has_room(&mut self) -> bool {
        let reserved = self.sender.reserve().map(|slot| slot.is_some());
        noted(&mut self.fault, reserved).unwrap_or(false)
    }

    /// Sends a copy. False: there is no room.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let sent = self.sender.try_send(bytes);
        noted(&mut self.fault, sent) == Some(SendOutcome::Sent)
    }

    /// The receiver will wake this device when there is room. False: there is room.
    pub fn prepare_sleep(&mut self) -> bool {
        let before = self.sender.before_sleep(1);
        noted(&mut self.fault, before) != Some(BeforeSleep::Ready)
    }

    /// How the receiver's side has broken the ring, if it has: nothing passes any more.
    #[must_use]
    pub fn fault(&self) -> Option<&RingFault> {
        self.fault.as_ref()
    }
}

/// What a ring says, or `None` if it is broken, which is noted.
fn noted<T>(fault: &mut Option<RingFault>, said: Result<T, RingFault>) -> Option<T> {
    said.map_err(|error| fault.get_or_insert(error)).ok()
}

/// The receiving end of a ring.
#[derive(Debug)]
pub struct RingIn {
    receiver: RingReceiver,
    fault: Option<RingFault>,
}

impl RingIn {
    /// As [`RingOut::attach`].
    ///
    /// # Errors
    /// As there.
    pub fn attach(connection: &ConnectedEnd, fds: Vec<OwnedFd>) -> Result<Self, String> {
        let (memfd, bell) = beside(fds)?;
        let receiver = RingReceiver::attach(&memfd, ring_spec(connection)?, bell);
        let receiver = receiver.map_err(|error| error.to_string())?;
        Ok(Self { receiver, fault: None })
    }

    /// The next message.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let received = self.receiver.try_receive(&mut bytes);
        (noted(&mut self.fault, received)? == ReceiveOutcome::Received).then_some(bytes)
    }

    /// Whether there is a message.
    pub fn is_ready(&mut self) -> bool {
        let found = self.receiver.peek().map(|slot| slot.is_some());
        noted(&mut self.fault, found).unwrap_or(false)
    }

    /// The sender will wake this device when it has sent something. False: it has.
    pub fn prepare_sleep(&mut self) -> bool {
        let before = self.receiver.before_sleep();
        noted(&mut self.fault, before) != Some(BeforeSleep::Ready)
    }

    /// As [`RingOut::fault`], of the sender's side.
    #[must_use]
    pub fn fault(&self) -> Option<&RingFault> {
        self.fault.as_ref()
    }
}
