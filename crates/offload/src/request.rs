//! What the runtime asks of a device, and what a device tells it: plain values, encoded in
//! postcard.
//!
//! The same messages pass between threads, processes and machines. Nothing here acts.

use outboard_cluster::codec::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of these messages.
pub const PROTOCOL: Protocol = Protocol::version(1);
/// Ports of an offcode, at most.
pub const PORTS_MAX: usize = 64;
/// Bytes of a channel's message, at most.
pub const MESSAGE_MAX: usize = 16 << 20;
/// Messages that a channel holds, at most.
pub const DEPTH_MAX: u32 = 65_536;
/// Milliseconds of processor time of an entry, at most, of an offcode that says nothing else.
pub const WATCHDOG_MS: u32 = 200;
/// Bytes of parameters or results of a Call, at most.
pub const CALL_MAX: usize = 1 << 20;

/// An offcode of an application. 0 is the application itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OffcodeId(pub u32);

impl OffcodeId {
    /// The application's own process, as an end of channels and Calls.
    pub const APPLICATION: Self = Self(0);
}

/// A channel of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChannelId(pub u32);

/// One end of a channel: an offcode and the index of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EndId {
    /// Whose.
    pub offcode: OffcodeId,
    /// Which of its ports.
    pub port: u16,
}

/// A Call under way: who made it, and the caller's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallKey {
    /// Who called.
    pub caller: OffcodeId,
    /// Never used twice by one caller.
    pub number: u64,
}

/// Why a Call has no results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CallFailure {
    /// The callee refused it.
    #[error("the offcode refused the call: {0}")]
    Refused(String),
    /// The callee trapped, and is gone.
    #[error("the offcode failed in the call and is gone: {0}")]
    Trapped(String),
    /// The callee is gone, or went before it answered.
    #[error("the offcode is gone: {0}")]
    Gone(String),
    /// The caller's deadline has passed.
    #[error("no answer within the call's deadline")]
    Deadline,
    /// The callee has no such interface or method, or the parameters are none of its.
    #[error("the call does not fit: {0}")]
    Misfit(String),
}

impl CallFailure {
    /// What an offcode's entry for answers gets: the fault's number and its words.
    #[must_use]
    pub fn to_guest(&self) -> (u32, String) {
        let number = match self {
            Self::Refused(_) => 1,
            Self::Trapped(_) => 2,
            Self::Gone(_) => 3,
            Self::Deadline => 4,
            Self::Misfit(_) => 5,
        };
        (number, self.to_string())
    }
}

/// Results of a Call, in postcard, or why there are none.
pub type CallResult = Result<Vec<u8>, CallFailure>;

/// The GUID of an interface.
pub type InterfaceId = [u8; 16];

/// A Call on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallMessage {
    /// Which.
    pub key: CallKey,
    /// The callee.
    pub target: OffcodeId,
    /// The interface.
    pub interface: InterfaceId,
    /// The index of the method.
    pub method: u32,
    /// The parameters, in postcard.
    #[serde(with = "serde_bytes")]
    pub params: Vec<u8>,
    /// Milliseconds until the caller no longer waits; 0: it waits until the callee is gone.
    pub deadline_ms: u32,
}

/// The code of an offcode.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BodyCode {
    /// WebAssembly, by the BLAKE3 hash of its bytes, which [`DeviceRequest::Code`] brings.
    Wasm([u8; 32]),
    /// In our own binary, by its name.
    Builtin(String),
    /// Modules by their names and hashes, which the device links: the first is the main one.
    Linked(Vec<(String, [u8; 32])>),
    /// An object for the kernel, by its hash as a module's, and the program in it.
    Bpf([u8; 32], String),
}

/// What an offcode may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyNeeds {
    /// Bytes of memory, at most.
    pub memory_bytes: u64,
    /// It may look at clocks.
    pub clock: bool,
    /// It may set timers.
    pub timers: bool,
    /// Milliseconds of processor time of an entry, at most (`WATCHDOG_TIME`); 0: 200.
    pub watchdog_ms: u32,
}

/// An offcode to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Its number.
    pub offcode: OffcodeId,
    /// Its name in the application.
    pub name: String,
    /// Its code.
    pub code: BodyCode,
    /// What it may use.
    pub needs: BodyNeeds,
    /// Its interfaces, in the order of its description.
    pub interfaces: Vec<InterfaceId>,
    /// How many ports it has.
    pub ports: u16,
    /// Its imports, in the order of its description: interface, and who serves it if anybody does.
    pub imports: Vec<(InterfaceId, Option<OffcodeId>)>,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// It goes on from here: it was elsewhere, or had other code.
    pub from: Option<Frozen>,
}

/// An offcode that was taken away from its device at a call boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// Its own state.
    pub state: FrozenState,
    /// Entries that were due.
    pub inbox: Vec<InboxItem>,
    /// Messages that had arrived, by port.
    pub pending: Vec<(u16, Vec<serde_bytes::ByteBuf>)>,
    /// Ports that it holds.
    pub held: Vec<u16>,
    /// Its timers: number, and nanoseconds until they are due.
    pub timers: Vec<(u32, u64)>,
    /// Calls that it has not answered: its number for each, and whose they are.
    pub open_calls: Vec<(u64, CallKey)>,
    /// Calls of its own that were not answered.
    pub own_calls: Vec<OwnCall>,
    /// The number of its next call.
    pub next_call: u64,
    /// Its number for the next call that it answers.
    pub next_open: u64,
    /// It was initialised, and started.
    pub phase: OffcodePhase,
}

/// A call that an offcode waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCall {
    /// Its number.
    pub number: u64,
    /// Whom it called.
    pub target: OffcodeId,
    /// Milliseconds until it no longer waits; 0: without a limit.
    pub left_ms: u32,
}

/// An offcode's own state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrozenState {
    /// All of it, for the same code.
    Whole(#[serde(with = "serde_bytes")] Vec<u8>),
    /// What it saved itself, for other code.
    Saved(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// Where an offcode is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OffcodePhase {
    /// It has code and memory.
    Created,
    /// It has its local resources.
    Initialized,
    /// It works.
    Started,
    /// It was stopped.
    Stopped,
}

impl fmt::Display for OffcodePhase {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Created => "created",
            Self::Initialized => "initialised",
            Self::Started => "started",
            Self::Stopped => "stopped",
        })
    }
}

/// Something that an offcode's entries are called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InboxItem {
    /// A Call, by the index of the interface.
    Call(CallKey, u32, u32, #[serde(with = "serde_bytes")] Vec<u8>),
    /// An answer to its own call of that number.
    Answer(u64, CallResult),
    /// A port has room again.
    Writable(u16),
    /// A timer is due.
    Timer(u32),
    /// An event on the out-of-band channel: its kind, and its bytes.
    Event(u32, #[serde(with = "serde_bytes")] Vec<u8>),
}

impl InboxItem {
    /// Bytes of what it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Call(_, _, _, bytes) | Self::Answer(_, Ok(bytes)) | Self::Event(_, bytes) => {
                bytes.len()
            }
            Self::Answer(_, Err(_)) | Self::Writable(_) | Self::Timer(_) => 0,
        }
    }
}

/// Kinds of events on the out-of-band channel.
pub mod event_kind {
    /// A message of the application.
    pub const MESSAGE: u32 = 1;
    /// A port is connected: its number in four bytes.
    pub const CONNECTED: u32 = 2;
    /// A port's other end is gone: its number in four bytes.
    pub const DISCONNECTED: u32 = 3;
    /// An attribute was set: its name, a zero byte, its value.
    pub const ATTRIBUTE: u32 = 4;
}

/// What carries a channel's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CarrierKind {
    /// A queue inside the device: both ends are there.
    Inside,
    /// A ring of shared memory. Beside the request come its memfd, and the doorbell of the device
    /// at the other end.
    Ring,
    /// Messages through the runtime, as many as the depth says before one is taken out.
    Session,
}

/// Which direction of a channel an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// It sends.
    Out,
    /// It receives.
    In,
}

/// One end of a channel, to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedEnd {
    /// The channel.
    pub channel: ChannelId,
    /// This end.
    pub end: EndId,
    /// The other end.
    pub other: EndId,
    /// What this end does.
    pub direction: Direction,
    /// What carries it.
    pub carrier: CarrierKind,
    /// Messages that wait for the receiver, at most.
    pub depth: u32,
    /// Bytes of a message, at most.
    pub message_max: u32,
    /// A sender without room is told so, and nothing is lost; else the message is dropped.
    pub is_reliable: bool,
}

/// What the runtime asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceRequest {
    /// Creates an offcode. Replied by `Done`, or `Unknown` if the code is not there. One that goes
    /// on from elsewhere does nothing before [`DeviceRequest::Resume`]: its channels are connected
    /// first.
    Create(Box<Creation>),
    /// An offcode that goes on from elsewhere works from now on.
    Resume(OffcodeId),
    /// Brings code.
    Code(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The first phase of its start.
    Initialize(OffcodeId),
    /// The second.
    Start(OffcodeId),
    /// It is told to end its work.
    Stop(OffcodeId),
    /// It is gone when this is replied.
    Remove(OffcodeId),
    /// Takes it away at a call boundary. For other code it saves its state itself.
    Take {
        /// Which.
        offcode: OffcodeId,
        /// It goes on with other code.
        is_update: bool,
    },
    /// Connects an end, in the place of what this channel's end was connected by before.
    Connect(ConnectedEnd),
    /// The other end is gone.
    Disconnect(ChannelId, EndId, EndId),
    /// A sending end sends nothing until it is connected anew.
    Park(ChannelId, EndId, EndId),
    /// Says who serves an import.
    Bind(OffcodeId, u16, OffcodeId),
    /// A Call from elsewhere.
    Call(CallMessage),
    /// An answer from elsewhere.
    Answer(CallKey, CallResult),
    /// A channel's message from elsewhere.
    Data(ChannelId, EndId, #[serde(with = "serde_bytes")] Vec<u8>),
    /// The receiver has taken so many messages out.
    Credit(ChannelId, EndId, EndId, u32),
    /// A message on the out-of-band channel.
    Tell(OffcodeId, #[serde(with = "serde_bytes")] Vec<u8>),
    /// Sets an attribute.
    SetAttribute(OffcodeId, String, String),
    /// Asks for the attributes.
    Attributes(OffcodeId),
    /// Whether it lives, and what its offcodes have done.
    Status,
}

/// What an offcode has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffcodeCounters {
    /// Entries that were run.
    pub entries: u64,
    /// Processor time in them, in nanoseconds.
    pub busy_ns: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that an unreliable channel had no room for.
    pub dropped: u64,
    /// Bytes of its memory.
    pub memory_bytes: u64,
}

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceReply {
    /// It was done.
    Done,
    /// The device does not know the code with these hashes.
    Unknown(Vec<[u8; 32]>),
    /// An offcode that was taken away.
    Taken(Box<Frozen>),
    /// Attributes.
    Attributes(BTreeMap<String, String>),
    /// What the device's offcodes have done.
    Status(Vec<(OffcodeId, OffcodePhase, OffcodeCounters)>),
}

/// Why a device did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DeviceError {
    /// The runtime names an offcode that is not there.
    #[error("offcode {0} is not on this device")]
    NoOffcode(u32),
    /// The runtime names a port that the offcode has not.
    #[error("offcode {0} has no port {1}")]
    NoPort(u32, u16),
    /// The body cannot be used.
    #[error("the body cannot be used: {0}")]
    Body(String),
    /// An entry failed; the offcode is gone.
    #[error("{0}")]
    Failed(String),
    /// The offcode refused a step of its start.
    #[error("the offcode says {1} in {0}")]
    Refused(String, i32),
    /// The device's limit is reached.
    #[error("the device has no room: {0}")]
    Full(String),
    /// A step out of order.
    #[error("the offcode is {found}, it must be {expected} for that")]
    Phase {
        /// Where it is.
        found: OffcodePhase,
        /// Where it should be.
        expected: OffcodePhase,
    },
    /// What came beside the request cannot be used.
    #[error("the channel cannot be connected: {0}")]
    Carrier(String),
}

impl DeviceEvent {
    /// Bytes of what it carries, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Reply(_, Ok(DeviceReply::Taken(frozen))) => match &frozen.state {
                FrozenState::Whole(bytes) | FrozenState::Saved(bytes) => bytes.len(),
            },
            Self::Call(call) => call.params.len(),
            Self::Answer(_, Ok(bytes)) | Self::Data(_, _, bytes) | Self::Told(_, bytes) => {
                bytes.len()
            }
            Self::Log(_, _, text) => text.len(),
            Self::Reply(..) | Self::Answer(..) | Self::Credit(..) | Self::Ended(..) => 0,
        }
    }
}

/// What a device tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceEvent {
    /// The answer to the request of that number.
    Reply(u64, Result<DeviceReply, DeviceError>),
    /// A Call of an offcode whose callee is not here.
    Call(CallMessage),
    /// An answer to a Call from elsewhere.
    Answer(CallKey, CallResult),
    /// A message for a receiver elsewhere.
    Data(ChannelId, EndId, #[serde(with = "serde_bytes")] Vec<u8>),
    /// A receiver here has taken so many messages out: the sender's and the receiver's end.
    Credit(ChannelId, EndId, EndId, u32),
    /// A message of an offcode on its out-of-band channel.
    Told(OffcodeId, #[serde(with = "serde_bytes")] Vec<u8>),
    /// An offcode has ended, and why.
    Ended(OffcodeId, String),
    /// A line of an offcode's log: level 1 (error) to 5 (trace).
    Log(OffcodeId, u8, String),
}

/// A request with the number that its reply carries; 0: no reply is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// The number.
    pub number: u64,
    /// The request.
    pub request: DeviceRequest,
}
