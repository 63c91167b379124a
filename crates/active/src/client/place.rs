//! Where a call is executed: at the node, or at the client, which reads the pages that it touches.
//!
//! A value: it is told what calls took, and says where the next is likely to take less. The side
//! that took longer is tried again so seldom that this costs a fiftieth of the time at most.

use outboard_offcode::ModuleHash;
use std::collections::HashMap;
use std::time::Duration;

/// Entries whose times are kept, at most.
const ENTRIES_MAX: usize = 4096;
/// A new time counts for so much of the estimate: one part in this many.
const WEIGHT: u32 = 8;
/// The share of time that trying the other side may cost: one part in this many.
const TRIES_SHARE: u32 = 50;
/// The client is tried for the first time when a call at the node takes this many Reads: an
/// execution here takes three at least, and two threads to wake.
const READS_AT_LEAST: u32 = 8;
/// Calls at the node before the client is tried.
const FIRST: u32 = 4;

/// Where a call is to be executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallPlace {
    /// At the node.
    Remote,
    /// At the client, if its entry only reads and the client has its module; else at the node.
    Local,
    /// Where it took less time of late.
    #[default]
    Auto,
}

/// What is known of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct EntryTimes {
    remote: Option<Duration>,
    local: Option<Duration>,
    /// Calls since the slower side was tried.
    since: u32,
    remote_calls: u32,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct PlaceChooser {
    entries: HashMap<(ModuleHash, String), EntryTimes>,
    /// What one Read takes.
    read: Option<Duration>,
}

fn smoothed(old: Option<Duration>, new: Duration) -> Duration {
    match old {
        // One call that was interrupted is no reason to go elsewhere.
        Some(old) => (old * (WEIGHT - 1) + new.min(old * 4)) / WEIGHT,
        None => new,
    }
}

impl PlaceChooser {
    /// Whether the next call of an entry is to be executed at the client.
    pub(super) fn is_local(&mut self, module: ModuleHash, entry: &str) -> bool {
        let read = self.read;
        let Some(times) = self.entries.get_mut(&(module, entry.to_owned())) else { return false };
        let Some(remote) = times.remote else { return false };
        times.since = times.since.saturating_add(1);
        let Some(local) = times.local else {
            let is_slow = read.is_none_or(|read| remote > read * READS_AT_LEAST);
            return is_slow && times.remote_calls >= FIRST;
        };
        let (better, worse) = if local < remote { (local, remote) } else { (remote, local) };
        let extra = (worse - better).as_nanos() / better.as_nanos().max(1);
        let is_due = u128::from(times.since) > (extra + 1) * u128::from(TRIES_SHARE);
        if is_due {
            times.since = 0;
        }
        (local < remote) != is_due
    }

    /// A call was executed at the node.
    pub(super) fn took_remote(&mut self, module: ModuleHash, entry: &str, took: Duration) {
        if let Some(times) = self.times(module, entry) {
            times.remote = Some(smoothed(times.remote, took));
            times.remote_calls = times.remote_calls.saturating_add(1);
        }
    }

    /// A call was executed at the client, whatever came of it: a conflict is part of its time.
    pub(super) fn took_local(&mut self, module: ModuleHash, entry: &str, took: Duration) {
        if let Some(times) = self.times(module, entry) {
            times.local = Some(smoothed(times.local, took));
        }
    }

    /// A Read was answered.
    pub(super) fn took_read(&mut self, took: Duration) {
        self.read = Some(smoothed(self.read, took));
    }

    fn times(&mut self, module: ModuleHash, entry: &str) -> Option<&mut EntryTimes> {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.clear();
        }
        Some(self.entries.entry((module, entry.to_owned())).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: ModuleHash = ModuleHash([1; 32]);

    /// Plays calls that take so long at each side; the time in all, and how many were local.
    fn play(placement: &mut PlaceChooser, calls: u32, remote_us: u64, local_us: u64) -> (u64, u32) {
        let (mut sum, mut locals) = (0, 0);
        for _ in 0..calls {
            if placement.is_local(MODULE, "get") {
                placement.took_local(MODULE, "get", Duration::from_micros(local_us));
                (sum, locals) = (sum + local_us, locals + 1);
            } else {
                placement.took_remote(MODULE, "get", Duration::from_micros(remote_us));
                sum += remote_us;
            }
        }
        (sum, locals)
    }

    #[test]
    fn it_is_never_much_worse_than_the_better_side() {
        for (remote, local) in [(10, 60), (1000, 60), (100, 90), (90, 100), (10, 5000), (5000, 10)]
        {
            let mut placement = PlaceChooser::default();
            placement.took_read(Duration::from_micros(10));
            play(&mut placement, FIRST + 1, remote, local);
            let (sum, _) = play(&mut placement, 20_000, remote, local);
            let best = remote.min(local) * 20_000;
            assert!(sum * 100 <= best * 104, "{remote} {local}: {sum} of {best}");
        }
    }

    #[test]
    fn it_follows_a_change() {
        let mut placement = PlaceChooser::default();
        placement.took_read(Duration::from_micros(10));
        assert_eq!(play(&mut placement, 1000, 15, 60).1, 0, "not worth a try");
        let (_, locals) = play(&mut placement, 1000, 2000, 60);
        assert!(locals > 950, "{locals}");
        let (_, locals) = play(&mut placement, 200_000, 15, 60);
        assert!(locals < 10_000, "{locals}");
    }

    #[test]
    fn one_slow_call_is_no_reason() {
        let mut placement = PlaceChooser::default();
        placement.took_read(Duration::from_micros(10));
        play(&mut placement, 100, 15, 60);
        placement.took_remote(MODULE, "get", Duration::from_secs(1));
        assert!(!placement.is_local(MODULE, "get"));
    }
}
