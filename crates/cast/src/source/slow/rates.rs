//! How fast chunks go in one direction of a node, and how nodes compare with each other: values
//! that are given the time.

use super::lag::Outdone;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A link or node is judged by the best of at least this many of its latest rates,
const SAMPLES_MIN: usize = 4;
/// at most that many (a node may report as often as it likes),
pub(super) const SAMPLES_MAX: usize = 256;
/// that span at least this time,
const SPAN_MIN: Duration = Duration::from_millis(500);
/// and of all that are no older than this.
pub(super) const SPAN: Duration = Duration::from_millis(900);
/// Rates that are older say nothing.
const SPAN_MAX: Duration = Duration::from_secs(3);
/// Slow is what is below this part of the others' median, in hundredths. Above it a node costs a
/// binomial pipeline of 16 nodes at most 10 % (l·B'/(B+(l−1)·B'), RDMC, DSN'18).
pub(super) const SLOW_BELOW: u64 = 70;
/// The same where the others have sent nothing lately, as they wait, and their former rates count.
const CRAWL_BELOW: u64 = 25;
/// And what is below it by more than this many times their median deviation.
pub(super) const DEVIATIONS: u64 = 5;
/// How many others there must be to compare with.
pub(super) const OTHERS_MIN: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    pub(super) at: Instant,
    pub(super) rate: u64,
    pub(super) is_at_most: bool,
    /// The other end, of a link.
    pub(super) other: Option<u32>,
}

/// The latest rates of one direction of a node.
#[derive(Debug, Default)]
pub(super) struct RateTrack {
    pub(super) samples: VecDeque<RateSample>,
    /// The best of them, when there were enough that were measured wholly.
    pub(super) known: Option<u64>,
}

/// One direction of all nodes, compared.
pub(super) struct Comparison {
    /// By node: its rate, and if that is slow, the others' median.
    pub(super) levels: BTreeMap<u32, (u64, Option<u64>)>,
}

impl Comparison {
    /// By node: its rate now, that if it was measured wholly, and its former one.
    pub(super) fn new(
        levels: &BTreeMap<u32, u64>,
        whole: &BTreeMap<u32, u64>,
        former: &BTreeMap<u32, u64>,
    ) -> Self {
        let judged = levels.iter().map(|(number, level)| {
            let compared = Compared::new(*number, whole, SLOW_BELOW);
            let compared = compared.or_else(|| Compared::new(*number, former, CRAWL_BELOW));
            let slow = compared.filter(|others| *level < others.bar);
            (*number, (*level, slow.map(|others| others.usual)))
        });
        Self { levels: judged.collect() }
    }

    /// Others have shown more.
    pub(super) fn outdo(&mut self, node: u32, Outdone { rate, usual }: Outdone) {
        self.levels.insert(node, (rate, Some(usual)));
    }
}

/// What a node is compared with.
struct Compared {
    /// The others' median.
    usual: u64,
    /// What its rate must reach.
    bar: u64,
}

impl Compared {
    /// `None` if there are too few others.
    fn new(node: u32, rates: &BTreeMap<u32, u64>, hundredths: u64) -> Option<Self> {
        let others = || rates.iter().filter(|(number, _)| **number != node).map(|(_, rate)| *rate);
        if others().count() < OTHERS_MIN {
            return None;
        }
        let usual = median(others())?;
        let deviation = median(others().map(|rate| rate.abs_diff(usual)))?;
        let part = usual.saturating_mul(hundredths) / 100;
        let bar = part.min(usual.saturating_sub(deviation.saturating_mul(DEVIATIONS)));
        Some(Self { usual, bar })
    }
}

pub(super) fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

impl RateTrack {
    pub(super) fn note(&mut self, sample: RateSample) {
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// The best of the latest rates, if there are enough of them.
    pub(super) fn level(&mut self, now: Instant) -> Option<u64> {
        let is_old = |sample: &RateSample, span| now > sample.at + span;
        while self.samples.front().is_some_and(|first| {
            is_old(first, SPAN_MAX) || is_old(first, SPAN) && self.samples.len() > SAMPLES_MIN
        }) {
            self.samples.pop_front();
        }
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        if self.samples.len() < SAMPLES_MIN || last.at < first.at + SPAN_MIN {
            return None;
        }
        let best = self.samples.iter().map(|sample| sample.rate).max()?;
        if self.is_whole() {
            self.known = Some(best);
        }
        Some(best)
    }

    /// Whether all were measured wholly.
    pub(super) fn is_whole(&self) -> bool {
        self.samples.iter().all(|sample| !sample.is_at_most)
    }
}
