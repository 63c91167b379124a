//! The table against one that knows single bytes only and computes everything anew.

use super::*;
use std::collections::BTreeSet;

const BYTES: u64 = 8;

type Wait = (FsInode, LockWanted, u64);

#[derive(Default)]
struct PlainTable {
    bytes: HashMap<(FsInode, u64), HashMap<LockOwner, LockKind>>,
    queue: Vec<Wait>,
}

impl PlainTable {
    fn holds(&self, owner: LockOwner) -> bool {
        self.bytes.values().any(|byte| byte.contains_key(&owner))
    }

    fn holders(&self, inode: FsInode, wanted: &LockWanted) -> HashSet<LockOwner> {
        let all = (wanted.range.0..=wanted.range.1).filter_map(|at| self.bytes.get(&(inode, at)));
        let all = all
            .flatten()
            .filter(|(owner, kind)| **owner != wanted.owner && kind.excludes(wanted.kind));
        all.map(|(owner, _)| *owner).collect()
    }

    fn is_free(&self, inode: FsInode, wanted: &LockWanted, before: usize) -> bool {
        let is_in_the_way = |(of, other, _): &Wait| {
            *of == inode
                && other.owner != wanted.owner
                && other.kind.excludes(wanted.kind)
                && (other.range.0..=other.range.1)
                    .any(|at| (wanted.range.0..=wanted.range.1).contains(&at))
        };
        self.holders(inode, wanted).is_empty()
            && (self.holds(wanted.owner) || !self.queue[..before].iter().any(is_in_the_way))
    }

    fn set(&mut self, inode: FsInode, owner: LockOwner, range: ByteRange, kind: Option<LockKind>) {
        for at in range.0..=range.1 {
            let byte = self.bytes.entry((inode, at)).or_default();
            byte.remove(&owner);
            byte.extend(kind.map(|kind| (owner, kind)));
        }
    }

    fn waits_for(&self, owner: LockOwner, whom: LockOwner, depth: usize) -> bool {
        let its = self.queue.iter().filter(|(_, wanted, _)| wanted.owner == owner);
        its.flat_map(|(inode, wanted, _)| self.holders(*inode, wanted))
            .any(|other| other == whom || (depth > 0 && self.waits_for(other, whom, depth - 1)))
    }

    fn lock(&mut self, inode: FsInode, wanted: &LockWanted, wait: Option<u64>) -> LockResult {
        let before = if wait.is_some() { self.queue.len() } else { 0 };
        let holders = self.holders(inode, wanted);
        match wait {
            _ if self.is_free(inode, wanted, before) => {
                self.set(inode, wanted.owner, wanted.range, Some(wanted.kind));
                LockResult::Granted
            }
            None => LockResult::Taken,
            Some(_) if holders.iter().any(|one| self.waits_for(*one, wanted.owner, 6)) => {
                LockResult::Deadlock
            }
            Some(wait) => {
                self.queue.push((inode, *wanted, wait));
                LockResult::Queued
            }
        }
    }

    fn serve(&mut self) -> BTreeSet<(u64, u64)> {
        let mut granted = BTreeSet::new();
        loop {
            let before = |at: usize| {
                let (inode, wanted, _) = &self.queue[at];
                self.is_free(*inode, wanted, at)
            };
            let Some(at) = (0..self.queue.len()).find(|at| before(*at)) else { return granted };
            let (inode, wanted, wait) = self.queue.remove(at);
            self.set(inode, wanted.owner, wanted.range, Some(wanted.kind));
            granted.insert((wanted.owner.session, wait));
        }
    }

    fn forget(&mut self, session: u64) {
        self.bytes.values_mut().for_each(|byte| byte.retain(|owner, _| owner.session != session));
        self.queue.retain(|(_, wanted, _)| wanted.owner.session != session);
    }
}

fn inode(number: u64) -> FsInode {
    FsInode { number, generation: 1 }
}

fn wanted(owner: u64, range: ByteRange, kind: LockKind) -> LockWanted {
    LockWanted { owner: LockOwner { session: owner % 2, owner }, range, kind, pid: 7 }
}

#[test]
fn random_locks_are_those_of_single_bytes() {
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    let (mut table, mut plain) = (LockTable::default(), PlainTable::default());
    let mut seen = HashMap::<&str, usize>::new();
    for step in 1..60_000_u64 {
        let (one, other) = (below(BYTES), below(BYTES));
        let kind = if below(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
        let wanted = wanted(below(5), (one.min(other), one.max(other)), kind);
        let inode = inode(below(3));
        match below(20) {
            0..=11 => {
                let wait = (below(3) > 0).then_some(step);
                let found = table.lock(inode, &wanted, wait);
                assert_eq!(found, plain.lock(inode, &wanted, wait), "step {step}");
                *seen
                    .entry(match found {
                        LockResult::Deadlock => "deadlock",
                        LockResult::Queued => "queued",
                        _ => "other",
                    })
                    .or_default() += 1;
            }
            12..=16 => {
                table.unlock(inode, wanted.owner, wanted.range);
                plain.set(inode, wanted.owner, wanted.range, None);
            }
            17..=18 => {
                let Some((inode, wanted, wait)) = plain.queue.first().copied() else { continue };
                assert!(table.cancel(wanted.owner.session, inode, wait));
                assert!(!table.cancel(wanted.owner.session, inode, wait));
                plain.queue.remove(0);
            }
            _ if below(4) == 0 => {
                let session = below(2);
                table.forget(session);
                plain.forget(session);
                assert!(!table.has_any(session));
            }
            _ => {
                let taken = table.test(inode, &wanted).is_some();
                assert_eq!(taken, !plain.holders(inode, &wanted).is_empty());
            }
        }
        let granted: BTreeSet<_> = std::iter::from_fn(|| table.next_granted()).collect();
        assert_eq!(granted, plain.serve(), "step {step}");
        assert_eq!(table.is_empty(), !plain.bytes.values().any(|byte| !byte.is_empty()));
        assert_eq!(table.len().1, plain.queue.len());
    }
    assert!(seen["deadlock"] > 100 && seen["queued"] > 1000, "{seen:?}");
    table.forget(0);
    table.forget(1);
    assert_eq!(table.len(), (0, 0));
}

#[test]
fn asked_again_it_is_the_same() {
    let mut table = LockTable::default();
    let (a, b) = (wanted(0, (0, 9), LockKind::Exclusive), wanted(1, (5, 5), LockKind::Shared));
    assert_eq!(table.lock(inode(1), &a, None), LockResult::Granted);
    assert_eq!(table.lock(inode(1), &a, None), LockResult::Granted);
    assert_eq!(table.lock(inode(1), &b, Some(3)), LockResult::Queued);
    assert_eq!(table.lock(inode(1), &b, Some(3)), LockResult::Queued);
    assert_eq!(table.len(), (1, 1));
    table.unlock(inode(1), a.owner, (5, 5));
    assert_eq!((table.next_granted(), table.next_granted()), (Some((1, 3)), None));
    assert_eq!(table.lock(inode(1), &b, Some(3)), LockResult::Granted, "lost with a connection");
}

/// Readers that follow each other do not keep a writer away.
#[test]
fn who_waits_is_passed_by_nobody_but_by_those_it_may_wait_for() {
    let mut table = LockTable::default();
    let shared = |owner| wanted(owner, (0, 9), LockKind::Shared);
    let writer = wanted(2, (0, 9), LockKind::Exclusive);
    assert_eq!(table.lock(inode(1), &shared(0), Some(1)), LockResult::Granted);
    assert_eq!(table.lock(inode(1), &writer, Some(2)), LockResult::Queued);
    assert_eq!(table.lock(inode(1), &shared(1), Some(3)), LockResult::Queued);
    assert_eq!(table.lock(inode(1), &shared(0), Some(4)), LockResult::Granted);
    table.unlock(inode(1), shared(0).owner, (0, 9));
    assert_eq!((table.next_granted(), table.next_granted()), (Some((0, 2)), None));
    table.unlock(inode(1), writer.owner, (0, 9));
    assert_eq!(table.next_granted(), Some((1, 3)));
}

#[test]
fn a_session_has_so_many_and_no_more() {
    let mut table = LockTable::default();
    for at in 0..RANGES_MAX as u64 {
        let one = wanted(0, (2 * at, 2 * at), LockKind::Shared);
        assert_eq!(table.lock(inode(1), &one, None), LockResult::Granted);
    }
    let one = wanted(0, (u64::MAX, u64::MAX), LockKind::Shared);
    assert_eq!(table.lock(inode(1), &one, None), LockResult::TooMany);
    assert_eq!(table.lock(inode(1), &wanted(1, one.range, one.kind), None), LockResult::Granted);
    table.unlock(inode(1), one.owner, (0, u64::MAX));
    assert_eq!(table.lock(inode(1), &one, None), LockResult::Granted);
}
