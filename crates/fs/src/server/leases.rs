//! Which client may keep what for how long, and who must be told before a change is answered.
//!
//! A client that keeps anything is asked for nothing while its lease runs. Whoever changes what is
//! kept takes the leases of all others; their clients are told, and say when they keep it no
//! longer. A client that says nothing is waited for until its lease is over. Costs the same however
//! many leases there are: those that are over go with their whole generation.

use crate::protocol::FsInode;
use outboard_cluster::hub::PeerId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a lease runs here: longer than at its client, whose clock may be slower.
pub(super) const LEASE: Duration =
    crate::protocol::LEASE.saturating_add(Duration::from_millis(250));
/// Inodes of one generation; a client that gets more has a lease on everything.
const INODES_MAX: usize = 1 << 19;

/// What a lease is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LeaseOn {
    /// A directory's names.
    Names(FsInode),
    /// An inode's attributes.
    Attributes(FsInode),
}

/// A client that must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecalledLease {
    /// The notice's number.
    pub(super) number: u64,
    pub(super) peer: PeerId,
    pub(super) on: LeaseOn,
}

/// Leases that were given at about the same time.
#[derive(Debug, Default)]
struct LeaseGeneration {
    on: HashMap<LeaseOn, Holders>,
    /// Clients with too many leases to count.
    everything: HashMap<PeerId, Instant>,
    /// Clients that keep nothing any more, whatever they were granted.
    ended: HashSet<PeerId>,
    /// The last commit that changed each.
    changed: HashMap<LeaseOn, u64>,
}

/// Who has a lease, until when. Most have one holder.
#[derive(Debug)]
enum Holders {
    One(PeerId, Instant),
    Many(HashMap<PeerId, Instant>),
}

/// A client that was told, or whose lease is waited for.
#[derive(Debug)]
struct Recall {
    on: LeaseOn,
    peer: PeerId,
    until: Instant,
    /// Requests that wait for it.
    waiting: Vec<u64>,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct LeaseTable {
    keepers: HashSet<PeerId>,
    /// The present generation and the one before.
    generations: [LeaseGeneration; 2],
    turned: Instant,
    next: u64,
    recalls: HashMap<u64, Recall>,
    by_lease: HashMap<LeaseOn, Vec<u64>>,
    by_time: BTreeSet<(Instant, u64)>,
    /// How many recalls a request waits for.
    waiting: HashMap<u64, usize>,
    /// Leases of a service before this one may run until then; who waits for that.
    former: Option<(Instant, Vec<u64>)>,
}

impl Holders {
    fn add(&mut self, peer: PeerId, until: Instant) {
        match self {
            Self::One(holder, time) if *holder == peer => *time = until,
            Self::One(holder, time) => {
                *self = Self::Many(HashMap::from([(*holder, *time), (peer, until)]));
            }
            Self::Many(all) => drop(all.insert(peer, until)),
        }
    }

    fn into_all(self) -> Vec<(PeerId, Instant)> {
        match self {
            Self::One(peer, until) => vec![(peer, until)],
            Self::Many(all) => all.into_iter().collect(),
        }
    }
}

impl LeaseGeneration {
    fn grant(&mut self, peer: PeerId, on: LeaseOn, until: Instant) {
        if self.on.len() >= INODES_MAX && !self.on.contains_key(&on) {
            self.everything.insert(peer, until);
            return;
        }
        let holders = self.on.entry(on).or_insert(Holders::One(peer, until));
        holders.add(peer, until);
    }

    /// All who have a lease; they have none any more, but for `except`.
    fn take(&mut self, on: LeaseOn, except: PeerId) -> Vec<(PeerId, Instant)> {
        let holders = self.on.remove(&on).map(Holders::into_all).unwrap_or_default();
        let own = holders.iter().find(|(peer, _)| *peer == except).copied();
        if let Some((peer, until)) = own {
            self.on.insert(on, Holders::One(peer, until));
        }
        let everything = self.everything.iter().map(|(peer, until)| (*peer, *until));
        holders.into_iter().chain(everything).filter(|(peer, _)| *peer != except).collect()
    }
}

impl LeaseTable {
    /// `follows`: there was a service before, whose leases may still run.
    pub(super) fn new(now: Instant, follows: bool) -> Self {
        Self {
            keepers: HashSet::new(),
            generations: Default::default(),
            turned: now,
            next: 1,
            recalls: HashMap::new(),
            by_lease: HashMap::new(),
            by_time: BTreeSet::new(),
            waiting: HashMap::new(),
            former: follows.then(|| (now + LEASE, Vec::new())),
        }
    }

    /// A client says that it keeps what it is told.
    pub(super) fn keeps(&mut self, peer: PeerId) {
        self.keepers.insert(peer);
    }

    pub(super) fn is_keeper(&self, peer: PeerId) -> bool {
        self.keepers.contains(&peer)
    }

    /// A client's connection has ended. Its leases run on: it may not know.
    pub(super) fn gone(&mut self, peer: PeerId) {
        self.keepers.remove(&peer);
    }

    /// A client says that it keeps nothing any more: requests that wait for nobody any more.
    pub(super) fn keeps_nothing(&mut self, peer: PeerId) -> Vec<u64> {
        self.keepers.remove(&peer);
        self.generations[0].ended.insert(peer);
        let its = self.recalls.iter().filter(|(_, recall)| recall.peer == peer);
        let its: Vec<u64> = its.map(|(number, _)| *number).collect();
        its.into_iter().flat_map(|number| self.end(number)).collect()
    }

    /// Grants a lease on what was looked at since commit `since`; what has changed meanwhile is
    /// recalled at once.
    pub(super) fn grant(
        &mut self,
        peer: PeerId,
        on: LeaseOn,
        since: u64,
        now: Instant,
    ) -> Option<RecalledLease> {
        let changed = |generation: &LeaseGeneration| generation.changed.get(&on).copied();
        let is_old = self.generations.iter().filter_map(changed).any(|seq| seq > since);
        match is_old {
            true => Some(self.recall(peer, on, now + LEASE)),
            false => {
                self.generations[0].grant(peer, on, now + LEASE);
                None
            }
        }
    }

    /// A client has changed something by a commit: all others must be told. A request that `waits`
    /// is answered when they have said that they keep it no longer.
    pub(super) fn changed(
        &mut self,
        (peer, token): (PeerId, u64),
        on: LeaseOn,
        seq: u64,
        waits: bool,
    ) -> Vec<RecalledLease> {
        self.generations[0].changed.insert(on, seq);
        let mut holders: HashMap<PeerId, Instant> = HashMap::new();
        for (holder, until) in self.generations.iter_mut().flat_map(|age| age.take(on, peer)) {
            let latest = holders.entry(holder).or_insert(until);
            *latest = (*latest).max(until);
        }
        let [new, old] = &self.generations;
        holders.retain(|holder, _| !new.ended.contains(holder) && !old.ended.contains(holder));
        let recalls = holders.into_iter().map(|(holder, until)| self.recall(holder, on, until));
        let recalls = recalls.collect();
        if waits {
            self.wait(token, on, peer);
        }
        recalls
    }

    fn recall(&mut self, peer: PeerId, on: LeaseOn, until: Instant) -> RecalledLease {
        let number = self.next;
        self.next += 1;
        self.recalls.insert(number, Recall { on, peer, until, waiting: Vec::new() });
        self.by_lease.entry(on).or_default().push(number);
        self.by_time.insert((until, number));
        RecalledLease { number, peer, on }
    }

    fn wait(&mut self, token: u64, on: LeaseOn, except: PeerId) {
        for number in self.by_lease.get(&on).into_iter().flatten() {
            if let Some(recall) = self.recalls.get_mut(number).filter(|one| one.peer != except) {
                recall.waiting.push(token);
                *self.waiting.entry(token).or_default() += 1;
            }
        }
        if let Some((_, tokens)) = &mut self.former {
            tokens.push(token);
            *self.waiting.entry(token).or_default() += 1;
        }
    }

    /// Whether a request waits for clients.
    pub(super) fn is_waiting(&self, token: u64) -> bool {
        self.waiting.contains_key(&token)
    }

    /// A client keeps something no longer: requests that wait for nobody any more.
    pub(super) fn acknowledged(&mut self, peer: PeerId, number: u64) -> Vec<u64> {
        match self.recalls.get(&number) {
            Some(recall) if recall.peer == peer => self.end(number),
            _ => Vec::new(),
        }
    }

    fn end(&mut self, number: u64) -> Vec<u64> {
        let Some(recall) = self.recalls.remove(&number) else { return Vec::new() };
        self.by_time.remove(&(recall.until, number));
        if let Some(numbers) = self.by_lease.get_mut(&recall.on) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_lease.remove(&recall.on);
            }
        }
        self.one_less(recall.waiting)
    }

    fn one_less(&mut self, tokens: Vec<u64>) -> Vec<u64> {
        let mut released = Vec::new();
        for token in tokens {
            let Some(left) = self.waiting.get_mut(&token) else { continue };
            *left -= 1;
            if *left == 0 {
                self.waiting.remove(&token);
                released.push(token);
            }
        }
        released
    }

    /// Leases end with time: requests that wait for nobody any more.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<u64> {
        let mut released = Vec::new();
        while let Some((_, number)) = self.by_time.first().filter(|(until, _)| *until <= now) {
            released.extend(self.end(*number));
        }
        if let Some((_, tokens)) = self.former.take_if(|(until, _)| *until <= now) {
            released.extend(self.one_less(tokens));
        }
        if now.saturating_duration_since(self.turned) > LEASE {
            self.turned = now;
            self.generations.swap(0, 1);
            self.generations[0] = LeaseGeneration::default();
        }
        released
    }

    /// When something that requests wait for ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let former = self.former.as_ref().filter(|(_, tokens)| !tokens.is_empty());
        let first = self.by_time.first().map(|(until, _)| *until);
        former.map(|(until, _)| *until).into_iter().chain(first).min()
    }

    /// How many leases run, about, and how many clients are waited for.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.generations.iter().map(|age| age.on.len()).sum(), self.recalls.len())
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
