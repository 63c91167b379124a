//! Offcodes that go on elsewhere, or with other code: no message is lost, doubled or reordered.
//!
//! Senders are parked first, so that everything for the offcode has arrived when it is taken away;
//! that goes along with its state. Then it is created with it, and its channels are connected anew:
//! receivers take out what the carriers before still have before they look at the new ones.

use super::error::{LifeStep, RuntimeError};
use super::events::RuntimeEvent;
use super::lifecycle::{AskedStep, WhenGone};
use super::plan::{PlannedCode, WhenDeviceLost};
use super::state::{Conductor, Failure, Whereabouts};
use crate::request::{
    ChannelId, DeviceError, DeviceReply, DeviceRequest, EndId, Frozen, Numbered, OffcodeId,
    OffcodePhase,
};
use std::collections::HashSet;

impl Conductor {
    /// Moves an offcode to another device.
    pub(super) fn move_to(&mut self, name: &str, device: usize) -> Result<(), RuntimeError> {
        let id = self.named(name)?;
        let devices = self.devices.len();
        let Some(target) = self.devices.get(device) else {
            return Err(RuntimeError::NoDevice { index: device, devices });
        };
        if target.link.is_none() {
            let failure = Failure::Lost(target.why_lost.clone());
            let why = Box::new(self.step_error(name, device, LifeStep::Create, failure));
            return Err(RuntimeError::Stays { offcode: name.to_owned(), why });
        }
        if self.is_on(id, device) {
            return Ok(());
        }
        let frozen = self.take_away(id, false)?;
        self.put(id, device, frozen, None)?;
        let device = self.device_name(device);
        self.events.push(RuntimeEvent::Moved { name: name.to_owned(), device });
        Ok(())
    }

    /// An offcode goes on with other code where it is.
    pub(super) fn update(&mut self, name: &str, code: PlannedCode) -> Result<(), RuntimeError> {
        let id = self.named(name)?;
        let frozen = self.take_away(id, true)?;
        let device = self.device_of(id);
        self.put(id, device, frozen, Some(code))
    }

    /// Legs that end at an offcode.
    pub(super) fn legs_to(&self, offcode: OffcodeId) -> Vec<(ChannelId, EndId, EndId)> {
        let mut legs = self.legs_of(offcode);
        legs.retain(|(_, _, to)| to.offcode == offcode);
        legs
    }

    /// Takes an offcode off its device, with everything that has arrived for it.
    fn take_away(&mut self, id: OffcodeId, is_update: bool) -> Result<Frozen, RuntimeError> {
        let incoming = self.legs_to(id);
        let parked = self.park(&incoming);
        let parked = self.wait_asked(parked, LifeStep::Take, WhenGone::Forgiven);
        let Some(state) = self.offcodes.get_mut(&id) else { return Err(self.gone(id)) };
        let (name, device) = (state.plan.name.clone(), state.device);
        if let Err(why) = parked {
            return Err(self.stays(id, &name, why));
        }
        state.place = Whereabouts::Away(Vec::new());
        let number = self.ask(device, DeviceRequest::Take { offcode: id, is_update });
        let reply = self.wait(number);
        if !self.offcodes.contains_key(&id) {
            return Err(self.gone(id));
        }
        match reply {
            Ok(DeviceReply::Taken(frozen)) => {
                self.adopt_calls(id, &frozen);
                Ok(*frozen)
            }
            Ok(_) => {
                let fault = DeviceError::Failed("the device replied something else".to_owned());
                let failure = Failure::Refused(fault);
                let why = self.step_error(&name, device, LifeStep::Take, failure);
                Err(self.stays(id, &name, why))
            }
            Err(failure @ Failure::Refused(_)) => {
                let why = self.step_error(&name, device, LifeStep::Take, failure);
                Err(self.stays(id, &name, why))
            }
            Err(Failure::Lost(why)) => {
                self.bereave(id, &why);
                Err(self.step_error(&name, device, LifeStep::Take, Failure::Lost(why)))
            }
        }
    }

    /// It goes on where it is.
    fn stays(&mut self, id: OffcodeId, name: &str, why: RuntimeError) -> RuntimeError {
        match self.connect_again(id) {
            Ok(()) => RuntimeError::Stays { offcode: name.to_owned(), why: Box::new(why) },
            Err(error) => error,
        }
    }

    /// Puts an offcode onto a device, and back to where it was if that fails.
    fn put(
        &mut self,
        id: OffcodeId,
        device: usize,
        frozen: Frozen,
        code: Option<PlannedCode>,
    ) -> Result<(), RuntimeError> {
        let Some(state) = self.offcodes.get_mut(&id) else { return Err(self.gone(id)) };
        let name = state.plan.name.clone();
        let source = std::mem::replace(&mut state.device, device);
        let before = state.plan.code.clone();
        if let Some(code) = code {
            state.plan.code = code;
        }
        let Some(mut creation) = self.creation(id, Some(frozen)) else { return Err(self.gone(id)) };
        let Err(why) = self.create_from(id, &mut creation) else { return self.connect_again(id) };
        let Some(state) = self.offcodes.get_mut(&id) else { return Err(self.gone(id)) };
        (state.device, state.plan.code) = (source, before);
        if let DeviceRequest::Create(creation) = &mut creation.request {
            creation.code = state.plan.code.body();
        }
        match self.create_from(id, &mut creation) {
            Ok(()) => Err(self.stays(id, &name, why)),
            Err(second) => {
                self.die(id, &format!("it could not go elsewhere ({why}), nor back ({second})"));
                Err(self.gone(id))
            }
        }
    }

    /// Creates an offcode on the device where it is to be, and sends its code if need be.
    fn create_from(&mut self, id: OffcodeId, creation: &mut Numbered) -> Result<(), RuntimeError> {
        let device = self.device_of(id);
        let asked = self.ask_creation(id, creation);
        let Some(AskedStep { name, number, .. }) = asked else { return Err(self.gone(id)) };
        let reply = self.wait(number);
        let outcome = match reply {
            Ok(DeviceReply::Unknown(missing)) => {
                let load = self.ask_code(id, &missing, &mut HashSet::new());
                let again = self.ask_creation(id, creation);
                let loaded = self.wait_asked(load, LifeStep::Load, WhenGone::Fails);
                let again = again.into_iter().collect();
                let created = self.wait_asked(again, LifeStep::Create, WhenGone::Fails);
                loaded.and(created)
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.step_error(&name, device, LifeStep::Create, failure)),
        };
        if !self.offcodes.contains_key(&id) {
            // What it belongs to went meanwhile.
            self.post(device, DeviceRequest::Remove(id));
            return Err(self.gone(id));
        }
        outcome
    }

    /// Connects all channels of an offcode anew, and gives it what has waited for it.
    fn connect_again(&mut self, id: OffcodeId) -> Result<(), RuntimeError> {
        let mut asked = Vec::new();
        for (channel, _, to) in self.legs_of(id) {
            asked.extend(self.connect_leg(channel, to));
        }
        self.arrive(id);
        let connected = self.wait_asked(asked, LifeStep::Connect, WhenGone::Forgiven);
        // Only now: what it sends before the other ends are connected would be lost.
        if self.offcodes.contains_key(&id) {
            self.post(self.device_of(id), DeviceRequest::Resume(id));
        }
        connected
    }

    /// Creates an offcode that lost its device anew, on the first device that takes it.
    pub(super) fn rehome(&mut self, id: OffcodeId) {
        let Some(state) = self.offcodes.get(&id) else { return };
        let WhenDeviceLost::Move(others) = state.plan.when_lost.clone() else { return };
        let mut why = "no other device is left".to_owned();
        for device in others {
            if self.devices[device].link.is_none() {
                continue;
            }
            let Some(state) = self.offcodes.get_mut(&id) else { return };
            state.device = device;
            state.phase = OffcodePhase::Created;
            match self.begin_anew(id) {
                Ok(()) => {
                    let (name, device) = (self.name_of(id), self.device_name(device));
                    self.events.push(RuntimeEvent::Moved { name, device });
                    return;
                }
                Err(error) => {
                    self.post(device, DeviceRequest::Remove(id));
                    why = error.to_string();
                }
            }
        }
        self.die(id, &format!("its device is lost, and it could not go elsewhere: {why}"));
    }

    fn begin_anew(&mut self, id: OffcodeId) -> Result<(), RuntimeError> {
        let Some(mut creation) = self.creation(id, None) else { return Err(self.gone(id)) };
        self.create_from(id, &mut creation)?;
        let mut asked = Vec::new();
        for (channel, _, to) in self.legs_of(id) {
            asked.extend(self.connect_leg(channel, to));
        }
        let initialize = self.ask_offcode(id, DeviceRequest::Initialize(id));
        let connected = self.wait_asked(asked, LifeStep::Connect, WhenGone::Forgiven);
        let initialize = initialize.into_iter().collect();
        let initialized = self.wait_asked(initialize, LifeStep::Initialize, WhenGone::Fails);
        connected.and(initialized)?;
        let start = self.ask_offcode(id, DeviceRequest::Start(id)).into_iter().collect();
        self.wait_asked(start, LifeStep::Start, WhenGone::Fails)?;
        if let Some(state) = self.offcodes.get_mut(&id) {
            state.phase = OffcodePhase::Started;
        }
        self.arrive(id);
        Ok(())
    }
}
