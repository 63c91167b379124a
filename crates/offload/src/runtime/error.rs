//! Why an application does not run, or does not do what it was asked: who is at fault, and where.

use crate::request::DeviceError;
use std::fmt;

/// What is wrong with a plan: its author's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// Two offcodes have one name.
    #[error("two offcodes are called `{name}`: rename one")]
    Twice {
        /// The name.
        name: String,
    },
    /// Something names an offcode that is not there.
    #[error("{by} names the offcode `{name}`, which is not there")]
    Unknown {
        /// What names it.
        by: String,
        /// The name.
        name: String,
    },
    /// An offcode is above itself in the tree of resources.
    #[error("`{name}` is its own parent")]
    Circle {
        /// Which.
        name: String,
    },
    /// There is no such device.
    #[error("`{offcode}` is to run on device {device}, there are {devices}")]
    Device {
        /// Which.
        offcode: String,
        /// Its device's index.
        device: usize,
        /// How many there are.
        devices: usize,
    },
    /// Too many ports.
    #[error("`{offcode}` has {found} ports, 64 are possible")]
    Ports {
        /// Whose.
        offcode: String,
        /// How many.
        found: u16,
    },
    /// A channel ends at a port that is not there.
    #[error("a channel ends at `{end}`, the offcode has {has} ports")]
    NoPort {
        /// The end.
        end: String,
        /// How many ports there are.
        has: u16,
    },
    /// A channel ends at one place twice.
    #[error("a channel ends at `{end}` twice")]
    TwiceEnd {
        /// The end.
        end: String,
    },
    /// A channel ends nowhere.
    #[error("the channel from `{from}` ends nowhere")]
    NoReceiver {
        /// Where it begins.
        from: String,
    },
    /// A channel's bounds are impossible.
    #[error(
        "a channel of {depth} messages of {message_max} bytes: 1 to 65,536 messages of 16 MiB at \
         most are possible"
    )]
    Bounds {
        /// Messages.
        depth: u32,
        /// Bytes of a message.
        message_max: u32,
    },
    /// Too many offcodes.
    #[error("more than {max} offcodes at a time")]
    Offcodes {
        /// The limit.
        max: usize,
    },
    /// Too many channels.
    #[error("more than {max} channels at a time")]
    Channels {
        /// The limit.
        max: usize,
    },
}

/// A step in an offcode's life that a device was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeStep {
    /// Its code was sent.
    Load,
    /// It was created.
    Create,
    /// A channel of its was connected.
    Connect,
    /// The first phase of its start.
    Initialize,
    /// The second.
    Start,
    /// It was taken away, to go on elsewhere.
    Take,
    /// Its attributes were asked for or set.
    Attributes,
}

impl fmt::Display for LifeStep {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Load => "its code could not be loaded",
            Self::Create => "it could not be created",
            Self::Connect => "a channel of its could not be connected",
            Self::Initialize => "it could not be initialised",
            Self::Start => "it could not be started",
            Self::Take => "its state could not be taken",
            Self::Attributes => "its attributes could not be reached",
        })
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The plan cannot be carried out.
    #[error("the plan cannot be carried out: {0}")]
    Plan(#[from] PlanFault),
    /// A device refused a step, or the offcode did.
    #[error("offcode `{offcode}` on device `{device}`: {step}: {fault}")]
    Step {
        /// Which offcode.
        offcode: String,
        /// Where.
        device: String,
        /// What was asked.
        step: LifeStep,
        /// Why not.
        fault: DeviceError,
    },
    /// A device was lost while it was asked.
    #[error("device `{device}` is lost: {why}; offcode `{offcode}`: {step}")]
    Lost {
        /// Which offcode.
        offcode: String,
        /// Which device.
        device: String,
        /// What was asked.
        step: LifeStep,
        /// Why it is lost.
        why: String,
    },
    /// The offcode goes on where it was, because it could not go elsewhere.
    #[error("`{offcode}` goes on as before: {why}")]
    Stays {
        /// Which.
        offcode: String,
        /// What went wrong at the other place.
        why: Box<Self>,
    },
    /// The offcode went while something was done with it.
    #[error("offcode `{offcode}` is gone: {why}")]
    Gone {
        /// Which.
        offcode: String,
        /// Why.
        why: String,
    },
    /// There is no such offcode.
    #[error("there is no offcode `{name}`")]
    NoOffcode {
        /// Its name or GUID.
        name: String,
    },
    /// There is no such device.
    #[error("there is no device {index}, there are {devices}")]
    NoDevice {
        /// The index.
        index: usize,
        /// How many there are.
        devices: usize,
    },
    /// There is no such end of a channel, or it was taken before.
    #[error("the application has no end of a channel `{name}` that is free")]
    NoEnd {
        /// Its name.
        name: String,
    },
    /// The application has been stopped.
    #[error("the application has been stopped")]
    Stopped,
    /// This machine has no descriptors or threads left.
    #[error("this machine: {what}: {errno}: close something and try again")]
    Machine {
        /// What was wanted.
        what: &'static str,
        /// The system's number, in words.
        errno: String,
    },
}
