//! Names that the kernel has for a moment, so that a path is not looked up once for each file below
//! it. The kernel cannot be told to forget a name without the lock of its directory, which another
//! request may hold that waits for the service; so nobody tells it: where others change a
//! directory, they wait until the moment is over, and the kernel gets none of its names for some
//! time.
//!
//! A value without I/O.

use crate::protocol::FsInode;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long the kernel has a name.
pub(super) const LENT: Duration = Duration::from_millis(50);
/// After so long it has none of a directory's any more: its time begins when the program goes on
/// that has asked, which may be later than the answer.
const RETURNED: Duration = Duration::from_millis(150);
/// How long the kernel gets no names of a directory that others change.
const SHARED: Duration = Duration::from_secs(10);
/// Directories after which those are looked for that are of no interest any more.
const SWEEP_MIN: usize = 1024;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct LentNames {
    /// When the kernel has none of a directory's any more.
    until: HashMap<FsInode, Instant>,
    /// Directories that others change, until when that counts.
    shared: HashMap<FsInode, Instant>,
    sweep_at: usize,
}

impl Default for LentNames {
    fn default() -> Self {
        let (until, shared) = (HashMap::new(), HashMap::new());
        Self { until, shared, sweep_at: SWEEP_MIN }
    }
}

impl LentNames {
    /// The kernel is told a name of a directory whose lease runs for so long: how long it has it.
    pub(super) fn lend(&mut self, dir: FsInode, lease: Duration, now: Instant) -> Duration {
        if lease < RETURNED || self.shared.get(&dir).is_some_and(|until| now < *until) {
            return Duration::ZERO;
        }
        self.sweep(now);
        self.until.insert(dir, now + RETURNED);
        LENT
    }

    /// Others change a directory: when the kernel has none of its names any more.
    pub(super) fn recall(&mut self, dir: FsInode, now: Instant) -> Instant {
        self.sweep(now);
        self.shared.insert(dir, now + SHARED);
        self.until.remove(&dir).unwrap_or(now)
    }

    /// Costs little for each directory: it is done when there are twice as many as were left.
    fn sweep(&mut self, now: Instant) {
        if self.until.len().max(self.shared.len()) >= self.sweep_at {
            self.until.retain(|_, until| now < *until);
            self.shared.retain(|_, until| now < *until);
            self.sweep_at = SWEEP_MIN.max(2 * self.until.len().max(self.shared.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn dir(number: u64) -> FsInode {
        FsInode { number, generation: 1 }
    }

    #[test]
    fn others_wait_until_the_kernel_has_no_name_and_it_gets_none_while_they_change_it() {
        let (mut lent, now) = (LentNames::default(), Instant::now());
        assert_eq!(lent.recall(dir(1), now), now, "it had none");
        assert_eq!(lent.lend(dir(1), LEASE, now), Duration::ZERO);
        assert_eq!(lent.lend(dir(2), LEASE, now), LENT);
        assert_eq!(lent.recall(dir(2), now + LENT), now + RETURNED);
        assert_eq!(lent.recall(dir(2), now + LENT), now + LENT, "it is recalled already");
        let later = now + LENT + SHARED;
        assert_eq!(lent.lend(dir(2), LEASE, later), LENT);
        assert_eq!(lent.lend(dir(3), LENT, now), Duration::ZERO, "the lease is over too soon");
    }

    #[test]
    fn what_is_over_takes_no_room() {
        let (mut lent, mut now) = (LentNames::default(), Instant::now());
        for number in 0..100_000 {
            now += Duration::from_millis(1);
            lent.lend(dir(number), LEASE, now);
            lent.recall(dir(number + 1_000_000), now);
            let most = lent.until.len().max(lent.shared.len());
            // Of the last ten seconds, and as many again.
            assert!(most <= 20_000 + SWEEP_MIN, "{number}: {most}");
        }
    }
}
