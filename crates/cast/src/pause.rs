//! Pauses of this process: it was stopped, its machine slept, or other processes had its
//! processors.
//!
//! A loop knows how long it waits at most. In the time beyond that it could hear no peer, so that
//! this time counts against none. Nothing here reads the clock.

use std::time::{Duration, Instant};

/// The pause of a loop that meant to look again after `nominal`. Less than twice that is none:
/// timers are not exact.
pub(crate) fn pause(since: Duration, nominal: Duration) -> Option<Duration> {
    (since > 2 * nominal).then(|| since.saturating_sub(nominal))
}

/// Takes a pause out of the time since an instant.
pub(crate) fn excuse(since: &mut Instant, now: Instant, pause: Duration) {
    *since = now.min(*since + pause);
}
