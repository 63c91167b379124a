//! Turns of a device: offcodes run, a few entries at a time, and what they did is carried out.

use super::body::BodyEnd;
use super::port::{Credited, PortArrival};
use super::{Device, PlacedOffcode};
use crate::request::{
    CallFailure, CallKey, CallMessage, CallResult, ConnectedEnd, DeviceEvent, Direction, EndId,
    InboxItem, OffcodeId,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Entries of an offcode in a row.
const ENTRIES_MAX: usize = 32;
/// Offcodes in a turn.
const TURN_MAX: usize = 64;

/// How long an offcode runs in a row, and all of them before requests are looked at; one entry may
/// take longer.
const SLICE: Duration = Duration::from_millis(5);
const TURN: Duration = Duration::from_millis(20);

/// Times that are out of date, and may be kept.
const DUE_SPARE: usize = 64;

/// What one entry was called with.
enum Work {
    Item(InboxItem),
    Message(u16, PortArrival),
}

impl Device {
    /// Runs what is ready, for a while. True: there is more.
    pub fn turn(&mut self, now: Instant) -> bool {
        self.take_due(now);
        let began = Instant::now();
        for _ in 0..TURN_MAX {
            if !self.has_room() || began.elapsed() >= TURN {
                break;
            }
            let Some(offcode) = self.ready.pop_front() else { break };
            self.run(offcode);
        }
        self.is_ready()
    }

    /// Looks at the ends in shared memory. True: something has arrived, or there is room.
    pub fn look_at_rings(&mut self) -> bool {
        let mut found = false;
        for at in 0..self.rings.len() {
            let end = self.rings[at];
            found |= self.look_at(end);
        }
        found
    }

    fn look_at(&mut self, end: EndId) -> bool {
        // Whoever does not work yet is looked at when it does.
        if !self.offcodes.get(&end.offcode).is_some_and(PlacedOffcode::works) {
            return false;
        }
        let Some(port) = self.port(end) else { return false };
        let (is_ready, is_writable) = (port.is_ready(), port.take_writable());
        let broken = port.broken();
        if is_writable {
            self.deliver(end.offcode, InboxItem::Writable(end.port));
        }
        if is_ready {
            self.make_ready(end.offcode);
        }
        let is_broken = !broken.is_empty();
        broken.into_iter().for_each(|(connection, why)| self.break_off(&connection, &why));
        is_ready || is_writable || is_broken
    }

    /// The other side has broken a channel's memory: the channel is over.
    fn break_off(&mut self, connection: &ConnectedEnd, why: &str) {
        let (end, other) = (connection.end, connection.other);
        let text = format!(
            "port {}: its channel to offcode {} is over, the other side broke the memory: {why}",
            end.port, other.offcode.0
        );
        self.tell(DeviceEvent::Log(end.offcode, 1, text));
        self.disconnect(connection.channel, end, other);
    }

    /// The other sides of rings will wake this device from now on. False: something has happened in
    /// the meantime.
    pub fn prepare_sleep(&mut self) -> bool {
        let ends = self.rings.clone();
        ends.into_iter().all(|end| {
            let works = self.offcodes.get(&end.offcode).is_some_and(PlacedOffcode::works);
            !works
                || self
                    .port(end)
                    .is_none_or(|port| port.prepare_sleep() && port.broken().is_empty())
        })
    }

    /// Timers and deadlines that have come.
    pub(super) fn take_due(&mut self, now: Instant) {
        while let Some(Reverse((at, offcode))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let Some(placed) = self.offcodes.get_mut(&offcode) else { continue };
            let (timers, late) = {
                let context = placed.context();
                (context.take_timers(now), context.take_late(now))
            };
            let timers = timers.into_iter().map(InboxItem::Timer);
            let late =
                late.into_iter().map(|call| InboxItem::Answer(call, Err(CallFailure::Deadline)));
            timers.chain(late).for_each(|item| {
                placed.deliver(item);
            });
            placed.noted_due = None;
            note_due(&mut self.due, offcode, placed);
            self.make_ready(offcode);
        }
    }

    /// Runs some entries of an offcode.
    pub(super) fn run(&mut self, offcode: OffcodeId) {
        let Some(placed) = self.offcodes.get_mut(&offcode) else { return };
        placed.unqueue();
        let began = thread_time_ns();
        self.run_entries(offcode);
        let took = thread_time_ns().saturating_sub(began);
        let Some(placed) = self.offcodes.get_mut(&offcode) else { return };
        placed.context().counters.busy_ns += took;
        if placed.has_work() {
            self.make_ready(offcode);
        }
    }

    fn run_entries(&mut self, offcode: OffcodeId) {
        let began = Instant::now();
        for _ in 0..ENTRIES_MAX {
            if !self.has_room() || began.elapsed() >= SLICE {
                return;
            }
            let Some(placed) = self.offcodes.get_mut(&offcode) else { return };
            let Some(work) = next_work(placed) else { break };
            placed.context().counters.entries += 1;
            let ended = enter(placed, &work).err();
            if let Work::Message(_, PortArrival { credit: Some(credited), .. }) = &work {
                self.credit(*credited);
            }
            self.carry_out(offcode);
            if let Some(end) = ended {
                let call = called(&work);
                return self.end(offcode, &end.to_string(), call);
            }
        }
    }

    /// Whoever had no room is told that there is some.
    fn credit(&mut self, credited: Credited) {
        match credited {
            Credited::Here(sender) => {
                if self.port(sender).is_some_and(super::Port::take_writable) {
                    self.deliver(sender.offcode, InboxItem::Writable(sender.port));
                }
            }
            Credited::Elsewhere(channel, sender, receiver) => {
                self.tell(DeviceEvent::Credit(channel, sender, receiver, 1));
            }
        }
    }

    /// Does what an offcode's entry asked for.
    pub(super) fn carry_out(&mut self, offcode: OffcodeId) {
        self.forget_due();
        let Some(placed) = self.offcodes.get_mut(&offcode) else { return };
        note_due(&mut self.due, offcode, placed);
        let effects = std::mem::take(&mut placed.context().effects);
        effects.touched.into_iter().for_each(|end| self.make_ready(end.offcode));
        effects.again.into_iter().for_each(|port| {
            self.deliver(offcode, InboxItem::Writable(port));
        });
        for (channel, end, bytes) in effects.sessions {
            self.tell(DeviceEvent::Data(channel, end, bytes));
        }
        effects.calls.into_iter().for_each(|call| self.route_call(call));
        effects.answers.into_iter().for_each(|(key, result)| self.route_answer(key, result));
        effects.told.into_iter().for_each(|bytes| self.tell(DeviceEvent::Told(offcode, bytes)));
        for (level, text) in effects.logs {
            self.tell(DeviceEvent::Log(offcode, level, text));
        }
    }

    /// To the callee if it is here, else to the runtime.
    pub(super) fn route_call(&mut self, call: CallMessage) {
        let Some(placed) = self.offcodes.get_mut(&call.target) else {
            return self.tell(DeviceEvent::Call(call));
        };
        let (key, target) = (call.key, call.target);
        let Some(interface) = placed.interface(&call.interface) else {
            let text = format!("{} does not have that interface", placed.name);
            return self.route_answer(key, Err(CallFailure::Misfit(text)));
        };
        let item = InboxItem::Call(key, interface, call.method, call.params);
        if !self.deliver(target, item) {
            let text = "too many calls wait for it".to_owned();
            self.route_answer(key, Err(CallFailure::Refused(text)));
        }
    }

    /// To the caller if it is here, else to the runtime. Nobody waits for an answer that is late.
    pub(super) fn route_answer(&mut self, key: CallKey, result: CallResult) {
        let Some(placed) = self.offcodes.get_mut(&key.caller) else {
            return self.tell(DeviceEvent::Answer(key, result));
        };
        if placed.context().waiting.remove(&key.number).is_some() {
            self.deliver(key.caller, InboxItem::Answer(key.number, result));
        }
    }

    /// False: its inbox is full, or it is not here.
    pub(super) fn deliver(&mut self, offcode: OffcodeId, item: InboxItem) -> bool {
        let placed = self.offcodes.get_mut(&offcode);
        let is_taken = placed.is_some_and(|placed| placed.deliver(item));
        self.make_ready(offcode);
        is_taken
    }

    /// An offcode is over: whoever waits for it is told.
    pub(super) fn end(&mut self, offcode: OffcodeId, why: &str, trapped: Option<CallKey>) {
        let Some(mut placed) = self.offcodes.remove(&offcode) else { return };
        self.forget_ends(offcode);
        let text = format!("{}: {why}", placed.name);
        if let Some(key) = trapped {
            self.route_answer(key, Err(CallFailure::Trapped(text.clone())));
        }
        let waiting = placed.take_inbox().into_iter().filter_map(|item| match item {
            InboxItem::Call(key, ..) => Some(key),
            _ => None,
        });
        let keys: Vec<CallKey> = waiting.collect();
        let open: Vec<CallKey> = placed.context().open.values().copied().collect();
        for key in keys.into_iter().chain(open).filter(|key| Some(*key) != trapped) {
            self.route_answer(key, Err(CallFailure::Gone(text.clone())));
        }
        self.tell(DeviceEvent::Ended(offcode, why.to_owned()));
    }

    /// Forgets times that are out of date, when they are many.
    fn forget_due(&mut self) {
        if self.due.len() > 2 * self.offcodes.len() + DUE_SPARE {
            let noted = |at: Instant, offcode: &OffcodeId| {
                self.offcodes.get(offcode).is_some_and(|placed| placed.noted_due == Some(at))
            };
            self.due.retain(|Reverse((at, offcode))| noted(*at, offcode));
        }
    }

    pub(super) fn port(&mut self, end: EndId) -> Option<&mut super::Port> {
        let placed = self.offcodes.get_mut(&end.offcode)?;
        placed.context().ports.get_mut(usize::from(end.port))
    }

    pub(super) fn forget_ends(&mut self, offcode: OffcodeId) {
        self.rings.retain(|end| end.offcode != offcode);
        self.halves.retain(|(_, from, to), (direction, _)| match direction {
            Direction::Out => from.offcode != offcode,
            Direction::In => to.offcode != offcode,
        });
    }
}

/// Notes when an offcode's next timer or deadline is due, if that is earlier than what is noted.
pub(super) fn note_due(
    due: &mut BinaryHeap<Reverse<(Instant, OffcodeId)>>,
    offcode: OffcodeId,
    placed: &mut PlacedOffcode,
) {
    let deadline = placed.context().deadline();
    let is_noted = |at: Instant| placed.noted_due.is_some_and(|noted| noted <= at);
    if let Some(at) = deadline.filter(|at| !is_noted(*at)) {
        placed.noted_due = Some(at);
        due.push(Reverse((at, offcode)));
    }
}

/// What an offcode is entered with next: its inbox comes before its ports, which take turns.
fn next_work(placed: &mut PlacedOffcode) -> Option<Work> {
    if !placed.works() {
        return None;
    }
    if let Some(item) = placed.take_item() {
        return Some(Work::Item(item));
    }
    let (first, count) = (placed.next_port, placed.context().ports.len());
    for step in 0..count {
        let at = (first + step) % count;
        if let Some(arrival) = placed.context().ports[at].receive() {
            placed.next_port = at + 1;
            return Some(Work::Message(u16::try_from(at).unwrap_or(u16::MAX), arrival));
        }
    }
    None
}

fn enter(placed: &mut PlacedOffcode, work: &Work) -> Result<(), BodyEnd> {
    match work {
        Work::Message(port, arrival) => {
            placed.context().counters.received += 1;
            placed.body.message(*port, &arrival.bytes)
        }
        Work::Item(InboxItem::Call(key, interface, method, params)) => {
            match placed.context().open_call(*key) {
                Some(number) => placed.body.call(*interface, *method, number, params),
                None => {
                    let text = "it has not answered 4,096 calls".to_owned();
                    let refused = (*key, Err(CallFailure::Refused(text)));
                    placed.context().effects.answers.push(refused);
                    Ok(())
                }
            }
        }
        Work::Item(InboxItem::Answer(call, result)) => placed.body.answer(*call, result),
        Work::Item(InboxItem::Writable(port)) => placed.body.writable(*port),
        Work::Item(InboxItem::Timer(timer)) => placed.body.timer(*timer),
        Work::Item(InboxItem::Event(kind, bytes)) => placed.body.event(*kind, bytes),
    }
}

/// Processor time of this thread.
fn thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}

/// The call that an entry was called with.
fn called(work: &Work) -> Option<CallKey> {
    match work {
        Work::Item(InboxItem::Call(key, ..)) => Some(*key),
        _ => None,
    }
}
