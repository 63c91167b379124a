//! The tree of resources: what is gone with an offcode, and who is told.
//!
//! It waits for nobody: devices are told to remove what is left on them.

use super::events::RuntimeEvent;
use super::plan::WhenDeviceLost;
use super::state::{Conductor, Whereabouts};
use crate::request::{DeviceRequest, OffcodeId};

impl Conductor {
    /// All offcodes below one, in the order in which they were started.
    pub(super) fn below(&self, offcode: OffcodeId) -> Vec<OffcodeId> {
        let mut found = vec![offcode];
        let mut at = 0;
        while let Some(&above) = found.get(at) {
            let children = self.offcodes.iter().filter(|(_, state)| state.parent == Some(above));
            let ids: Vec<OffcodeId> = children.map(|(id, _)| *id).collect();
            found.extend(ids.into_iter().filter(|id| !found.contains(id)).collect::<Vec<_>>());
            at += 1;
        }
        found.remove(0);
        found.sort_unstable();
        found
    }

    /// An offcode is gone, and all below it.
    pub(super) fn die(&mut self, offcode: OffcodeId, why: &str) {
        if !self.offcodes.contains_key(&offcode) {
            return;
        }
        let name = self.name_of(offcode);
        let below = self.below(offcode);
        let with: Vec<String> = below.iter().map(|id| self.name_of(*id)).collect();
        let above = format!("`{name}` above it is gone: {why}");
        for id in below.into_iter().rev() {
            let ended = RuntimeEvent::Ended {
                name: self.name_of(id),
                why: above.clone(),
                with: Vec::new(),
            };
            self.leave(id, &above);
            self.events.push(ended);
        }
        self.leave(offcode, why);
        self.events.push(RuntimeEvent::Ended { name, why: why.to_owned(), with });
    }

    /// Takes an offcode off its device without waiting, and forgets it.
    fn leave(&mut self, offcode: OffcodeId, why: &str) {
        if let Some(state) = self.offcodes.get(&offcode) {
            // Where it has ended by itself nothing is left, and the device says so to nobody.
            self.post(state.device, DeviceRequest::Remove(offcode));
        }
        self.forget(offcode, why);
    }

    /// An offcode is no longer anywhere: its channels and calls end.
    pub(super) fn forget(&mut self, offcode: OffcodeId, why: &str) {
        if !self.offcodes.contains_key(&offcode) {
            return;
        }
        self.disconnect_all(offcode);
        let state = self.offcodes.remove(&offcode);
        let name = state.as_ref().map_or("", |state| state.plan.name.as_str());
        self.note_reason(offcode, name, why);
        self.end_calls(offcode, &format!("`{name}`: {why}"));
        if let Some(Whereabouts::Away(deferred)) = state.map(|state| state.place) {
            for reply in deferred.into_iter().filter_map(|(_, reply)| reply) {
                let _unheard = reply.send(Err(self.gone(offcode)));
            }
        }
    }

    /// A device is lost: so is what was on it, but for what may go on elsewhere.
    pub(super) fn lose(&mut self, device: usize, why: &str) {
        let Some(state) = self.devices.get_mut(device).filter(|state| state.link.is_some()) else {
            return;
        };
        state.link = None;
        why.clone_into(&mut state.why_lost);
        let name = state.name.clone();
        self.fail_replies(device, why);
        let (told, lost) = (why.to_owned(), format!("device `{name}` is lost: {why}"));
        self.events.push(RuntimeEvent::DeviceLost { device: name, why: told });
        let there = self.offcodes.iter().filter(|(_, state)| {
            // One on its way is the business of who moves it.
            state.device == device && matches!(state.place, Whereabouts::There)
        });
        let there: Vec<OffcodeId> = there.map(|(id, _)| *id).collect();
        there.into_iter().for_each(|id| self.bereave(id, &lost));
    }

    /// An offcode has lost its device.
    pub(super) fn bereave(&mut self, offcode: OffcodeId, why: &str) {
        let Some(state) = self.offcodes.get_mut(&offcode) else { return };
        let others = match &state.plan.when_lost {
            WhenDeviceLost::End => Vec::new(),
            WhenDeviceLost::Move(others) => others.clone(),
        };
        if !others.iter().any(|device| self.devices[*device].link.is_some()) {
            self.die(offcode, why);
            return;
        }
        if matches!(state.place, Whereabouts::There) {
            state.place = Whereabouts::Away(Vec::new());
        }
        self.end_calls(offcode, why);
        let incoming = self.legs_to(offcode);
        for (channel, from, to) in incoming {
            match self.own(from) {
                Some(own) => own.park(channel, to),
                None => drop(self.send_to(from.offcode, DeviceRequest::Park(channel, from, to))),
            }
        }
        self.homeless.push_back(offcode);
    }
}
