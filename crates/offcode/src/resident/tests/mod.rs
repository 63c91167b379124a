//! Residents of small guests, each written for what it shows.

mod guests;
mod lives;
mod refusals;
mod states;

use super::*;
use guests::ALL;
pub(super) use guests::STATEFUL;
use std::time::Duration;

/// What a host was asked, in words.
#[derive(Default)]
pub(super) struct HostRecorder {
    asked: Vec<String>,
    value: Vec<u8>,
    /// Called by `tell`.
    on_tell: Option<Box<dyn FnMut()>>,
}

impl std::fmt::Debug for HostRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRecorder").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl HostRecorder {
    fn note(&mut self, text: String) {
        self.asked.push(text);
    }
}

impl ResidentHost for HostRecorder {
    fn send(&mut self, port: u32, message: &[u8]) -> ResidentSend {
        self.note(format!("send {port} {message:?}"));
        match port {
            0 => ResidentSend::Taken,
            1 => ResidentSend::Full,
            2 => ResidentSend::NoPort,
            3 => ResidentSend::TooLong,
            _ => ResidentSend::NotConnected,
        }
    }

    fn call(
        &mut self,
        (import, method): (u32, u32),
        params: &[u8],
        deadline: Option<Duration>,
    ) -> Result<u64, CallNotMade> {
        self.note(format!("call {import} {method} {params:?} {deadline:?}"));
        match import {
            0 => Ok(77),
            1 => Err(CallNotMade::NoImport),
            2 => Err(CallNotMade::TooLong),
            3 => Err(CallNotMade::NotConnected),
            _ => Err(CallNotMade::TooMany),
        }
    }

    fn answer(&mut self, call: u64, results: &[u8]) -> bool {
        self.note(format!("answer {call} {results:?}"));
        call < 100
    }

    fn refuse(&mut self, call: u64, text: &str) -> bool {
        self.note(format!("refuse {call} {text}"));
        call < 100
    }

    fn hold(&mut self, port: u32) {
        self.note(format!("hold {port}"));
    }

    fn release(&mut self, port: u32) {
        self.note(format!("release {port}"));
    }

    fn log(&mut self, level: ResidentLog, text: &str) {
        self.note(format!("log {level:?} {text}"));
    }

    fn tell(&mut self, message: &[u8]) -> bool {
        self.note(format!("tell {message:?}"));
        if let Some(on_tell) = &mut self.on_tell {
            on_tell();
        }
        message.len() < 100
    }

    fn attribute(&mut self, name: &str) -> Option<&[u8]> {
        self.note(format!("attribute {name}"));
        (name == "colour").then_some(&self.value)
    }

    fn clock(&mut self) -> u64 {
        111
    }

    fn wall(&mut self) -> u64 {
        222
    }

    fn timer(&mut self, timer: u32, after: Duration) -> bool {
        self.note(format!("timer {timer} {after:?}"));
        timer < 64
    }
}

pub(super) fn engine() -> ResidentEngine {
    ResidentEngine::new(None).expect("an engine")
}

pub(super) fn all_rules() -> ResidentRules {
    ResidentRules {
        memory_bytes: 8 << 16,
        has_clock: true,
        has_timers: true,
        ..ResidentRules::default()
    }
}

pub(super) fn compile(text: &str) -> Result<ResidentModule, ResidentError> {
    ResidentModule::compile(&engine(), &wat::parse_str(text).expect("WAT"), &all_rules())
}

/// Far from what any test needs, however busy the machine is.
pub(super) fn limits() -> ResidentLimits {
    ResidentLimits { entry_time: Duration::from_secs(20), input_bytes: 1 << 16 }
}

/// For guests that must run out of it.
fn short() -> ResidentLimits {
    ResidentLimits { entry_time: Duration::from_millis(5), ..limits() }
}

fn resident(text: &str) -> Resident<HostRecorder> {
    let module = compile(text).expect("compiled");
    Resident::new(&module, HostRecorder::default(), limits()).expect("made")
}

/// What its host was asked since the last look.
pub(super) fn asked(resident: &mut Resident<HostRecorder>) -> Vec<String> {
    std::mem::take(&mut resident.host_mut().asked)
}
