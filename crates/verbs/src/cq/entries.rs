//! The completions that wait in a queue, in order. It neither wakes threads nor knows a capacity.
//!
//! Those of a destroyed queue pair are taken out together with those of others: a look through the
//! whole queue for each of thousands that are destroyed at once would be quadratic.

use outboard_iwarp::work::{Completion, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Entries that are looked at for a purged queue pair, at most, on average.
const LOOKS_A_PURGE: usize = 64;

/// The flushed requests of a queue pair whose completions wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Receives.
    pub receives: usize,
    /// All others.
    pub sends: usize,
    /// Those of the others that have immediate data, as only the completions of a caller's own
    /// making have.
    pub sends_with_immediate: usize,
}

impl Flushed {
    /// Those of one completion.
    fn of(completion: &Completion) -> Self {
        let is_flushed = completion.status == Status::Flushed;
        let is_receive = is_flushed && completion.operation.is_receive();
        let is_send = is_flushed && !is_receive;
        Self {
            receives: usize::from(is_receive),
            sends: usize::from(is_send),
            sends_with_immediate: usize::from(is_send && completion.immediate.is_some()),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            receives: self.receives + other.receives,
            sends: self.sends + other.sends,
            sends_with_immediate: self.sends_with_immediate + other.sends_with_immediate,
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            receives: self.receives - other.receives,
            sends: self.sends - other.sends,
            sends_with_immediate: self.sends_with_immediate - other.sends_with_immediate,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    /// May have completions of `purged`; none if that is empty.
    queue: VecDeque<Completion>,
    /// Queue pairs whose completions are to go before any entry is shown, or one of theirs added.
    purged: BTreeSet<u32>,
    /// By queue pair; none without one. A program that posts to a queue pair that has ended asks
    /// for each request.
    flushed: BTreeMap<u32, Flushed>,
}

impl Entries {
    /// How many there are at most; exact after [`Entries::sweep`].
    pub(super) fn bound(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn push(&mut self, completion: Completion) {
        if self.purged.contains(&completion.qp) {
            self.sweep();
        }
        if completion.status == Status::Flushed {
            let flushed = self.flushed.entry(completion.qp).or_default();
            *flushed = flushed.and(Flushed::of(&completion));
        }
        self.queue.push_back(completion);
    }

    /// The flushed requests of a queue pair.
    pub(super) fn flushed(&self, qp: u32) -> Flushed {
        self.flushed.get(&qp).copied().unwrap_or_default()
    }

    /// Moves up to `max` to `out`, in order; returns how many.
    pub(super) fn take(&mut self, out: &mut Vec<Completion>, max: usize) -> usize {
        self.sweep();
        let count = self.queue.len().min(max);
        let before = out.len();
        out.extend(self.queue.drain(..count));
        if !self.flushed.is_empty() {
            out[before..].iter().for_each(|completion| self.forget(completion));
        }
        count
    }

    fn forget(&mut self, completion: &Completion) {
        if let Some(flushed) = self.flushed.get_mut(&completion.qp) {
            *flushed = flushed.without(Flushed::of(completion));
            if *flushed == Flushed::default() {
                self.flushed.remove(&completion.qp);
            }
        }
    }

    /// Drops a queue pair's completions, now or soon; returns how many entries were looked at.
    pub(super) fn purge(&mut self, qp: u32) -> usize {
        if self.queue.is_empty() {
            return 0;
        }
        self.flushed.remove(&qp);
        self.purged.insert(qp);
        let is_due = self.purged.len().saturating_mul(LOOKS_A_PURGE) >= self.queue.len();
        if is_due { self.sweep() } else { 0 }
    }

    /// Takes out what is purged; returns how many entries were looked at.
    pub(super) fn sweep(&mut self) -> usize {
        if self.purged.is_empty() {
            return 0;
        }
        let (purged, looked) = (std::mem::take(&mut self.purged), self.queue.len());
        self.queue.retain(|completion| !purged.contains(&completion.qp));
        looked
    }

    /// All, in order.
    pub(super) fn all(&mut self) -> &VecDeque<Completion> {
        self.sweep();
        &self.queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_iwarp::work::{Operation, Status};
    use outboard_mem::SgList;

    fn completion(id: u64, qp: u32) -> Completion {
        Completion::new(id, qp, Operation::Receive, Status::Flushed, SgList::new())
    }

    #[test]
    fn destroying_many_queue_pairs_looks_at_each_entry_a_few_times() {
        const QPS: u32 = 4000;
        let mut entries = Entries::default();
        for id in 0..4_u64 {
            (0..QPS).for_each(|qp| entries.push(completion(id, qp)));
        }
        let looks: usize = (0..QPS).map(|qp| entries.purge(qp)).sum();
        assert!(looks <= QPS as usize * (LOOKS_A_PURGE + 1), "{looks} looks");
        assert!(entries.all().is_empty());
    }

    #[test]
    fn a_purge_spares_other_queue_pairs_and_what_comes_later() {
        let mut entries = Entries::default();
        for id in 0..1000_u64 {
            entries.push(completion(id, u32::from(id >= 998)));
        }
        assert_eq!(entries.purge(0), 0, "not yet");
        entries.push(completion(1000, 0));
        let left: Vec<u64> = entries.all().iter().map(|completion| completion.wr_id).collect();
        assert_eq!(left, [998, 999, 1000]);
    }

    #[test]
    fn flushed_requests_are_counted_without_a_look_at_the_queue() {
        let mut entries = Entries::default();
        let send = |id, immediate| Completion {
            operation: Operation::Send,
            immediate,
            ..completion(id, 1)
        };
        (0..10).for_each(|id| entries.push(completion(id, 1)));
        entries.push(send(10, None));
        entries.push(send(11, Some(0)));
        entries.push(Completion { status: Status::Success, ..completion(12, 1) });
        entries.push(completion(13, 2));
        let all = Flushed { receives: 10, sends: 2, sends_with_immediate: 1 };
        assert_eq!(entries.flushed(1), all);
        let mut out = Vec::new();
        assert_eq!(entries.take(&mut out, 11), 11);
        assert_eq!(entries.flushed(1), Flushed { receives: 0, sends: 1, sends_with_immediate: 1 });
        entries.purge(1);
        assert_eq!((entries.flushed(1), entries.flushed(2).receives), (Flushed::default(), 1));
        entries.push(completion(14, 1));
        assert_eq!(entries.flushed(1).receives, 1, "what was purged does not count");
        assert_eq!(entries.take(&mut out, 100), 2);
        assert!(entries.flushed.is_empty());
    }
}
