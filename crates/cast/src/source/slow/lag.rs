//! Which relays lag behind the node that feeds them, where each has one: a value without I/O that
//! is given the time.
//!
//! What a relay has received shows what it can at least, whatever it waited for: one that keeps up
//! with its sender is never busy, and has no other rate. What one receives that lacks much of what
//! its sender holds is all that it can, or that its sender can. So it is slow if enough others have
//! received much more at the same time. Where many lag, the machines are the bottleneck, and no
//! node is slow.

use super::rates::{DEVIATIONS, OTHERS_MIN, SAMPLES_MAX, SLOW_BELOW, SPAN, median};
use crate::protocol::NodeReport;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The time over which chunks are counted.
const COUNTED: Duration = Duration::from_millis(600);
/// A relay lags if it lacks more than it receives in this time,
const LAG_TIME_MS: u64 = 100;
/// and this many chunks that are under way.
const LAG_CHUNKS: u64 = 4;
/// One relay in this many must have received more, and no more than that may lag.
const SHARE: usize = 4;

/// What a node has received and sent, by what it said at a time.
#[derive(Clone, Copy, Debug)]
struct ChunkCount {
    at: Instant,
    arrived: u64,
    sent: u64,
    held: u64,
    /// Chunks that its feeder held and it did not.
    lag: u64,
}

/// The latest counts of a node, the first one as old as all are counted over.
type CountTrack = VecDeque<ChunkCount>;

/// A rate that is slow, in bytes a second, and what others have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outdone {
    pub(super) rate: u64,
    pub(super) usual: u64,
}

/// A relay that lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lagging {
    /// What it receives.
    pub(super) fed: Outdone,
    pub(super) feeder: u32,
    /// What its feeder sends, if that is slow as well.
    pub(super) feeder_sends: Option<Outdone>,
}

/// The only relay that lags, if those before it in a chain have shown more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) node: u32,
    /// The source feeds it.
    pub(super) is_first: bool,
    /// How long it takes to get what it lacks.
    pub(super) left: Duration,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LagWatch {
    chunk_len: u64,
    chunks: u64,
    /// By relay, the node that feeds it.
    feeders: BTreeMap<u32, u32>,
    tracks: BTreeMap<u32, CountTrack>,
}

impl LagWatch {
    pub(super) fn new(chunks: u64, chunk_len: u64) -> Self {
        Self { chunk_len, chunks, ..Self::default() }
    }

    /// From now on relays are fed by these; what was counted before says nothing of that.
    pub(super) fn planned(&mut self, feeders: BTreeMap<u32, u32>) {
        (self.feeders, self.tracks) = (feeders, BTreeMap::new());
    }

    pub(super) fn forget(&mut self, node: u32) {
        self.tracks.remove(&node);
    }

    /// The node that feeds a relay, if only one does.
    pub(super) fn feeder(&self, node: u32) -> Option<u32> {
        self.feeders.get(&node).copied()
    }

    /// The relays that a node feeds.
    pub(super) fn fed_by(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.feeders.iter().filter(move |(_, feeder)| **feeder == node).map(|(fed, _)| *fed)
    }

    /// A report of a node, or of the source itself.
    pub(super) fn report(&mut self, now: Instant, node: u32, report: &NodeReport) {
        if self.feeders.is_empty() {
            return;
        }
        let held = report.held.len();
        let feeder_holds = match self.feeders.get(&node) {
            None => 0,
            Some(0) => self.chunks,
            Some(feeder) => {
                self.tracks.get(feeder).and_then(VecDeque::back).map_or(0, |count| count.held)
            }
        };
        let count = ChunkCount {
            at: now,
            arrived: report.arrived_chunks,
            sent: report.sent_chunks,
            held,
            lag: feeder_holds.saturating_sub(held),
        };
        let track = self.tracks.entry(node).or_default();
        track.push_back(count);
        while track.len() > SAMPLES_MAX || track.get(1).is_some_and(|next| now >= next.at + COUNTED)
        {
            track.pop_front();
        }
    }

    /// The relays that lag, and are slow.
    pub(super) fn slow(&self, now: Instant) -> BTreeMap<u32, Lagging> {
        let is_relay = |node: &u32| self.feeders.contains_key(node);
        let fed = self.rates(now, arrived);
        let lagging: Vec<(u32, u64)> =
            fed.keys().filter_map(|node| Some((*node, self.lagging(*node)?))).collect();
        // The first one lags behind the source always.
        let of_relays = lagging.iter().filter(|(node, _)| self.feeder(*node) != Some(0));
        let most = (self.feeders.len() / SHARE).max(1);
        if of_relays.count() > most {
            return BTreeMap::new();
        }
        let sent = self.rates(now, |count| count.sent);
        let shown_fed =
            sorted(fed.iter().filter(|(node, _)| is_relay(node)).map(|(_, rate)| *rate));
        let shown_sent = sorted(sent.values().copied());
        let enough = OTHERS_MIN.max(self.feeders.len() / SHARE);
        let slow = |(node, rate): (u32, u64)| {
            let feeder = self.feeder(node)?;
            let fed = outdone(rate, &shown_fed, enough)?;
            let sends = sent.get(&feeder).and_then(|rate| outdone(*rate, &shown_sent, enough));
            Some((node, Lagging { fed, feeder, feeder_sends: sends }))
        };
        lagging.into_iter().filter_map(slow).collect()
    }

    /// The relay that all others may wait for.
    pub(super) fn suspect(&self, now: Instant) -> Option<Suspect> {
        let fed = self.rates(now, arrived);
        let lagging = fed.keys().filter_map(|node| Some((*node, self.lagging(*node)?)));
        let (first, others): (Vec<_>, Vec<_>) =
            lagging.partition(|(node, _)| self.feeder(*node) == Some(0));
        let (node, rate) = match (&first[..], &others[..]) {
            (_, [one]) | ([one], []) => *one,
            _ => return None,
        };
        let before = self.before(node)?;
        let is_far = |other: &u32| fed.get(other).is_some_and(|fed| *fed > bar(rate));
        let missing = self.chunks.saturating_sub(self.tracks.get(&node)?.back()?.held);
        let left_ms = missing.saturating_mul(self.chunk_len).saturating_mul(1_000) / rate.max(1);
        let (is_first, left) = (before.is_empty(), Duration::from_millis(left_ms));
        before.iter().all(is_far).then_some(Suspect { node, is_first, left })
    }

    /// The relays before one in a chain; `None` if it is no chain.
    fn before(&self, node: u32) -> Option<Vec<u32>> {
        let mut before = Vec::new();
        let mut at = node;
        while let Some(feeder) = self.feeder(at).filter(|_| before.len() < self.feeders.len()) {
            let is_chain = self.fed_by(feeder).count() == 1;
            before.push(Some(feeder).filter(|_| is_chain)?);
            at = feeder;
        }
        before.pop().filter(|first| *first == 0).map(|_| before)
    }

    /// What a relay receives that could have received more all the time: the better half of the
    /// time counts, as it may have been held up for a moment.
    fn lagging(&self, node: u32) -> Option<u64> {
        let track = self.tracks.get(&node)?;
        let (first, last) = (track.front()?, track.back()?);
        let middle = track.iter().find(|count| count.at >= first.at + COUNTED / 2)?;
        let halves = [self.rate(first, middle, arrived)?, self.rate(middle, last, arrived)?];
        let rate = halves[0].max(halves[1]);
        let lag = rate.saturating_mul(LAG_TIME_MS) / 1_000 / self.chunk_len.max(1) + LAG_CHUNKS;
        // One that receives nothing is not slow: it hangs, or its connection does.
        (rate > 0 && track.iter().all(|count| count.lag >= lag)).then_some(rate)
    }

    /// Bytes a second between two counts; `None` if they are of the same time.
    fn rate(
        &self,
        first: &ChunkCount,
        last: &ChunkCount,
        of: fn(&ChunkCount) -> u64,
    ) -> Option<u64> {
        let span = last.at.saturating_duration_since(first.at);
        let span_ms = u64::try_from(span.as_millis()).ok().filter(|ms| *ms > 0)?;
        let bytes = of(last).saturating_sub(of(first)).saturating_mul(self.chunk_len);
        Some(bytes.saturating_mul(1_000) / span_ms)
    }

    /// Bytes a second of those that have said enough lately.
    fn rates(&self, now: Instant, of: fn(&ChunkCount) -> u64) -> BTreeMap<u32, u64> {
        let rate = |(node, track): (&u32, &CountTrack)| {
            let (first, last) = (track.front()?, track.back()?);
            let is_known = last.at >= first.at + COUNTED && now <= last.at + SPAN;
            Some((*node, self.rate(first, last, of).filter(|_| is_known)?))
        };
        self.tracks.iter().filter_map(rate).collect()
    }
}

fn arrived(count: &ChunkCount) -> u64 {
    count.arrived
}

fn sorted(rates: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut rates: Vec<u64> = rates.collect();
    rates.sort_unstable();
    rates
}

/// What others have shown more than, if a rate is slow.
fn bar(rate: u64) -> u64 {
    rate.saturating_mul(100) / SLOW_BELOW
}

/// Compares a rate with those, ascending, that are much higher, if these are enough and alike.
fn outdone(rate: u64, shown: &[u64], enough: usize) -> Option<Outdone> {
    let higher = &shown[shown.partition_point(|other| *other <= bar(rate))..];
    if higher.len() < enough {
        return None;
    }
    let usual = *higher.get(higher.len() / 2)?;
    let deviation = median(higher.iter().map(|other| other.abs_diff(usual)))?;
    let is_far = rate < usual.saturating_sub(deviation.saturating_mul(DEVIATIONS));
    is_far.then_some(Outdone { rate, usual })
}

#[cfg(test)]
mod tests;
