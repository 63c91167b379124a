//! Calls that go through the runtime: from offcodes to offcodes elsewhere, and from the
//! application.
//!
//! Every call is answered once: by the callee, or because it is gone or the caller's deadline is
//! over. Both may be moved meanwhile.

use super::command::{ApiCall, CallWaiter};
use super::state::Conductor;
use crate::request::{
    CALL_MAX, CallFailure, CallKey, CallMessage, CallResult, DeviceRequest, Frozen, InboxItem,
    OffcodeId,
};
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Calls that are not answered, at most.
const CALLS_WAITING_MAX: usize = 262_144;

#[derive(Debug, Default)]
pub(super) struct CallTable {
    pending: HashMap<CallKey, PendingCall>,
    /// When calls of the application are given up.
    deadlines: BTreeSet<(Instant, u64)>,
    /// The number of the application's latest call.
    latest: u64,
}

#[derive(Debug)]
struct PendingCall {
    target: OffcodeId,
    /// The application's thread that waits for it.
    waiter: Option<CallWaiter>,
    until: Option<Instant>,
}

impl CallTable {
    /// How many calls to an offcode are not answered.
    pub(super) fn to(&self, target: OffcodeId) -> usize {
        self.pending.values().filter(|call| call.target == target).count()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    fn take(&mut self, key: CallKey) -> Option<PendingCall> {
        let call = self.pending.remove(&key)?;
        if let Some(until) = call.until {
            self.deadlines.remove(&(until, key.number));
        }
        Some(call)
    }

    fn keep(&mut self, key: CallKey, call: PendingCall) {
        if let Some(until) = call.until {
            self.deadlines.insert((until, key.number));
        }
        self.pending.insert(key, call);
    }

    /// Calls to an offcode.
    fn keys_to(&self, target: OffcodeId) -> Vec<CallKey> {
        let mut keys: Vec<CallKey> = self
            .pending
            .iter()
            .filter(|(_, call)| call.target == target)
            .map(|(key, _)| *key)
            .collect();
        keys.sort_unstable();
        keys
    }
}

impl Conductor {
    /// A call of the application.
    pub(super) fn call_from_application(&mut self, call: ApiCall) {
        let until = call.deadline.and_then(|limit| Instant::now().checked_add(limit));
        let limit_ms = call.deadline.map_or(0, |limit| limit.as_millis().max(1));
        let deadline_ms = u32::try_from(limit_ms).unwrap_or(u32::MAX);
        for target in call.targets {
            self.calls.latest += 1;
            let number = self.calls.latest;
            let key = CallKey { caller: OffcodeId::APPLICATION, number };
            let waiter = Some(call.waiter.clone());
            let pending = PendingCall { target, waiter, until };
            let (interface, method) = (call.interface, call.method);
            let params = call.params.clone();
            let message = CallMessage { key, target, interface, method, params, deadline_ms };
            self.forward_call(message, pending);
        }
    }

    /// A call of an offcode on `device` to one elsewhere.
    pub(super) fn call_from_device(&mut self, device: usize, message: CallMessage) {
        // A device speaks for its own offcodes only.
        if self.is_on(message.key.caller, device) && message.params.len() <= CALL_MAX {
            let pending = PendingCall { target: message.target, waiter: None, until: None };
            self.forward_call(message, pending);
        }
    }

    fn forward_call(&mut self, message: CallMessage, pending: PendingCall) {
        let (key, target) = (message.key, message.target);
        let is_full = self.calls.pending.len() >= CALLS_WAITING_MAX;
        self.calls.keep(key, pending);
        if is_full {
            let text = format!("{CALLS_WAITING_MAX} calls of the application are not answered");
            self.answer(key, Err(CallFailure::Refused(text)));
        } else if target == OffcodeId::APPLICATION {
            self.answer(key, Err(CallFailure::Misfit("the application has no interfaces".into())));
        } else if !self.offcodes.contains_key(&target) {
            let why = format!("`{}`: {}", self.name_of(target), self.reason(target));
            self.answer(key, Err(CallFailure::Gone(why)));
        } else if !self.send_to(target, DeviceRequest::Call(message)) {
            self.answer(key, Err(CallFailure::Refused("too much waits while it moves".into())));
        }
    }

    /// An answer of an offcode on `device`.
    pub(super) fn answer_from_device(&mut self, device: usize, key: CallKey, result: CallResult) {
        let target = self.calls.pending.get(&key).map(|call| call.target);
        if target.is_some_and(|target| self.is_on(target, device)) {
            self.answer(key, result);
        }
    }

    /// Answers a call that waits; one that does not was answered before.
    fn answer(&mut self, key: CallKey, result: CallResult) {
        let Some(call) = self.calls.take(key) else { return };
        match call.waiter {
            Some(waiter) => drop(waiter.send((call.target, result))),
            None => drop(self.send_to(key.caller, DeviceRequest::Answer(key, result))),
        }
    }

    /// Gives up what the application no longer waits for.
    pub(super) fn give_up_calls(&mut self, now: Instant) {
        while self.calls.deadline().is_some_and(|until| until <= now) {
            let Some((_, number)) = self.calls.deadlines.pop_first() else { return };
            let key = CallKey { caller: OffcodeId::APPLICATION, number };
            self.answer(key, Err(CallFailure::Deadline));
        }
    }

    /// An offcode is gone: nobody waits for it, and it waits for nobody.
    pub(super) fn end_calls(&mut self, offcode: OffcodeId, why: &str) {
        self.calls.pending.retain(|key, _| key.caller != offcode);
        for key in self.calls.keys_to(offcode) {
            self.answer(key, Err(CallFailure::Gone(why.to_owned())));
        }
    }

    /// An offcode leaves its device: calls between it and its neighbours there, of which the
    /// runtime knew nothing, go through the runtime from now on.
    pub(super) fn adopt_calls(&mut self, offcode: OffcodeId, frozen: &Frozen) {
        let called = frozen.inbox.iter().filter_map(|item| match item {
            InboxItem::Call(key, ..) => Some(*key),
            _ => None,
        });
        let opened = frozen.open_calls.iter().map(|(_, key)| *key);
        let mut calls: Vec<(CallKey, OffcodeId)> =
            called.chain(opened).map(|key| (key, offcode)).collect();
        calls.extend(
            frozen
                .own_calls
                .iter()
                .map(|own| (CallKey { caller: offcode, number: own.number }, own.target)),
        );
        for (key, target) in calls {
            let is_known = key.caller == OffcodeId::APPLICATION
                || self.calls.pending.contains_key(&key)
                || self.calls.pending.len() >= CALLS_WAITING_MAX;
            if !is_known {
                let pending = PendingCall { target, waiter: None, until: None };
                self.calls.keep(key, pending);
            }
        }
    }
}
