//! Builtins that find out what becomes of others: `probe` fails or waits where it is told to,
//! `caller` calls whoever serves its import.

use super::{BodyEnd, Builtin, OffcodeContext};
use crate::request::{CallResult, event_kind};
use serde::{Deserialize, Serialize};

/// Fails where its attribute `fails` says: `initialize`, `start` or `message`. Calls wait
/// until the application sends it a message, which is the answer to all of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ProbeBuiltin {
    calls: Vec<u64>,
}

impl ProbeBuiltin {
    fn step(context: &OffcodeContext, step: &str) -> Result<(), BodyEnd> {
        match context.attribute("fails") == Some(step) {
            true => Err(BodyEnd::Failed(format!("it was told to fail in {step}"))),
            false => Ok(()),
        }
    }
}

impl Builtin for ProbeBuiltin {
    fn initialize(&mut self, context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        Self::step(context, "initialize")
    }

    fn start(&mut self, context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        Self::step(context, "start")
    }

    fn call(&mut self, _: &mut OffcodeContext, _: u32, call: u64, _: &[u8]) {
        self.calls.push(call);
    }

    fn message(&mut self, context: &mut OffcodeContext, _: u16, _: &[u8]) -> Result<(), BodyEnd> {
        Self::step(context, "message")
    }

    fn event(&mut self, context: &mut OffcodeContext, kind: u32, bytes: &[u8]) {
        if kind == event_kind::MESSAGE {
            for call in self.calls.drain(..) {
                context.answer(call, bytes);
            }
        }
    }

    fn state(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        postcard::from_bytes(state).map(|state| *self = state).is_ok()
    }
}

/// Calls method 0 of its import 0 with each message, and tells the application the results, or the
/// fault in words.
#[derive(Debug, Default)]
pub(super) struct Caller;

impl Builtin for Caller {
    fn message(
        &mut self,
        context: &mut OffcodeContext,
        _: u16,
        bytes: &[u8],
    ) -> Result<(), BodyEnd> {
        if let Err(refusal) = context.call(0, 0, bytes, 0) {
            context.tell(format!("{refusal:?}").as_bytes());
        }
        Ok(())
    }

    fn answer(&mut self, context: &mut OffcodeContext, _: u64, result: &CallResult) {
        match result {
            Ok(bytes) => context.tell(bytes),
            Err(fault) => context.tell(fault.to_string().as_bytes()),
        };
    }

    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        state.is_empty()
    }
}
