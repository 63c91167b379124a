//! The ports of an offcode: where its channels' messages leave and arrive.
//!
//! A port sends to all channels that begin there, and receives from all that end there. It never
//! blocks, and holds no more than each channel's depth. What carries a channel may be exchanged
//! while it is in use: what the old carrier still had is received first.

use super::carrier::{InCarrier, OutCarrier, Taken};
use crate::request::{ChannelId, ConnectedEnd, EndId};
use std::collections::VecDeque;

/// What became of a message that an offcode sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSend {
    /// Every receiver gets it, or an unreliable channel dropped it.
    Taken,
    /// A reliable channel has no room; the port says when it has.
    Full,
    /// It is longer than the channel's messages may be.
    TooLong,
    /// Nothing is connected to that port.
    NotConnected,
}

/// The sending end of a channel.
#[derive(Debug)]
struct Outlet {
    connection: ConnectedEnd,
    carrier: OutCarrier,
}

/// The receiving end of a channel.
#[derive(Debug)]
struct Inlet {
    connection: ConnectedEnd,
    carrier: InCarrier,
    /// What earlier carriers still had.
    earlier: VecDeque<Vec<u8>>,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub struct Port {
    outlets: Vec<Outlet>,
    inlets: Vec<Inlet>,
    /// Messages that came along from another device.
    pending: VecDeque<Vec<u8>>,
    /// The inlet that is asked next.
    next_inlet: usize,
    is_held: bool,
    wants_room: bool,
    dropped: u64,
}

/// A message that was taken out of a port, and whom the room is for.
#[derive(Debug, PartialEq, Eq)]
pub struct PortArrival {
    /// The message.
    pub bytes: Vec<u8>,
    /// Whom to tell: the channel with its sender's and its receiver's end.
    pub credit: Option<Credited>,
}

/// Who has room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credited {
    /// A sender on the same device.
    Here(EndId),
    /// A sender elsewhere, through the runtime: the channel, its sender's and its receiver's end.
    Elsewhere(ChannelId, EndId, EndId),
}

impl Port {
    /// Sends a message to every channel that begins here. Those that were sent to on this device
    /// are appended to `touched`, messages that go through the runtime to `sessions`.
    pub fn send(
        &mut self,
        bytes: &[u8],
        touched: &mut Vec<EndId>,
        sessions: &mut Vec<(ChannelId, EndId, Vec<u8>)>,
    ) -> PortSend {
        if self.outlets.is_empty() {
            return PortSend::NotConnected;
        }
        let fits = |outlet: &Outlet| bytes.len() <= outlet.connection.message_max as usize;
        if !self.outlets.iter().all(fits) {
            return PortSend::TooLong;
        }
        if !self.has_room() {
            self.wants_room = true;
            return PortSend::Full;
        }
        for outlet in &mut self.outlets {
            let (channel, other) = (outlet.connection.channel, outlet.connection.other);
            match outlet.carrier.send(bytes) {
                Taken::Here => touched.push(other),
                Taken::ByRing => {}
                Taken::Session => sessions.push((channel, other, bytes.to_vec())),
                Taken::No => self.dropped += 1,
            }
        }
        PortSend::Taken
    }

    /// Whether every reliable channel that begins here takes a message now.
    pub fn has_room(&mut self) -> bool {
        let ready =
            |outlet: &mut Outlet| !outlet.connection.is_reliable || outlet.carrier.has_room();
        self.outlets.iter_mut().all(ready)
    }

    /// The port says when it has room, as if a message had been turned away.
    pub fn ask_for_room(&mut self) {
        self.wants_room = true;
    }

    /// Whether a sender was turned away and there is room now; resets that.
    pub fn take_writable(&mut self) -> bool {
        let is_due = self.wants_room && self.has_room();
        if is_due {
            self.wants_room = false;
        }
        is_due
    }

    /// The next message, unless the port is held.
    pub fn receive(&mut self) -> Option<PortArrival> {
        if self.is_held {
            return None;
        }
        if let Some(bytes) = self.pending.pop_front() {
            return Some(PortArrival { bytes, credit: None });
        }
        for step in 0..self.inlets.len() {
            let at = (self.next_inlet + step) % self.inlets.len();
            if let Some(arrival) = self.inlets[at].receive() {
                self.next_inlet = at + 1;
                return Some(arrival);
            }
        }
        None
    }

    /// Whether [`Self::receive`] would have something.
    pub fn is_ready(&mut self) -> bool {
        let has = |inlet: &mut Inlet| !inlet.earlier.is_empty() || inlet.carrier.is_ready();
        !self.is_held && (!self.pending.is_empty() || self.inlets.iter_mut().any(has))
    }

    /// How many copies of a message go through the runtime, at most.
    #[must_use]
    pub fn sessions(&self) -> usize {
        let is_one = |outlet: &&Outlet| matches!(outlet.carrier, OutCarrier::Session { .. });
        self.outlets.iter().filter(is_one).count()
    }

    /// Connects a sending end, in the place of what carried the channel before.
    pub fn connect_out(&mut self, connection: ConnectedEnd, carrier: OutCarrier) {
        let same = |outlet: &&mut Outlet| outlet.connection.is_same(&connection);
        match self.outlets.iter_mut().find(same) {
            Some(outlet) => *outlet = Outlet { connection, carrier },
            None => self.outlets.push(Outlet { connection, carrier }),
        }
    }

    /// Connects a receiving end. What the carrier before it still has is received first.
    pub fn connect_in(&mut self, connection: ConnectedEnd, carrier: InCarrier) {
        let same = |inlet: &&mut Inlet| inlet.connection.is_same(&connection);
        match self.inlets.iter_mut().find(same) {
            Some(inlet) => {
                inlet.drain();
                inlet.connection = connection;
                inlet.carrier = carrier;
            }
            None => self.inlets.push(Inlet { connection, carrier, earlier: VecDeque::new() }),
        }
    }

    /// A channel's other end is gone. False: there was none. What has arrived is still received.
    pub fn disconnect(&mut self, channel: ChannelId, other: EndId) -> bool {
        let before = self.outlets.len() + self.inlets.len();
        self.outlets.retain(|outlet| outlet.connection.ends_at(channel, other));
        for inlet in &mut self.inlets {
            if !inlet.connection.ends_at(channel, other) {
                inlet.drain();
                self.pending.append(&mut inlet.earlier);
            }
        }
        self.inlets.retain(|inlet| inlet.connection.ends_at(channel, other));
        before != self.outlets.len() + self.inlets.len()
    }

    /// Nothing more is sent on a channel until it is connected anew.
    pub fn park(&mut self, channel: ChannelId, other: EndId) {
        let same = |outlet: &&mut Outlet| !outlet.connection.ends_at(channel, other);
        if let Some(outlet) = self.outlets.iter_mut().find(same) {
            outlet.carrier = OutCarrier::Parked;
        }
    }

    /// A message of a channel from elsewhere. False: there is no such channel, or its sender has
    /// sent more than the depth allows.
    pub fn arrived(&mut self, channel: ChannelId, bytes: Vec<u8>) -> bool {
        let inlet = self.inlets.iter_mut().find(|inlet| inlet.connection.channel == channel);
        let Some(inlet) = inlet else { return false };
        bytes.len() <= inlet.connection.message_max as usize && inlet.carrier.arrived(bytes)
    }

    /// A receiver elsewhere has taken `count` messages out.
    pub fn credited(&mut self, channel: ChannelId, other: EndId, count: u32) {
        let same = |outlet: &&mut Outlet| !outlet.connection.ends_at(channel, other);
        if let Some(outlet) = self.outlets.iter_mut().find(same) {
            outlet.carrier.credited(count);
        }
    }

    /// Delivers nothing, or again what arrives.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether nothing is delivered.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Messages that unreliable channels had no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes everything that has arrived, in order, channel by channel.
    pub fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = self.pending.drain(..).collect();
        for inlet in &mut self.inlets {
            inlet.drain();
            all.extend(inlet.earlier.drain(..));
        }
        all
    }

    /// Puts messages before all that arrive.
    pub fn put_back(&mut self, messages: impl IntoIterator<Item = Vec<u8>>) {
        self.pending.extend(messages);
    }

    /// The connections of this port.
    pub fn connections(&self) -> impl Iterator<Item = &ConnectedEnd> {
        let out = self.outlets.iter().map(|outlet| &outlet.connection);
        out.chain(self.inlets.iter().map(|inlet| &inlet.connection))
    }

    /// Gets ready to sleep: senders and receivers on the other side of rings will wake this device.
    /// False: something has arrived, or there is room, in the meantime.
    pub fn prepare_sleep(&mut self) -> bool {
        let is_quiet =
            self.is_held || self.inlets.iter_mut().all(|inlet| inlet.carrier.prepare_sleep());
        if !self.wants_room {
            return is_quiet;
        }
        // Each one that is full says when it is not: the last of them matters.
        for outlet in &mut self.outlets {
            if outlet.connection.is_reliable && !outlet.carrier.has_room() {
                outlet.carrier.prepare_sleep();
            }
        }
        is_quiet && !self.has_room()
    }

    /// Whether something here is in memory that is shared with another device.
    #[must_use]
    pub fn has_ring(&self) -> bool {
        let is_out = |outlet: &Outlet| matches!(outlet.carrier, OutCarrier::Ring(_));
        let is_in = |inlet: &Inlet| matches!(inlet.carrier, InCarrier::Ring(_));
        self.outlets.iter().any(is_out) || self.inlets.iter().any(is_in)
    }

    /// The connections whose shared memory the other side has broken, and how.
    pub fn broken(&self) -> Vec<(ConnectedEnd, String)> {
        let out = self.outlets.iter().map(|outlet| (&outlet.connection, outlet.carrier.fault()));
        let all =
            out.chain(self.inlets.iter().map(|each| (&each.connection, each.carrier.fault())));
        all.filter_map(|(connection, fault)| Some((*connection, fault?.to_string()))).collect()
    }
}

impl Inlet {
    fn receive(&mut self) -> Option<PortArrival> {
        if let Some(bytes) = self.earlier.pop_front() {
            return Some(PortArrival { bytes, credit: None });
        }
        let bytes = self.carrier.receive()?;
        let (channel, other, end) =
            (self.connection.channel, self.connection.other, self.connection.end);
        let credit = match &self.carrier {
            InCarrier::Inside(_) => Some(Credited::Here(other)),
            InCarrier::Session { .. } => Some(Credited::Elsewhere(channel, other, end)),
            InCarrier::Ring(_) => None,
        };
        Some(PortArrival { bytes, credit })
    }

    /// Takes all out of the carrier, which is bounded by the channel's depth.
    fn drain(&mut self) {
        while let Some(bytes) = self.carrier.receive() {
            self.earlier.push_back(bytes);
        }
    }
}

impl ConnectedEnd {
    /// The same channel between the same ends.
    fn is_same(&self, other: &Self) -> bool {
        (self.channel, self.end, self.other) == (other.channel, other.end, other.other)
    }

    /// False: it is that channel's, and its other end is that one.
    fn ends_at(&self, channel: ChannelId, other: EndId) -> bool {
        (self.channel, self.other) != (channel, other)
    }
}
