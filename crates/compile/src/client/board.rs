//! Which job goes to which server: a plain value without clock or network.
//!
//! Servers ask for work when they have a slot for it, so nothing here guesses their load. Jobs go
//! in the order they came. A job whose server is gone is given again, to another if there is one;
//! when nothing waits any more, a server that asks gets a second copy of a job that takes too long,
//! and the first result counts.

use crate::protocol::{Digest, TicketNumber};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// A job that is slower than this many times the average is given to a second server.
const RACE_FACTOR: u32 = 3;
/// ... but none that runs for less than this.
const RACE_MIN: Duration = Duration::from_secs(2);
/// ... and while no job has ended yet, one that runs for so long.
const RACE_UNKNOWN: Duration = Duration::from_secs(30);
/// A job that servers have for longer runs at home, whatever they say.
const COPY_MAX: Duration = Duration::from_secs(600);
/// Times that a job is given to servers that fail it, before it runs at home.
const ATTEMPTS: usize = 3;
/// How long a job that no server takes waits before it runs at home.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a server is not asked again for a compiler that it lacks.
const LACK_MAX: Duration = Duration::from_secs(60);

/// Names a server of this client; one that comes back is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub(crate) u32);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send this server this job.
    Give(ServerId, TicketNumber),
    /// Tell this server that there is nothing now.
    Idle(ServerId),
    /// Tell this server that nobody wants that job any more.
    Cancel(ServerId, TicketNumber),
    /// Let that job run at home.
    Home(TicketNumber, HomeCause),
}

/// Why the board sends a job home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeCause {
    /// No server is left that could take it.
    NoServer,
    /// No server has its compiler.
    NoToolchain,
    /// Servers failed it too often.
    Failures,
    /// No server had a slot in good time.
    Waited,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Board {
    jobs: BTreeMap<TicketNumber, Entry>,
    waiting: VecDeque<TicketNumber>,
    servers: HashMap<ServerId, Desk>,
    orders: VecDeque<Order>,
    average: Average,
}

#[derive(Debug)]
struct Entry {
    toolchain: Digest,
    since: Instant,
    copies: Vec<(ServerId, Instant)>,
    failures: usize,
}

#[derive(Debug, Default)]
struct Desk {
    slots: u32,
    running: HashSet<TicketNumber>,
    /// It was told that there is nothing, and takes what comes.
    armed: bool,
    /// Compilers that it does not have, and since when that is known.
    lacks: HashMap<Digest, Instant>,
}

/// Mean time from giving a job to its result.
#[derive(Debug, Default)]
struct Average {
    total: Duration,
    count: u32,
}

impl Average {
    fn add(&mut self, took: Duration) {
        // Old jobs fade: the mean is of the last thousand or so.
        if self.count >= 1000 {
            self.total /= 2;
            self.count /= 2;
        }
        self.total += took;
        self.count += 1;
    }

    fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.total / self.count)
    }
}

impl Board {
    /// The next thing to be done.
    pub(crate) fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Servers that are there, and their slots altogether.
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.servers.len(), self.servers.values().map(|desk| desk.slots as usize).sum())
    }

    /// Whether a server has the job.
    pub(crate) fn is_given(&self, ticket: TicketNumber) -> bool {
        self.jobs.get(&ticket).is_some_and(|entry| !entry.copies.is_empty())
    }

    /// Jobs that a server has.
    pub(crate) fn running(&self, server: ServerId) -> usize {
        self.servers.get(&server).map_or(0, |desk| desk.running.len())
    }

    /// A server is there.
    pub(crate) fn add_server(&mut self, server: ServerId, slots: u32) {
        self.servers.insert(server, Desk { slots, ..Desk::default() });
    }

    /// A server is gone: what it had is given again, before everything else.
    pub(crate) fn remove_server(&mut self, server: ServerId, now: Instant) {
        let Some(desk) = self.servers.remove(&server) else { return };
        let mut lost: Vec<_> = desk.running.into_iter().collect();
        lost.sort_unstable_by(|one, other| other.cmp(one));
        for ticket in lost {
            self.fail_copy(ticket, server, now);
        }
        self.settle();
    }

    /// A new job. With `hope` it waits although nobody is there to take it: see [`Self::settle`].
    pub(crate) fn submit(
        &mut self,
        ticket: TicketNumber,
        toolchain: Digest,
        now: Instant,
        hope: bool,
    ) {
        // Somebody may have installed it meanwhile.
        let is_new = |since: &Instant| now.saturating_duration_since(*since) < LACK_MAX;
        self.servers.values_mut().for_each(|desk| desk.lacks.retain(|_, since| is_new(since)));
        let entry = Entry { toolchain, since: now, copies: Vec::new(), failures: 0 };
        self.jobs.insert(ticket, entry);
        match self.armed_for(&toolchain) {
            Some(server) => self.give(server, ticket, now),
            None if hope || self.has_takers(&toolchain) => self.waiting.push_back(ticket),
            None => self.go_home(ticket, self.why_nobody()),
        }
    }

    /// Nobody wants a job any more.
    pub(crate) fn cancel(&mut self, ticket: TicketNumber) {
        self.forget(ticket, None);
    }

    /// A server has a free slot.
    pub(crate) fn want(&mut self, server: ServerId, now: Instant) {
        let Some(desk) = self.servers.get_mut(&server) else { return };
        desk.armed = false;
        let desk = &self.servers[&server];
        let fits = |ticket: &TicketNumber| !desk.lacks.contains_key(&self.jobs[ticket].toolchain);
        if let Some(at) = self.waiting.iter().position(fits) {
            let ticket = self.waiting.remove(at).expect("it was found there");
            self.give(server, ticket, now);
        } else if let Some(ticket) = self.slow_for(server, now) {
            self.give(server, ticket, now);
        } else {
            self.servers.get_mut(&server).expect("it was there").armed = true;
            self.orders.push_back(Order::Idle(server));
        }
    }

    /// A server has no slot for a job after all.
    pub(crate) fn returned(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        if self.take_copy(ticket, server).is_some() {
            self.again(ticket, now);
        }
    }

    /// Whether this server has that job.
    pub(crate) fn has(&self, server: ServerId, ticket: TicketNumber) -> bool {
        self.servers.get(&server).is_some_and(|desk| desk.running.contains(&ticket))
    }

    /// A server does not have a job's compiler.
    pub(crate) fn lacks(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        if self.take_copy(ticket, server).is_none() {
            return;
        }
        let toolchain = self.jobs[&ticket].toolchain;
        if let Some(desk) = self.servers.get_mut(&server) {
            desk.lacks.insert(toolchain, now);
        }
        self.again(ticket, now);
    }

    /// A server failed a job; another may do better.
    pub(crate) fn failed(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        self.fail_copy(ticket, server, now);
    }

    /// A job is done by this server. False: nobody waits for it any more.
    pub(crate) fn done(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) -> bool {
        let Some(entry) = self.jobs.get(&ticket) else { return false };
        let Some((_, since)) = entry.copies.iter().find(|(at, _)| *at == server) else {
            return false;
        };
        self.average.add(now.saturating_duration_since(*since));
        self.forget(ticket, Some(server));
        true
    }

    /// Looks after jobs that take too long.
    pub(crate) fn tick(&mut self, now: Instant) {
        let late = |ticket: &TicketNumber| now - self.jobs[ticket].since > WAIT_MAX;
        let late: Vec<_> = self.waiting.iter().copied().filter(late).collect();
        for ticket in late {
            self.go_home(ticket, HomeCause::Waited);
        }
        let is_over = |(_, since): &(ServerId, Instant)| now - *since > COPY_MAX;
        let stuck = self.jobs.iter().filter(|(_, entry)| entry.copies.iter().any(is_over));
        let stuck: Vec<_> = stuck.map(|(ticket, _)| *ticket).collect();
        for ticket in stuck {
            self.go_home(ticket, HomeCause::Failures);
        }
        let mut armed: Vec<_> =
            self.servers.iter().filter(|(_, desk)| desk.armed).map(|(id, _)| *id).collect();
        armed.sort_unstable();
        for server in armed {
            if let Some(ticket) = self.slow_for(server, now) {
                self.give(server, ticket, now);
            }
        }
    }

    /// The least busy server that waits for a job and has this compiler.
    fn armed_for(&self, toolchain: &Digest) -> Option<ServerId> {
        let able = |desk: &Desk| desk.armed && !desk.lacks.contains_key(toolchain);
        let load = |desk: &Desk| desk.running.len() * 1000 / desk.slots.max(1) as usize;
        let able = self.servers.iter().filter(|(_, desk)| able(desk));
        able.min_by_key(|(id, desk)| (load(desk), **id)).map(|(id, _)| *id)
    }

    fn has_takers(&self, toolchain: &Digest) -> bool {
        self.servers.values().any(|desk| !desk.lacks.contains_key(toolchain))
    }

    fn why_nobody(&self) -> HomeCause {
        if self.servers.is_empty() { HomeCause::NoServer } else { HomeCause::NoToolchain }
    }

    /// The oldest job of one copy that has run for too long, and not at this server.
    fn slow_for(&self, server: ServerId, now: Instant) -> Option<TicketNumber> {
        let limit =
            self.average.mean().map_or(RACE_UNKNOWN, |mean| mean * RACE_FACTOR).max(RACE_MIN);
        let lacks = &self.servers[&server].lacks;
        let slow = |entry: &Entry| match entry.copies[..] {
            [(at, since)] => {
                at != server && now - since > limit && !lacks.contains_key(&entry.toolchain)
            }
            _ => false,
        };
        self.jobs.iter().find(|(_, entry)| slow(entry)).map(|(ticket, _)| *ticket)
    }

    fn give(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        let desk = self.servers.get_mut(&server).expect("the caller has seen it");
        desk.armed = false;
        desk.running.insert(ticket);
        self.jobs.get_mut(&ticket).expect("the caller has seen it").copies.push((server, now));
        self.orders.push_back(Order::Give(server, ticket));
    }

    /// Takes a job from a server; `None` when it has not got it. Says whether others have copies.
    fn take_copy(&mut self, ticket: TicketNumber, server: ServerId) -> Option<()> {
        if let Some(desk) = self.servers.get_mut(&server) {
            desk.running.remove(&ticket);
        }
        let entry = self.jobs.get_mut(&ticket)?;
        let at = entry.copies.iter().position(|(at, _)| *at == server)?;
        entry.copies.remove(at);
        entry.copies.is_empty().then_some(())
    }

    fn fail_copy(&mut self, ticket: TicketNumber, server: ServerId, now: Instant) {
        if let Some(entry) = self.jobs.get_mut(&ticket) {
            entry.failures += 1;
        }
        if self.take_copy(ticket, server).is_some() {
            self.again(ticket, now);
        }
    }

    /// Gives a job that nobody has to somebody, or keeps it until somebody wants it.
    fn again(&mut self, ticket: TicketNumber, now: Instant) {
        let entry = &self.jobs[&ticket];
        if entry.failures >= ATTEMPTS {
            return self.go_home(ticket, HomeCause::Failures);
        }
        let toolchain = entry.toolchain;
        match self.armed_for(&toolchain) {
            Some(server) => self.give(server, ticket, now),
            None if self.has_takers(&toolchain) => self.waiting.push_front(ticket),
            None => self.go_home(ticket, self.why_nobody()),
        }
    }

    /// No more servers are to be hoped for: sends home what none of them takes.
    pub(crate) fn settle(&mut self) {
        let stuck = |ticket: &TicketNumber| !self.has_takers(&self.jobs[ticket].toolchain);
        let stuck: Vec<_> = self.waiting.iter().copied().filter(stuck).collect();
        let cause = self.why_nobody();
        for ticket in stuck {
            self.go_home(ticket, cause);
        }
    }

    fn go_home(&mut self, ticket: TicketNumber, cause: HomeCause) {
        self.forget(ticket, None);
        self.orders.push_back(Order::Home(ticket, cause));
    }

    /// Forgets a job; servers with copies of it, all but one, are told.
    fn forget(&mut self, ticket: TicketNumber, except: Option<ServerId>) {
        self.waiting.retain(|waiting| *waiting != ticket);
        let Some(entry) = self.jobs.remove(&ticket) else { return };
        for (server, _) in entry.copies {
            if let Some(desk) = self.servers.get_mut(&server) {
                desk.running.remove(&ticket);
                if Some(server) != except {
                    self.orders.push_back(Order::Cancel(server, ticket));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
