//! What the runtime's thread knows: devices, offcodes, channels, and replies that it waits for.
//!
//! One thread owns it. Nothing here waits.

use super::app_end::EndShared;
use super::calls::CallTable;
use super::command::{AttributeReply, LifeCommand, RuntimeCommand};
use super::error::{LifeStep, RuntimeError};
use super::events::EventQueue;
use super::options::RuntimeOptions;
use super::plan::PlannedOffcode;
use crate::devices::DeviceLink;
use crate::request::{
    CarrierKind, ChannelId, DeviceError, DeviceReply, DeviceRequest, EndId, Numbered,
    OffcodeCounters, OffcodeId, OffcodePhase,
};
use outboard_cluster::waker::Waker;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Reasons of offcodes that are gone, which callers are told, at most.
const REASONS_MAX: usize = 1024;
/// Requests that wait for an offcode that is on its way, at most; answers come on top.
const DEFERRED_MAX: usize = 16_384;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct Conductor {
    pub(super) name: String,
    pub(super) options: RuntimeOptions,
    pub(super) devices: Vec<DeviceState>,
    pub(super) offcodes: BTreeMap<OffcodeId, OffcodeState>,
    /// Names of offcodes that are gone, and why they are: the latest last.
    pub(super) reasons: VecDeque<(OffcodeId, String, String)>,
    pub(super) channels: BTreeMap<ChannelId, ChannelState>,
    /// The application's ends of channels: an end's port is its index.
    pub(super) ends: Vec<AppPort>,
    /// Replies that devices owe.
    pub(super) replies: HashMap<u64, PendingReply>,
    /// Replies that have come and are waited for.
    pub(super) come: HashMap<u64, Result<DeviceReply, Failure>>,
    pub(super) calls: CallTable,
    pub(super) commands: Receiver<RuntimeCommand>,
    /// What changes the application, done one after the other.
    pub(super) later: VecDeque<LifeCommand>,
    /// Offcodes that lost their device and are to be created elsewhere.
    pub(super) homeless: VecDeque<OffcodeId>,
    pub(super) events: Arc<EventQueue>,
    pub(super) waker: Waker,
    pub(super) next_number: u64,
    pub(super) next_offcode: u32,
    pub(super) next_channel: u32,
    pub(super) next_beat: Instant,
    pub(super) ticked: Instant,
    /// Requests to create an offcode that were answered.
    pub(super) creations: u64,
}

/// An end of channels in the application, which is handed out once.
#[derive(Debug)]
pub(super) struct AppPort {
    pub(super) name: String,
    pub(super) shared: Arc<EndShared>,
    pub(super) is_handed_out: bool,
}

/// A device as the runtime sees it.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) name: String,
    /// `None`: it is lost.
    pub(super) link: Option<Box<dyn DeviceLink>>,
    pub(super) why_lost: String,
    pub(super) heard: Instant,
    /// When it was asked whether it lives, if it has not answered.
    pub(super) asked: Option<Instant>,
    /// A request could not be sent, and why.
    pub(super) broken: Option<String>,
    /// It may have more events than were taken.
    pub(super) has_more: bool,
}

/// Where an offcode is.
#[derive(Debug)]
pub(super) enum Whereabouts {
    /// On its device.
    There,
    /// On its way: what is sent to it waits.
    Away(Vec<Deferred>),
}

/// A request that waits for an offcode, and the application's thread that waits for the reply.
pub(super) type Deferred = (DeviceRequest, Option<AttributeReply>);

/// An offcode as the runtime sees it.
#[derive(Debug)]
pub(super) struct OffcodeState {
    pub(super) plan: PlannedOffcode,
    pub(super) device: usize,
    pub(super) place: Whereabouts,
    pub(super) phase: OffcodePhase,
    pub(super) counters: OffcodeCounters,
    /// When something was last seen to have reached it.
    pub(super) active: Instant,
    pub(super) parent: Option<OffcodeId>,
}

/// A channel as the runtime sees it.
#[derive(Debug)]
pub(super) struct ChannelState {
    pub(super) from: EndId,
    pub(super) legs: Vec<Leg>,
    pub(super) is_reliable: bool,
    pub(super) depth: u32,
    pub(super) message_max: u32,
}

/// A channel's way to one of its receivers.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) to: EndId,
    pub(super) carrier: CarrierKind,
    /// Messages that the runtime has forwarded and that were not taken out.
    pub(super) on_way: u32,
    /// Messages that the runtime has forwarded.
    pub(super) forwarded: u64,
    /// The receiver has confirmed what carries it now: credits before that are out of date.
    pub(super) is_settled: bool,
}

/// A reply that a device owes.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) device: usize,
    pub(super) until: Instant,
    pub(super) to: ReplyTo,
}

/// Whom a reply is for.
#[derive(Debug)]
pub(super) enum ReplyTo {
    /// What changes the application waits for it.
    Waited,
    /// The same; and the receiver of this channel's leg is connected from then on.
    Settles(ChannelId, EndId),
    /// The heartbeat.
    Status,
    /// The application waits for attributes.
    Attributes(OffcodeId, AttributeReply),
}

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The device says so.
    Refused(DeviceError),
    /// The device is lost.
    Lost(String),
}

impl Conductor {
    /// Sends a request to a device; nobody waits for a reply.
    pub(super) fn post(&mut self, device: usize, request: DeviceRequest) {
        self.submit(device, &Numbered { number: 0, request }, &[]);
    }

    fn submit(&mut self, device: usize, numbered: &Numbered, fds: &[BorrowedFd<'_>]) {
        let Some(state) = self.devices.get_mut(device) else { return };
        let Some(link) = state.link.as_mut() else { return };
        if let Err(lost) = link.send(numbered, fds) {
            state.broken = Some(lost.0);
        }
    }

    /// Sends a request whose reply [`Self::wait`] waits for.
    pub(super) fn ask(&mut self, device: usize, request: DeviceRequest) -> u64 {
        self.ask_kept(device, &mut Numbered { number: 0, request }, &[], ReplyTo::Waited)
    }

    /// As [`Self::ask`]; the request stays with the caller.
    pub(super) fn ask_kept(
        &mut self,
        device: usize,
        numbered: &mut Numbered,
        fds: &[BorrowedFd<'_>],
        to: ReplyTo,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        numbered.number = number;
        let until = Instant::now() + self.options.reply_limit;
        self.replies.insert(number, PendingReply { device, until, to });
        match self.devices.get(device).filter(|device| device.link.is_none()) {
            Some(lost) => {
                let failure = Failure::Lost(lost.why_lost.clone());
                self.replied(device, number, Err(failure));
            }
            None => self.submit(device, numbered, fds),
        }
        number
    }

    /// Gives a reply to whom it is for.
    pub(super) fn replied(
        &mut self,
        device: usize,
        number: u64,
        reply: Result<DeviceReply, Failure>,
    ) {
        let is_owed = self.replies.get(&number).is_some_and(|pending| pending.device == device);
        let Some(pending) = self.replies.remove(&number).filter(|_| is_owed) else { return };
        match pending.to {
            ReplyTo::Waited => {
                self.come.insert(number, reply);
            }
            ReplyTo::Settles(channel, to) => {
                if let Some(leg) = self.leg(channel, to).filter(|_| reply.is_ok()) {
                    leg.is_settled = true;
                }
                self.come.insert(number, reply);
            }
            ReplyTo::Status => self.handle_status(device, reply),
            ReplyTo::Attributes(offcode, to) => self.handle_attributes(offcode, &to, reply),
        }
    }

    /// Sends something to an offcode, wherever it is. False: it is gone, or too much waits for it.
    pub(super) fn send_to(&mut self, offcode: OffcodeId, request: DeviceRequest) -> bool {
        let Some(state) = self.offcodes.get_mut(&offcode) else { return false };
        match &mut state.place {
            Whereabouts::There => {
                let device = state.device;
                self.post(device, request);
                true
            }
            Whereabouts::Away(deferred) => {
                let fits = match request {
                    DeviceRequest::Answer(..) => true,
                    // Senders are parked while an offcode is on its way: these are out of date.
                    DeviceRequest::Data(..) | DeviceRequest::Credit(..) => false,
                    _ => deferred.len() < DEFERRED_MAX,
                };
                if fits {
                    deferred.push((request, None));
                }
                fits
            }
        }
    }

    /// As [`Self::send_to`], for a thread of the application that waits for attributes.
    pub(super) fn ask_attributes(
        &mut self,
        offcode: OffcodeId,
        request: DeviceRequest,
        reply: AttributeReply,
    ) {
        let Some(state) = self.offcodes.get_mut(&offcode) else {
            let why = self.reason(offcode);
            let _unheard =
                reply.send(Err(RuntimeError::Gone { offcode: self.name_of(offcode), why }));
            return;
        };
        match &mut state.place {
            Whereabouts::There => {
                let (device, to) = (state.device, ReplyTo::Attributes(offcode, reply));
                self.ask_kept(device, &mut Numbered { number: 0, request }, &[], to);
            }
            Whereabouts::Away(deferred) => deferred.push((request, Some(reply))),
        }
    }

    /// An offcode is on its device again: it gets what has waited.
    pub(super) fn arrive(&mut self, offcode: OffcodeId) {
        let Some(state) = self.offcodes.get_mut(&offcode) else { return };
        let before = std::mem::replace(&mut state.place, Whereabouts::There);
        let Whereabouts::Away(deferred) = before else { return };
        let device = state.device;
        for (request, reply) in deferred {
            match reply {
                Some(reply) => self.ask_attributes(offcode, request, reply),
                None => drop(self.send_to(offcode, request)),
            }
        }
        // Its device may have been lost while it was on its way there.
        let lost = self.devices.get(device).filter(|device| device.link.is_none());
        if let Some(lost) = lost {
            let why = format!("device `{}` is lost: {}", lost.name, lost.why_lost);
            self.bereave(offcode, &why);
        }
    }

    pub(super) fn leg(&mut self, channel: ChannelId, to: EndId) -> Option<&mut Leg> {
        self.channels.get_mut(&channel)?.legs.iter_mut().find(|leg| leg.to == to)
    }

    /// Whether an offcode is on that device, as far as the runtime has heard.
    pub(super) fn is_on(&self, offcode: OffcodeId, device: usize) -> bool {
        self.offcodes.get(&offcode).is_some_and(|state| state.device == device)
    }

    pub(super) fn id_of(&self, name: &str) -> Option<OffcodeId> {
        self.offcodes.iter().find(|(_, state)| state.plan.name == name).map(|(id, _)| *id)
    }

    /// The number of an offcode that is there.
    pub(super) fn named(&self, name: &str) -> Result<OffcodeId, RuntimeError> {
        self.id_of(name).ok_or_else(|| RuntimeError::NoOffcode { name: name.to_owned() })
    }

    pub(super) fn name_of(&self, offcode: OffcodeId) -> String {
        match self.offcodes.get(&offcode) {
            Some(state) => state.plan.name.clone(),
            None if offcode == OffcodeId::APPLICATION => "the application".to_owned(),
            None => {
                let known = self.reasons.iter().rev().find(|(gone, ..)| *gone == offcode);
                known.map_or_else(|| format!("number {}", offcode.0), |(_, name, _)| name.clone())
            }
        }
    }

    pub(super) fn device_name(&self, device: usize) -> String {
        self.devices.get(device).map_or_else(String::new, |device| device.name.clone())
    }

    /// Why an offcode is gone.
    pub(super) fn reason(&self, offcode: OffcodeId) -> String {
        let known = self.reasons.iter().rev().find(|(gone, ..)| *gone == offcode);
        known.map_or_else(|| "it is not there".to_owned(), |(.., why)| why.clone())
    }

    pub(super) fn note_reason(&mut self, offcode: OffcodeId, name: &str, why: &str) {
        if self.reasons.len() >= REASONS_MAX {
            self.reasons.pop_front();
        }
        self.reasons.push_back((offcode, name.to_owned(), why.to_owned()));
    }

    /// What the application is told of a step that failed.
    pub(super) fn step_error(
        &self,
        offcode: &str,
        device: usize,
        step: LifeStep,
        failure: Failure,
    ) -> RuntimeError {
        let (offcode, device) = (offcode.to_owned(), self.device_name(device));
        match failure {
            Failure::Refused(fault) => RuntimeError::Step { offcode, device, step, fault },
            Failure::Lost(why) => RuntimeError::Lost { offcode, device, step, why },
        }
    }
}
