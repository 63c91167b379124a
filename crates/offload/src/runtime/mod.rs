//! The runtime in the application's process: creates offcodes on devices, connects their channels,
//! carries Calls, notices what is lost, and moves what runs.
//!
//! It decides no placement: it is given a plan with a layout. One thread does all of it; the
//! application's threads ask it and are answered. Nothing waits without a limit, and nothing grows
//! without one.
//!
//! Files in reading order: `plan` (what is to run where), `options`, `error`, `handle` (what the
//! application holds), `app_end` (its ends of channels), `events` and `snapshot` (what it is
//! told), `command`, `state` (what the thread knows), `pump` (its loop), `lifecycle`, `routes`
//! (channels), `calls`, `moving`, `tree` (what is gone with what), `heartbeat`.

mod app_end;
mod calls;
mod command;
mod error;
mod events;
mod handle;
mod heartbeat;
mod lifecycle;
mod moving;
mod options;
mod plan;
mod pump;
mod routes;
mod snapshot;
mod state;
mod tree;

pub use app_end::AppEnd;
pub use error::{LifeStep, PlanFault, RuntimeError};
pub use events::RuntimeEvent;
pub use handle::{ApplicationHandle, CallsUnderWay, Running};
pub use heartbeat::OBSOLETE_TIME;
pub use options::RuntimeOptions;
pub use plan::{
    CHANNELS_MAX, PlannedChannel, PlannedCode, PlannedEnd, PlannedOffcode, RuntimePlan,
    WhenDeviceLost,
};
pub use snapshot::{ApplicationSnapshot, ChannelSnapshot, DeviceSnapshot, OffcodeSnapshot};

use crate::devices::DeviceLink;
use calls::CallTable;
use command::{LifeChange, LifeCommand, RuntimeCommand};
use events::EventQueue;
use outboard_cluster::waker::Waker;
use state::{Conductor, DeviceState};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread;
use std::time::Instant;

/// Commands of the application's threads that wait, at most: more wait in those threads.
const COMMANDS_MAX: usize = 4096;

/// Starts applications.
#[derive(Clone, Copy, Debug)]
pub struct Runtime;

impl Runtime {
    /// Starts an application on these devices, and returns when all of it is started. The plan
    /// names devices by their index.
    ///
    /// # Errors
    /// The plan does not fit, or a step failed: nothing is left then.
    pub fn start(
        plan: RuntimePlan,
        devices: Vec<Box<dyn DeviceLink>>,
        options: RuntimeOptions,
    ) -> Result<Running, RuntimeError> {
        let waker = Waker::new().map_err(no_descriptors)?;
        let events = Arc::new(EventQueue::new().map_err(no_descriptors)?);
        let (commands, taken) = sync_channel(COMMANDS_MAX);
        let handle = ApplicationHandle { commands, waker, events };
        let mut conductor = Conductor::new(&plan.name, devices, options, &handle, taken);
        let (reply, started) = channel();
        let change = LifeChange::Create(Box::new(plan));
        conductor.later.push_back(LifeCommand { change, reply });
        let thread = thread::Builder::new().name("offload".to_owned());
        let thread = thread.spawn(move || conductor.run()).map_err(|error| {
            RuntimeError::Machine { what: "a thread", errno: error.to_string() }
        })?;
        let running = Running { handle, thread: Some(thread) };
        // Dropped, it ends the thread and closes the devices.
        started.recv().unwrap_or(Err(RuntimeError::Stopped)).map(|()| running)
    }
}

impl Conductor {
    fn new(
        name: &str,
        links: Vec<Box<dyn DeviceLink>>,
        options: RuntimeOptions,
        handle: &ApplicationHandle,
        commands: Receiver<RuntimeCommand>,
    ) -> Self {
        let now = Instant::now();
        let device = |link: Box<dyn DeviceLink>| DeviceState {
            name: link.name().to_owned(),
            link: Some(link),
            why_lost: String::new(),
            heard: now,
            asked: None,
            broken: None,
            has_more: false,
        };
        Self {
            name: name.to_owned(),
            options,
            devices: links.into_iter().map(device).collect(),
            offcodes: BTreeMap::new(),
            reasons: VecDeque::new(),
            channels: BTreeMap::new(),
            ends: Vec::new(),
            replies: HashMap::new(),
            come: HashMap::new(),
            calls: CallTable::default(),
            commands,
            later: VecDeque::new(),
            homeless: VecDeque::new(),
            events: Arc::clone(&handle.events),
            waker: handle.waker.clone(),
            next_number: 1,
            next_offcode: 1,
            next_channel: 1,
            next_beat: now,
            ticked: now,
            creations: 0,
        }
    }
}

fn no_descriptors(errno: rustix::io::Errno) -> RuntimeError {
    RuntimeError::Machine { what: "a descriptor", errno: errno.to_string() }
}
