//! Offcodes that go from one device to another, or on with other code: taken away at a call
//! boundary, with everything that is due for them, and put in place again.

use super::Device;
use super::context::{AwaitedCall, CALLS_MAX, OffcodeContext, TELL_MAX, TIMERS_MAX};
use super::placed::PlacedOffcode;
use crate::frames::FRAME_MAX;
use crate::request::{
    CALL_MAX, DeviceError, DeviceReply, Frozen, FrozenState, InboxItem, MESSAGE_MAX, OffcodeId,
};
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

/// Entries that are due for an offcode that comes from elsewhere, at most.
const FROZEN_INBOX_MAX: usize = 32_768;
/// Messages that come along with it, at most.
const PENDING_MAX: usize = 1 << 20;
/// Numbers of calls are below this, however long an offcode lives.
const NUMBER_MAX: u64 = 1 << 62;
/// Bytes of the state of an offcode that is taken away, at most: it has to fit into a frame.
const STATE_MAX: usize = FRAME_MAX - (64 << 20);

impl Device {
    pub(super) fn take(
        &mut self,
        offcode: OffcodeId,
        is_update: bool,
    ) -> Result<DeviceReply, DeviceError> {
        let placed = self.offcodes.get_mut(&offcode);
        let placed = placed.ok_or(DeviceError::NoOffcode(offcode.0))?;
        let state = if is_update {
            placed.body.save().map(FrozenState::Saved)
        } else {
            placed.body.whole_state().map(FrozenState::Whole)
        };
        // What it did in its last entry, saving, is carried out here.
        self.carry_out(offcode);
        let state = state.map_err(|end| DeviceError::Failed(end.to_string()))?;
        let (FrozenState::Saved(bytes) | FrozenState::Whole(bytes)) = &state;
        if bytes.len() > STATE_MAX {
            let found = bytes.len();
            let why = format!("its state takes {found} bytes, where {STATE_MAX} are the most");
            return Err(DeviceError::Failed(why));
        }
        self.forget_ends(offcode);
        let placed = self.offcodes.remove(&offcode).ok_or(DeviceError::NoOffcode(offcode.0))?;
        Ok(DeviceReply::Taken(Box::new(placed.freeze(state, Instant::now()))))
    }
}

impl PlacedOffcode {
    fn freeze(mut self, state: FrozenState, now: Instant) -> Frozen {
        let (phase, inbox) = (self.phase, self.take_inbox());
        let context = self.context();
        let (pending, held) = ports(context);
        let left = |due: Instant| {
            u64::try_from(due.saturating_duration_since(now).as_nanos()).unwrap_or(u64::MAX)
        };
        Frozen {
            state,
            inbox,
            pending,
            held,
            timers: context.timers.iter().map(|(timer, due)| (*timer, left(*due))).collect(),
            open_calls: context.open.iter().map(|(number, key)| (*number, *key)).collect(),
            own_calls: context.own_calls(now),
            next_call: context.next_call,
            next_open: context.next_open,
            phase,
        }
    }

    /// Puts everything that was due in place.
    pub(super) fn thaw(&mut self, frozen: Frozen) -> Result<(), DeviceError> {
        check(&frozen, self.interfaces.len(), self.context().ports.len())
            .map_err(|why| DeviceError::Body(format!("its state is none: {why}")))?;
        self.phase = frozen.phase;
        let is_timer = |item: &&InboxItem| matches!(item, InboxItem::Timer(_));
        self.context().timers_due = frozen.inbox.iter().filter(is_timer).count();
        for item in frozen.inbox {
            self.deliver(item);
        }
        let now = Instant::now();
        let context = self.context();
        for (port, messages) in frozen.pending {
            let found = context.ports.get_mut(usize::from(port));
            let port = found.ok_or(DeviceError::NoPort(context.id.0, port))?;
            port.put_back(messages.into_iter().map(ByteBuf::into_vec));
        }
        frozen.held.iter().for_each(|port| context.hold(u32::from(*port), true));
        // It may have been turned away before: it is told of room once its channels are connected.
        context.ports.iter_mut().for_each(super::Port::ask_for_room);
        let due = |after: u64| now.checked_add(Duration::from_nanos(after)).unwrap_or(now);
        context.timers = frozen.timers.iter().map(|(timer, after)| (*timer, due(*after))).collect();
        context.open = frozen.open_calls.into_iter().collect();
        (context.next_call, context.next_open) = (frozen.next_call, frozen.next_open);
        for own in frozen.own_calls {
            let limit = Duration::from_millis(own.left_ms.into());
            let until = (own.left_ms > 0).then(|| now + limit);
            context.waiting.insert(own.number, AwaitedCall { target: own.target, until });
        }
        Ok(())
    }
}

/// Whether this can have been an offcode's: whoever brings it may have made it up.
///
/// # Errors
/// In words: why it cannot.
fn check(frozen: &Frozen, interfaces: usize, ports: usize) -> Result<(), &'static str> {
    let timers = frozen.inbox.iter().filter(|item| matches!(item, InboxItem::Timer(_))).count();
    if frozen.timers.len() + timers > TIMERS_MAX {
        return Err("more than 64 timers");
    }
    let answers = frozen.inbox.iter().filter(|item| matches!(item, InboxItem::Answer(..))).count();
    if frozen.open_calls.len().max(frozen.own_calls.len() + answers) > CALLS_MAX {
        return Err("more than 4,096 calls");
    }
    if frozen.inbox.len() > FROZEN_INBOX_MAX || frozen.held.len() > ports {
        return Err("more entries are due than there can be");
    }
    let fits = |item: &InboxItem| match item {
        InboxItem::Call(_, interface, _, params) => {
            (*interface as usize) < interfaces && params.len() <= CALL_MAX
        }
        InboxItem::Answer(_, Ok(results)) => results.len() <= CALL_MAX,
        InboxItem::Writable(port) => usize::from(*port) < ports,
        InboxItem::Event(_, bytes) => bytes.len() <= TELL_MAX,
        InboxItem::Answer(_, Err(_)) | InboxItem::Timer(_) => true,
    };
    if !frozen.inbox.iter().all(fits) {
        return Err("an entry is due that there cannot be");
    }
    let numbers = [frozen.next_call, frozen.next_open];
    let own = frozen.own_calls.iter().map(|own| own.number).max().unwrap_or(0);
    let open = frozen.open_calls.iter().map(|(number, _)| *number).max().unwrap_or(0);
    if numbers.iter().any(|next| !(1..NUMBER_MAX).contains(next))
        || own >= numbers[0]
        || open >= numbers[1]
    {
        return Err("numbers of calls are out of bounds");
    }
    pending_fits(frozen, ports)
}

fn pending_fits(frozen: &Frozen, ports: usize) -> Result<(), &'static str> {
    let messages = frozen.pending.iter().flat_map(|(_, messages)| messages);
    if frozen.pending.len() > ports || messages.clone().any(|bytes| bytes.len() > MESSAGE_MAX) {
        return Err("more than 64 ports, or a message that is too long");
    }
    match messages.count() <= PENDING_MAX {
        true => Ok(()),
        false => Err("more messages wait than there can be"),
    }
}

/// Messages that have arrived, by port, and which ports are held.
fn ports(context: &mut OffcodeContext) -> (Vec<(u16, Vec<ByteBuf>)>, Vec<u16>) {
    let mut pending = Vec::new();
    let mut held = Vec::new();
    for (at, port) in context.ports.iter_mut().enumerate() {
        let number = u16::try_from(at).unwrap_or(u16::MAX);
        if port.is_held() {
            held.push(number);
        }
        let messages: Vec<ByteBuf> = port.take_all().into_iter().map(ByteBuf::from).collect();
        if !messages.is_empty() {
            pending.push((number, messages));
        }
    }
    (pending, held)
}
