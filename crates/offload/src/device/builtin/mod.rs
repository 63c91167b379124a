//! Bodies in our own binary, by name: what applications and tests are put together from.
//!
//! A builtin's state is a small value, which it gives and takes as bytes. It reaches nothing but
//! its context.

mod kinds;
mod probe;

use super::body::{BodyEnd, LiveBody};
use super::context::OffcodeContext;
use crate::request::{CallResult, DeviceError, FrozenState};
use std::fmt;

/// What a builtin does. The default does nothing, and refuses calls.
pub(super) trait Builtin: Send + fmt::Debug {
    fn initialize(&mut self, _context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        Ok(())
    }

    fn start(&mut self, _context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        Ok(())
    }

    fn stop(&mut self, _context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        Ok(())
    }

    fn call(&mut self, context: &mut OffcodeContext, _method: u32, call: u64, _params: &[u8]) {
        context.refuse(call, "this builtin answers no calls");
    }

    fn answer(&mut self, _context: &mut OffcodeContext, _call: u64, _result: &CallResult) {}

    fn message(
        &mut self,
        context: &mut OffcodeContext,
        port: u16,
        bytes: &[u8],
    ) -> Result<(), BodyEnd>;

    fn writable(&mut self, _context: &mut OffcodeContext, _port: u16) {}

    fn timer(&mut self, _context: &mut OffcodeContext, _timer: u32) {}

    fn event(&mut self, _context: &mut OffcodeContext, _kind: u32, _bytes: &[u8]) {}

    /// Its state.
    fn state(&self) -> Vec<u8>;

    /// Goes on from a state. False: it is none of its.
    fn set_state(&mut self, state: &[u8]) -> bool;
}

/// What a builtin is for, and how it is made.
type Kind = (&'static str, &'static str, fn() -> Box<dyn Builtin>);

const KINDS: &[Kind] = &[
    ("relay", "passes on what arrives, in order", || Box::<kinds::RelayBuiltin>::default()),
    ("counter", "counts messages and bytes; method 0 says both", || {
        Box::<kinds::Counter>::default()
    }),
    ("echo", "answers each call with its parameters; sends messages back", || {
        Box::<kinds::Echo>::default()
    }),
    ("ping", "sends a message and waits for it to come back, `count` times", || {
        Box::<kinds::Ping>::default()
    }),
    ("source", "sends `count` messages of `size` bytes, numbered", || {
        Box::<kinds::Source>::default()
    }),
    ("probe", "fails where `fails` says; answers calls when it is told what", || {
        Box::<probe::ProbeBuiltin>::default()
    }),
    ("caller", "calls its import with each message and tells the results", || {
        Box::<probe::Caller>::default()
    }),
    ("sink", "takes everything and checks the numbers", || Box::<kinds::SinkBuiltin>::default()),
];

/// The names of all builtins, and what they do.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|(name, about, _)| (*name, *about))
}

pub(super) fn make(
    kind: &str,
    context: OffcodeContext,
    from: Option<&FrozenState>,
) -> Result<Box<dyn LiveBody>, DeviceError> {
    let found = KINDS.iter().find(|(name, ..)| *name == kind);
    let (.., make) = found.ok_or_else(|| unknown(kind))?;
    let mut inner = make();
    if let Some(FrozenState::Whole(state) | FrozenState::Saved(state)) = from
        && !inner.set_state(state)
    {
        return Err(DeviceError::Body(format!("the state is none of builtin {kind}")));
    }
    Ok(Box::new(BuiltinBody { context, inner }))
}

fn unknown(kind: &str) -> DeviceError {
    let all: Vec<_> = names().map(|(name, _)| name).collect();
    DeviceError::Body(format!("there is no builtin {kind}; there are {}", all.join(", ")))
}

#[derive(Debug)]
struct BuiltinBody {
    context: OffcodeContext,
    inner: Box<dyn Builtin>,
}

impl LiveBody for BuiltinBody {
    fn context(&mut self) -> &mut OffcodeContext {
        &mut self.context
    }

    fn initialize(&mut self) -> Result<(), BodyEnd> {
        self.inner.initialize(&mut self.context)
    }

    fn start(&mut self) -> Result<(), BodyEnd> {
        self.inner.start(&mut self.context)
    }

    fn stop(&mut self) -> Result<(), BodyEnd> {
        self.inner.stop(&mut self.context)
    }

    fn call(&mut self, _: u32, method: u32, call: u64, params: &[u8]) -> Result<(), BodyEnd> {
        self.inner.call(&mut self.context, method, call, params);
        Ok(())
    }

    fn answer(&mut self, call: u64, result: &CallResult) -> Result<(), BodyEnd> {
        self.inner.answer(&mut self.context, call, result);
        Ok(())
    }

    fn message(&mut self, port: u16, bytes: &[u8]) -> Result<(), BodyEnd> {
        self.inner.message(&mut self.context, port, bytes)
    }

    fn writable(&mut self, port: u16) -> Result<(), BodyEnd> {
        self.inner.writable(&mut self.context, port);
        Ok(())
    }

    fn timer(&mut self, timer: u32) -> Result<(), BodyEnd> {
        self.inner.timer(&mut self.context, timer);
        Ok(())
    }

    fn event(&mut self, kind: u32, bytes: &[u8]) -> Result<(), BodyEnd> {
        self.inner.event(&mut self.context, kind, bytes);
        Ok(())
    }

    fn whole_state(&mut self) -> Result<Vec<u8>, BodyEnd> {
        Ok(self.inner.state())
    }

    fn save(&mut self) -> Result<Vec<u8>, BodyEnd> {
        Ok(self.inner.state())
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), BodyEnd> {
        match self.inner.set_state(saved) {
            true => Ok(()),
            false => Err(BodyEnd::Failed("the state is none of this builtin".into())),
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.state().len() as u64
    }
}
