//! Whether devices live, what their offcodes have done, and which offcodes nobody has reached for
//! long.
//!
//! A pause of this process itself is no device's fault, and no offcode's rest.

use super::command::AttributeReply;
use super::error::{LifeStep, RuntimeError};
use super::state::{Conductor, Failure, ReplyTo, Whereabouts};
use crate::request::{
    DeviceReply, DeviceRequest, Numbered, OffcodeCounters, OffcodeId, OffcodePhase, WATCHDOG_MS,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The attribute that says after how many milliseconds without work an offcode is removed.
pub const OBSOLETE_TIME: &str = "OBSOLETE_TIME";

impl Conductor {
    /// Does what is due, after a sleep of at most `asked`.
    pub(super) fn tick(&mut self, asked: Duration) {
        let now = Instant::now();
        self.give_up_calls(now);
        let since = now.saturating_duration_since(self.ticked);
        self.ticked = now;
        let pause = since.saturating_sub(asked);
        if pause > self.options.heartbeat {
            self.forgive_pause(now, pause);
        }
        self.look_for_lost(now);
        if now >= self.next_beat {
            self.next_beat = now + self.options.heartbeat;
            self.ask_devices(now);
        }
    }

    /// This process itself did nothing for a while: nobody could have been heard.
    fn forgive_pause(&mut self, now: Instant, pause: Duration) {
        for device in &mut self.devices {
            device.heard = now;
            device.asked = device.asked.map(|_| now);
        }
        self.replies.values_mut().for_each(|reply| reply.until += pause);
        self.offcodes.values_mut().for_each(|offcode| offcode.active += pause);
    }

    fn look_for_lost(&mut self, now: Instant) {
        let late = self.replies.values().find(|reply| reply.until <= now);
        if let Some(device) = late.map(|reply| reply.device) {
            let limit = self.options.reply_limit;
            self.lose(device, &format!("it did not reply within {limit:?}"));
        }
        for device in 0..self.devices.len() {
            if self.is_silent(device, now) {
                let limit = self.options.silence;
                self.lose(device, &format!("it says nothing for {limit:?}"));
            }
        }
    }

    fn is_silent(&self, device: usize, now: Instant) -> bool {
        let state = &self.devices[device];
        let Some(asked) = state.asked.filter(|_| state.link.is_some()) else { return false };
        let since = now.saturating_duration_since(asked.max(state.heard));
        // Compiling, or starting an offcode, may take longer: the reply's own limit holds then.
        let works = |reply: &super::state::PendingReply| {
            reply.device == device && !matches!(reply.to, ReplyTo::Status)
        };
        let limit = self.options.silence + self.longest_entry(device);
        since > limit && !self.replies.values().any(works)
    }

    /// How long an entry of an offcode on a device may take, during which it says nothing.
    fn longest_entry(&self, device: usize) -> Duration {
        let own = self.offcodes.values().filter(|offcode| offcode.device == device);
        let limits = own.map(|offcode| match offcode.plan.needs.watchdog_ms {
            0 => WATCHDOG_MS,
            limit => limit,
        });
        Duration::from_millis(limits.max().unwrap_or(0).into())
    }

    fn ask_devices(&mut self, now: Instant) {
        for device in 0..self.devices.len() {
            let state = &mut self.devices[device];
            if state.link.is_some() && state.asked.is_none() {
                state.asked = Some(now);
                let mut numbered = Numbered { number: 0, request: DeviceRequest::Status };
                self.ask_kept(device, &mut numbered, &[], ReplyTo::Status);
            }
        }
    }

    pub(super) fn handle_status(&mut self, device: usize, reply: Result<DeviceReply, Failure>) {
        if let Some(state) = self.devices.get_mut(device) {
            state.asked = None;
        }
        let Ok(DeviceReply::Status(all)) = reply else { return };
        let now = Instant::now();
        for (offcode, phase, counters) in all {
            if self.is_on(offcode, device) && self.note_status(offcode, phase, counters, now) {
                self.die(offcode, "its obsolete time is over: nothing has reached it");
            }
        }
    }

    /// Notes what an offcode has done. True: nothing has reached it for longer than it may live so.
    fn note_status(
        &mut self,
        offcode: OffcodeId,
        phase: OffcodePhase,
        counters: OffcodeCounters,
        now: Instant,
    ) -> bool {
        let legs = self.legs_to(offcode);
        let waits = legs
            .iter()
            .any(|(channel, _, to)| self.leg(*channel, *to).is_some_and(|leg| leg.on_way > 0));
        let waits = waits || self.calls.to(offcode) > 0;
        let Some(state) = self.offcodes.get_mut(&offcode) else { return false };
        let before = std::mem::replace(&mut state.counters, counters);
        let is_busy = waits
            || phase != OffcodePhase::Started
            || matches!(state.place, Whereabouts::Away(_))
            || (before.entries, before.received) != (counters.entries, counters.received);
        if is_busy {
            state.active = now;
        }
        let rest = now.saturating_duration_since(state.active);
        state.plan.obsolete.is_some_and(|limit| rest >= limit)
    }

    /// Keeps an attribute for when the offcode is created anew, and heeds those that are ours.
    pub(super) fn note_attribute(&mut self, offcode: OffcodeId, name: &str, value: &str) {
        let Some(state) = self.offcodes.get_mut(&offcode) else { return };
        state.plan.attributes.insert(name.to_owned(), value.to_owned());
        if name == OBSOLETE_TIME {
            let limit = value.parse().ok().filter(|limit| *limit > 0);
            state.plan.obsolete = limit.map(Duration::from_millis);
            state.active = Instant::now();
        }
    }

    pub(super) fn handle_attributes(
        &mut self,
        offcode: OffcodeId,
        to: &AttributeReply,
        reply: Result<DeviceReply, Failure>,
    ) {
        let (name, device) = (self.name_of(offcode), self.device_of(offcode));
        let result: Result<BTreeMap<String, String>, RuntimeError> = match reply {
            Ok(DeviceReply::Attributes(attributes)) => Ok(attributes),
            Ok(_) => Ok(BTreeMap::new()),
            Err(failure) => Err(self.step_error(&name, device, LifeStep::Attributes, failure)),
        };
        let _unheard = to.send(result);
    }
}
