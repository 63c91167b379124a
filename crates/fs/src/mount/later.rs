//! What is sent later: attributes that a program sets of a file that it writes go with the file's
//! last bytes, in one request; what nobody sends, because the file stays open, goes soon.
//!
//! Only what cannot fail: its owner sets times, and rights that are no set-user-id's.

use super::files::{OpenInode, SaidLater};
use super::tree::{MountedTree, ShownInode};
use crate::client::{FsCaller, FsError, NewTime, NewTimes};
use crate::protocol::{FsInode, FsRecord};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long something is held, at most, while nobody asks.
const HELD_MAX: Duration = Duration::from_millis(500);
/// The thread looks this often whether the file system is still mounted.
const LOOK: Duration = Duration::from_secs(1);
/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;

/// Inodes of which something is held, the oldest first.
#[derive(Debug, Default)]
pub(super) struct HeldInodes {
    queue: Mutex<VecDeque<(Instant, FsInode)>>,
    first: Condvar,
}

impl HeldInodes {
    fn queue(&self) -> MutexGuard<'_, VecDeque<(Instant, FsInode)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something of an inode is held from now on.
    fn add(&self, inode: FsInode) {
        let mut queue = self.queue();
        if queue.is_empty() {
            self.first.notify_one();
        }
        queue.push_back((Instant::now() + HELD_MAX, inode));
    }

    /// The next one whose time is over; `None` after a while without one.
    fn next(&self) -> Option<FsInode> {
        let mut queue = self.queue();
        if queue.is_empty() {
            queue = self.first.wait_timeout(queue, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let (at, inode) = queue.pop_front()?;
        drop(queue);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        Some(inode)
    }
}

impl MountedTree {
    /// Has what is held sent when its time is over.
    pub(super) fn send_what_is_held(self: &Arc<Self>) -> std::io::Result<()> {
        let (weak, held) = (Arc::downgrade(self), Arc::clone(&self.held));
        let run = move || send(&weak, &held);
        thread::Builder::new().name("fs-held".into()).spawn(run).map(drop)
    }

    /// Something of an inode is held from now on.
    pub(super) fn is_held(&self, open: &OpenInode) {
        if !open.set_awaited(true) {
            self.held.add(open.inode);
        }
    }

    /// Sets attributes with the file's last bytes, if that cannot fail.
    pub(super) fn set_later(
        &self,
        caller: &FsCaller,
        node: u64,
        new: &NewTimes,
    ) -> Result<Option<ShownInode>, FsError> {
        let inode = self.inode(node)?;
        let is_its = |open: &Arc<OpenInode>| self.keeps_names && open.is_written_by(caller.thread);
        let Some(open) = self.in_use(inode).filter(is_its) else { return Ok(None) };
        let known = self.known().record(inode, Instant::now());
        let Some((mut answer, _)) = known else { return Ok(None) };
        if !cannot_fail(caller, &answer.record, new) {
            return Ok(None);
        }
        let said = open.set_later(caller, new, &self.changes_here(self.ask()))?;
        let Some(said) = said else { return Ok(None) };
        self.is_held(&open);
        show(&mut answer.record, &said);
        self.as_held(node, &answer).map(Some)
    }
}

fn send(tree: &Weak<MountedTree>, held: &HeldInodes) {
    loop {
        let next = held.next();
        let Some(tree) = tree.upgrade() else { return };
        let open = next.and_then(|inode| tree.in_use(inode));
        let Some(open) = open else { continue };
        open.set_awaited(false);
        if !open.send_soon(&tree.changes_here(tree.ask())) {
            tree.is_held(&open);
        }
    }
}

/// Whether the service would do it, whatever it knows that is not known here.
fn cannot_fail(caller: &FsCaller, record: &FsRecord, new: &NewTimes) -> bool {
    let stays = |new: Option<u32>, now| new.is_none_or(|new| new == now);
    caller.who.uid == record.uid
        && stays(new.uid, record.uid)
        && stays(new.gid, record.gid)
        && (record.mode | new.mode.unwrap_or_default()) & SET_IDS == 0
}

/// A record as it will be, about.
fn show(record: &mut FsRecord, said: &SaidLater) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let time = |new: Option<NewTime>, old| match new {
        None => old,
        Some(NewTime::Now) => now,
        Some(NewTime::At(ns)) => ns,
    };
    let written = if said.end > 0 { now } else { record.mtime_ns };
    record.size = record.size.max(said.end);
    record.ctime_ns = now;
    record.mtime_ns = time(said.new.mtime, written);
    record.atime_ns = time(said.new.atime, record.atime_ns);
    if let Some(mode) = said.new.mode {
        record.mode = record.mode & !0o7777 | mode & 0o7777;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FsWho;

    #[test]
    fn only_an_owner_sets_later_what_nobody_refuses() {
        let record = FsRecord { uid: 7, gid: 70, mode: 0o100_644, ..FsRecord::default() };
        let caller = |uid| FsCaller { who: FsWho { uid, ..FsWho::default() }, thread: 1 };
        let owner = caller(7);
        let may = |caller: &FsCaller, new: NewTimes| cannot_fail(caller, &record, &new);
        let mode = |mode| NewTimes { mode: Some(mode), ..NewTimes::default() };
        assert!(may(&owner, mode(0o1777)) && !may(&caller(0), mode(0o600)));
        assert!(!may(&owner, mode(0o4755)) && !may(&owner, mode(0o2755)));
        let times = NewTimes { mtime: Some(NewTime::At(5)), ..NewTimes::default() };
        assert!(may(&owner, times) && !may(&caller(8), times));
        let given = |uid, gid| NewTimes { uid, gid, ..NewTimes::default() };
        assert!(may(&owner, given(Some(7), Some(70))));
        assert!(!may(&owner, given(Some(8), None)) && !may(&owner, given(None, Some(71))));
        let set_uid = FsRecord { mode: 0o104_755, ..record };
        assert!(!cannot_fail(&owner, &set_uid, &given(Some(7), None)));
    }

    #[test]
    fn what_is_said_is_shown() {
        let mut record = FsRecord { size: 10, mode: 0o100_600, mtime_ns: 3, ..FsRecord::default() };
        let new =
            NewTimes { mode: Some(0o644), atime: Some(NewTime::At(9)), ..NewTimes::default() };
        show(&mut record, &SaidLater { new, end: 0 });
        assert_eq!((record.size, record.mode, record.mtime_ns), (10, 0o100_644, 3));
        assert_eq!(record.atime_ns, 9);
        show(&mut record, &SaidLater { new, end: 40 });
        assert!(record.size == 40 && record.mtime_ns > 3);
        let new = NewTimes { mtime: Some(NewTime::At(5)), ..NewTimes::default() };
        show(&mut record, &SaidLater { new, end: 40 });
        assert_eq!(record.mtime_ns, 5, "the program says which");
    }
}
