//! A node's log, as `tracing` events. Events that peers can
//! cause are limited in rate.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Events about handshakes in a [`PERIOD`], at most.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// The reasons by which refused peers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// Its handshake failed: no key, another key, no handshake at all.
    Handshake,
    /// It did not finish its handshake in time, or gave way to others.
    Unfinished,
    /// It is revoked, or not on the list of allowed nodes, or may not use the service.
    NotAdmitted,
    /// Too many wait already.
    Busy,
}

impl Refusal {
    fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Unfinished => "unfinished",
            Self::NotAdmitted => "not_admitted",
            Self::Busy => "busy",
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Log {
    since: Instant,
    said: u32,
    unsaid: u64,
    refused: BTreeMap<Refusal, u64>,
}

impl Log {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, said: 0, unsaid: 0, refused: BTreeMap::new() }
    }

    /// Counts a refused peer, and logs the reason unless the rate limit is reached.
    pub(super) fn refuse(&mut self, now: Instant, refusal: Refusal, what: impl Display) {
        *self.refused.entry(refusal).or_default() += 1;
        self.warn_limited(now, format_args!("refused ({}): {what}", refusal.word()));
    }

    /// Refused peers by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refused.iter().map(|(refusal, count)| (refusal.word(), *count))
    }

    /// Logs an event that a peer has caused, unless the rate limit is reached.
    pub(super) fn warn_limited(&mut self, now: Instant, what: impl Display) {
        if now.saturating_duration_since(self.since) >= PERIOD {
            if self.unsaid > 0 {
                tracing::warn!("{} more like these before", self.unsaid);
            }
            (self.since, self.said, self.unsaid) = (now, 0, 0);
        }
        if self.said == LINES {
            self.unsaid += 1;
            return;
        }
        self.said += 1;
        tracing::warn!("{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_cannot_fill_a_log() {
        let start = Instant::now();
        let mut log = Log::new(start);
        for _ in 0..1000 {
            log.refuse(start, Refusal::Handshake, "a handshake");
        }
        assert_eq!((log.said, log.unsaid), (LINES, 990));
        log.refuse(start + PERIOD, Refusal::Busy, "another");
        assert_eq!((log.said, log.unsaid), (1, 0));
        assert_eq!(log.refused().collect::<Vec<_>>(), [("handshake", 1000), ("busy", 1)]);
    }
}
