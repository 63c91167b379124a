//! Offcodes on one device, as a value: it is given requests and the time, and asked for events.
//!
//! It opens no socket, starts no thread and waits for nothing: `serve` does that for it. An offcode
//! is run when a message, a Call, an answer, an event or a timer is there for it, a few entries at
//! a time, in turns. No offcode harms another: whatever one does ends at its own context.
//!
//! Files in reading order: `context` (what an offcode reaches), `port` and `carrier` (channels'
//! ends), `ring` (those in shared memory), `body` (what can be called of an offcode), `builtin` and
//! `wasm` (the kinds of bodies), `placed` (an offcode with what is due for it), `requests` (what
//! the runtime asks), `running` (turns), `taking` (moves).

mod body;
pub mod builtin;
mod carrier;
mod context;
mod placed;
mod port;
mod requests;
mod ring;
mod running;
mod taking;
mod wasm;

#[cfg(test)]
mod tests;

pub use body::{BodyEnd, LiveBody};
pub use carrier::{InCarrier, InsideQueue, OutCarrier, Taken};
pub use context::{ATTRIBUTE_MAX, ATTRIBUTES_MAX, CallRefusal, OffcodeContext, TELL_MAX};
pub use port::{Credited, Port, PortArrival, PortSend};
pub use ring::{RingIn, RingOut, ring_spec};
pub use wasm::{WasmCodes, link_modules, resident_rules};

use crate::request::{ChannelId, DeviceEvent, Direction, EndId, OffcodeId};
use placed::PlacedOffcode;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Instant;

/// Offcodes on a device, at most.
pub const OFFCODES_MAX: usize = 4096;
/// Events that are not taken yet, beyond which no offcode runs.
const EVENTS_MAX: usize = 1024;
/// Bytes of them.
const EVENTS_BYTES: usize = 64 << 20;

/// What the owner of a device lets its offcodes use.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Offcodes, at most.
    pub offcodes: usize,
    /// Bytes of memory of an offcode, at most.
    pub memory_bytes: u64,
}

impl Default for DeviceLimits {
    fn default() -> Self {
        Self { offcodes: OFFCODES_MAX, memory_bytes: 2 << 30 }
    }
}

/// See this file's first lines.
#[derive(Debug)]
pub struct Device {
    limits: DeviceLimits,
    codes: WasmCodes,
    offcodes: HashMap<OffcodeId, PlacedOffcode>,
    ready: VecDeque<OffcodeId>,
    /// Queues of channels of which one end is connected.
    halves: HashMap<(ChannelId, EndId, EndId), (Direction, InsideQueue)>,
    /// Ends that are connected by rings.
    rings: Vec<EndId>,
    events: VecDeque<DeviceEvent>,
    event_bytes: usize,
    /// When offcodes have timers or deadlines: some are out of date.
    due: BinaryHeap<Reverse<(Instant, OffcodeId)>>,
}

impl Device {
    /// A device without offcodes.
    #[must_use]
    pub fn new(limits: DeviceLimits, codes: WasmCodes) -> Self {
        Self {
            limits,
            codes,
            offcodes: HashMap::new(),
            ready: VecDeque::new(),
            halves: HashMap::new(),
            rings: Vec::new(),
            events: VecDeque::new(),
            event_bytes: 0,
            due: BinaryHeap::new(),
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<DeviceEvent> {
        let event = self.events.pop_front()?;
        self.event_bytes = self.event_bytes.saturating_sub(event.bytes());
        Some(event)
    }

    /// When [`Self::turn`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether a turn would run something now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() && self.has_room()
    }

    /// Whether there is room for what a request brings about.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.events.len() < EVENTS_MAX && self.event_bytes < EVENTS_BYTES
    }

    /// Whether an end of a channel here is in memory that is shared with other devices.
    #[must_use]
    pub fn has_rings(&self) -> bool {
        !self.rings.is_empty()
    }

    fn tell(&mut self, event: DeviceEvent) {
        self.event_bytes += event.bytes();
        self.events.push_back(event);
    }

    /// An offcode is run in one of the next turns.
    fn make_ready(&mut self, offcode: OffcodeId) {
        if let Some(placed) = self.offcodes.get_mut(&offcode)
            && placed.queue()
        {
            self.ready.push_back(offcode);
        }
    }
}
