//! What a store's replica lacks: groups of commits that the log has, and which blocks were written
//! since the replica had all. Bounded: where it has too much of that, the replica begins anew.
//!
//! While the replica is followed closely, a commit is durable when both disks have it
//! ([`ReplicaFeed::gate`]), and no block is used again before the replica has the commit that has
//! freed it ([`ReplicaFeed::hold`]): what the replica has then stays whole while blocks come.

use crate::protocol::FsBlocksRun;
use outboard_offcode::journal::RequestId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of groups that are kept for a replica that is away.
const KEPT_MAX: usize = 64 << 20;
/// What the gate is where there is none.
const OPEN: u64 = u64::MAX;

/// The answer to the request of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAnswer {
    /// The commit, as the store numbers them.
    pub seq: u64,
    /// Whose request.
    pub id: RequestId,
    /// The answer.
    pub bytes: Vec<u8>,
}

/// Commits that the log has written together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommitGroup {
    /// Their records, as the log has them.
    pub records: Vec<u8>,
    /// Answers of theirs, in the same order.
    pub answers: Vec<CommitAnswer>,
    /// The last one.
    pub last: u64,
}

impl CommitGroup {
    fn len(&self) -> usize {
        let answers: usize = self.answers.iter().map(|one| one.bytes.len() + 48).sum();
        self.records.len() + answers
    }
}

/// What is to be shipped next: all commits up to one, and every block that any of them may have.
#[derive(Debug)]
pub struct FeedParcel {
    /// In their order.
    pub groups: Vec<Arc<CommitGroup>>,
    /// Blocks that were written since the parcel before was taken.
    pub blocks: Vec<FsBlocksRun>,
    /// The last commit that the replica has then.
    pub last: u64,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct ReplicaFeed {
    state: Mutex<FeedState>,
    changed: Condvar,
    /// The last commit that the replica has on its disk, [`OPEN`] while nobody waits for it.
    gate: AtomicU64,
    hold: AtomicU64,
}

#[derive(Debug)]
struct FeedState {
    /// A replica is wanted: else nothing is kept.
    is_fed: bool,
    groups: VecDeque<Arc<CommitGroup>>,
    bytes: usize,
    /// The commit before the first of the groups; `None`: some of them are gone.
    since: Option<u64>,
    /// The last commit that was pushed.
    last: u64,
    /// Blocks that were written: a bit of a word for each.
    written: BTreeMap<u64, u64>,
    is_over: bool,
}

impl ReplicaFeed {
    pub(super) fn new(last: u64) -> Self {
        let state = FeedState {
            is_fed: false,
            groups: VecDeque::new(),
            bytes: 0,
            since: None,
            last,
            written: BTreeMap::new(),
            is_over: false,
        };
        let (gate, hold) = (AtomicU64::new(OPEN), AtomicU64::new(OPEN));
        Self { state: Mutex::new(state), changed: Condvar::new(), gate, hold }
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is committed from now on. Returns the last commit before that.
    pub fn begin(&self) -> u64 {
        let mut state = self.lock();
        (state.is_fed, state.bytes) = (true, 0);
        state.groups.clear();
        state.written.clear();
        state.since = Some(state.last);
        state.last
    }

    /// Whether all behind a commit is kept.
    #[must_use]
    pub fn has_behind(&self, seq: u64) -> bool {
        let state = self.lock();
        state.since.is_some_and(|since| since <= seq && seq <= state.last)
    }

    /// The last commit that the log has.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    pub(super) fn is_fed(&self) -> bool {
        self.lock().is_fed
    }

    /// The log has a group.
    pub(super) fn push(&self, records: &[u8], answers: Vec<CommitAnswer>, last: u64) {
        let mut state = self.lock();
        state.last = last;
        if !state.is_fed || state.since.is_none() {
            return;
        }
        let group = CommitGroup { records: records.to_vec(), answers, last };
        state.bytes += group.len();
        state.groups.push_back(Arc::new(group));
        if state.bytes > KEPT_MAX {
            state.forget();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Blocks were written. No commit that has them is made before.
    pub(super) fn wrote(&self, start: u64, end: u64) {
        let mut state = self.lock();
        if state.is_fed && state.since.is_some() {
            state.note(FsBlocksRun { start, len: end.saturating_sub(start) });
        }
    }

    /// The replica has all commits up to this one.
    pub fn shipped(&self, seq: u64) {
        let mut state = self.lock();
        while state.groups.front().is_some_and(|group| group.last <= seq) {
            let group = state.groups.pop_front();
            state.bytes -= group.map_or(0, |group| group.len());
            state.since = state.since.map(|since| since.max(seq));
        }
        drop(state);
        raise(&self.gate, seq);
        raise(&self.hold, seq);
    }

    /// Takes what is behind a commit, waiting for it for so long; a parcel without groups if
    /// nothing came, `None` if something of it is gone. The blocks have to be given
    /// [back](Self::put_back) if they do not arrive.
    pub fn take(&self, behind: u64, limit: Duration) -> Option<FeedParcel> {
        let mut state = self.lock();
        if state.groups.is_empty() && !state.is_over {
            let waited = self.changed.wait_timeout(state, limit);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.since.filter(|since| *since <= behind)?;
        if state.groups.is_empty() {
            let (groups, blocks) = (Vec::new(), Vec::new());
            return Some(FeedParcel { groups, blocks, last: behind });
        }
        let last = state.last;
        let groups = state.groups.iter().filter(|group| group.last > behind).cloned().collect();
        let blocks = runs(&std::mem::take(&mut state.written));
        Some(FeedParcel { groups, blocks, last })
    }

    /// Blocks that were taken have not arrived.
    pub fn put_back(&self, blocks: &[FsBlocksRun]) {
        let mut state = self.lock();
        if state.since.is_some() {
            blocks.iter().for_each(|run| state.note(*run));
        }
    }

    /// From now on no block is used again that a commit behind the last one of the log frees, until
    /// the replica has that. Returns that last one.
    pub fn hold(&self) -> u64 {
        let state = self.lock();
        // Whoever uses blocks again has not been told of a later one.
        self.hold.store(state.last, Ordering::Release);
        state.last
    }

    /// From now on commits are durable when the replica has them, too. It has this one.
    pub fn gate(&self, seq: u64) {
        self.gate.store(seq, Ordering::Release);
    }

    /// Whether commits wait for the replica.
    pub fn is_gated(&self) -> bool {
        self.gate.load(Ordering::Acquire) != OPEN
    }

    /// Nobody waits for the replica.
    pub fn open(&self) {
        self.gate.store(OPEN, Ordering::Release);
        self.hold.store(OPEN, Ordering::Release);
    }

    pub(super) fn gated(&self, local: u64) -> u64 {
        local.min(self.gate.load(Ordering::Acquire))
    }

    pub(super) fn held(&self, local: u64) -> u64 {
        local.min(self.hold.load(Ordering::Acquire))
    }

    /// The store is closed, or has failed.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }
}

/// A limit that is there grows.
fn raise(limit: &AtomicU64, seq: u64) {
    let next = |now: u64| (now != OPEN && now < seq).then_some(seq);
    // Where there is none, or a later one, that stays.
    let _raised = limit.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

impl FeedState {
    /// It is too much: the replica begins anew.
    fn forget(&mut self) {
        (self.since, self.bytes) = (None, 0);
        self.groups.clear();
        self.written.clear();
    }

    fn note(&mut self, run: FsBlocksRun) {
        let (mut at, end) = (run.start, run.start.saturating_add(run.len));
        while at < end {
            let next = ((at / 64 + 1) * 64).min(end);
            let bits = (next - at, at % 64);
            let mask = if bits.0 == 64 { u64::MAX } else { ((1 << bits.0) - 1) << bits.1 };
            *self.written.entry(at / 64).or_default() |= mask;
            at = next;
        }
    }
}

fn runs(written: &BTreeMap<u64, u64>) -> Vec<FsBlocksRun> {
    let mut runs: Vec<FsBlocksRun> = Vec::new();
    for (word, bits) in written {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let block = word * 64 + bit;
            match runs.last_mut().filter(|run| run.start + run.len == block) {
                Some(run) => run.len += 1,
                None => runs.push(FsBlocksRun { start: block, len: 1 }),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    fn run(start: u64, len: u64) -> FsBlocksRun {
        FsBlocksRun { start, len }
    }

    #[test]
    fn a_parcel_has_every_block_of_its_commits() {
        let feed = ReplicaFeed::new(10);
        feed.push(b"before", Vec::new(), 11);
        assert!(feed.take(11, AT_ONCE).is_none(), "nobody wants it yet");
        assert_eq!(feed.begin(), 11);
        feed.wrote(3, 200);
        feed.wrote(640, 704);
        feed.push(b"one", Vec::new(), 12);
        feed.wrote(0, 1);
        feed.push(b"two", Vec::new(), 14);
        let parcel = feed.take(11, AT_ONCE).expect("all is there");
        assert_eq!(parcel.blocks, [run(0, 1), run(3, 197), run(640, 64)]);
        assert_eq!((parcel.last, parcel.groups.len()), (14, 2));
        // It does not arrive, and is taken again.
        feed.put_back(&parcel.blocks);
        feed.wrote(1, 2);
        let again = feed.take(11, AT_ONCE).expect("all is there");
        assert_eq!((again.blocks[0], again.groups.len()), (run(0, 2), 2));
        feed.shipped(14);
        let none = feed.take(14, AT_ONCE).expect("nothing is lost");
        assert_eq!((none.groups.len(), none.blocks.len(), none.last), (0, 0, 14));
        assert!(!feed.has_behind(13) && feed.has_behind(14) && !feed.has_behind(15));
    }

    #[test]
    fn what_is_too_much_is_forgotten_and_said() {
        let feed = ReplicaFeed::new(0);
        feed.begin();
        for seq in 1..=17 {
            feed.push(&vec![0; 4 << 20], Vec::new(), seq);
        }
        assert!(!feed.has_behind(0) && feed.take(0, AT_ONCE).is_none());
        feed.wrote(1, 5);
        assert_eq!(feed.begin(), 17);
        feed.push(b"next", Vec::new(), 18);
        assert_eq!(feed.take(17, AT_ONCE).map(|parcel| parcel.blocks), Some(Vec::new()));
    }

    #[test]
    fn commits_wait_for_the_replica_only_while_it_is_there() {
        let feed = ReplicaFeed::new(5);
        feed.begin();
        assert_eq!((feed.gated(9), feed.held(9)), (9, 9));
        assert_eq!(feed.hold(), 5);
        assert_eq!((feed.gated(9), feed.held(9)), (9, 5));
        feed.gate(5);
        feed.shipped(7);
        assert_eq!((feed.gated(9), feed.held(9), feed.gated(6)), (7, 7, 6));
        feed.open();
        feed.shipped(8);
        assert_eq!((feed.gated(9), feed.held(9)), (9, 9));
    }
}
