//! Changes that the service has acknowledged and that no sync has covered since: by which of its
//! runs each was made. The next run says which commits of the ones before it still has; what it
//! lacks is lost.

use crate::protocol::{FsEndedRun, FsInode, TouchedInodes, parse_batch, parse_batch_done};
use outboard_active::RegionRun;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inodes of one run that are remembered, at most; with more the client syncs.
const INODES_MAX: usize = 1 << 16;
/// Runs that are remembered, at most; with more the client asks what is lost.
const RUNS_MAX: usize = 8;

/// A commit of one of the service's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunCommit {
    pub(super) run: RegionRun,
    pub(super) seq: u64,
}

/// What one run has acknowledged.
#[derive(Debug)]
struct RunChanges {
    run: RegionRun,
    /// The last of its commits that a sync has covered.
    synced: u64,
    /// The last commit that has changed an inode.
    changed: HashMap<FsInode, u64>,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct UnsyncedChanges(Mutex<Vec<RunChanges>>);

impl UnsyncedChanges {
    fn lock(&self) -> MutexGuard<'_, Vec<RunChanges>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit has changed inodes. Whether a sync is due, because too many are remembered.
    pub(super) fn changed(
        &self,
        RunCommit { run, seq }: RunCommit,
        inodes: impl IntoIterator<Item = FsInode>,
    ) -> bool {
        let mut runs = self.lock();
        let at = runs.iter().rposition(|changes| changes.run == run).unwrap_or_else(|| {
            runs.push(RunChanges { run, synced: 0, changed: HashMap::new() });
            runs.len() - 1
        });
        let is_full = runs.len() > RUNS_MAX;
        let RunChanges { synced, changed, .. } = &mut runs[at];
        for inode in inodes {
            let last = changed.entry(inode).or_default();
            *last = seq.max(*last);
        }
        if changed.len() >= INODES_MAX {
            changed.retain(|_, last| *last > *synced);
        }
        is_full || changed.len() >= INODES_MAX
    }

    /// Commits of a run up to this one are durable.
    pub(super) fn synced(&self, RunCommit { run, seq }: RunCommit) {
        if let Some(changes) = self.lock().iter_mut().find(|changes| changes.run == run) {
            changes.synced = changes.synced.max(seq);
        }
    }

    /// Whether something was changed by another run.
    pub(super) fn has_other_than(&self, run: RegionRun) -> bool {
        self.lock().iter().any(|changes| changes.run != run)
    }

    /// The inodes of which a change by an earlier run than this one, the present one, is lost. What
    /// became of runs that are not among the ended ones is not known: their changes count as lost.
    pub(super) fn take_lost(&self, run: RegionRun, ended: &[FsEndedRun]) -> Vec<FsInode> {
        let mut runs = self.lock();
        let before = runs.extract_if(.., |changes| changes.run != run);
        let lost = before.flat_map(|RunChanges { run, synced, changed }| {
            let is_it =
                |end: &&FsEndedRun| (end.epoch, end.incarnation) == (run.epoch, run.incarnation);
            let kept = ended.iter().find(is_it).map_or(0, |end| end.last).max(synced);
            changed.into_iter().filter(move |(_, last)| *last > kept).map(|(inode, _)| inode)
        });
        lost.collect()
    }
}

/// The inodes that an execution has changed, by its arguments and what it has answered.
pub(super) fn inodes_of(entry: &str, args: &[u8], answer: &[u8]) -> Vec<FsInode> {
    if entry != "batch" {
        let touched = TouchedInodes::of(entry, args);
        return match touched.is_empty() {
            true => Vec::new(),
            false => touched.inodes(answer).chain(touched.dirs).collect(),
        };
    }
    let Some((_, changes)) = parse_batch(args) else { return Vec::new() };
    let done = parse_batch_done(answer, changes.len()).unwrap_or_default();
    let done = changes.iter().zip(done).filter(|(_, (failure, _))| *failure == 0);
    done.flat_map(|(change, (_, answer))| inodes_of(change.entry, change.args, answer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        BATCH_GOES_ON, BatchChange, BatchDone, FsAnswer, FsAttrArgs, FsInodeArgs, FsLayout,
        FsNameArgs, batch_of,
    };

    fn inode(number: u64) -> FsInode {
        FsInode { number, generation: 1 }
    }

    fn commit(incarnation: u64, seq: u64) -> RunCommit {
        RunCommit { run: RegionRun { epoch: 1, incarnation }, seq }
    }

    fn lost(changes: &UnsyncedChanges, incarnation: u64, ended: &[(u64, u64)]) -> Vec<u64> {
        let end = |(incarnation, last): &(u64, u64)| FsEndedRun {
            epoch: 1,
            incarnation: *incarnation,
            last: *last,
        };
        let ended: Vec<_> = ended.iter().map(end).collect();
        let lost = changes.take_lost(commit(incarnation, 0).run, &ended);
        let mut lost: Vec<_> = lost.into_iter().map(|inode| inode.number).collect();
        lost.sort_unstable();
        lost
    }

    #[test]
    fn what_the_next_run_lacks_is_lost_once() {
        let changes = UnsyncedChanges::default();
        for (number, seq) in [(1, 5), (2, 6), (3, 7), (1, 8)] {
            assert!(!changes.changed(commit(1, seq), [inode(number)]));
        }
        assert!(!changes.has_other_than(commit(1, 0).run) && lost(&changes, 1, &[]).is_empty());
        assert!(changes.has_other_than(commit(2, 0).run));
        assert_eq!(lost(&changes, 2, &[(1, 6)]), [1, 3], "commits 7 and 8");
        assert!(
            lost(&changes, 2, &[(1, 6)]).is_empty() && !changes.has_other_than(commit(2, 0).run)
        );
    }

    #[test]
    fn what_was_synced_is_not_lost() {
        let changes = UnsyncedChanges::default();
        changes.changed(commit(1, 5), [inode(1)]);
        changes.synced(commit(1, 5));
        changes.changed(commit(1, 6), [inode(2)]);
        assert_eq!(lost(&changes, 2, &[]), [2], "nothing is known of that run");
    }

    #[test]
    fn each_run_is_judged_by_its_own_end() {
        let changes = UnsyncedChanges::default();
        changes.changed(commit(1, 9), [inode(1)]);
        changes.changed(commit(2, 3), [inode(1), inode(2)]);
        assert_eq!(lost(&changes, 3, &[(2, 3), (1, 8)]), [1]);
        changes.changed(commit(3, 1), [inode(4)]);
        assert_eq!(lost(&changes, 4, &[(3, 1), (2, 3), (1, 8)]), [0; 0]);
    }

    #[test]
    fn what_is_remembered_is_bounded_by_syncs() {
        let changes = UnsyncedChanges::default();
        let (mut syncs, all) = (0, 10 * INODES_MAX as u64);
        for number in 1..=all {
            if changes.changed(commit(1, number), [inode(number)]) {
                changes.synced(commit(1, number));
                syncs += 1;
            }
            assert!(changes.lock()[0].changed.len() <= INODES_MAX);
        }
        assert!(syncs <= 10, "{syncs} syncs");
        for incarnation in 2..=RUNS_MAX as u64 {
            assert!(!changes.changed(commit(incarnation, 1), [inode(1)]));
        }
        assert!(changes.changed(commit(100, 1), [inode(1)]), "so many runs");
    }

    #[test]
    fn inodes_of_changes_are_those_of_arguments_and_answers() {
        let name = FsNameArgs { dir: inode(2), ..FsNameArgs::default() }.bytes();
        let answer = |number| FsAnswer { inode: inode(number), ..FsAnswer::default() };
        let answers = [answer(7), answer(2)].bytes();
        assert_eq!(inodes_of("unlink", &name, &answers), [inode(7), inode(2), inode(2)]);
        let set = FsAttrArgs { inode: inode(3), ..FsAttrArgs::default() }.bytes();
        assert_eq!(inodes_of("set", &set, &[]), [inode(3)]);
        let get = FsInodeArgs { inode: inode(3) }.bytes();
        assert!(inodes_of("get", &get, &answer(3).bytes()).is_empty(), "that only looks");
        let changes = [("unlink", &name), ("set", &set)];
        let changes = changes.map(|(entry, args)| BatchChange { entry, args });
        let batch = batch_of(BATCH_GOES_ON, &changes);
        let done = |failure| BatchDone { failure, len: 0 }.bytes();
        let results = [done(1002), done(0)].concat();
        assert_eq!(inodes_of("batch", &batch, &results), [inode(3)], "the other one failed");
    }
}
