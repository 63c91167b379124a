//! A node's log, as `tracing` events. Events that peers can
//! cause are limited in rate.

use crate::line_limit::LineLimit;
use outboard_secure::HandshakeError;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Instant;

/// The reasons by which refused peers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RefusalReason {
    /// Its handshake failed: no key, another key, no handshake at all.
    Handshake,
    /// What it sent does not decrypt: someone in between may have altered it.
    Decryption,
    /// It did not finish its handshake in time, or gave way to others.
    Unfinished,
    /// It is revoked, or not on the list of allowed nodes, or may not use the service.
    NotAdmitted,
    /// Too many wait already.
    Busy,
}

impl From<&HandshakeError> for RefusalReason {
    fn from(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Altered { .. } => Self::Decryption,
            _ => Self::Handshake,
        }
    }
}

impl RefusalReason {
    fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Decryption => "decryption",
            Self::Unfinished => "unfinished",
            Self::NotAdmitted => "not_admitted",
            Self::Busy => "busy",
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    limit: LineLimit,
    refused: BTreeMap<RefusalReason, u64>,
}

impl RefusalLog {
    /// Counts a refused peer, and logs the reason unless the rate limit is reached.
    pub(super) fn refuse(&mut self, now: Instant, refusal: RefusalReason, what: impl Display) {
        *self.refused.entry(refusal).or_default() += 1;
        self.warn_limited(now, format_args!("refused ({}): {what}", refusal.word()));
    }

    /// Refused peers by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refused.iter().map(|(refusal, count)| (refusal.word(), *count))
    }

    /// Logs an event that a peer has caused, unless the rate limit is reached.
    pub(super) fn warn_limited(&mut self, now: Instant, what: impl Display) {
        let Some(unsaid) = self.limit.admit(now) else { return };
        if unsaid > 0 {
            tracing::warn!("{unsaid} more like these before");
        }
        tracing::warn!("{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_reason() {
        let start = Instant::now();
        let mut log = RefusalLog::default();
        for _ in 0..1000 {
            log.refuse(start, RefusalReason::Handshake, "a handshake");
        }
        log.refuse(start, RefusalReason::Busy, "another");
        let altered = HandshakeError::Altered { message: outboard_secure::Message::Proof };
        log.refuse(start, RefusalReason::from(&altered), &altered);
        log.refuse(start, RefusalReason::from(&HandshakeError::Over), "a third");
        let expected = [("handshake", 1001), ("decryption", 1), ("busy", 1)];
        assert_eq!(log.refused().collect::<Vec<_>>(), expected);
    }
}
