//! Who has locked what, and who waits for it: a plain value, which does nothing but compute.
//!
//! There is one kind of locks. The kernel's FUSE requests say of flock(2) and fcntl(2) only whose
//! they are (an open file's, or a process's), so both are ranges here and exclude each other, as on
//! a mount of NFS. flock is a lock on all bytes.
//!
//! An owner never excludes itself: what it asks for replaces what it has there. Who waits is served
//! in order, and who comes later waits behind those it would take it from. Only an owner that
//! already holds something passes by: others may wait for it, and it must not wait for these. So
//! only locks that are held close a circle of waits, and who would close one is told.

use crate::protocol::{ByteRange, FsInode, LockKind, LockRanges};
use std::collections::{HashMap, HashSet, VecDeque};

/// Ranges that a session may hold, and waits that it may have.
const RANGES_MAX: usize = 1 << 16;

/// An owner: a session's number, and the session's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LockOwner {
    pub(super) session: u64,
    pub(super) owner: u64,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockWanted {
    pub(super) owner: LockOwner,
    pub(super) range: ByteRange,
    pub(super) kind: LockKind,
    pub(super) pid: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockResult {
    Granted,
    Queued,
    /// Others have it.
    Taken,
    /// They wait for this owner.
    Deadlock,
    /// The session has too many.
    TooMany,
}

#[derive(Debug, Default)]
struct OwnedRanges {
    ranges: LockRanges,
    pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct WaitingLock {
    wanted: LockWanted,
    wait: u64,
}

#[derive(Debug, Default)]
struct InodeLocks {
    held: HashMap<LockOwner, OwnedRanges>,
    queue: VecDeque<WaitingLock>,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    inodes: HashMap<FsInode, InodeLocks>,
    /// Files in which an owner holds something.
    holding: HashMap<LockOwner, HashSet<FsInode>>,
    /// What an owner waits for.
    waiting: HashMap<LockOwner, Vec<(FsInode, u64)>>,
    /// Ranges and waits of each session.
    counts: HashMap<u64, usize>,
    /// Waits that are over: session and number.
    granted: VecDeque<(u64, u64)>,
}

impl InodeLocks {
    /// Other owners that have what is wanted.
    fn holders<'a>(&'a self, wanted: &'a LockWanted) -> impl Iterator<Item = LockOwner> + 'a {
        let others = self.held.iter().filter(|(owner, _)| **owner != wanted.owner);
        others
            .filter(|(_, held)| held.ranges.in_the_way(wanted.range, wanted.kind).is_some())
            .map(|(owner, _)| *owner)
    }

    /// Whether one of the first `before` in the queue waits for what is wanted.
    fn is_awaited(&self, wanted: &LockWanted, before: usize) -> bool {
        self.queue.iter().take(before).any(|other| {
            let (one, two) = (&other.wanted, wanted);
            one.owner != two.owner
                && one.kind.excludes(two.kind)
                && one.range.0 <= two.range.1
                && two.range.0 <= one.range.1
        })
    }
}

impl LockTable {
    /// Locks, or waits under a number.
    pub(super) fn lock(
        &mut self,
        inode: FsInode,
        wanted: &LockWanted,
        wait: Option<u64>,
    ) -> LockResult {
        let session = wanted.owner.session;
        if wait.is_some_and(|wait| self.is_waiting(wanted.owner, (inode, wait))) {
            return LockResult::Queued;
        }
        if self.counts.get(&session).is_some_and(|count| *count >= RANGES_MAX) {
            return LockResult::TooMany;
        }
        let locks = self.inodes.entry(inode).or_default();
        let is_taken = locks.holders(wanted).next().is_some();
        let passes = wait.is_none() || self.holding.contains_key(&wanted.owner);
        if !is_taken && (passes || !locks.is_awaited(wanted, usize::MAX)) {
            self.take(inode, wanted);
            return LockResult::Granted;
        }
        let result = match wait {
            None => LockResult::Taken,
            Some(_) if self.closes_circle(inode, wanted) => LockResult::Deadlock,
            Some(wait) => {
                let waiting = WaitingLock { wanted: *wanted, wait };
                self.inodes.entry(inode).or_default().queue.push_back(waiting);
                self.waiting.entry(wanted.owner).or_default().push((inode, wait));
                *self.counts.entry(session).or_default() += 1;
                LockResult::Queued
            }
        };
        self.tidy(inode);
        result
    }

    /// Gives a range up.
    pub(super) fn unlock(&mut self, inode: FsInode, owner: LockOwner, range: ByteRange) {
        self.set(inode, owner, range, None);
        self.serve(vec![inode]);
    }

    /// Ends a wait; false: there was none.
    pub(super) fn cancel(&mut self, session: u64, inode: FsInode, wait: u64) -> bool {
        let had = self.leave_queue(session, inode, wait);
        if had {
            self.serve(vec![inode]);
        }
        had
    }

    fn leave_queue(&mut self, session: u64, inode: FsInode, wait: u64) -> bool {
        let Some(locks) = self.inodes.get_mut(&inode) else { return false };
        let is_it = |one: &WaitingLock| one.wait == wait && one.wanted.owner.session == session;
        let at = locks.queue.iter().position(is_it);
        let waiting = at.and_then(|at| locks.queue.remove(at));
        if let Some(waiting) = &waiting {
            self.waits_no_more(inode, waiting);
        }
        waiting.is_some()
    }

    /// A lock that is in the way of one, if there is any: whose, where, of which kind and process.
    pub(super) fn test(
        &self,
        inode: FsInode,
        wanted: &LockWanted,
    ) -> Option<(LockOwner, ByteRange, LockKind, u32)> {
        let locks = self.inodes.get(&inode)?;
        let others = locks.held.iter().filter(|(owner, _)| **owner != wanted.owner);
        let mut all = others.filter_map(|(owner, held)| {
            let (range, kind) = held.ranges.in_the_way(wanted.range, wanted.kind)?;
            Some((*owner, range, kind, held.pid))
        });
        all.next()
    }

    /// A session waits for nothing any more.
    pub(super) fn forget_waits(&mut self, session: u64) {
        let its = self.waiting.iter().filter(|(owner, _)| owner.session == session);
        let its: Vec<(FsInode, u64)> = its.flat_map(|(_, waits)| waits.iter().copied()).collect();
        // None of them is granted because of another one.
        for (inode, wait) in &its {
            self.leave_queue(session, *inode, *wait);
        }
        self.serve(its.into_iter().map(|(inode, _)| inode).collect());
    }

    /// A session has nothing any more.
    pub(super) fn forget(&mut self, session: u64) {
        self.forget_waits(session);
        let its = self.holding.iter().filter(|(owner, _)| owner.session == session);
        let its: Vec<(LockOwner, FsInode)> =
            its.flat_map(|(owner, inodes)| inodes.iter().map(|inode| (*owner, *inode))).collect();
        for (owner, inode) in &its {
            self.set(*inode, *owner, (0, u64::MAX), None);
        }
        self.serve(its.into_iter().map(|(_, inode)| inode).collect());
        self.counts.remove(&session);
    }

    /// The next wait that is over: session and number.
    pub(super) fn next_granted(&mut self) -> Option<(u64, u64)> {
        self.granted.pop_front()
    }

    /// Whether a session holds or waits for anything.
    pub(super) fn has_any(&self, session: u64) -> bool {
        self.counts.get(&session).is_some_and(|count| *count > 0)
    }

    /// Whether a session holds a lock of a file.
    pub(super) fn has(&self, session: u64, inode: FsInode) -> bool {
        let locks = self.inodes.get(&inode);
        locks.is_some_and(|locks| locks.held.keys().any(|owner| owner.session == session))
    }

    /// Whether nobody holds anything.
    pub(super) fn is_empty(&self) -> bool {
        self.holding.is_empty()
    }

    /// Files that have locks, and waits.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.inodes.len(), self.waiting.values().map(Vec::len).sum())
    }

    fn is_waiting(&self, owner: LockOwner, wait: (FsInode, u64)) -> bool {
        self.waiting.get(&owner).is_some_and(|waits| waits.contains(&wait))
    }

    /// An owner gets what it wants, and those who waited for what it gives up by that.
    fn take(&mut self, inode: FsInode, wanted: &LockWanted) {
        let mut changed = vec![inode];
        if !self.holding.contains_key(&wanted.owner) {
            // Where it waits, it passes by now.
            let waits = self.waiting.get(&wanted.owner).into_iter().flatten();
            changed.extend(waits.map(|(inode, _)| *inode));
        }
        self.set(inode, wanted.owner, wanted.range, Some((wanted.kind, wanted.pid)));
        self.serve(changed);
    }

    fn set(
        &mut self,
        inode: FsInode,
        owner: LockOwner,
        range: ByteRange,
        kind: Option<(LockKind, u32)>,
    ) {
        let held = self.inodes.entry(inode).or_default().held.entry(owner).or_default();
        let before = held.ranges.len();
        held.ranges.set(range, kind.map(|(kind, _)| kind));
        held.pid = kind.map_or(held.pid, |(_, pid)| pid);
        let now = held.ranges.len();
        let count = self.counts.entry(owner.session).or_default();
        *count = count.saturating_sub(before) + now;
        if now == 0 {
            if let Some(locks) = self.inodes.get_mut(&inode) {
                locks.held.remove(&owner);
            }
            if let Some(its) = self.holding.get_mut(&owner) {
                its.remove(&inode);
                if its.is_empty() {
                    self.holding.remove(&owner);
                }
            }
            return self.tidy(inode);
        }
        self.holding.entry(owner).or_default().insert(inode);
    }

    /// Grants what can be granted in these files, in order.
    fn serve(&mut self, mut changed: Vec<FsInode>) {
        while let Some(inode) = changed.pop() {
            while let Some(waiting) = self.next_served(inode) {
                let WaitingLock { wanted, wait } = waiting;
                self.waits_no_more(inode, &waiting);
                if !self.holding.contains_key(&wanted.owner) {
                    let waits = self.waiting.get(&wanted.owner).into_iter().flatten();
                    changed.extend(waits.map(|(inode, _)| *inode));
                }
                self.set(inode, wanted.owner, wanted.range, Some((wanted.kind, wanted.pid)));
                self.granted.push_back((wanted.owner.session, wait));
            }
            self.tidy(inode);
        }
    }

    /// Takes the first wait that nothing is in the way of.
    fn next_served(&mut self, inode: FsInode) -> Option<WaitingLock> {
        let locks = self.inodes.get(&inode)?;
        let mut all = locks.queue.iter().enumerate();
        let (at, _) = all.find(|(at, waiting)| {
            let wanted = &waiting.wanted;
            let passes = self.holding.contains_key(&wanted.owner);
            locks.holders(wanted).next().is_none() && (passes || !locks.is_awaited(wanted, *at))
        })?;
        self.inodes.get_mut(&inode)?.queue.remove(at)
    }

    fn waits_no_more(&mut self, inode: FsInode, waiting: &WaitingLock) {
        let owner = waiting.wanted.owner;
        if let Some(waits) = self.waiting.get_mut(&owner) {
            waits.retain(|one| *one != (inode, waiting.wait));
            if waits.is_empty() {
                self.waiting.remove(&owner);
            }
        }
        if let Some(count) = self.counts.get_mut(&owner.session) {
            *count = count.saturating_sub(1);
        }
    }

    fn tidy(&mut self, inode: FsInode) {
        let is_empty = |locks: &InodeLocks| locks.held.is_empty() && locks.queue.is_empty();
        if self.inodes.get(&inode).is_some_and(is_empty) {
            self.inodes.remove(&inode);
        }
    }

    /// Whether those that have what is wanted wait for its owner, by whomever.
    fn closes_circle(&self, inode: FsInode, wanted: &LockWanted) -> bool {
        let holders = |inode: &FsInode, wanted: &LockWanted| -> Vec<LockOwner> {
            self.inodes.get(inode).map_or(Vec::new(), |locks| locks.holders(wanted).collect())
        };
        let (mut next, mut seen) = (holders(&inode, wanted), HashSet::new());
        while let Some(owner) = next.pop() {
            if owner == wanted.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for (inode, wait) in self.waiting.get(&owner).into_iter().flatten() {
                let queue = self.inodes.get(inode).into_iter().flat_map(|locks| &locks.queue);
                let its = queue.filter(|one| one.wait == *wait && one.wanted.owner == owner);
                next.extend(its.flat_map(|one| holders(inode, &one.wanted)));
            }
        }
        false
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
