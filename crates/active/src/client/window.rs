//! Requests by number, from the oldest whose outcome is not taken. Numbers grow by one, so that a
//! request is found without a search, however many there are.

use super::call::Executed;
use crate::protocol::{EntrySummary, ModuleSummary, ResultPlace};
use outboard_offcode::ModuleHash;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

/// A request that has not been answered.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) asked: Asked,
    pub(super) deadline: Instant,
    /// Whether any connection has carried it.
    pub(super) was_sent: bool,
    /// Nobody asks for its answer but the client itself.
    pub(super) is_internal: bool,
}

/// What was asked, so that it can be asked again.
#[derive(Debug)]
pub(super) enum Asked {
    Execute(PendingCall),
    Attach {
        handle: u32,
    },
    Load {
        module: ModuleHash,
        tries: u32,
    },
    /// A request as bytes.
    Other(Vec<u8>),
}

/// A call that has not been answered.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) handle: u32,
    pub(super) module: ModuleHash,
    /// The entry's name, then the arguments.
    pub(super) text: Vec<u8>,
    pub(super) entry_len: usize,
    pub(super) result: Option<(usize, Range<usize>)>,
    pub(super) limit_us: u32,
    /// The region's last commit that was known when it was asked first.
    pub(super) seen: u64,
    /// How often its module was loaded for it.
    pub(super) loads: u32,
}

impl PendingCall {
    pub(super) fn entry(&self) -> &str {
        std::str::from_utf8(&self.text[..self.entry_len]).unwrap_or_default()
    }

    pub(super) fn args(&self) -> &[u8] {
        &self.text[self.entry_len..]
    }

    /// Where its result goes, as the service is told now.
    pub(super) fn place(
        &self,
        memory: impl Fn(usize, &Range<usize>) -> ResultPlace,
    ) -> ResultPlace {
        self.result.as_ref().map_or(ResultPlace::Inline, |(index, range)| memory(*index, range))
    }
}

/// An answer.
#[derive(Debug)]
pub(super) enum Settled {
    Executed(Executed),
    Attached,
    Loaded(Vec<EntrySummary>),
    Modules(Vec<ModuleSummary>, u32),
    Ok,
    Text(String),
    Refused(String),
}

#[derive(Debug)]
enum Slot {
    Waiting(PendingRequest),
    Done(Settled),
    Taken,
}

/// Numbers that are found without a search of any kind. Older ones that are left are few.
const SPAN_MAX: usize = 4096;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct RequestWindow {
    /// The number of the first slot.
    base: u64,
    slots: VecDeque<Slot>,
    /// What is left of numbers below that.
    old: BTreeMap<u64, Slot>,
    /// Slots that are not taken.
    open: usize,
    /// Calls that are over, in the order of their ends; some of them may be taken.
    over: VecDeque<u64>,
}

impl RequestWindow {
    /// The first number is 1.
    pub(super) fn new() -> Self {
        let (slots, old, over) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        Self { base: 1, slots, old, open: 0, over }
    }

    /// Requests that are not taken.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// The number that the next request gets.
    pub(super) fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    pub(super) fn push(&mut self, request: PendingRequest) -> u64 {
        let number = self.next_number();
        self.slots.push_back(Slot::Waiting(request));
        self.open += 1;
        if self.slots.len() > SPAN_MAX
            && let Some(oldest) = self.slots.pop_front()
        {
            // Not taken: those at the front that are taken are gone.
            self.old.insert(self.base, oldest);
            self.base += 1;
            self.trim();
        }
        number
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        match number.checked_sub(self.base) {
            Some(at) => self.slots.get_mut(usize::try_from(at).ok()?),
            None => self.old.get_mut(&number),
        }
    }

    /// A request that has not been answered.
    pub(super) fn waiting(&mut self, number: u64) -> Option<&mut PendingRequest> {
        match self.slot(number)? {
            Slot::Waiting(request) => Some(request),
            _ => None,
        }
    }

    fn all(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let old = self.old.iter().map(|(number, slot)| (*number, slot));
        old.chain((self.base..).zip(&self.slots))
    }

    /// The numbers of all that wait.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let waiting = self.all().filter(|(_, slot)| matches!(slot, Slot::Waiting(_)));
        waiting.map(|(number, _)| number).collect()
    }

    /// A request is answered; what it was, if it was waiting.
    pub(super) fn settle(&mut self, number: u64, settled: Settled) -> Option<PendingRequest> {
        let is_call = matches!(settled, Settled::Executed(_));
        let slot = self.slot(number)?;
        let request = match std::mem::replace(slot, Slot::Done(settled)) {
            Slot::Waiting(request) => request,
            other => {
                *slot = other;
                return None;
            }
        };
        if request.is_internal {
            self.empty(number);
        } else if is_call {
            self.forget_taken();
            self.over.push_back(number);
        }
        Some(request)
    }

    /// Drops calls that are taken from the front of those that are over.
    fn forget_taken(&mut self) {
        while let Some(number) = self.over.front().copied()
            && !matches!(self.slot(number), Some(Slot::Done(_)))
        {
            self.over.pop_front();
        }
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, number: u64) -> Option<Settled> {
        if !matches!(self.slot(number)?, Slot::Done(_)) {
            return None;
        }
        if self.over.back() == Some(&number) {
            self.over.pop_back();
        }
        match self.empty(number) {
            Slot::Done(settled) => Some(settled),
            _ => None,
        }
    }

    /// Takes the call that was over first.
    pub(super) fn take_call(&mut self) -> Option<Executed> {
        while let Some(number) = self.over.pop_front() {
            if let Some(Settled::Executed(executed)) = self.take(number) {
                return Some(executed);
            }
        }
        None
    }

    /// Whether more calls are over.
    pub(super) fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Nobody asks for this answer any more; what it was, if it was waiting.
    pub(super) fn abandon(&mut self, number: u64) -> Option<PendingRequest> {
        match self.empty(number) {
            Slot::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// The oldest that waits, if its time is over.
    pub(super) fn expired(&self, now: Instant) -> Option<u64> {
        self.oldest().filter(|(deadline, _)| *deadline <= now).map(|(_, number)| number)
    }

    /// The oldest that waits, behind its deadline.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        self.all().find_map(|(number, slot)| match slot {
            Slot::Waiting(request) => Some((request.deadline, number)),
            _ => None,
        })
    }

    /// Takes what a slot has.
    fn empty(&mut self, number: u64) -> Slot {
        let Some(slot) = self.slot(number) else { return Slot::Taken };
        let taken = std::mem::replace(slot, Slot::Taken);
        self.open -= usize::from(!matches!(taken, Slot::Taken));
        match number < self.base {
            true => drop(self.old.remove(&number)),
            false => self.trim(),
        }
        taken
    }

    fn trim(&mut self) {
        while let Some(Slot::Taken) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        if self.open == 0 {
            self.over.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::call::{CallTicket, RegionRun};
    use outboard_offcode::Outcome;

    fn request(is_internal: bool) -> PendingRequest {
        let asked = Asked::Other(Vec::new());
        PendingRequest { asked, deadline: Instant::now(), was_sent: false, is_internal }
    }

    fn executed(number: u64) -> Settled {
        let (ticket, outcome) = (CallTicket(number), Outcome::Killed);
        Settled::Executed(Executed { ticket, outcome, written: None, run: RegionRun::default() })
    }

    #[test]
    fn answers_come_in_any_order_and_are_taken_once() {
        let mut window = RequestWindow::new();
        let numbers: Vec<u64> = (0..4).map(|_| window.push(request(false))).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        for number in [3, 1, 2] {
            assert!(window.settle(number, executed(number)).is_some());
            assert!(window.settle(number, executed(number)).is_none(), "once");
        }
        assert!(window.take(2).is_some());
        assert!(window.take(2).is_none());
        let order = [window.take_call(), window.take_call(), window.take_call()];
        let order = order.map(|call| call.map(|call| call.ticket.number()));
        assert_eq!(order, [Some(3), Some(1), None]);
        assert_eq!((window.len(), window.numbers()), (1, vec![4]));
        assert!(window.abandon(4).is_some());
        assert!(window.settle(4, executed(4)).is_none(), "late");
        assert_eq!((window.len(), window.next_number()), (0, 5));
        assert!(window.settle(99, executed(99)).is_none());
        assert!(window.settle(0, executed(0)).is_none());
    }

    #[test]
    fn what_nobody_takes_does_not_pile_up() {
        let mut window = RequestWindow::new();
        for _ in 0..1000 {
            let number = window.push(request(true));
            assert!(window.settle(number, Settled::Ok).is_some());
            let number = window.push(request(false));
            window.settle(number, executed(number));
            assert!(window.take(number).is_some());
        }
        assert_eq!((window.len(), window.over.len()), (0, 0));
        window.push(request(false));
        for _ in 0..1000 {
            let both = [window.push(request(false)), window.push(request(false))];
            for number in both {
                window.settle(number, executed(number));
            }
            assert!(both.into_iter().all(|number| window.take(number).is_some()));
        }
        assert!(window.over.len() <= 2, "{}", window.over.len());
    }

    #[test]
    fn an_old_request_that_waits_costs_no_later_one_anything() {
        let mut window = RequestWindow::new();
        let oldest = window.push(request(false));
        for _ in 0..3 * SPAN_MAX {
            let number = window.push(request(false));
            window.settle(number, executed(number));
            assert!(window.take(number).is_some());
        }
        assert_eq!((window.len(), window.numbers()), (1, vec![oldest]));
        assert!(window.slots.len() <= SPAN_MAX, "{}", window.slots.len());
        assert!(window.waiting(oldest).is_some());
        assert_eq!(window.expired(Instant::now()), Some(oldest));
        window.settle(oldest, executed(oldest));
        assert_eq!(window.take_call().map(|call| call.ticket.number()), Some(oldest));
        assert_eq!((window.len(), window.old.len(), window.take_call()), (0, 0, None));
    }
}
