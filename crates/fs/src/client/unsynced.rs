//! Directories whose names were changed here and not synced since, and by which service: if that
//! has lost its memory, or another one has its place, the change may be lost, which the next sync
//! of the directory says.
//!
//! Bounded: beyond so many directories it is no longer known which.

use super::driver::ServiceRun;
use crate::protocol::FsInode;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Directories that are remembered, at most.
const DIRS_MAX: usize = 1 << 16;

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct UnsyncedNames(Mutex<HashMap<FsInode, ServiceRun>>);

impl UnsyncedNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<FsInode, ServiceRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of directories are about to be changed, by this service or by one after it.
    pub(super) fn change(&self, run: ServiceRun, dirs: &[FsInode]) {
        let mut all = self.lock();
        for dir in dirs {
            if all.len() < DIRS_MAX || all.contains_key(dir) {
                all.entry(*dir).or_insert(run);
            }
        }
    }

    /// What had been changed when a sync began: who did is told apart by it when that is over.
    pub(super) fn begun(&self, dir: FsInode) -> Option<ServiceRun> {
        self.lock().get(&dir).copied()
    }

    /// A service has all that it was asked on its disk. Whether what was changed in a directory may
    /// be lost: the change was another service's.
    pub(super) fn synced(&self, now: ServiceRun, dir: FsInode, begun: Option<ServiceRun>) -> bool {
        let mut all = self.lock();
        if all.len() >= DIRS_MAX {
            all.retain(|_, run| *run != now);
        }
        if all.get(&dir) == begun.as_ref() {
            all.remove(&dir);
        }
        begun.is_some_and(|run| run != now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_a_service_that_is_gone_is_told_once() {
        let dir = |number| FsInode { number, generation: 1 };
        let run = |epoch| ServiceRun { epoch, incarnation: 5 };
        let names = UnsyncedNames::default();
        names.change(run(1), &[dir(1), dir(2)]);
        let begun = names.begun(dir(1));
        assert!(!names.synced(run(1), dir(1), begun), "it has it on its disk");
        let begun = names.begun(dir(2));
        assert!(names.synced(run(2), dir(2), begun), "that one had it only");
        let begun = names.begun(dir(2));
        assert!(!names.synced(run(2), dir(2), begun), "it was told");
        names.change(run(2), &[dir(1)]);
        names.change(run(3), &[dir(1)]);
        let begun = names.begun(dir(1));
        assert!(names.synced(run(3), dir(1), begun), "the first of both may be lost");
    }
}
