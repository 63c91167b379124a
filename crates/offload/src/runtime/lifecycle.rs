//! How offcodes begin and end: created, connected, initialised, started; stopped and removed.
//!
//! What belongs together is asked for together, and replies are waited for afterwards. If one step
//! fails, all that was begun with it is taken back.

use super::command::{LifeChange, LifeCommand};
use super::error::{LifeStep, RuntimeError};
use super::events::RuntimeEvent;
use super::plan::{PlanGround, PlannedOffcode, RuntimePlan};
use super::state::{Conductor, Failure, OffcodeState, ReplyTo, Whereabouts};
use crate::request::{
    ChannelId, Creation, DeviceError, DeviceReply, DeviceRequest, Frozen, Numbered,
    OffcodeCounters, OffcodeId, OffcodePhase,
};
use std::collections::HashSet;
use std::time::Instant;

/// A request for an offcode whose reply is waited for.
#[derive(Debug)]
pub(super) struct AskedStep {
    pub(super) offcode: OffcodeId,
    pub(super) name: String,
    pub(super) device: usize,
    pub(super) number: u64,
}

/// What it means for a step that an offcode went before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenGone {
    /// Nothing: it was another's part.
    Forgiven,
    /// The step has failed.
    Fails,
}

impl Conductor {
    /// Changes the application as asked. True: it is over.
    pub(super) fn change(&mut self, command: LifeCommand) -> bool {
        let is_stop = matches!(command.change, LifeChange::Stop);
        let outcome = match command.change {
            LifeChange::Create(plan) => self.create_plan(&plan),
            LifeChange::Bind { offcode, import, server } => self.bind(&offcode, import, &server),
            LifeChange::Move { offcode, device } => self.move_to(&offcode, device),
            LifeChange::Update { offcode, code } => self.update(&offcode, code),
            LifeChange::Remove { offcode } => self.remove(&offcode),
            LifeChange::Stop => {
                self.stop_all();
                Ok(())
            }
        };
        let _unheard = command.reply.send(outcome);
        is_stop
    }

    /// Adds offcodes and channels, and starts them.
    fn create_plan(&mut self, plan: &RuntimePlan) -> Result<(), RuntimeError> {
        let running = self.offcodes.values();
        let running = running.map(|state| (state.plan.name.as_str(), state.plan.ports)).collect();
        let ground =
            PlanGround { devices: self.devices.len(), running, channels: self.channels.len() };
        plan.check(&ground)?;
        let first = ChannelId(self.next_channel);
        let ids = self.note_offcodes(&plan.offcodes);
        let noted = self.note_channels(&plan.channels);
        let outcome = noted.and_then(|channels| self.bring_up(&ids, &channels));
        if outcome.is_err() {
            self.take_down(&ids, "the start failed");
            self.drop_channels(first);
        }
        outcome
    }

    fn note_offcodes(&mut self, plans: &[PlannedOffcode]) -> Vec<OffcodeId> {
        let mut ids = Vec::new();
        for plan in plans {
            let id = OffcodeId(self.next_offcode);
            self.next_offcode += 1;
            let state = OffcodeState {
                plan: plan.clone(),
                device: plan.device,
                place: Whereabouts::There,
                phase: OffcodePhase::Created,
                counters: OffcodeCounters::default(),
                active: Instant::now(),
                parent: None,
            };
            self.offcodes.insert(id, state);
            ids.push(id);
        }
        for (id, plan) in ids.iter().zip(plans) {
            let parent = plan.parent.as_ref().and_then(|parent| self.id_of(parent));
            if let Some(state) = self.offcodes.get_mut(id) {
                state.parent = parent;
            }
        }
        ids
    }

    fn bring_up(&mut self, ids: &[OffcodeId], channels: &[ChannelId]) -> Result<(), RuntimeError> {
        self.create_all(ids)?;
        let mut connects = Vec::new();
        for channel in channels {
            let legs = self.channels.get(channel).map(|channel| channel.legs.iter());
            let ends: Vec<_> = legs.into_iter().flatten().map(|leg| leg.to).collect();
            ends.into_iter().for_each(|to| connects.extend(self.connect_leg(*channel, to)));
        }
        let initializes = self.ask_all(ids, DeviceRequest::Initialize);
        let connected = self.wait_asked(connects, LifeStep::Connect, WhenGone::Fails);
        let initialized = self.wait_asked(initializes, LifeStep::Initialize, WhenGone::Fails);
        connected.and(initialized)?;
        self.note_phase(ids, OffcodePhase::Initialized)?;
        let starts = self.ask_all(ids, DeviceRequest::Start);
        self.wait_asked(starts, LifeStep::Start, WhenGone::Fails)?;
        self.note_phase(ids, OffcodePhase::Started)
    }

    /// All of them are that far, if all are still there.
    fn note_phase(&mut self, ids: &[OffcodeId], phase: OffcodePhase) -> Result<(), RuntimeError> {
        for id in ids {
            match self.offcodes.get_mut(id) {
                Some(state) => state.phase = phase,
                None => return Err(self.gone(*id)),
            }
        }
        Ok(())
    }

    pub(super) fn gone(&self, offcode: OffcodeId) -> RuntimeError {
        RuntimeError::Gone { offcode: self.name_of(offcode), why: self.reason(offcode) }
    }

    /// Asks the offcode's device. `None`: it is not there.
    pub(super) fn ask_offcode(
        &mut self,
        offcode: OffcodeId,
        request: DeviceRequest,
    ) -> Option<AskedStep> {
        let state = self.offcodes.get(&offcode)?;
        let (name, device) = (state.plan.name.clone(), state.device);
        let number = self.ask(device, request);
        Some(AskedStep { offcode, name, device, number })
    }

    pub(super) fn ask_all(
        &mut self,
        ids: &[OffcodeId],
        request: impl Fn(OffcodeId) -> DeviceRequest,
    ) -> Vec<AskedStep> {
        ids.iter().filter_map(|id| self.ask_offcode(*id, request(*id))).collect()
    }

    /// Waits for all replies; the first failure is returned.
    pub(super) fn wait_asked(
        &mut self,
        asked: Vec<AskedStep>,
        step: LifeStep,
        when_gone: WhenGone,
    ) -> Result<(), RuntimeError> {
        let mut outcome = Ok(());
        for one in asked {
            let reply = self.wait(one.number);
            let is_forgiven =
                when_gone == WhenGone::Forgiven && !self.offcodes.contains_key(&one.offcode);
            let failure = match reply {
                Err(failure) => failure,
                // Only a step that creates is answered so, when code was sent and not kept.
                Ok(DeviceReply::Unknown(_)) => {
                    Failure::Refused(DeviceError::Body("the code that was sent is not kept".into()))
                }
                Ok(_) => continue,
            };
            if outcome.is_ok() && !is_forgiven {
                outcome = Err(self.step_error(&one.name, one.device, step, failure));
            }
        }
        outcome
    }

    /// What a device is asked for to create an offcode.
    pub(super) fn creation(&self, id: OffcodeId, from: Option<Frozen>) -> Option<Numbered> {
        let plan = &self.offcodes.get(&id)?.plan;
        let served = |server: &Option<String>| server.as_ref().and_then(|name| self.id_of(name));
        let imports = plan.imports.iter().map(|(interface, server)| (*interface, served(server)));
        let creation = Creation {
            offcode: id,
            name: plan.name.clone(),
            code: plan.code.body(),
            needs: plan.needs.clone(),
            interfaces: plan.interfaces.clone(),
            ports: plan.ports,
            imports: imports.collect(),
            attributes: plan.attributes.clone(),
            from,
        };
        Some(Numbered { number: 0, request: DeviceRequest::Create(Box::new(creation)) })
    }

    /// Creates offcodes: one round trip, and a second for those whose code has to be sent.
    fn create_all(&mut self, ids: &[OffcodeId]) -> Result<(), RuntimeError> {
        let asked = self.ask_creations(ids);
        let mut unknown = Vec::new();
        let mut outcome = Ok(());
        for one in asked {
            match self.wait(one.number) {
                Ok(DeviceReply::Unknown(missing)) => unknown.push((one.offcode, missing)),
                Ok(_) => {}
                Err(failure) if outcome.is_ok() => {
                    let error = self.step_error(&one.name, one.device, LifeStep::Create, failure);
                    outcome = Err(error);
                }
                Err(_) => {}
            }
        }
        if outcome.is_err() || unknown.is_empty() {
            return outcome;
        }
        let mut sent = HashSet::new();
        let mut loads = Vec::new();
        for (id, missing) in &unknown {
            loads.extend(self.ask_code(*id, missing, &mut sent));
        }
        let unknown: Vec<OffcodeId> = unknown.into_iter().map(|(id, _)| id).collect();
        let asked = self.ask_creations(&unknown);
        let loaded = self.wait_asked(loads, LifeStep::Load, WhenGone::Fails);
        let created = self.wait_asked(asked, LifeStep::Create, WhenGone::Fails);
        loaded.and(created)
    }

    fn ask_creations(&mut self, ids: &[OffcodeId]) -> Vec<AskedStep> {
        let mut asked = Vec::new();
        for id in ids {
            let Some(mut numbered) = self.creation(*id, None) else { continue };
            asked.extend(self.ask_creation(*id, &mut numbered));
        }
        asked
    }

    pub(super) fn ask_creation(
        &mut self,
        id: OffcodeId,
        numbered: &mut Numbered,
    ) -> Option<AskedStep> {
        let state = self.offcodes.get(&id)?;
        let (name, device) = (state.plan.name.clone(), state.device);
        let number = self.ask_kept(device, numbered, &[], ReplyTo::Waited);
        self.creations += 1;
        Some(AskedStep { offcode: id, name, device, number })
    }

    /// Sends what its device misses of an offcode's code, unless that is on its way.
    pub(super) fn ask_code(
        &mut self,
        id: OffcodeId,
        missing: &[[u8; 32]],
        sent: &mut HashSet<(usize, [u8; 32])>,
    ) -> Vec<AskedStep> {
        let Some(state) = self.offcodes.get(&id) else { return Vec::new() };
        let (code, device) = (state.plan.code.clone(), state.device);
        let mut asked = Vec::new();
        for hash in missing {
            let Some(bytes) = code.bytes(hash) else { continue };
            if sent.insert((device, *hash)) {
                asked.extend(self.ask_offcode(id, DeviceRequest::Code(bytes.as_ref().clone())));
            }
        }
        asked
    }

    fn bind(&mut self, offcode: &str, import: u16, server: &str) -> Result<(), RuntimeError> {
        let (id, target) = (self.named(offcode)?, self.named(server)?);
        let asked = self.ask_offcode(id, DeviceRequest::Bind(id, import, target));
        self.wait_asked(asked.into_iter().collect(), LifeStep::Connect, WhenGone::Fails)?;
        let state = self.offcodes.get_mut(&id);
        let found = state.and_then(|state| state.plan.imports.get_mut(usize::from(import)));
        if let Some((_, bound)) = found {
            *bound = Some(server.to_owned());
        }
        Ok(())
    }

    fn remove(&mut self, offcode: &str) -> Result<(), RuntimeError> {
        let id = self.named(offcode)?;
        let below = self.below(id);
        let names = |ids: &[OffcodeId]| ids.iter().map(|id| self.name_of(*id)).collect();
        let with: Vec<String> = names(&below);
        let all: Vec<OffcodeId> = [id].into_iter().chain(below).collect();
        self.take_down(&all, "it was removed");
        let above = format!("`{offcode}` above it was removed");
        for name in &with {
            let (name, why) = (name.clone(), above.clone());
            self.events.push(RuntimeEvent::Ended { name, why, with: Vec::new() });
        }
        let (name, why) = (offcode.to_owned(), "it was removed".to_owned());
        self.events.push(RuntimeEvent::Ended { name, why, with });
        Ok(())
    }

    /// Stops and removes offcodes, the last that was started first.
    fn take_down(&mut self, ids: &[OffcodeId], why: &str) {
        let reverse: Vec<OffcodeId> = ids.iter().rev().copied().collect();
        let is_started = |id: &&OffcodeId| {
            self.offcodes.get(id).is_some_and(|state| state.phase == OffcodePhase::Started)
        };
        let started: Vec<OffcodeId> = reverse.iter().filter(is_started).copied().collect();
        let stops = self.ask_all(&started, DeviceRequest::Stop);
        let removes = self.ask_all(&reverse, DeviceRequest::Remove);
        // Whatever a device says of it: it is over.
        stops.into_iter().chain(removes).for_each(|one| drop(self.wait(one.number)));
        for id in reverse {
            self.forget(id, why);
        }
    }

    fn stop_all(&mut self) {
        let all: Vec<OffcodeId> = self.offcodes.keys().copied().collect();
        self.take_down(&all, "the application was stopped");
        self.drop_channels(ChannelId(0));
        for device in &mut self.devices {
            // Dropped, it ends.
            device.link = None;
            device.why_lost = "the application was stopped".to_owned();
        }
        self.events.push(RuntimeEvent::Stopped);
    }

    /// Ends channels from that number on, of which only the application may still have ends.
    fn drop_channels(&mut self, first: ChannelId) {
        for channel in self.channels.split_off(&first).iter() {
            for leg in &channel.1.legs {
                let ends = [(channel.1.from, leg.to), (leg.to, channel.1.from)];
                for (end, other) in ends {
                    if let Some(own) = self.own(end) {
                        own.disconnect(*channel.0, other);
                    }
                }
            }
        }
    }
}
