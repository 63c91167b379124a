//! The builtins: `relay`, `counter`, `echo`, `ping`, `source`, `sink`.
//!
//! Port 0 is where messages arrive, and for `source` where they leave; port 1 is where `relay`
//! and `echo` send. Who finds no room holds what arrives until there is room: nothing is
//! lost.

use super::super::port::PortSend;
use super::{BodyEnd, Builtin, OffcodeContext};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Instant;

const IN: u16 = 0;
const OUT: u32 = 1;
/// Messages that `source` sends in an entry, at most.
const BATCH: u64 = 64;

/// Bytes of a state.
fn encode(state: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(state).unwrap_or_default()
}

/// Puts a state into its place. False: these bytes are none.
fn decode<'a, T: Deserialize<'a>>(place: &mut T, state: &'a [u8]) -> bool {
    let read = postcard::from_bytes(state).map(|state| *place = state);
    read.is_ok()
}

/// What is to be sent out of port 1, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outgoing(VecDeque<Vec<u8>>);

impl Outgoing {
    /// Sends what there is room for, and holds the arriving messages while something is left.
    fn flush(&mut self, context: &mut OffcodeContext) {
        while let Some(bytes) = self.0.front() {
            if context.send(OUT, bytes) == Some(PortSend::Full) {
                context.hold(IN.into(), true);
                return;
            }
            self.0.pop_front();
        }
        context.hold(IN.into(), false);
    }

    fn send(&mut self, context: &mut OffcodeContext, bytes: Vec<u8>) {
        self.0.push_back(bytes);
        self.flush(context);
    }
}

/// Passes on what arrives.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RelayBuiltin {
    outgoing: Outgoing,
}

impl Builtin for RelayBuiltin {
    fn message(
        &mut self,
        context: &mut OffcodeContext,
        _: u16,
        bytes: &[u8],
    ) -> Result<(), BodyEnd> {
        self.outgoing.send(context, bytes.to_vec());
        Ok(())
    }

    fn writable(&mut self, context: &mut OffcodeContext, _: u16) {
        self.outgoing.flush(context);
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}

/// Counts messages and bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    messages: u64,
    bytes: u64,
}

impl Builtin for Counter {
    fn call(&mut self, context: &mut OffcodeContext, method: u32, call: u64, _: &[u8]) {
        if method == 0 {
            context.answer(call, &encode(&(self.messages, self.bytes)));
        } else {
            context.refuse(call, "counter has one method");
        }
    }

    fn message(&mut self, _: &mut OffcodeContext, _: u16, bytes: &[u8]) -> Result<(), BodyEnd> {
        self.messages += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}

/// Answers each call with its parameters, and sends each message back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Echo {
    outgoing: Outgoing,
}

impl Builtin for Echo {
    fn call(&mut self, context: &mut OffcodeContext, _: u32, call: u64, params: &[u8]) {
        context.answer(call, params);
    }

    fn message(
        &mut self,
        context: &mut OffcodeContext,
        _: u16,
        bytes: &[u8],
    ) -> Result<(), BodyEnd> {
        self.outgoing.send(context, bytes.to_vec());
        Ok(())
    }

    fn writable(&mut self, context: &mut OffcodeContext, _: u16) {
        self.outgoing.flush(context);
    }

    fn event(&mut self, context: &mut OffcodeContext, kind: u32, bytes: &[u8]) {
        if kind == crate::request::event_kind::MESSAGE {
            context.tell(bytes);
        }
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}

/// Sends a message of `size` bytes out of port 1 and waits until it is back at port 0, `count`
/// times. Method 0: how often, and how many nanoseconds that took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ping {
    back: u64,
    took_ns: u64,
    #[serde(skip)]
    began: Option<Instant>,
}

impl Ping {
    fn send(context: &mut OffcodeContext) -> bool {
        let size = context.attribute("size").and_then(|text| text.parse().ok()).unwrap_or(8);
        context.send(OUT, &vec![0; size]) == Some(PortSend::Taken)
    }
}

impl Builtin for Ping {
    fn message(&mut self, context: &mut OffcodeContext, _: u16, _: &[u8]) -> Result<(), BodyEnd> {
        self.back += 1;
        let count = context.attribute("count").and_then(|text| text.parse().ok()).unwrap_or(0);
        if self.back < count {
            Self::send(context);
        } else if let Some(began) = self.began.take() {
            self.took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    fn start(&mut self, context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        self.event(context, crate::request::event_kind::CONNECTED, &[]);
        Ok(())
    }

    fn event(&mut self, context: &mut OffcodeContext, kind: u32, _: &[u8]) {
        let is_first = kind == crate::request::event_kind::CONNECTED && self.began.is_none();
        if is_first && self.took_ns == 0 && Self::send(context) {
            self.began = Some(Instant::now());
        }
    }

    fn call(&mut self, context: &mut OffcodeContext, _: u32, call: u64, _: &[u8]) {
        context.answer(call, &encode(&(self.back, self.took_ns)));
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}

/// Sends `count` messages of `size` bytes out of port 0: their numbers from 0 on, then zeroes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Source {
    next: u64,
}

impl Source {
    fn send(&mut self, context: &mut OffcodeContext) {
        let number = |name: &str| context.attribute(name).and_then(|text| text.parse::<u64>().ok());
        let count = number("count").unwrap_or(u64::MAX);
        let size = usize::try_from(number("size").unwrap_or(8)).unwrap_or(8).max(8);
        let mut message = vec![0; size];
        for _ in 0..BATCH {
            if self.next >= count {
                return;
            }
            message[..8].copy_from_slice(&self.next.to_le_bytes());
            if context.send(0, &message) != Some(PortSend::Taken) {
                return;
            }
            self.next += 1;
        }
        context.wake_again(0);
    }
}

impl Builtin for Source {
    fn start(&mut self, context: &mut OffcodeContext) -> Result<(), BodyEnd> {
        self.send(context);
        Ok(())
    }

    fn message(&mut self, _: &mut OffcodeContext, _: u16, _: &[u8]) -> Result<(), BodyEnd> {
        Ok(())
    }

    fn writable(&mut self, context: &mut OffcodeContext, _: u16) {
        self.send(context);
    }

    fn event(&mut self, context: &mut OffcodeContext, kind: u32, _: &[u8]) {
        if kind == crate::request::event_kind::CONNECTED {
            self.send(context);
        }
    }

    fn call(&mut self, context: &mut OffcodeContext, _: u32, call: u64, _: &[u8]) {
        context.answer(call, &encode(&self.next));
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}

/// Takes everything, and checks that messages are numbered from 0 on. Method 0: messages, and the
/// first that was out of order plus one, or 0.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SinkBuiltin {
    next: u64,
    wrong: u64,
}

impl Builtin for SinkBuiltin {
    fn call(&mut self, context: &mut OffcodeContext, _: u32, call: u64, _: &[u8]) {
        context.answer(call, &encode(&(self.next, self.wrong)));
    }

    fn message(&mut self, _: &mut OffcodeContext, _: u16, bytes: &[u8]) -> Result<(), BodyEnd> {
        let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        if number != Some(self.next) && self.wrong == 0 {
            self.wrong = self.next + 1;
        }
        self.next += 1;
        Ok(())
    }

    fn state(&self) -> Vec<u8> {
        encode(self)
    }

    fn set_state(&mut self, state: &[u8]) -> bool {
        decode(self, state)
    }
}
