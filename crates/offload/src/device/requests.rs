//! What the runtime asks of a device, carried out.

use super::body::{BodyEnd, LiveBody};
use super::carrier::{InCarrier, InsideQueue, OutCarrier};
use super::context::{ATTRIBUTE_MAX, ATTRIBUTES_MAX, OffcodeContext, TELL_MAX};
use super::placed::PlacedOffcode;
use super::running::note_due;
use super::{Device, RingIn, RingOut, builtin};
use crate::request::{
    BodyCode, CarrierKind, ChannelId, ConnectedEnd, Creation, DEPTH_MAX, DeviceError, DeviceEvent,
    DeviceReply, DeviceRequest, Direction, EndId, InboxItem, MESSAGE_MAX, Numbered, OffcodeId,
    OffcodePhase, PORTS_MAX, event_kind,
};
use std::os::fd::OwnedFd;

/// Interfaces, or imports, of an offcode, at most.
const INTERFACES_MAX: usize = 1024;
/// Channels of a port, at most.
const CONNECTIONS_MAX: usize = 1024;

type Done = Result<DeviceReply, DeviceError>;

impl Device {
    /// Carries a request out, with the descriptors that came beside it.
    pub fn handle(&mut self, numbered: Numbered, fds: Vec<OwnedFd>) {
        let Numbered { number, request } = numbered;
        let result = self.carry(request, fds);
        if number != 0 {
            self.tell(DeviceEvent::Reply(number, result));
        }
    }

    fn carry(&mut self, request: DeviceRequest, fds: Vec<OwnedFd>) -> Done {
        match request {
            DeviceRequest::Create(creation) => self.create(*creation),
            DeviceRequest::Code(bytes) => {
                self.codes.add(&bytes).map_err(DeviceError::Body).map(done)
            }
            DeviceRequest::Resume(offcode) => {
                self.placed(offcode)?.is_paused = false;
                self.make_ready(offcode);
                Ok(DeviceReply::Done)
            }
            DeviceRequest::Initialize(offcode) => self.step(offcode, OffcodePhase::Initialized),
            DeviceRequest::Start(offcode) => self.step(offcode, OffcodePhase::Started),
            DeviceRequest::Stop(offcode) => self.step(offcode, OffcodePhase::Stopped),
            DeviceRequest::Remove(offcode) => self.remove(offcode),
            DeviceRequest::Take { offcode, is_update } => self.take(offcode, is_update),
            DeviceRequest::Connect(connection) => self.connect(connection, fds),
            DeviceRequest::Disconnect(channel, end, other) => {
                self.disconnect(channel, end, other);
                Ok(DeviceReply::Done)
            }
            DeviceRequest::Park(channel, end, other) => {
                self.port_of(end)?.park(channel, other);
                Ok(DeviceReply::Done)
            }
            DeviceRequest::Bind(offcode, import, target) => self.bind(offcode, import, target),
            DeviceRequest::Status => Ok(self.status()),
            DeviceRequest::Attributes(offcode) => {
                Ok(DeviceReply::Attributes(self.placed(offcode)?.context().attributes.clone()))
            }
            DeviceRequest::SetAttribute(offcode, name, value) => {
                self.set_attribute(offcode, name, value)
            }
            other => self.pass_on(other),
        }
    }

    /// What goes to an offcode.
    fn pass_on(&mut self, request: DeviceRequest) -> Done {
        match request {
            DeviceRequest::Call(call) => self.route_call(call),
            DeviceRequest::Answer(key, result) => self.route_answer(key, result),
            DeviceRequest::Data(channel, end, bytes) => {
                let port = self.port(end);
                let is_taken = port.is_some_and(|port| port.arrived(channel, bytes));
                if is_taken {
                    self.make_ready(end.offcode);
                }
            }
            DeviceRequest::Credit(channel, sender, receiver, count) => {
                let Some(port) = self.port(sender) else { return Ok(DeviceReply::Done) };
                port.credited(channel, receiver, count);
                if port.take_writable() {
                    self.deliver(sender.offcode, InboxItem::Writable(sender.port));
                }
            }
            DeviceRequest::Tell(offcode, bytes) => {
                let fits = bytes.len() <= TELL_MAX;
                let item = InboxItem::Event(event_kind::MESSAGE, bytes);
                if !fits || !self.deliver(offcode, item) {
                    return Err(DeviceError::Full("messages for the offcode".into()));
                }
            }
            _ => {}
        }
        Ok(DeviceReply::Done)
    }

    fn create(&mut self, creation: Creation) -> Done {
        if self.offcodes.len() >= self.limits.offcodes {
            return Err(DeviceError::Full(format!("it has {} offcodes", self.limits.offcodes)));
        }
        let missing = self.missing(&creation.code);
        if !missing.is_empty() {
            return Ok(DeviceReply::Unknown(missing));
        }
        self.check(&creation)?;
        let mut creation = creation;
        let from = creation.from.take();
        let mut placed = self.make(creation, from.as_ref())?;
        if let Some(frozen) = from {
            placed.is_paused = true;
            placed.thaw(frozen)?;
        }
        let offcode = placed.context().id;
        note_due(&mut self.due, offcode, &mut placed);
        self.offcodes.insert(offcode, placed);
        self.carry_out(offcode);
        self.make_ready(offcode);
        Ok(DeviceReply::Done)
    }

    /// Hashes of code that is not here.
    fn missing(&self, code: &BodyCode) -> Vec<[u8; 32]> {
        let hashes: Vec<[u8; 32]> = match code {
            BodyCode::Wasm(hash) => vec![*hash],
            BodyCode::Linked(parts) => parts.iter().map(|(_, hash)| *hash).collect(),
            BodyCode::Builtin(_) | BodyCode::Bpf(..) => Vec::new(),
        };
        hashes.into_iter().filter(|hash| !self.codes.has(hash)).collect()
    }

    fn check(&self, creation: &Creation) -> Result<(), DeviceError> {
        let refused = |why: &str| Err(DeviceError::Body(why.to_owned()));
        if self.offcodes.contains_key(&creation.offcode) {
            return refused("its number is taken");
        }
        if usize::from(creation.ports) > PORTS_MAX {
            return refused("more than 64 ports");
        }
        let memory = self.limits.memory_bytes;
        if creation.needs.memory_bytes > memory {
            let needs = creation.needs.memory_bytes;
            return Err(DeviceError::Full(format!("it needs {needs} bytes of memory of {memory}")));
        }
        if creation.attributes.len() > ATTRIBUTES_MAX {
            return refused("more than 256 attributes");
        }
        let is_long = |text: &String| text.len() > ATTRIBUTE_MAX;
        if creation.attributes.iter().any(|(name, value)| is_long(name) || is_long(value)) {
            return refused("an attribute is longer than 4,096 bytes");
        }
        if creation.interfaces.len().max(creation.imports.len()) > INTERFACES_MAX
            || is_long(&creation.name)
        {
            return refused("more than 1,024 interfaces or imports, or a name of 4,096 bytes");
        }
        Ok(())
    }

    fn make(
        &mut self,
        creation: Creation,
        from: Option<&crate::request::Frozen>,
    ) -> Result<PlacedOffcode, DeviceError> {
        let Creation { offcode, name, code, needs, interfaces, ports, imports, attributes, .. } =
            creation;
        let mut context = OffcodeContext::new(offcode, needs, ports);
        context.imports = imports;
        context.attributes = attributes;
        let body: Box<dyn LiveBody> = match code {
            BodyCode::Builtin(kind) => builtin::make(&kind, context, from.map(|from| &from.state))?,
            BodyCode::Linked(parts) => {
                let hash = self.codes.link(&parts).map_err(DeviceError::Body)?;
                self.codes.make(&hash, context, from.map(|from| &from.state))?
            }
            BodyCode::Bpf(..) => {
                let text = "this device runs no programs for the kernel: a nic does";
                return Err(DeviceError::Body(text.to_owned()));
            }
            BodyCode::Wasm(hash) => {
                self.codes.make(&hash, context, from.map(|from| &from.state))?
            }
        };
        Ok(PlacedOffcode::new(name, body, interfaces))
    }

    fn placed(&mut self, offcode: OffcodeId) -> Result<&mut PlacedOffcode, DeviceError> {
        self.offcodes.get_mut(&offcode).ok_or(DeviceError::NoOffcode(offcode.0))
    }

    fn port_of(&mut self, end: EndId) -> Result<&mut super::Port, DeviceError> {
        let no_port = DeviceError::NoPort(end.offcode.0, end.port);
        self.placed(end.offcode)?;
        self.port(end).ok_or(no_port)
    }

    /// A step of an offcode's life. Stopping what is stopped is no fault.
    fn step(&mut self, offcode: OffcodeId, to: OffcodePhase) -> Done {
        let placed = self.placed(offcode)?;
        let (found, expected) = (placed.phase, before(to));
        if to == OffcodePhase::Stopped && found != OffcodePhase::Started {
            placed.phase = to;
            return Ok(DeviceReply::Done);
        }
        if found != expected {
            return Err(DeviceError::Phase { found, expected });
        }
        let ended = match to {
            OffcodePhase::Initialized => placed.body.initialize(),
            OffcodePhase::Started => placed.body.start(),
            OffcodePhase::Created | OffcodePhase::Stopped => placed.body.stop(),
        };
        if ended.is_ok() {
            placed.phase = to;
        }
        self.carry_out(offcode);
        match ended {
            Ok(()) => {
                self.make_ready(offcode);
                Ok(DeviceReply::Done)
            }
            Err(BodyEnd::Refused(number)) => Err(DeviceError::Refused(to.to_string(), number)),
            Err(BodyEnd::Failed(why)) => {
                self.end(offcode, &why, None);
                Err(DeviceError::Failed(why))
            }
        }
    }

    fn remove(&mut self, offcode: OffcodeId) -> Done {
        self.placed(offcode)?;
        self.end(offcode, "it was removed", None);
        // The runtime knows: it asked for it.
        self.events.pop_back();
        Ok(DeviceReply::Done)
    }

    fn bind(&mut self, offcode: OffcodeId, import: u16, target: OffcodeId) -> Done {
        let placed = self.placed(offcode)?;
        match placed.context().imports.get_mut(usize::from(import)) {
            Some((_, bound)) => *bound = Some(target),
            None => return Err(DeviceError::Body(format!("it has no import {import}"))),
        }
        Ok(DeviceReply::Done)
    }

    fn set_attribute(&mut self, offcode: OffcodeId, name: String, value: String) -> Done {
        let placed = self.placed(offcode)?;
        if name.len() > ATTRIBUTE_MAX || value.len() > ATTRIBUTE_MAX {
            return Err(DeviceError::Body("an attribute is longer than 4,096 bytes".into()));
        }
        let bytes = [name.as_bytes(), value.as_bytes()].join(&0);
        let attributes = &mut placed.context().attributes;
        if attributes.len() >= ATTRIBUTES_MAX && !attributes.contains_key(&name) {
            return Err(DeviceError::Full("attributes".into()));
        }
        attributes.insert(name, value);
        self.deliver(offcode, InboxItem::Event(event_kind::ATTRIBUTE, bytes));
        Ok(DeviceReply::Done)
    }

    fn status(&mut self) -> DeviceReply {
        let status = |(id, placed): (&OffcodeId, &mut PlacedOffcode)| {
            let mut counters = placed.context().counters;
            counters.memory_bytes = placed.body.memory_bytes();
            (*id, placed.phase, counters)
        };
        DeviceReply::Status(self.offcodes.iter_mut().map(status).collect())
    }

    fn connect(&mut self, connection: ConnectedEnd, fds: Vec<OwnedFd>) -> Done {
        let is_bounded = (1..=DEPTH_MAX).contains(&connection.depth)
            && connection.message_max as usize <= MESSAGE_MAX;
        if !is_bounded {
            return Err(DeviceError::Carrier("its depth or its message is out of bounds".into()));
        }
        let port = self.port_of(connection.end)?;
        if port.connections().count() >= CONNECTIONS_MAX {
            return Err(DeviceError::Full("channels of a port".into()));
        }
        match connection.direction {
            Direction::Out => {
                let carrier = self.out_carrier(&connection, fds)?;
                self.port_of(connection.end)?.connect_out(connection, carrier);
            }
            Direction::In => {
                let carrier = self.in_carrier(&connection, fds)?;
                self.port_of(connection.end)?.connect_in(connection, carrier);
            }
        }
        self.note_ring(connection.end);
        self.connected(&connection);
        Ok(DeviceReply::Done)
    }

    /// The offcode hears of it, and what was turned away before may be sent.
    fn connected(&mut self, connection: &ConnectedEnd) {
        let end = connection.end;
        let is_writable = self.port(end).is_some_and(super::Port::take_writable);
        if is_writable {
            self.deliver(end.offcode, InboxItem::Writable(end.port));
        }
        let bytes = u32::from(end.port).to_le_bytes().to_vec();
        self.deliver(end.offcode, InboxItem::Event(event_kind::CONNECTED, bytes));
    }

    /// A channel's other end is gone: the offcode hears of it, and what is left may have room.
    pub(super) fn disconnect(&mut self, channel: ChannelId, end: EndId, other: EndId) {
        let Some(port) = self.port(end) else { return };
        if !port.disconnect(channel, other) {
            return;
        }
        let is_writable = port.take_writable();
        self.note_ring(end);
        if is_writable {
            self.deliver(end.offcode, InboxItem::Writable(end.port));
        }
        let bytes = u32::from(end.port).to_le_bytes().to_vec();
        self.deliver(end.offcode, InboxItem::Event(event_kind::DISCONNECTED, bytes));
    }

    /// An end is among those that are looked at, or not, by what carries its channels now.
    fn note_ring(&mut self, end: EndId) {
        let has_ring = self.port(end).is_some_and(|port| port.has_ring());
        self.rings.retain(|ring| *ring != end);
        if has_ring {
            self.rings.push(end);
        }
    }

    fn out_carrier(
        &mut self,
        connection: &ConnectedEnd,
        fds: Vec<OwnedFd>,
    ) -> Result<OutCarrier, DeviceError> {
        Ok(match connection.carrier {
            CarrierKind::Inside => OutCarrier::Inside(self.inside(connection)),
            CarrierKind::Session => OutCarrier::Session { depth: connection.depth, on_way: 0 },
            CarrierKind::Ring => {
                let ring = RingOut::attach(connection, fds).map_err(DeviceError::Carrier)?;
                OutCarrier::Ring(ring)
            }
        })
    }

    fn in_carrier(
        &mut self,
        connection: &ConnectedEnd,
        fds: Vec<OwnedFd>,
    ) -> Result<InCarrier, DeviceError> {
        Ok(match connection.carrier {
            CarrierKind::Inside => InCarrier::Inside(self.inside(connection)),
            CarrierKind::Session => InCarrier::session(connection.depth),
            CarrierKind::Ring => {
                let ring = RingIn::attach(connection, fds).map_err(DeviceError::Carrier)?;
                InCarrier::Ring(ring)
            }
        })
    }

    /// The queue of a channel inside this device: whichever end comes first makes it.
    fn inside(&mut self, connection: &ConnectedEnd) -> InsideQueue {
        let (end, other) = (connection.end, connection.other);
        let (from, to) = match connection.direction {
            Direction::Out => (end, other),
            Direction::In => (other, end),
        };
        let half = (connection.channel, from, to);
        let direction = connection.direction;
        match self.halves.remove(&half) {
            Some((made_by, queue)) if made_by != direction => queue,
            // This end's own, of an earlier time, is of no use.
            _ => {
                let queue = InsideQueue::new(connection.depth);
                self.halves.insert(half, (direction, queue.clone()));
                queue
            }
        }
    }
}

fn done(_: [u8; 32]) -> DeviceReply {
    DeviceReply::Done
}

/// Where an offcode is before a step.
fn before(step: OffcodePhase) -> OffcodePhase {
    match step {
        OffcodePhase::Created | OffcodePhase::Initialized => OffcodePhase::Created,
        OffcodePhase::Started => OffcodePhase::Initialized,
        OffcodePhase::Stopped => OffcodePhase::Started,
    }
}
