//! The completions that wait in a queue, in order. It neither wakes threads nor knows a capacity.
//!
//! Those of a destroyed queue pair are taken out together with those of others: a look through the
//! whole queue for each of thousands that are destroyed at once would be quadratic.

use outboard_iwarp::work::Completion;
use std::collections::{BTreeSet, VecDeque};

/// Entries that are looked at for a purged queue pair, at most, on average.
const LOOKS_A_PURGE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Entries {
    /// May have completions of `purged`; none if that is empty.
    queue: VecDeque<Completion>,
    /// Queue pairs whose completions are to go before any entry is shown, or one of theirs added.
    purged: BTreeSet<u32>,
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
        self.queue.push_back(completion);
    }

    /// Drops a queue pair's completions, now or soon; returns how many entries were looked at.
    pub(super) fn purge(&mut self, qp: u32) -> usize {
        if self.queue.is_empty() {
            return 0;
        }
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
    pub(super) fn all(&mut self) -> &mut VecDeque<Completion> {
        self.sweep();
        &mut self.queue
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
}
