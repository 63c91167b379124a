//! What a node says of itself to the source: what it waits for, and how fast it sends.

use crate::protocol::{ChunkWait, NodeReport};
use crate::relay::Relay;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A chunk that has not come for so long is reported.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// A rate is told when so much time was spent sending.
const BUSY_MIN: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MemberProgress {
    /// By chunk that was asked for, of which node, and when that was seen first.
    asked: BTreeMap<u32, (u32, Instant)>,
    /// By node, when a chunk came from it last.
    arrived: BTreeMap<u32, Instant>,
    arrived_chunks: u64,
    sent_chunks: u64,
    /// The nodes that were sent chunks.
    receivers: BTreeSet<u32>,
    sending: SendRate,
}

/// Bytes that were sent, and the time that this took: while any Write is under way.
#[derive(Debug, Default)]
struct SendRate {
    /// By receiver.
    under_way: BTreeMap<u32, u32>,
    since: Option<Instant>,
    bytes: u64,
    busy: Duration,
}

impl MemberProgress {
    pub(crate) fn arrived(&mut self, now: Instant, from: u32) {
        self.arrived.insert(from, now);
        self.arrived_chunks += 1;
    }

    pub(crate) fn sends(&mut self, now: Instant, to: u32) {
        *self.sending.under_way.entry(to).or_default() += 1;
        self.sending.since.get_or_insert(now);
    }

    pub(crate) fn sent(&mut self, now: Instant, to: u32, len: u64) {
        self.sent_chunks += 1;
        self.receivers.insert(to);
        self.sending.bytes += len;
        if let Some(count) = self.sending.under_way.get_mut(&to).filter(|count| **count > 1) {
            *count -= 1;
            return;
        }
        self.lost(now, to);
    }

    /// Nothing is under way to a node any more.
    pub(crate) fn lost(&mut self, now: Instant, to: u32) {
        self.sending.under_way.remove(&to);
        if self.sending.under_way.is_empty() {
            self.sending.pause(now);
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
            held: relay.held().clone(),
            waits: self.waits(now, relay),
            owes: relay.owes().into_iter().collect(),
            sent_chunks: self.sent_chunks,
            rate: self.sending.take(now),
        }
    }

    /// By sender, the chunk that was asked of it first, if nothing has come from it for a while.
    fn waits(&mut self, now: Instant, relay: &Relay) -> Vec<ChunkWait> {
        let asked = relay.outstanding().map(|(chunk, of)| {
            let known = self.asked.get(&chunk).filter(|(asked, _)| *asked == of);
            (chunk, (of, known.map_or(now, |(_, since)| *since)))
        });
        self.asked = asked.collect();
        let mut oldest: BTreeMap<u32, (Instant, u32)> = BTreeMap::new();
        for (&chunk, &(of, since)) in &self.asked {
            let first = oldest.entry(of).or_insert((since, chunk));
            *first = (*first).min((since, chunk));
        }
        let is_long = |(of, (since, _)): &(&u32, &(Instant, u32))| {
            let since = self.arrived.get(of).map_or(*since, |at| (*at).max(*since));
            now > since + WAIT_MIN
        };
        let waits = oldest.iter().filter(is_long);
        waits.map(|(of, (_, chunk))| ChunkWait { of: *of, chunk: *chunk }).collect()
    }
}

impl SendRate {
    fn pause(&mut self, now: Instant) {
        let since = self.since.take();
        self.busy += since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    }

    /// The rate since the last one was taken, in bytes a second.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_some() {
            self.pause(now);
            self.since = Some(now);
        }
        if self.busy < BUSY_MIN || self.bytes == 0 {
            return None;
        }
        let micros = u64::try_from(self.busy.as_micros()).ok()?;
        let rate = self.bytes.saturating_mul(1_000_000) / micros.max(1);
        (self.bytes, self.busy) = (0, Duration::ZERO);
        Some(rate)
    }
}
