//! The numbers of a context's queue pairs, and the connection state of each. Bookkeeping only: it
//! returns the next task, which the worker does.

use super::Peer;
use super::hello::{Hello, QpName, Refusal};
use outboard_verbs::{CmChannel, ConnectError, ConnectRequest, Context, Listener, VerbsError};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queue pairs under one port: an index is 8 bits.
const INDICES: usize = 256;
/// Requests that may wait at one port: one for each queue pair, and some that must be refused.
const BACKLOG: usize = INDICES + 64;
/// How often to ask for a port: two sockets may be bound to the same before one of them listens.
const PORT_TRIES: usize = 8;
/// How long a Request is kept for a program that has not named its peer yet.
const HOLD: Duration = Duration::from_secs(10);
/// How soon a dialer retries; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(10);
/// The longest time between retries.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How often time limits are checked.
const TICK: Duration = Duration::from_millis(250);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Table {
    address: Ipv4Addr,
    ports: Vec<Port>,
    pairs: HashMap<u32, Pair>,
    /// Numbers of queue pairs that have a peer to connect to, by the numbers of the native ones.
    natives: HashMap<u32, u32>,
    /// When to check which queue pair next; [`Pair::look`] decides whether an entry is still valid.
    looks: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The queue pair that the thread works on at present, with the table unlocked.
    pub(super) busy: Option<u32>,
    pub(super) stopped: bool,
    /// How often a queue pair was checked.
    #[cfg(test)]
    pub(super) looked: usize,
}

#[derive(Debug)]
struct Port {
    /// Listens while it lives.
    _listener: Listener,
    port: u16,
    taken: [bool; INDICES],
    free: usize,
    /// Where to look for a free index first, so that none is used again soon.
    next: usize,
}

#[derive(Debug, Default)]
struct Pair {
    goal: Option<Goal>,
    /// A dialer that wants this queue pair.
    held: Option<HeldPair>,
    /// When it is checked next.
    look: Option<Instant>,
}

#[derive(Debug)]
struct HeldPair {
    request: ConnectRequest,
    from: QpName,
    until: Instant,
}

/// The peer that a queue pair is to be connected to, and the state of that.
struct Goal {
    theirs: QpName,
    peer: Arc<dyn Peer>,
    phase: PairPhase,
    delay: Duration,
    /// Since when sends have been seen to wait.
    missed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairPhase {
    /// The peer dials.
    Waiting,
    /// This side dials, at this time.
    Due(Instant),
    /// This side is dialing.
    Dialing,
    Connected,
    /// It was connected. Sends may still wait, for a peer that is silent.
    Lost,
    /// Waiting has ended.
    Over,
}

/// A task for the thread.
#[derive(Debug)]
pub(super) enum Task {
    Accept(Call, ConnectRequest),
    Dial(Call, SocketAddr, Hello),
    /// The time limit is over, or the peer is known to be absent.
    Fail(Call),
    Refuse(ConnectRequest, Refusal),
}

/// A queue pair that the thread is to work on; it is [`Table::busy`] until that is done.
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) peer: Arc<dyn Peer>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue pair {:#x}", self.number)
    }
}

impl std::fmt::Debug for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.theirs, self.phase)
    }
}

impl Port {
    fn open(native: &Context, address: Ipv4Addr, channel: &CmChannel) -> Result<Self, VerbsError> {
        let mut tries = 1;
        loop {
            match native.listen_on((address, 0).into(), BACKLOG, channel) {
                Ok(listener) => {
                    let port = listener.local_addr().port();
                    return Ok(Self {
                        _listener: listener,
                        port,
                        taken: [false; INDICES],
                        free: INDICES,
                        next: 0,
                    });
                }
                Err(error) if tries == PORT_TRIES || !is_in_use(&error) => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let order = (self.next..INDICES).chain(0..self.next);
        let index = order.into_iter().find(|index| !self.taken[*index])?;
        self.taken[index] = true;
        self.free -= 1;
        self.next = (index + 1) % INDICES;
        Some(u32::from(self.port) << 8 | u32::try_from(index).ok()?)
    }
}

fn is_in_use(error: &VerbsError) -> bool {
    matches!(error, VerbsError::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

impl Goal {
    /// Sends may wait.
    fn is_open(&self) -> bool {
        !matches!(self.phase, PairPhase::Connected | PairPhase::Over)
    }

    /// Notes whether sends wait; true when they have waited too long.
    fn is_out_of_patience(&mut self, now: Instant) -> bool {
        if !self.peer.has_sends() {
            self.missed = None;
            return false;
        }
        let since = *self.missed.get_or_insert(now);
        now.saturating_duration_since(since) >= self.peer.patience()
    }

    /// Retries later; returns when.
    fn retry(&mut self, now: Instant) -> Instant {
        let again = now + self.delay;
        self.phase = PairPhase::Due(again);
        self.delay = (self.delay * 2).min(RETRY_MAX);
        again
    }
}

impl Pair {
    /// When it must be checked if nothing happens to it.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        match &self.goal {
            Some(Goal { phase: PairPhase::Due(at), .. }) => Some((*at).min(now + TICK)),
            Some(goal) if goal.is_open() => Some(now + TICK),
            _ => self.held.is_some().then_some(now + TICK),
        }
    }
}

impl Table {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            ports: Vec::new(),
            pairs: HashMap::new(),
            natives: HashMap::new(),
            looks: BinaryHeap::new(),
            busy: None,
            stopped: false,
            #[cfg(test)]
            looked: 0,
        }
    }

    /// A number of its own for a new queue pair.
    pub(super) fn reserve(
        &mut self,
        native: &Context,
        channel: &CmChannel,
    ) -> Result<u32, VerbsError> {
        let number = loop {
            if let Some(number) = self.ports.iter_mut().find_map(Port::take) {
                break number;
            }
            self.ports.push(Port::open(native, self.address, channel)?);
        };
        self.pairs.insert(number, Pair::default());
        Ok(number)
    }

    /// Gives a number back; returns the dialer that waits for it, which must be refused.
    pub(super) fn release(&mut self, number: u32) -> Option<ConnectRequest> {
        self.forget(number);
        let pair = self.pairs.remove(&number)?;
        let [_, high, low, index] = number.to_be_bytes();
        let port = u16::from_be_bytes([high, low]);
        if let Some(port) = self.ports.iter_mut().find(|known| known.port == port) {
            port.taken[usize::from(index)] = false;
            port.free += 1;
        }
        pair.held.map(|held| held.request)
    }

    /// Sets the peer of a queue pair; false: there is no such queue pair, or it has
    /// a peer already.
    pub(super) fn aim(&mut self, ours: u32, theirs: QpName, peer: Arc<dyn Peer>) -> bool {
        let us = QpName { address: self.address, number: ours };
        let Some(pair) = self.pairs.get_mut(&ours).filter(|pair| pair.goal.is_none()) else {
            return false;
        };
        let phase = if us < theirs { PairPhase::Due(Instant::now()) } else { PairPhase::Waiting };
        self.natives.insert(peer.native().number(), ours);
        pair.goal = Some(Goal { theirs, peer, phase, delay: RETRY_MIN, missed: None });
        self.look(ours, Instant::now());
        true
    }

    /// True for one queue pair and itself.
    pub(super) fn is_ours(&self, theirs: QpName, ours: u32) -> bool {
        theirs == QpName { address: self.address, number: ours }
    }

    pub(super) fn forget(&mut self, ours: u32) {
        let goal = self.pairs.get_mut(&ours).and_then(|pair| pair.goal.take());
        if let Some(goal) = goal {
            self.natives.remove(&goal.peer.native().number());
        }
    }

    /// A dialer wants to connect. A returned dialer must be refused.
    pub(super) fn ask(
        &mut self,
        hello: Hello,
        request: ConnectRequest,
        now: Instant,
    ) -> Option<(ConnectRequest, Refusal)> {
        let Some(pair) = self.pairs.get_mut(&hello.wanted) else {
            return Some((request, Refusal::Unknown));
        };
        let expected = |goal: &Goal| goal.theirs == hello.from;
        match &pair.goal {
            Some(goal) if !expected(goal) => return Some((request, Refusal::Other)),
            Some(Goal { phase: PairPhase::Waiting, .. }) | None => {}
            // A dialer that retries is ahead of this side's program, which may name the same peer
            // soon.
            Some(_) => return Some((request, Refusal::NotYet)),
        }
        let held = HeldPair { request, from: hello.from, until: now + HOLD };
        let older = pair.held.replace(held);
        self.look(hello.wanted, now);
        older.map(|older| (older.request, Refusal::NotYet))
    }

    /// The next thing to do now.
    pub(super) fn next_task(&mut self, now: Instant) -> Option<Task> {
        let task = loop {
            let Reverse((at, number)) = *self.looks.peek()?;
            if at > now {
                return None;
            }
            self.looks.pop();
            let known = self.pairs.get_mut(&number).filter(|pair| pair.look == Some(at));
            let Some(pair) = known else { continue };
            pair.look = None;
            #[cfg(test)]
            {
                self.looked += 1;
            }
            let task = task(self.address, number, pair, now);
            let next = if task.is_some() { Some(now) } else { pair.next_look(now) };
            next.into_iter().for_each(|at| self.look(number, at));
            if let Some(task) = task {
                break task;
            }
        };
        self.busy = match &task {
            Task::Accept(call, _) | Task::Dial(call, ..) | Task::Fail(call) => Some(call.number),
            Task::Refuse(..) => None,
        };
        Some(task)
    }

    /// How long nothing needs to be done, unless something happens.
    pub(super) fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.looks.peek().map(|Reverse((at, _))| at.saturating_duration_since(now))
    }

    /// Schedules a check of a queue pair, unless an earlier one is scheduled.
    fn look(&mut self, number: u32, at: Instant) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if pair.look.is_none_or(|sooner| at < sooner) {
            pair.look = Some(at);
            self.looks.push(Reverse((at, number)));
        }
    }

    /// The queue pair whose native one has this number, if it is in `phase`.
    fn in_phase(&mut self, native: u32, wanted: PairPhase) -> Option<(u32, &mut Goal)> {
        let number = *self.natives.get(&native)?;
        let goal = self.pairs.get_mut(&number)?.goal.as_mut()?;
        (goal.phase == wanted).then_some((number, goal))
    }

    /// Moves a queue pair on when it was in phase `from`.
    fn step(&mut self, native: u32, from: PairPhase, to: PairPhase) -> Option<Call> {
        let (number, goal) = self.in_phase(native, from)?;
        // What sends have waited for before does not count for what they wait for from now on.
        (goal.phase, goal.missed) = (to, None);
        let call = Call { number, peer: Arc::clone(&goal.peer) };
        self.busy = Some(number);
        // The queue pair's waiting sends must be checked.
        self.look(number, Instant::now());
        Some(call)
    }

    /// The native queue pair that was dialing has its connection.
    pub(super) fn connected(&mut self, native: u32) -> Option<Call> {
        self.step(native, PairPhase::Dialing, PairPhase::Connected)
    }

    /// The native queue pair has lost its connection.
    pub(super) fn lost(&mut self, native: u32) -> Option<Call> {
        self.step(native, PairPhase::Connected, PairPhase::Lost)
    }

    /// The native queue pair's attempt failed. Returns a call if it was the last attempt.
    pub(super) fn failed(
        &mut self,
        native: u32,
        error: &ConnectError,
        now: Instant,
    ) -> Option<Call> {
        if is_final(error) {
            return self.step(native, PairPhase::Dialing, PairPhase::Over);
        }
        if let Some((number, goal)) = self.in_phase(native, PairPhase::Dialing) {
            let again = goal.retry(now);
            self.look(number, again);
        }
        None
    }

    /// The result of [`Task::Accept`] and of the beginning of [`Task::Dial`].
    pub(super) fn done(&mut self, number: u32, result: Result<(), &ConnectError>, now: Instant) {
        let Some(goal) = self.pairs.get_mut(&number).and_then(|pair| pair.goal.as_mut()) else {
            return;
        };
        match (goal.phase, result) {
            (PairPhase::Waiting, Ok(())) => {
                (goal.phase, goal.missed) = (PairPhase::Connected, None);
            }
            (PairPhase::Dialing, Err(_)) => {
                let again = goal.retry(now);
                self.look(number, again);
            }
            _ => {}
        }
    }
}

fn task(address: Ipv4Addr, number: u32, pair: &mut Pair, now: Instant) -> Option<Task> {
    let held = &pair.held;
    let Some(goal) = pair.goal.as_mut().filter(|goal| goal.is_open()) else {
        let stale = held.as_ref().is_some_and(|held| now >= held.until);
        let held = if stale { pair.held.take() } else { None };
        return held.map(|held| Task::Refuse(held.request, Refusal::NotYet));
    };
    let call = Call { number, peer: Arc::clone(&goal.peer) };
    if let Some(held) = pair.held.take() {
        // Only an expected dialer is kept, but the program may have named it after the refusal.
        let expected = held.from == goal.theirs && goal.phase == PairPhase::Waiting;
        return Some(match expected {
            true => Task::Accept(call, held.request),
            false => Task::Refuse(held.request, Refusal::Other),
        });
    }
    if goal.is_out_of_patience(now) {
        goal.phase = PairPhase::Over;
        return Some(Task::Fail(call));
    }
    if !matches!(goal.phase, PairPhase::Due(at) if now >= at) {
        return None;
    }
    goal.phase = PairPhase::Dialing;
    let [_, high, low, _] = goal.theirs.number.to_be_bytes();
    let to = (goal.theirs.address, u16::from_be_bytes([high, low])).into();
    let from = QpName { address, number };
    Some(Task::Dial(call, to, Hello { wanted: goal.theirs.number, from }))
}

/// True when a retry is useless: no process listens at the peer's port any more, or one that does
/// not know the number.
fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Unreachable { source, .. } => {
            source.kind() == io::ErrorKind::ConnectionRefused
        }
        ConnectError::Rejected { private_data, .. } => {
            Refusal::parse(private_data) == Refusal::Unknown
        }
        _ => false,
    }
}
