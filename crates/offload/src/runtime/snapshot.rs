//! What an application looks like at a moment, as `ps` shows it: plain values.

use super::state::{Conductor, Whereabouts};
use crate::request::{CarrierKind, EndId, OffcodeCounters, OffcodeId, OffcodePhase};
use serde::{Deserialize, Serialize};

/// An application at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationSnapshot {
    /// Its name.
    pub name: String,
    /// Its devices.
    pub devices: Vec<DeviceSnapshot>,
    /// Its offcodes, in the order in which they were started.
    pub offcodes: Vec<OffcodeSnapshot>,
    /// Its channels: one entry for each receiver.
    pub channels: Vec<ChannelSnapshot>,
    /// Requests to create an offcode that were answered: one if its code is known, else two.
    pub creations: u64,
}

/// A device at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// Its name.
    pub name: String,
    /// Why it is lost, if it is.
    pub lost: Option<String>,
}

/// An offcode at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffcodeSnapshot {
    /// Its number.
    pub id: OffcodeId,
    /// Its name.
    pub name: String,
    /// Its device's name.
    pub device: String,
    /// The offcode with which it is gone.
    pub parent: Option<String>,
    /// Where it is in its life.
    pub phase: OffcodePhase,
    /// It is on its way to a device.
    pub is_moving: bool,
    /// What it has done, as its device last said.
    pub counters: OffcodeCounters,
    /// Calls to it that went through the runtime and are not answered.
    pub calls: usize,
}

/// A channel's way to one receiver at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSnapshot {
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// What carries it.
    pub carrier: CarrierKind,
    /// Nothing is lost.
    pub is_reliable: bool,
    /// Messages that wait, at most.
    pub depth: u32,
    /// Messages that went through the runtime.
    pub forwarded: u64,
}

impl Conductor {
    pub(super) fn snapshot(&self) -> ApplicationSnapshot {
        let devices = self.devices.iter().map(|device| DeviceSnapshot {
            name: device.name.clone(),
            lost: device.link.is_none().then(|| device.why_lost.clone()),
        });
        ApplicationSnapshot {
            name: self.name.clone(),
            devices: devices.collect(),
            offcodes: self.offcodes.keys().filter_map(|id| self.offcode_snapshot(*id)).collect(),
            channels: self.channel_snapshots(),
            creations: self.creations,
        }
    }

    fn offcode_snapshot(&self, id: OffcodeId) -> Option<OffcodeSnapshot> {
        let state = self.offcodes.get(&id)?;
        Some(OffcodeSnapshot {
            id,
            name: state.plan.name.clone(),
            device: self.device_name(state.device),
            parent: state.parent.map(|parent| self.name_of(parent)),
            phase: state.phase,
            is_moving: matches!(state.place, Whereabouts::Away(_)),
            counters: state.counters,
            calls: self.calls.to(id),
        })
    }

    fn channel_snapshots(&self) -> Vec<ChannelSnapshot> {
        let mut all = Vec::new();
        for channel in self.channels.values() {
            all.extend(channel.legs.iter().map(|leg| ChannelSnapshot {
                from: self.end_name(channel.from),
                to: self.end_name(leg.to),
                carrier: leg.carrier,
                is_reliable: channel.is_reliable,
                depth: channel.depth,
                forwarded: leg.forwarded,
            }));
        }
        all
    }

    fn end_name(&self, end: EndId) -> String {
        let own = self.ends.get(usize::from(end.port));
        match own.filter(|_| end.offcode == OffcodeId::APPLICATION) {
            Some(own) => format!("application.{}", own.name),
            None => format!("{}.{}", self.name_of(end.offcode), end.port),
        }
    }
}
