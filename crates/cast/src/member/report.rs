//! What a node says of itself to the source: what it waits for, and how fast it sends.

use crate::protocol::{ChunkWait, NodeReport, SentRate};
use crate::relay::Relay;
use crate::schedule::ChunkSet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A chunk that has been awaited for longer is reported.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Words of 64 chunks of a set that fit into a message besides all the rest.
const HELD_WORDS_MAX: usize = 4_000;
/// The least time spent sending over which a rate is measured.
const BUSY_MIN: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MemberProgress {
    /// By chunk and node that it was asked of, or taken back from, when that was seen first.
    asked: BTreeMap<Ask, Instant>,
    /// By node, when a chunk came from it last.
    arrived: BTreeMap<u32, Instant>,
    arrived_chunks: u64,
    sent_chunks: u64,
    /// Chunks and slots that were checked and are not written yet.
    unwritten: BTreeSet<(u32, u32)>,
    /// The nodes that were sent chunks.
    receivers: BTreeSet<u32>,
    sending: SendRates,
}

/// A chunk, the node that it was asked of, and whether it was taken back.
type Ask = (u32, u32, bool);

/// Bytes that were sent, and the time that this took: while any Write is under way.
#[derive(Debug, Default)]
struct RateMeter {
    under_way: u32,
    since: Option<Instant>,
    bytes: u64,
    busy: Duration,
}

/// Whether a node's sends cross a link between switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendReach {
    SameSwitch,
    OtherSwitch,
}

/// To all together, to those below the same switch, and to each.
#[derive(Debug, Default)]
struct SendRates {
    all: RateMeter,
    near: RateMeter,
    links: BTreeMap<u32, (SendReach, RateMeter)>,
    /// Bytes of a Write, the latest one.
    chunk_len: u64,
}

impl MemberProgress {
    pub(crate) fn arrived(&mut self, now: Instant, from: u32) {
        self.arrived.insert(from, now);
        self.arrived_chunks += 1;
    }

    pub(crate) fn sends(&mut self, now: Instant, (to, reach): (u32, SendReach), len: u64) {
        self.sending.chunk_len = len;
        self.sending.all.begin(now);
        let link = self.sending.links.entry(to).or_insert_with(|| (reach, RateMeter::default()));
        link.1.begin(now);
        if link.0 == SendReach::SameSwitch {
            self.sending.near.begin(now);
        }
    }

    pub(crate) fn sent(&mut self, now: Instant, to: u32, len: u64) {
        self.sent_chunks += 1;
        self.receivers.insert(to);
        if let Some((reach, link)) = self.sending.links.get_mut(&to) {
            link.end(now, 1, len);
            let reach = *reach;
            self.sending.end(now, reach, (1, len));
        }
    }

    /// A chunk is what the source signed, and is to be written.
    pub(crate) fn verified(&mut self, at: (u32, u32)) {
        self.unwritten.insert(at);
    }

    /// A chunk is written, or never will be.
    pub(crate) fn kept(&mut self, at: (u32, u32)) {
        self.unwritten.remove(&at);
    }

    /// Nothing is under way to a node any more.
    pub(crate) fn lost(&mut self, now: Instant, to: u32) {
        if let Some((reach, link)) = self.sending.links.remove(&to) {
            self.sending.end(now, reach, (link.under_way, 0));
        }
    }

    /// Chunks that peers have written here.
    pub(crate) fn arrived_chunks(&self) -> u64 {
        self.arrived_chunks
    }

    /// Chunks that were written to peers.
    pub(crate) fn sent_chunks(&self) -> u64 {
        self.sent_chunks
    }

    /// The nodes that have written chunks here.
    pub(crate) fn senders(&self) -> impl Iterator<Item = u32> + '_ {
        self.arrived.keys().copied()
    }

    /// The nodes that were sent chunks.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = u32> + '_ {
        self.receivers.iter().copied()
    }

    pub(crate) fn report(&mut self, now: Instant, version: u32, relay: &Relay) -> NodeReport {
        NodeReport {
            version,
            held: short(relay.held()),
            waits: self.waits(now, relay),
            owes: relay.owes().into_iter().collect(),
            steps: 0,
            arrived_chunks: self.arrived_chunks,
            sent_chunks: self.sent_chunks,
            unwritten_chunks: self.unwritten.len() as u64,
            rates: self.sending.take(now),
        }
    }

    /// By sender, the chunk that was asked of it first, if nothing has come from it for a while.
    fn waits(&mut self, now: Instant, relay: &Relay) -> Vec<ChunkWait> {
        let asked = relay.outstanding().map(|(chunk, of)| (chunk, of, false));
        let taken_back = relay.taken_back().map(|(chunk, of)| (chunk, of, true));
        let known = |ask| (ask, self.asked.get(&ask).copied().unwrap_or(now));
        self.asked = asked.chain(taken_back).map(known).collect();
        let mut oldest: BTreeMap<u32, (Instant, Ask)> = BTreeMap::new();
        for (&ask, &since) in &self.asked {
            let first = oldest.entry(ask.1).or_insert((since, ask));
            *first = (*first).min((since, ask));
        }
        let is_long = |(of, (since, _)): &(&u32, &(Instant, Ask))| {
            let since = self.arrived.get(of).map_or(*since, |at| (*at).max(*since));
            now > since + WAIT_MIN
        };
        let waits = oldest.iter().filter(is_long);
        let wait = |(of, (_, (chunk, _, is_taken_back))): (&u32, &(Instant, Ask))| ChunkWait {
            of: *of,
            chunk: *chunk,
            is_taken_back: *is_taken_back,
        };
        waits.map(wait).collect()
    }
}

/// A set that is too ragged for a message is cut short.
pub(crate) fn short(held: &ChunkSet) -> ChunkSet {
    let mut held = held.clone();
    held.keep_front(HELD_WORDS_MAX);
    held
}

impl RateMeter {
    fn begin(&mut self, now: Instant) {
        self.under_way += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant, writes: u32, bytes: u64) {
        self.bytes += bytes;
        self.under_way = self.under_way.saturating_sub(writes);
        if self.under_way == 0 {
            self.pause(now);
        }
    }

    fn pause(&mut self, now: Instant) {
        let since = self.since.take();
        self.busy += since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    }

    /// The rate since the last one was taken; while nothing has been sent wholly, what it is at
    /// most.
    fn take(&mut self, now: Instant, to: Option<u32>, chunk_len: u64) -> Option<SentRate> {
        if self.since.is_some() {
            self.pause(now);
            self.since = Some(now);
        }
        let is_at_most = self.bytes == 0;
        let under_way = u64::from(self.under_way).saturating_mul(chunk_len);
        let bytes = if is_at_most { under_way } else { self.bytes };
        if self.busy < BUSY_MIN || bytes == 0 {
            return None;
        }
        let micros = u64::try_from(self.busy.as_micros()).ok()?;
        if !is_at_most {
            (self.bytes, self.busy) = (0, Duration::ZERO);
        }
        let bytes_per_second = bytes.saturating_mul(1_000_000) / micros.max(1);
        Some(SentRate { to, bytes_per_second, is_at_most })
    }
}

impl SendRates {
    fn end(&mut self, now: Instant, reach: SendReach, (writes, bytes): (u32, u64)) {
        self.all.end(now, writes, bytes);
        if reach == SendReach::SameSwitch {
            self.near.end(now, writes, bytes);
        }
    }

    fn take(&mut self, now: Instant) -> Vec<SentRate> {
        let len = self.chunk_len;
        let (all, near) = (self.all.take(now, None, len), self.near.take(now, None, len));
        let is_far = |(reach, _): &(SendReach, RateMeter)| *reach == SendReach::OtherSwitch;
        // A link between switches limits all its senders: its rate is not this node's. Both rates
        // are below what the node can send, so the higher one counts.
        let all = match self.links.values().any(is_far) {
            true => near.map(|near| all.map_or(near, |all| all.faster(near))),
            false => all,
        };
        let links = self.links.iter_mut();
        let links = links.filter_map(|(to, (_, link))| link.take(now, Some(*to), len));
        all.into_iter().chain(links).collect()
    }
}

impl SentRate {
    fn faster(self, other: Self) -> Self {
        if self.bytes_per_second < other.bytes_per_second { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(to: Option<u32>, bytes_per_second: u64) -> SentRate {
        SentRate { to, bytes_per_second, is_at_most: false }
    }

    fn at_most(bytes_per_second: u64) -> Vec<SentRate> {
        let bound = |to| SentRate { is_at_most: true, ..rate(to, bytes_per_second) };
        vec![bound(None), bound(Some(1))]
    }

    #[test]
    fn what_is_held_fits_into_a_message_however_ragged_it_is() {
        use crate::protocol::{CastMessage, PROTOCOL};
        let ragged: ChunkSet = (0..1_000_000).filter(|chunk| chunk % 2 == 0).collect();
        let all = ChunkSet::below(1 << 26);
        for (held, said) in [(&ragged, 4_000 * 32), (&all, 1 << 26)] {
            let report = NodeReport { held: short(held), ..NodeReport::default() };
            assert_eq!(report.held.len(), said);
            let len = PROTOCOL.encode(&CastMessage::Held(Box::new(report))).len();
            assert!(len < outboard_cluster::hub::MESSAGE_MAX * 3 / 4, "{len}");
        }
    }

    #[test]
    fn a_rate_is_of_the_time_that_was_spent_sending() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let mut progress = MemberProgress::default();
        // Two at once, then a pause.
        progress.sends(began, (1, SendReach::SameSwitch), 1_000_000);
        progress.sends(began, (2, SendReach::SameSwitch), 1_000_000);
        progress.sent(began + ms(100), 1, 1_000_000);
        progress.sent(began + ms(200), 2, 1_000_000);
        let rates = [rate(None, 10_000_000), rate(Some(1), 10_000_000), rate(Some(2), 5_000_000)];
        assert_eq!(progress.sending.take(began + ms(900)), rates);
        assert_eq!(progress.sending.take(began + ms(950)), [], "nothing since");
        progress.sends(began + ms(1_000), (1, SendReach::SameSwitch), 1_000_000);
        assert_eq!(progress.sending.take(began + ms(1_500)), at_most(2_000_000));
        assert_eq!(progress.sending.take(began + ms(5_000)), at_most(250_000));
        progress.sent(began + ms(9_000), 1, 1_000_000);
        let rates = [rate(None, 125_000), rate(Some(1), 125_000)];
        assert_eq!(progress.sending.take(began + ms(9_100)), rates);
        // Nothing is under way to a node that is lost.
        progress.sends(began + ms(9_100), (1, SendReach::SameSwitch), 1_000_000);
        progress.lost(began + ms(9_200), 1);
        assert_eq!(progress.sending.take(began + ms(9_900)), []);
    }

    #[test]
    fn a_slow_link_between_switches_is_no_rate_of_the_node_that_sends_over_it() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let (near, far) = ((1, SendReach::SameSwitch), (2, SendReach::OtherSwitch));
        // To another switch in 400 ms, meanwhile to its own in a quarter of that.
        let mut progress = MemberProgress::default();
        progress.sends(began, far, 1_000_000);
        progress.sends(began + ms(100), near, 1_000_000);
        progress.sent(began + ms(200), 1, 1_000_000);
        progress.sent(began + ms(400), 2, 1_000_000);
        let links = [rate(Some(1), 10_000_000), rate(Some(2), 2_500_000)];
        let rates = progress.sending.take(began + ms(400));
        assert_eq!(rates, [&[rate(None, 10_000_000)], &links[..]].concat());
        // To another switch alone: that shows nothing.
        progress.sends(began + ms(500), far, 1_000_000);
        progress.sent(began + ms(900), 2, 1_000_000);
        assert_eq!(progress.sending.take(began + ms(900)), [rate(Some(2), 2_500_000)]);
        // To both, as fast as it can.
        progress.sends(began + ms(900), far, 1_000_000);
        progress.sends(began + ms(900), near, 1_000_000);
        progress.sent(began + ms(1_100), 1, 1_000_000);
        progress.sent(began + ms(1_100), 2, 1_000_000);
        let rates = progress.sending.take(began + ms(1_100));
        assert_eq!(rates[0], rate(None, 10_000_000));
    }
}
