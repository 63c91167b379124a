//! The runtime's thread: sleeps on its devices and on the application's threads, and gives on what
//! comes from either.
//!
//! What changes the application is done one change at a time; while a change waits for replies,
//! everything else goes on.

use super::command::{LifeCommand, RuntimeCommand};
use super::events::RuntimeEvent;
use super::state::{Conductor, Failure};
use crate::request::{DeviceEvent, DeviceReply, DeviceRequest, OffcodeId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Events of one device that are handled before others have their turn.
const EVENTS_AT_ONCE: usize = 256;
/// Commands of the application's threads that are handled before devices have their turn.
const COMMANDS_AT_ONCE: usize = 256;

impl Conductor {
    /// Works until the application is over.
    pub(super) fn run(mut self) {
        loop {
            while let Some(command) = self.later.pop_front() {
                if self.change(command) {
                    return;
                }
            }
            while let Some(homeless) = self.homeless.pop_front() {
                self.rehome(homeless);
            }
            if self.later.is_empty() {
                self.pump();
            }
        }
    }

    /// Waits for a reply, while everything else goes on. Every reply comes: a device that does not
    /// give it is lost.
    pub(super) fn wait(&mut self, number: u64) -> Result<DeviceReply, Failure> {
        loop {
            if let Some(reply) = self.come.remove(&number) {
                return reply;
            }
            if !self.replies.contains_key(&number) {
                return Err(Failure::Lost("the reply was waited for twice".to_owned()));
            }
            self.pump();
        }
    }

    /// Sleeps until there is something to do, and does it.
    fn pump(&mut self) {
        let asked = self.sleep();
        self.waker.clear();
        self.take_commands();
        self.carry_own();
        for device in 0..self.devices.len() {
            self.take_events(device);
        }
        self.tick(asked);
    }

    /// Sleeps; returns how long at most.
    fn sleep(&mut self) -> Duration {
        for device in &mut self.devices {
            let link = device.link.as_mut().filter(|link| link.wants_write());
            if let Some(Err(lost)) = link.map(|link| link.flush()) {
                device.broken = Some(lost.0);
            }
        }
        let now = Instant::now();
        let until = self.calls.deadline().map_or(self.next_beat, |due| due.min(self.next_beat));
        let is_due = self.devices.iter().any(|device| device.has_more || device.broken.is_some());
        let limit = if is_due { Duration::ZERO } else { until.saturating_duration_since(now) };
        let mut fds = vec![PollFd::new(&self.waker, PollFlags::IN)];
        for link in self.devices.iter().filter_map(|device| device.link.as_ref()) {
            let wants = if link.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN | wants));
        }
        let time = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Interrupted by a signal it looks for work and sleeps again.
        let _ready = poll(&mut fds, Some(&time));
        limit
    }

    fn take_commands(&mut self) {
        for _ in 0..COMMANDS_AT_ONCE {
            match self.commands.try_recv() {
                Ok(command) => self.command(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // Nobody is left who could ask for anything.
                    self.later.push_back(LifeCommand::stop());
                    return;
                }
            }
        }
        // The rest is taken after the devices have had their turn.
        self.waker.wake();
    }

    fn command(&mut self, command: RuntimeCommand) {
        match command {
            RuntimeCommand::Call(call) => self.call_from_application(*call),
            RuntimeCommand::Tell(offcode, bytes) => {
                self.send_to(offcode, DeviceRequest::Tell(offcode, bytes));
            }
            RuntimeCommand::Attributes(offcode, reply) => {
                self.ask_attributes(offcode, DeviceRequest::Attributes(offcode), reply);
            }
            RuntimeCommand::SetAttribute(offcode, name, value, reply) => {
                self.note_attribute(offcode, &name, &value);
                let request = DeviceRequest::SetAttribute(offcode, name, value);
                self.ask_attributes(offcode, request, reply);
            }
            RuntimeCommand::ByName(name, reply) => drop(reply.send(self.id_of(&name))),
            RuntimeCommand::ByGuid(guid, reply) => {
                let found = self.offcodes.iter().filter(|(_, state)| state.plan.guid == guid);
                drop(reply.send(found.map(|(id, _)| *id).collect()));
            }
            RuntimeCommand::Snapshot(reply) => drop(reply.send(self.snapshot())),
            RuntimeCommand::End(name, reply) => drop(reply.send(self.hand_out(&name))),
            RuntimeCommand::Life(command) => self.later.push_back(command),
        }
    }

    fn take_events(&mut self, device: usize) {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(state) = self.devices.get_mut(device) else { return };
            state.has_more = false;
            let Some(link) = state.link.as_mut() else { return };
            match link.poll() {
                Ok(Some(event)) => {
                    state.heard = Instant::now();
                    self.event(device, event);
                }
                Ok(None) => {
                    // What came before it broke has been heard.
                    if let Some(why) = state.broken.take() {
                        self.lose(device, &why);
                    }
                    return;
                }
                Err(lost) => {
                    self.lose(device, &lost.0);
                    return;
                }
            }
        }
        if let Some(state) = self.devices.get_mut(device) {
            state.has_more = true;
        }
    }

    fn event(&mut self, device: usize, event: DeviceEvent) {
        match event {
            DeviceEvent::Reply(number, reply) => {
                self.replied(device, number, reply.map_err(Failure::Refused));
            }
            DeviceEvent::Call(message) => self.call_from_device(device, message),
            DeviceEvent::Answer(key, result) => self.answer_from_device(device, key, result),
            DeviceEvent::Data(channel, to, bytes) => {
                self.data_from_device(device, channel, to, bytes);
            }
            DeviceEvent::Credit(channel, from, to, count) => {
                self.credit_from_device(device, (channel, from, to, count));
            }
            DeviceEvent::Told(offcode, bytes) => {
                self.tell_of(device, offcode, |name| RuntimeEvent::Told { name, bytes });
            }
            DeviceEvent::Log(offcode, level, text) => {
                self.tell_of(device, offcode, |name| RuntimeEvent::Log { name, level, text });
            }
            DeviceEvent::Ended(offcode, why) => {
                if self.is_on(offcode, device) {
                    self.die(offcode, &why);
                }
            }
        }
    }

    /// Tells the application of something that an offcode on `device` said.
    fn tell_of(
        &mut self,
        device: usize,
        offcode: OffcodeId,
        event: impl FnOnce(String) -> RuntimeEvent,
    ) {
        if self.is_on(offcode, device) {
            self.events.push(event(self.name_of(offcode)));
        }
    }

    /// All replies that a device owes will not come.
    pub(super) fn fail_replies(&mut self, device: usize, why: &str) {
        let owed = self.replies.iter().filter(|(_, pending)| pending.device == device);
        let mut numbers: Vec<u64> = owed.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.replied(device, number, Err(Failure::Lost(why.to_owned())));
        }
    }
}
