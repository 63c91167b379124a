//! What a resident's owner answers: everything that a module can import, but `fail`. Bytes are the
//! guest's own memory, which stands still while the host has them.

use std::time::Duration;

/// What became of a message that a resident sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentSend {
    /// It is taken.
    Taken,
    /// There is no room; `oc_writable` comes when there is.
    Full,
    /// There is no such port.
    NoPort,
    /// It is longer than the channel takes.
    TooLong,
    /// The port is not connected.
    NotConnected,
}

impl ResidentSend {
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Taken => 0,
            Self::Full => 1,
            Self::NoPort => -1,
            Self::TooLong => -2,
            Self::NotConnected => -3,
        }
    }
}

/// Why a call of a resident was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallNotMade {
    /// There is no such import.
    NoImport,
    /// The parameters are longer than a channel takes.
    TooLong,
    /// The import is not connected.
    NotConnected,
    /// Too many calls wait for their answers.
    TooMany,
}

impl CallNotMade {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::NoImport => -1,
            Self::TooLong => -2,
            Self::NotConnected => -3,
            Self::TooMany => -4,
        }
    }
}

/// How an own call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentAnswer {
    /// With results, in postcard.
    Results,
    /// The callee refused it; this and the following have a text.
    Refused,
    /// The callee trapped.
    Trapped,
    /// The callee is gone.
    Gone,
    /// Its deadline has passed.
    TimedOut,
    /// The callee has no such method, or with other types.
    NoMethod,
}

impl ResidentAnswer {
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Results => 0,
            Self::Refused => 1,
            Self::Trapped => 2,
            Self::Gone => 3,
            Self::TimedOut => 4,
            Self::NoMethod => 5,
        }
    }
}

/// What happened out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentEvent {
    /// A message of the application.
    Message,
    /// A port, 4 bytes in little-endian order, is connected.
    Connected,
    /// A port's other end is gone.
    Disconnected,
    /// An attribute was set: its name, a zero byte, its value.
    Attribute,
}

impl ResidentEvent {
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Message => 1,
            Self::Connected => 2,
            Self::Disconnected => 3,
            Self::Attribute => 4,
        }
    }
}

/// How important a line of a resident's log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResidentLog {
    /// Something is wrong.
    Error,
    /// Something may be wrong.
    Warn,
    /// Something happened.
    Info,
    /// For whoever looks for a mistake.
    Debug,
    /// For whoever looks for a mistake closely.
    Trace,
}

impl ResidentLog {
    /// Of the guest's number; what is no level is the nearest one.
    pub(super) fn of(level: i32) -> Self {
        match level {
            ..=1 => Self::Error,
            2 => Self::Warn,
            3 => Self::Info,
            4 => Self::Debug,
            5.. => Self::Trace,
        }
    }
}

/// See this file's first lines. Methods are called while an entry runs, on its thread, within its
/// time limit.
pub trait ResidentHost: 'static {
    /// Sends a message.
    fn send(&mut self, port: u32, message: &[u8]) -> ResidentSend;

    /// Makes a call of a method, an import's number and its own, and gives the call's number, which
    /// is above 0 and no negative i64. No deadline: the owner's own.
    ///
    /// # Errors
    /// [`CallNotMade`].
    fn call(
        &mut self,
        method: (u32, u32),
        params: &[u8],
        deadline: Option<Duration>,
    ) -> Result<u64, CallNotMade>;

    /// Answers a call; false if there is none of that number.
    fn answer(&mut self, call: u64, results: &[u8]) -> bool;

    /// Refuses a call with a text; false if there is none of that number.
    fn refuse(&mut self, call: u64, text: &str) -> bool;

    /// Holds back a port's messages.
    fn hold(&mut self, port: u32);

    /// Lets them come again.
    fn release(&mut self, port: u32);

    /// A line for the log, at most [`TEXT_MAX`] bytes long.
    fn log(&mut self, level: ResidentLog, text: &str);

    /// A message to the application, out of band; false if it is not taken.
    fn tell(&mut self, message: &[u8]) -> bool;

    /// The value of an attribute.
    fn attribute(&mut self, name: &str) -> Option<&[u8]>;

    /// Nanoseconds of a clock that never goes back.
    fn clock(&mut self) -> u64;

    /// Nanoseconds since 1970.
    fn wall(&mut self) -> u64;

    /// Sets a timer, in place of an earlier one of its number; false if it has too many.
    fn timer(&mut self, timer: u32, after: Duration) -> bool;
}

/// Bytes of a text that a resident writes into its log, or gives as its reason, at most; what is
/// longer is cut off.
pub const TEXT_MAX: usize = 4096;
