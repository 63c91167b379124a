//! What an application consists of and where each part runs, as the runtime is told: plain values.
//!
//! It decides no placement and reads no file.

use super::error::PlanFault;
use crate::request::{BodyCode, BodyNeeds, DEPTH_MAX, InterfaceId, MESSAGE_MAX, PORTS_MAX};
use outboard_offcode::ModuleHash;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Offcodes of an application at a time, at most.
pub(super) const OFFCODES_MAX: usize = 4096;
/// Channels of an application at a time, at most.
pub const CHANNELS_MAX: usize = 16_384;

/// An application with its layout.
#[derive(Clone, Debug, Default)]
pub struct RuntimePlan {
    /// Its name.
    pub name: String,
    /// Its offcodes, in the order in which they are started.
    pub offcodes: Vec<PlannedOffcode>,
    /// Its channels.
    pub channels: Vec<PlannedChannel>,
}

/// The code of an offcode, with its bytes if it has any.
#[derive(Clone, Debug)]
pub enum PlannedCode {
    /// In our own binary, by its name.
    Builtin(String),
    /// A module of WebAssembly.
    Wasm(Arc<Vec<u8>>),
    /// Modules by their names, which the device links: the first is the main one.
    Linked(Vec<(String, Arc<Vec<u8>>)>),
    /// An object for the kernel, and the program in it.
    Bpf(Arc<Vec<u8>>, String),
}

impl PlannedCode {
    /// What devices know it by.
    #[must_use]
    pub fn body(&self) -> BodyCode {
        match self {
            Self::Builtin(name) => BodyCode::Builtin(name.clone()),
            Self::Wasm(bytes) => BodyCode::Wasm(ModuleHash::of(bytes).0),
            Self::Linked(parts) => {
                let part = |(name, bytes): &(String, Arc<Vec<u8>>)| {
                    (name.clone(), ModuleHash::of(bytes).0)
                };
                BodyCode::Linked(parts.iter().map(part).collect())
            }
            Self::Bpf(bytes, program) => BodyCode::Bpf(ModuleHash::of(bytes).0, program.clone()),
        }
    }

    /// What a device is sent that does not know the code with that hash.
    pub(super) fn bytes(&self, hash: &[u8; 32]) -> Option<&Arc<Vec<u8>>> {
        let parts: Vec<&Arc<Vec<u8>>> = match self {
            Self::Builtin(_) => Vec::new(),
            Self::Wasm(bytes) | Self::Bpf(bytes, _) => vec![bytes],
            Self::Linked(parts) => parts.iter().map(|(_, bytes)| bytes).collect(),
        };
        parts.into_iter().find(|bytes| ModuleHash::of(bytes).0 == *hash)
    }
}

/// What becomes of an offcode whose device is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WhenDeviceLost {
    /// It is gone, with all below it.
    #[default]
    End,
    /// It is created anew on the first of these devices that takes it.
    Move(Vec<usize>),
}

/// An offcode of the application.
#[derive(Clone, Debug)]
pub struct PlannedOffcode {
    /// Its name, which no other offcode of the application has.
    pub name: String,
    /// The GUID of what it is.
    pub guid: [u8; 16],
    /// Its code.
    pub code: PlannedCode,
    /// What it may use.
    pub needs: BodyNeeds,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceId>,
    /// How many ports it has.
    pub ports: u16,
    /// Its imports: the interface, and the name of the offcode that serves it, if one does.
    pub imports: Vec<(InterfaceId, Option<String>)>,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// The index of the device that it runs on.
    pub device: usize,
    /// The offcode with which it is gone.
    pub parent: Option<String>,
    /// It is removed when nothing has reached it for so long.
    pub obsolete: Option<Duration>,
    /// What becomes of it when its device is lost.
    pub when_lost: WhenDeviceLost,
}

impl PlannedOffcode {
    /// An offcode in our own binary that needs nothing.
    #[must_use]
    pub fn builtin(name: &str, body: &str, device: usize) -> Self {
        Self {
            name: name.to_owned(),
            guid: [0; 16],
            code: PlannedCode::Builtin(body.to_owned()),
            needs: BodyNeeds { memory_bytes: 1 << 20, clock: false, timers: false, watchdog_ms: 0 },
            interfaces: Vec::new(),
            ports: 0,
            imports: Vec::new(),
            attributes: BTreeMap::new(),
            device,
            parent: None,
            obsolete: None,
            when_lost: WhenDeviceLost::End,
        }
    }
}

/// One end of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlannedEnd {
    /// A port of an offcode.
    Offcode(String, u16),
    /// The application itself, which takes this end by its name.
    Application(String),
}

/// A channel: from one end to one or several.
#[derive(Clone, Debug)]
pub struct PlannedChannel {
    /// Where it begins.
    pub from: PlannedEnd,
    /// Where it ends.
    pub to: Vec<PlannedEnd>,
    /// A sender without room is told so, and nothing is lost; else messages are dropped.
    pub is_reliable: bool,
    /// Messages that wait for a receiver, at most.
    pub depth: u32,
    /// Bytes of a message, at most.
    pub message_max: u32,
}

/// What a plan is added to: how many devices there are, and what offcodes run already.
pub(super) struct PlanGround<'a> {
    pub(super) devices: usize,
    pub(super) running: HashMap<&'a str, u16>,
    pub(super) channels: usize,
}

impl RuntimePlan {
    /// Whether it can be carried out, as far as that can be seen before.
    pub(super) fn check(&self, ground: &PlanGround<'_>) -> Result<(), PlanFault> {
        let mut ports = ground.running.clone();
        if ports.len() + self.offcodes.len() > OFFCODES_MAX {
            return Err(PlanFault::Offcodes { max: OFFCODES_MAX });
        }
        for offcode in &self.offcodes {
            offcode.check(ground.devices)?;
            if ports.insert(&offcode.name, offcode.ports).is_some() {
                return Err(PlanFault::Twice { name: offcode.name.clone() });
            }
        }
        for offcode in &self.offcodes {
            let servers = offcode.imports.iter().filter_map(|(_, server)| server.as_ref());
            match servers.chain(&offcode.parent).find(|name| !ports.contains_key(name.as_str())) {
                Some(name) => return Err(unknown(&offcode.name, name)),
                None => self.check_parents(offcode)?,
            }
        }
        if ground.channels + self.channels.len() > CHANNELS_MAX {
            return Err(PlanFault::Channels { max: CHANNELS_MAX });
        }
        self.channels.iter().try_for_each(|channel| channel.check(&ports))
    }

    /// Nobody is above itself.
    fn check_parents(&self, offcode: &PlannedOffcode) -> Result<(), PlanFault> {
        let mut above = offcode.parent.as_deref();
        let mut seen = HashSet::from([offcode.name.as_str()]);
        while let Some(name) = above {
            if !seen.insert(name) {
                return Err(PlanFault::Circle { name: offcode.name.clone() });
            }
            let parent = self.offcodes.iter().find(|offcode| offcode.name == name);
            above = parent.and_then(|parent| parent.parent.as_deref());
        }
        Ok(())
    }
}

impl PlannedOffcode {
    fn check(&self, devices: usize) -> Result<(), PlanFault> {
        let others: &[usize] = match &self.when_lost {
            WhenDeviceLost::End => &[],
            WhenDeviceLost::Move(others) => others,
        };
        let mut used = others.iter().chain([&self.device]);
        if let Some(&device) = used.find(|&&device| device >= devices) {
            return Err(PlanFault::Device { offcode: self.name.clone(), device, devices });
        }
        if usize::from(self.ports) > PORTS_MAX {
            return Err(PlanFault::Ports { offcode: self.name.clone(), found: self.ports });
        }
        Ok(())
    }
}

impl PlannedChannel {
    fn check(&self, ports: &HashMap<&str, u16>) -> Result<(), PlanFault> {
        let fits = (1..=DEPTH_MAX).contains(&self.depth)
            && usize::try_from(self.message_max).is_ok_and(|max| max <= MESSAGE_MAX);
        if !fits {
            return Err(PlanFault::Bounds { depth: self.depth, message_max: self.message_max });
        }
        if self.to.is_empty() {
            return Err(PlanFault::NoReceiver { from: self.from.to_string() });
        }
        let mut ends = HashSet::new();
        for end in [&self.from].into_iter().chain(&self.to) {
            if let PlannedEnd::Offcode(name, port) = end {
                let has = ports.get(name.as_str());
                let has = *has.ok_or_else(|| unknown("a channel", name))?;
                if *port >= has {
                    return Err(PlanFault::NoPort { end: end.to_string(), has });
                }
            }
        }
        match self.to.iter().find(|end| !ends.insert(*end)) {
            Some(end) => Err(PlanFault::TwiceEnd { end: end.to_string() }),
            None => Ok(()),
        }
    }
}

fn unknown(by: &str, name: &str) -> PlanFault {
    PlanFault::Unknown { by: by.to_owned(), name: name.to_owned() }
}

impl std::fmt::Display for PlannedEnd {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offcode(name, port) => write!(to, "{name}.{port}"),
            Self::Application(name) => write!(to, "application.{name}"),
        }
    }
}
