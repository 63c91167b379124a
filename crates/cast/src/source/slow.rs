//! Which nodes are slow, by how fast chunks go from and to each: a value without I/O that is given
//! the time.
//!
//! A node is slow beside the others only, at the same time: far below their median, and farther
//! than they differ among each other. Where the machines themselves are the bottleneck, rates
//! differ much, and no node is slow. Chunks must wait for it, too: a node that sends little because
//! it has little is not to blame. A link that is slow has two ends; the receiver is blamed, unless
//! another link of the sender's is slow as well. The rate of a link between
//! switches is not that of the nodes at its ends.
//!
//! Each finding costs all nodes a new plan. It is therefore made only if the node would hold the
//! others up for longer than that takes, after ever longer pauses, for a part of the nodes only,
//! and it is taken back, once, of a node that keeps up with the others when no node waits for it.

mod frozen;
mod lag;
mod rates;
mod trial;

use crate::pause::excuse;
use crate::protocol::NodeReport;
use crate::schedule::{NodeRole, NodeSwitches, Schedule};
pub(super) use frozen::FrozenWatch;
use lag::LagWatch;
use rates::{Comparison, RateSample, RateTrack};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trial::SlowTrial;

/// It must have been found slow for this long.
const SLOW_FOR: Duration = Duration::from_millis(200);
/// A finding must save this much, in milliseconds.
const SAVED_MIN_MS: u64 = 400;
/// The pause after the first finding; after each further one twice that.
const PAUSE: Duration = Duration::from_secs(1);
/// At most one node in this many is found slow.
const SLOW_SHARE: usize = 4;
/// A slow node that lacks at most this many chunks more than the relay that is farthest behind,
const CAUGHT_UP_CHUNKS: u64 = 32;
/// for this long, is not slow.
const CAUGHT_UP_FOR: Duration = Duration::from_secs(2);

/// A node as it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeStanding {
    pub(super) number: u32,
    pub(super) role: NodeRole,
    /// Chunks that it holds.
    pub(super) held: u64,
}

/// Which roles change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlowFinding {
    pub(super) leaves: Vec<u32>,
    pub(super) relays: Vec<u32>,
}

#[derive(Debug, Default)]
struct NodeRates {
    sent: RateTrack,
    fed: RateTrack,
    owes: BTreeSet<u32>,
}

/// What became of a node that was found slow.
#[derive(Debug)]
struct SlowRecord {
    /// The nodes that sent to it slowly.
    fed_by: BTreeSet<u32>,
    /// Since when it has kept up with the relays.
    caught_up: Option<Instant>,
    is_taken_back: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SlowWatch {
    chunk_len: u64,
    chunks: u64,
    nodes: BTreeMap<u32, NodeRates>,
    lags: LagWatch,
    trial: SlowTrial,
    frozen: FrozenWatch,
    /// Since when nodes are found slow.
    since: BTreeMap<u32, Instant>,
    found: BTreeMap<u32, SlowRecord>,
    /// The rate of a link between two of them is not that of the nodes at its ends.
    switches: NodeSwitches,
    /// No finding before this, and the pause after it.
    next: Option<(Instant, Duration)>,
}

impl SlowWatch {
    pub(super) fn new(chunks: u32, chunk_len: u32) -> Self {
        Self {
            chunk_len: chunk_len.into(),
            chunks: chunks.into(),
            nodes: BTreeMap::new(),
            lags: LagWatch::new(chunks.into(), chunk_len.into()),
            trial: SlowTrial::default(),
            frozen: FrozenWatch::default(),
            since: BTreeMap::new(),
            found: BTreeMap::new(),
            switches: NodeSwitches::default(),
            next: None,
        }
    }

    pub(super) fn forget(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.lags.forget(node);
        self.frozen.forget(node);
        self.since.remove(&node);
    }

    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        let caught_up = self.found.values_mut().filter_map(|record| record.caught_up.as_mut());
        self.since.values_mut().chain(caught_up).for_each(|since| excuse(since, now, late));
        self.trial.held_up(now, late);
        self.frozen.held_up(now, late);
    }

    /// Nodes go on by a schedule.
    pub(super) fn planned(&mut self, schedule: &Schedule) {
        self.switches = schedule.switches().clone();
        let mut feeders = schedule.single_feeders();
        feeders.retain(|node, feeder| !self.switches.are_apart(*node, *feeder));
        self.lags.planned(feeders);
    }

    /// A report of a node, or of the source itself.
    pub(super) fn report(&mut self, now: Instant, node: u32, report: &NodeReport) {
        for rate in &report.rates {
            let sample = |other| RateSample {
                at: now,
                rate: rate.bytes_per_second,
                is_at_most: rate.is_at_most,
                other,
            };
            match rate.to {
                None => self.nodes.entry(node).or_default().sent.note(sample(None)),
                Some(to) if self.switches.are_apart(node, to) => {}
                // Only those that report have rates.
                Some(to) => {
                    let receiver = self.nodes.get_mut(&to);
                    receiver.into_iter().for_each(|known| known.fed.note(sample(Some(node))));
                }
            }
        }
        self.lags.report(now, node, report);
        self.frozen.report(now, node, report);
        let known = self.nodes.entry(node).or_default();
        known.owes = report.owes.iter().copied().collect();
    }

    /// What to change, if anything: of the nodes, without the source.
    pub(super) fn find(&mut self, now: Instant, nodes: &[NodeStanding]) -> Option<SlowFinding> {
        let blamed = self.blame(now);
        let leaves = self.frozen.find(nodes);
        if !leaves.is_empty() {
            // All behind them wait for nothing else: no pause is kept.
            let mut finding = SlowFinding { leaves, relays: Vec::new() };
            self.record(&mut finding, &BTreeMap::new());
            return Some(finding);
        }
        let is_relay = |node: u32| {
            nodes.iter().any(|other| other.number == node && other.role == NodeRole::Relay)
        };
        self.since.retain(|node, _| blamed.contains_key(node) && is_relay(*node));
        for node in blamed.keys().copied().filter(|node| is_relay(*node)) {
            self.since.entry(node).or_insert(now);
        }
        let mut finding = SlowFinding { leaves: Vec::new(), relays: self.caught_up(now, nodes) };
        let ready = nodes.iter().filter(|node| node.role != NodeRole::Dead).count();
        let is_found = |node: &&NodeStanding| {
            node.role == NodeRole::Leaf && self.found.contains_key(&node.number)
        };
        let found = nodes.iter().filter(is_found).count();
        let mut room = (ready / SLOW_SHARE).max(1).saturating_sub(found);
        for node in nodes {
            let is_long = self.since.get(&node.number).is_some_and(|at| now >= *at + SLOW_FOR);
            let Some(blame) = blamed.get(&node.number).filter(|_| is_long && room > 0) else {
                continue;
            };
            if self.saves(node, blame) {
                finding.leaves.push(node.number);
                finding.relays.retain(|relay| *relay != node.number);
                room -= 1;
            }
        }
        let is_early = self.next.is_some_and(|(at, _)| now < at);
        if is_early {
            return None;
        }
        if finding == SlowFinding::default() {
            finding = self.trial.find(now, &self.lags, nodes)?;
        }
        let pause = self.next.map_or(PAUSE, |(_, pause)| pause * 2);
        self.next = Some((now + pause, pause));
        self.record(&mut finding, &blamed);
        Some(finding)
    }

    fn record(&mut self, finding: &mut SlowFinding, blamed: &BTreeMap<u32, SlowBlame>) {
        for relay in &finding.relays {
            self.found.entry(*relay).and_modify(|record| record.is_taken_back = true);
        }
        for leaf in &finding.leaves {
            // The other end of its links was to blame, not those that were blamed for it.
            for (other, record) in &mut self.found {
                if record.fed_by.contains(leaf) && !record.is_taken_back {
                    record.is_taken_back = true;
                    finding.relays.push(*other);
                }
            }
            let fed_by = blamed.get(leaf).map(|blame| blame.fed_by.clone()).unwrap_or_default();
            let is_taken_back = self.found.get(leaf).is_some_and(|record| record.is_taken_back);
            let record = SlowRecord { fed_by, caught_up: None, is_taken_back };
            self.found.insert(*leaf, record);
            self.since.remove(leaf);
        }
    }

    /// Whether the others would wait for a node much longer than a new plan takes.
    fn saves(&self, node: &NodeStanding, blame: &SlowBlame) -> bool {
        let left = self.chunks.saturating_sub(node.held).saturating_mul(self.chunk_len);
        let takes = |rate: u64| left.saturating_mul(1_000) / rate.max(1);
        takes(blame.rate) > takes(blame.usual).saturating_add(SAVED_MIN_MS)
    }

    /// Slow nodes that were not, after all, where more than one costs the relays time.
    fn caught_up(&mut self, now: Instant, nodes: &[NodeStanding]) -> Vec<u32> {
        let of = |role| nodes.iter().filter(move |node| node.role == role);
        let least = of(NodeRole::Relay).map(|node| node.held).min().unwrap_or(0);
        let leaves: Vec<&NodeStanding> = of(NodeRole::Leaf).collect();
        let is_over = least == self.chunks;
        let mut relays = Vec::new();
        for node in &leaves {
            let Some(record) = self.found.get_mut(&node.number) else { continue };
            if node.held + CAUGHT_UP_CHUNKS < least || least == 0 || is_over {
                record.caught_up = None;
                continue;
            }
            let since = *record.caught_up.get_or_insert(now);
            if now >= since + CAUGHT_UP_FOR && !record.is_taken_back && leaves.len() > 1 {
                relays.push(node.number);
            }
        }
        relays
    }
}

/// Why a node is slow.
#[derive(Clone, Debug)]
struct SlowBlame {
    rate: u64,
    usual: u64,
    /// The nodes that sent to it slowly.
    fed_by: BTreeSet<u32>,
}

impl SlowWatch {
    /// The nodes that are slow now.
    fn blame(&mut self, now: Instant) -> BTreeMap<u32, SlowBlame> {
        let mut sent = self.compare(now, |node| &mut node.sent);
        let mut fed = self.compare(now, fed_track);
        let lagging = self.lags.slow(now);
        for (node, lag) in &lagging {
            fed.outdo(*node, lag.fed);
            lag.feeder_sends.into_iter().for_each(|sends| sent.outdo(lag.feeder, sends));
        }
        let is_slow = |of: &Comparison, node: u32| {
            of.levels.get(&node).is_some_and(|(_, usual)| usual.is_some())
        };
        let owed = self.nodes.values().flat_map(|node| node.owes.iter().copied());
        let waited: BTreeSet<u32> = owed.chain(lagging.keys().copied()).collect();
        let feeds_lagging = |feeder| lagging.values().any(|lag| lag.feeder == feeder);
        let owes = |number, node: &NodeRates| !node.owes.is_empty() || feeds_lagging(number);
        let sends_slowly: BTreeSet<u32> = self
            .nodes
            .iter()
            .filter(|(number, node)| owes(**number, node) && is_slow(&sent, **number))
            .map(|(number, _)| *number)
            .collect();
        let is_fed_slowly = |node: u32| waited.contains(&node) && is_slow(&fed, node);
        let mut blamed: BTreeSet<u32> =
            sends_slowly.iter().copied().filter(|node| is_fed_slowly(*node)).collect();
        for node in self.nodes.keys().copied().filter(|node| is_fed_slowly(*node)) {
            let senders = self.senders(node);
            // Another one was blamed for the same sender before.
            let former = self.found.iter().any(|(other, record)| {
                *other != node && senders.iter().any(|sender| record.fed_by.contains(sender))
            });
            let culprit = senders
                .iter()
                .copied()
                .find(|sender| blamed.contains(sender) || former && sends_slowly.contains(sender));
            blamed.insert(culprit.filter(|_| senders.len() == 1).unwrap_or(node));
        }
        for node in sends_slowly {
            // To slow receivers alone: that is not its fault.
            let receivers = self.receivers(node);
            if receivers.is_empty() || !receivers.iter().all(|to| is_slow(&fed, *to)) {
                blamed.insert(node);
            }
        }
        // The source has no other in its place.
        blamed.remove(&0);
        let blame = |node: u32| {
            let of = |all: &Comparison| {
                all.levels.get(&node).and_then(|(rate, usual)| Some((*rate, (*usual)?)))
            };
            let (rate, usual) = of(&fed).into_iter().chain(of(&sent)).min()?;
            Some((node, SlowBlame { rate, usual, fed_by: self.senders(node) }))
        };
        blamed.into_iter().filter_map(blame).collect()
    }

    /// The nodes that have sent to one lately.
    fn senders(&self, node: u32) -> BTreeSet<u32> {
        if let Some(feeder) = self.lags.feeder(node) {
            return BTreeSet::from([feeder]);
        }
        let samples = self.nodes.get(&node).into_iter().flat_map(|node| &node.fed.samples);
        samples.filter_map(|sample| sample.other).collect()
    }

    fn receivers(&self, node: u32) -> BTreeSet<u32> {
        let by_plan: BTreeSet<u32> = self.lags.fed_by(node).collect();
        if !by_plan.is_empty() {
            return by_plan;
        }
        let is_its = |sample: &RateSample| sample.other == Some(node);
        let fed = self.nodes.iter().filter(|(_, other)| other.fed.samples.iter().any(is_its));
        fed.map(|(number, _)| *number).collect()
    }

    fn compare(
        &mut self,
        now: Instant,
        direction: fn(&mut NodeRates) -> &mut RateTrack,
    ) -> Comparison {
        let mut levels: BTreeMap<u32, u64> = BTreeMap::new();
        let mut whole: BTreeMap<u32, u64> = BTreeMap::new();
        let mut former: BTreeMap<u32, u64> = BTreeMap::new();
        for (number, node) in &mut self.nodes {
            let track = direction(node);
            let before = track.known;
            if let Some(level) = track.level(now) {
                levels.insert(*number, level);
                if track.is_whole() {
                    whole.insert(*number, level);
                }
            }
            former.extend(before.map(|known| (*number, known)));
        }
        Comparison::new(&levels, &whole, &former)
    }
}

fn fed_track(node: &mut NodeRates) -> &mut RateTrack {
    &mut node.fed
}

#[cfg(test)]
mod tests;
