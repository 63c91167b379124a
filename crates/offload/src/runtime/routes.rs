//! Channels: what carries each, and the messages that go through the runtime.
//!
//! A device that sends more than a channel holds is at fault and lost: nothing grows.

use super::app_end::{AppEnd, EndShared};
use super::error::RuntimeError;
use super::lifecycle::AskedStep;
use super::plan::{PlannedChannel, PlannedEnd};
use super::state::{AppPort, ChannelState, Conductor, Leg, ReplyTo};
use crate::request::{
    CarrierKind, ChannelId, ConnectedEnd, DeviceRequest, Direction, EndId, Numbered, OffcodeId,
};
use outboard_mem::ring::{RingSender, RingSpec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

impl Conductor {
    /// Notes channels of a plan whose offcodes have numbers; connects nothing.
    pub(super) fn note_channels(
        &mut self,
        channels: &[PlannedChannel],
    ) -> Result<Vec<ChannelId>, RuntimeError> {
        let mut noted = Vec::new();
        for channel in channels {
            let from = self.end_id(&channel.from)?;
            let mut legs = Vec::new();
            for to in &channel.to {
                let (to, carrier) = (self.end_id(to)?, CarrierKind::Session);
                legs.push(Leg { to, carrier, on_way: 0, forwarded: 0, is_settled: false });
            }
            let PlannedChannel { is_reliable, depth, message_max, .. } = *channel;
            let id = ChannelId(self.next_channel);
            self.next_channel += 1;
            let state = ChannelState { from, legs, is_reliable, depth, message_max };
            self.channels.insert(id, state);
            noted.push(id);
        }
        Ok(noted)
    }

    fn end_id(&mut self, end: &PlannedEnd) -> Result<EndId, RuntimeError> {
        match end {
            PlannedEnd::Offcode(name, port) => {
                Ok(EndId { offcode: self.named(name)?, port: *port })
            }
            PlannedEnd::Application(name) => self.own_end(name),
        }
    }

    /// An end of the application, made when it is first named.
    fn own_end(&mut self, name: &str) -> Result<EndId, RuntimeError> {
        let known = self.ends.iter().position(|end| end.name == name);
        let at = known.unwrap_or(self.ends.len());
        let Ok(port) = u16::try_from(at) else {
            return Err(RuntimeError::NoEnd { name: name.to_owned() });
        };
        if known.is_none() {
            let shared = EndShared::new(self.waker.clone());
            let shared = Arc::new(shared.map_err(|errno| RuntimeError::Machine {
                what: "descriptors for an end of channels",
                errno: errno.to_string(),
            })?);
            self.ends.push(AppPort { name: name.to_owned(), shared, is_handed_out: false });
        }
        Ok(EndId { offcode: OffcodeId::APPLICATION, port })
    }

    /// Hands an end of the application out, once.
    pub(super) fn hand_out(&mut self, name: &str) -> Result<AppEnd, RuntimeError> {
        let own = self.ends.iter_mut().find(|own| own.name == name && !own.is_handed_out);
        let own = own.ok_or_else(|| RuntimeError::NoEnd { name: name.to_owned() })?;
        own.is_handed_out = true;
        Ok(AppEnd(Arc::clone(&own.shared)))
    }

    pub(super) fn own(&self, end: EndId) -> Option<Arc<EndShared>> {
        let own = self.ends.get(usize::from(end.port));
        own.filter(|_| end.offcode == OffcodeId::APPLICATION).map(|own| Arc::clone(&own.shared))
    }

    /// The channels' legs that begin or end at an offcode: the channel, its sender, its receiver.
    pub(super) fn legs_of(&self, offcode: OffcodeId) -> Vec<(ChannelId, EndId, EndId)> {
        let mut legs = Vec::new();
        for (id, channel) in &self.channels {
            let is_sender = channel.from.offcode == offcode;
            let mine = channel.legs.iter().filter(|leg| is_sender || leg.to.offcode == offcode);
            legs.extend(mine.map(|leg| (*id, channel.from, leg.to)));
        }
        legs
    }

    /// Connects both ends of a leg, in the place of what carried it before.
    pub(super) fn connect_leg(&mut self, channel: ChannelId, to: EndId) -> Vec<AskedStep> {
        let Some(state) = self.channels.get(&channel) else { return Vec::new() };
        let from = state.from;
        let (depth, message_max, is_reliable) = (state.depth, state.message_max, state.is_reliable);
        let (carrier, ring) = self.choose_carrier(from, to, depth, message_max);
        if let Some(leg) = self.leg(channel, to) {
            (leg.carrier, leg.on_way, leg.is_settled) = (carrier, 0, false);
        }
        let end = |direction| {
            let (end, other) = match direction {
                Direction::Out => (from, to),
                Direction::In => (to, from),
            };
            let fixed = (channel, depth, message_max, is_reliable);
            let (channel, depth, message_max, is_reliable) = fixed;
            ConnectedEnd {
                channel,
                end,
                other,
                direction,
                carrier,
                depth,
                message_max,
                is_reliable,
            }
        };
        // Through the runtime the receiver is connected first, that nothing comes too early. Inside
        // a device the sender is: its device makes the queue then.
        let order = match carrier {
            CarrierKind::Inside => [Direction::Out, Direction::In],
            CarrierKind::Ring | CarrierKind::Session => [Direction::In, Direction::Out],
        };
        let connect = |direction| self.connect_end(end(direction), ring.as_ref());
        order.map(connect).into_iter().flatten().collect()
    }

    fn connect_end(&mut self, end: ConnectedEnd, ring: Option<&OwnedFd>) -> Option<AskedStep> {
        let settles = match end.direction {
            Direction::In => ReplyTo::Settles(end.channel, end.end),
            Direction::Out => ReplyTo::Waited,
        };
        if let Some(own) = self.own(end.end) {
            own.connect(end);
            if let ReplyTo::Settles(channel, to) = settles
                && let Some(leg) = self.leg(channel, to)
            {
                leg.is_settled = true;
            }
            return None;
        }
        let device = self.offcodes.get(&end.end.offcode)?.device;
        let other = self.offcodes.get(&end.other.offcode).map(|other| other.device);
        let bell = other.and_then(|other| self.doorbell(other));
        let beside: Vec<BorrowedFd<'_>> = match (ring, &bell) {
            (Some(ring), Some(bell)) => vec![ring.as_fd(), bell.as_fd()],
            _ => Vec::new(),
        };
        let offcode = end.end.offcode;
        let mut numbered = Numbered { number: 0, request: DeviceRequest::Connect(end) };
        let number = self.ask_kept(device, &mut numbered, &beside, settles);
        Some(AskedStep { offcode, name: self.name_of(offcode), device, number })
    }

    /// Rings at a device that sleeps: a descriptor of one's own.
    fn doorbell(&self, device: usize) -> Option<OwnedFd> {
        let link = self.devices.get(device)?.link.as_ref()?;
        link.bell()?.try_clone_to_owned().ok()
    }

    /// What is to carry messages between two ends, with the memory of a ring.
    fn choose_carrier(
        &self,
        from: EndId,
        to: EndId,
        depth: u32,
        message_max: u32,
    ) -> (CarrierKind, Option<OwnedFd>) {
        let device = |end: EndId| self.offcodes.get(&end.offcode).map(|state| state.device);
        let (Some(from), Some(to)) = (device(from), device(to)) else {
            return (CarrierKind::Session, None);
        };
        if from == to {
            return (CarrierKind::Inside, None);
        }
        let share = [from, to].iter().all(|device| self.doorbell(*device).is_some());
        // A ring that this machine has no memory for is no reason to fail.
        let ring = || {
            let spec =
                RingSpec::new(depth.checked_next_power_of_two()?, message_max.max(1)).ok()?;
            RingSender::create(spec, None).ok().map(|(_, memfd)| memfd)
        };
        match share.then(ring).flatten() {
            Some(memfd) => (CarrierKind::Ring, Some(memfd)),
            None => (CarrierKind::Session, None),
        }
    }

    /// A message from an offcode on `device`.
    pub(super) fn data_from_device(
        &mut self,
        device: usize,
        channel: ChannelId,
        to: EndId,
        bytes: Vec<u8>,
    ) {
        let sender = self.channels.get(&channel).map(|channel| channel.from.offcode);
        if sender.is_some_and(|sender| self.is_on(sender, device))
            && !self.forward_data(channel, to, bytes)
        {
            self.lose(device, "it sent more messages than a channel holds");
        }
    }

    /// Forwards a message. False: the sender sends more than the channel holds.
    fn forward_data(&mut self, channel: ChannelId, to: EndId, bytes: Vec<u8>) -> bool {
        let Some(state) = self.channels.get_mut(&channel) else { return true };
        let (depth, message_max) = (state.depth, state.message_max);
        let Some(leg) = state.legs.iter_mut().find(|leg| leg.to == to) else { return true };
        if leg.on_way >= depth || bytes.len() > usize::try_from(message_max).unwrap_or(0) {
            return false;
        }
        leg.on_way += 1;
        leg.forwarded += 1;
        match self.own(to) {
            Some(own) => drop(own.deliver(channel, bytes)),
            // Senders are parked before a receiver goes on its way: nothing waits here for it.
            None => drop(self.send_to(to.offcode, DeviceRequest::Data(channel, to, bytes))),
        }
        true
    }

    /// A receiver on `device` has taken messages out.
    pub(super) fn credit_from_device(
        &mut self,
        device: usize,
        credit: (ChannelId, EndId, EndId, u32),
    ) {
        if self.is_on(credit.2.offcode, device) {
            self.forward_credit(credit);
        }
    }

    fn forward_credit(&mut self, (channel, from, to, count): (ChannelId, EndId, EndId, u32)) {
        let Some(leg) = self.leg(channel, to).filter(|leg| leg.is_settled) else { return };
        let count = count.min(leg.on_way);
        leg.on_way -= count;
        match self.own(from) {
            Some(own) => own.credited(channel, to, count),
            None => {
                let _gone =
                    self.send_to(from.offcode, DeviceRequest::Credit(channel, from, to, count));
            }
        }
    }

    /// Carries what the application has sent and taken out.
    pub(super) fn carry_own(&mut self) {
        for at in 0..self.ends.len() {
            let shared = Arc::clone(&self.ends[at].shared);
            let Some((outgoing, credits)) = shared.take_due() else { continue };
            for (channel, to, bytes) in outgoing {
                self.forward_data(channel, to, bytes);
            }
            credits.into_iter().for_each(|credit| self.forward_credit(credit));
        }
    }

    /// Senders of these legs send nothing until they are connected anew; what they have sent is on
    /// its way, or has arrived, when the replies are there.
    pub(super) fn park(&mut self, legs: &[(ChannelId, EndId, EndId)]) -> Vec<AskedStep> {
        let mut asked = Vec::new();
        for &(channel, from, to) in legs {
            if let Some(own) = self.own(from) {
                own.park(channel, to);
                self.carry_own();
            }
            asked.extend(self.ask_offcode(from.offcode, DeviceRequest::Park(channel, from, to)));
        }
        asked
    }

    /// An offcode is gone: the other ends of its channels hear of it.
    pub(super) fn disconnect_all(&mut self, offcode: OffcodeId) {
        for (channel, from, to) in self.legs_of(offcode) {
            let (end, other) = if from.offcode == offcode { (to, from) } else { (from, to) };
            match self.own(end) {
                Some(own) => own.disconnect(channel, other),
                None => {
                    let _gone_already =
                        self.send_to(end.offcode, DeviceRequest::Disconnect(channel, end, other));
                }
            }
            if let Some(state) = self.channels.get_mut(&channel) {
                state.legs.retain(|leg| leg.to != to);
            }
        }
        self.channels.retain(|_, channel| !channel.legs.is_empty());
    }

    pub(super) fn device_of(&self, offcode: OffcodeId) -> usize {
        self.offcodes.get(&offcode).map_or(usize::MAX, |state| state.device)
    }
}
