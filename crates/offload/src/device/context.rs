//! What an offcode reaches: its ports, Calls, timers, attributes and log. Entries of its body act
//! on it; the device reads afterwards what has to happen outside.
//!
//! It never blocks, runs no offcode, and everything in it is bounded.

use super::port::{Port, PortSend};
use crate::request::{
    BodyNeeds, CALL_MAX, CallFailure, CallKey, CallMessage, CallResult, ChannelId, EndId,
    InterfaceId, MESSAGE_MAX, OffcodeCounters, OffcodeId, OwnCall,
};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Calls that an offcode may wait for, and that may wait for it, at most.
pub(super) const CALLS_MAX: usize = 4096;
/// Timers of an offcode, at most.
pub(super) const TIMERS_MAX: usize = 64;
/// Bytes of what an entry sends to other devices, calls, answers and tells, at most: what is more
/// finds no room.
const EFFECTS_BYTES: usize = 64 << 20;
/// Bytes of a line of its log, at most.
const LOG_MAX: usize = 1024;
/// Lines of its log in one entry, at most.
const LOGS_MAX: usize = 64;
/// Bytes of a message on the out-of-band channel, at most.
pub const TELL_MAX: usize = 64 << 10;
/// Messages on the out-of-band channel in one entry, at most.
const TELLS_MAX: usize = 256;
/// Bytes of a name or a value of an attribute, at most.
pub const ATTRIBUTE_MAX: usize = 4096;
/// Attributes of an offcode, at most.
pub const ATTRIBUTES_MAX: usize = 256;

/// Why a call was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// It has no such import.
    NoImport,
    /// Nobody serves the import.
    NotBound,
    /// Its parameters are longer than 1 MiB.
    TooLong,
    /// It waits for 4,096 already.
    TooMany,
}

/// What the device has to do after an entry.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Ends on this device that have new messages.
    pub touched: Vec<EndId>,
    /// Messages for ends elsewhere.
    pub sessions: Vec<(ChannelId, EndId, Vec<u8>)>,
    /// Calls that it made.
    pub calls: Vec<CallMessage>,
    /// Answers that it gave.
    pub answers: Vec<(CallKey, CallResult)>,
    /// Messages to the application.
    pub told: Vec<Vec<u8>>,
    /// Its log.
    pub logs: Vec<(u8, String)>,
    /// Ports for which it is to be entered again.
    pub again: Vec<u16>,
    /// Bytes of messages, calls, answers and tells.
    bytes: usize,
}

impl Effects {
    /// Whether so many bytes have room; counts them then.
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.bytes + bytes <= EFFECTS_BYTES;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }
}

/// A call of its own that it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedCall {
    /// Whom it called.
    pub target: OffcodeId,
    /// When it no longer waits.
    pub until: Option<Instant>,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct OffcodeContext {
    pub(super) id: OffcodeId,
    pub(super) needs: BodyNeeds,
    pub(super) ports: Vec<Port>,
    pub(super) imports: Vec<(InterfaceId, Option<OffcodeId>)>,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) effects: Effects,
    /// Calls that it has not answered, by its number for each.
    pub(super) open: HashMap<u64, CallKey>,
    /// Calls that it waits for.
    pub(super) waiting: HashMap<u64, AwaitedCall>,
    pub(super) next_call: u64,
    pub(super) next_open: u64,
    pub(super) timers: Vec<(u32, Instant)>,
    /// Timers that are due, and that it has not been entered with.
    pub(super) timers_due: usize,
    /// Answers that are there, and that it has not been entered with.
    pub(super) answers_due: usize,
    pub(super) counters: OffcodeCounters,
    began: Instant,
}

impl OffcodeContext {
    pub(super) fn new(id: OffcodeId, needs: BodyNeeds, ports: u16) -> Self {
        Self {
            id,
            needs,
            ports: (0..ports).map(|_| Port::default()).collect(),
            imports: Vec::new(),
            attributes: BTreeMap::new(),
            effects: Effects::default(),
            open: HashMap::new(),
            waiting: HashMap::new(),
            next_call: 1,
            next_open: 1,
            timers: Vec::new(),
            timers_due: 0,
            answers_due: 0,
            counters: OffcodeCounters::default(),
            began: Instant::now(),
        }
    }

    /// Sends a message out of a port. `None`: it has no such port.
    pub fn send(&mut self, port: u32, bytes: &[u8]) -> Option<PortSend> {
        let outlet = self.ports.get_mut(port as usize)?;
        let before = outlet.dropped();
        let effects = &mut self.effects;
        // Reliable or not: it is the sender that asks too much of this entry.
        let copies = bytes.len().saturating_mul(outlet.sessions());
        if copies > 0 && bytes.len() <= MESSAGE_MAX && !effects.takes(copies) {
            let number = u16::try_from(port).unwrap_or(u16::MAX);
            if !effects.again.contains(&number) {
                effects.again.push(number);
            }
            return Some(PortSend::Full);
        }
        let outcome = outlet.send(bytes, &mut effects.touched, &mut effects.sessions);
        self.counters.dropped += outlet.dropped() - before;
        if outcome == PortSend::Taken {
            self.counters.sent += 1;
        }
        Some(outcome)
    }

    /// Calls whoever serves an import; the answer comes to the entry for answers, under the number
    /// that this returns. `deadline_ms` is 0 for no limit.
    ///
    /// # Errors
    /// [`CallRefusal`]: the offcode's fault, or nobody is bound.
    pub fn call(
        &mut self,
        import: u32,
        method: u32,
        params: &[u8],
        deadline_ms: u32,
    ) -> Result<u64, CallRefusal> {
        let (interface, target) =
            *self.imports.get(import as usize).ok_or(CallRefusal::NoImport)?;
        let target = target.ok_or(CallRefusal::NotBound)?;
        if params.len() > CALL_MAX {
            return Err(CallRefusal::TooLong);
        }
        let calls = self.waiting.len() + self.answers_due;
        if calls >= CALLS_MAX || !self.effects.takes(params.len()) {
            return Err(CallRefusal::TooMany);
        }
        let number = self.next_call;
        self.next_call += 1;
        let limit = Duration::from_millis(deadline_ms.into());
        let until = (deadline_ms > 0).then(|| Instant::now() + limit);
        self.waiting.insert(number, AwaitedCall { target, until });
        let key = CallKey { caller: self.id, number };
        let params = params.to_vec();
        self.effects.calls.push(CallMessage {
            key,
            target,
            interface,
            method,
            params,
            deadline_ms,
        });
        Ok(number)
    }

    /// Answers a call. False: there is no such call, or the results are longer than 1 MiB.
    pub fn answer(&mut self, call: u64, results: &[u8]) -> bool {
        if results.len() > CALL_MAX {
            return false;
        }
        if !self.effects.takes(results.len()) {
            return self.refuse(call, "its answers of one entry take more than 64 MiB");
        }
        self.end_call(call, Ok(results.to_vec()))
    }

    /// Refuses a call, in words. False: there is no such call.
    pub fn refuse(&mut self, call: u64, why: &str) -> bool {
        self.end_call(call, Err(CallFailure::Refused(cut(why, LOG_MAX))))
    }

    fn end_call(&mut self, call: u64, result: CallResult) -> bool {
        let Some(key) = self.open.remove(&call) else { return false };
        self.effects.answers.push((key, result));
        true
    }

    /// A call from outside gets the number by which the offcode answers it. `None`: it has not
    /// answered 4,096 already.
    pub(super) fn open_call(&mut self, key: CallKey) -> Option<u64> {
        if self.open.len() >= CALLS_MAX {
            return None;
        }
        let number = self.next_open;
        self.next_open += 1;
        self.open.insert(number, key);
        Some(number)
    }

    /// Delivers nothing of a port, or again what arrives.
    pub fn hold(&mut self, port: u32, is_held: bool) {
        if let Some(port) = self.ports.get_mut(port as usize) {
            port.hold(is_held);
        }
    }

    /// Writes a line of its log. What is too much in one entry is lost.
    pub fn log(&mut self, level: u8, text: &str) {
        if self.effects.logs.len() < LOGS_MAX {
            self.effects.logs.push((level.clamp(1, 5), cut(text, LOG_MAX)));
        }
    }

    /// Sends a message to the application on the out-of-band channel. False: too long, or too many
    /// in one entry.
    pub fn tell(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= TELL_MAX && self.effects.told.len() < TELLS_MAX;
        if fits && self.effects.takes(bytes.len()) {
            self.effects.told.push(bytes.to_vec());
            return true;
        }
        false
    }

    /// An attribute of its own.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// Nanoseconds of a monotonic clock. `None`: its description does not ask for clocks.
    #[must_use]
    pub fn clock_ns(&self) -> Option<u64> {
        let elapsed = || u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.needs.clock.then(elapsed)
    }

    /// Nanoseconds since 1970. `None`: its description does not ask for clocks.
    #[must_use]
    pub fn wall_ns(&self) -> Option<u64> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        self.needs.clock.then_some(nanoseconds)
    }

    /// Sets a timer, in the place of an earlier one of that number. False: its description does not
    /// ask for timers, or it has 64.
    pub fn timer(&mut self, timer: u32, after: Duration) -> bool {
        if !self.needs.timers {
            return false;
        }
        self.timers.retain(|(number, _)| *number != timer);
        let due = Instant::now().checked_add(after);
        let fits = self.timers.len() + self.timers_due < TIMERS_MAX;
        if let Some(due) = due.filter(|_| fits) {
            self.timers.push((timer, due));
        }
        fits
    }

    /// The offcode is entered again soon, as if a port of its had room: for work in pieces.
    pub fn wake_again(&mut self, port: u16) {
        self.effects.again.push(port);
    }

    /// The earliest time at which a timer or a deadline of a call is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timers = self.timers.iter().map(|(_, due)| *due);
        timers.chain(self.waiting.values().filter_map(|waiting| waiting.until)).min()
    }

    /// Takes the timers that are due.
    pub(super) fn take_timers(&mut self, now: Instant) -> Vec<u32> {
        let mut due: Vec<(Instant, u32)> = Vec::new();
        self.timers.retain(|(number, at)| {
            let is_due = *at <= now;
            if is_due {
                due.push((*at, *number));
            }
            !is_due
        });
        due.sort_unstable();
        self.timers_due += due.len();
        due.into_iter().map(|(_, number)| number).collect()
    }

    /// Takes the calls that it no longer waits for.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<u64> {
        let is_late = |waiting: &AwaitedCall| waiting.until.is_some_and(|until| until <= now);
        let mut late = Vec::new();
        self.waiting.retain(|number, waiting| {
            let ends = is_late(waiting);
            if ends {
                late.push(*number);
            }
            !ends
        });
        late.sort_unstable();
        late
    }

    /// Its own calls, for a move.
    pub(super) fn own_calls(&self, now: Instant) -> Vec<OwnCall> {
        let left = |until: Instant| {
            let left = until.saturating_duration_since(now).as_millis().max(1);
            u32::try_from(left).unwrap_or(u32::MAX)
        };
        let own = |(number, waiting): (&u64, &AwaitedCall)| OwnCall {
            number: *number,
            target: waiting.target,
            left_ms: waiting.until.map_or(0, left),
        };
        self.waiting.iter().map(own).collect()
    }
}

/// `text`, cut to so many bytes at a border of characters.
pub(crate) fn cut(text: &str, max: usize) -> String {
    text[..text.floor_char_boundary(max)].to_owned()
}
