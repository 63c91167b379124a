//! What programs of this mount hold in locks, and which of them wait: a value, which asks nobody.
//!
//! The service decides; this is what must be said again on a new connection, and given up when a
//! file is closed.

use crate::client::FsLock;
use crate::protocol::{ByteRange, FsInode, LockKind, LockRanges};
use fuser::{Errno, ReplyEmpty, ReplyLock};
use std::collections::{HashMap, HashSet};

/// An owner of locks of a file.
pub(super) type LockKey = (FsInode, u64);

/// A lock that a program asks for, and through which open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedLock {
    pub(super) lock: FsLock,
    pub(super) handle: u64,
    /// Whether it waits for others.
    pub(super) waits: bool,
}

/// Where an answer goes.
#[derive(Debug)]
pub(super) enum LockReply {
    /// Done or not.
    Done(ReplyEmpty),
    /// What is in the way.
    Test(ReplyLock),
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskStage {
    /// The service has not answered yet.
    Asking,
    /// It waits there.
    Queued,
    /// It is being given up.
    Cancelling,
}

/// A program that waits for an answer.
#[derive(Debug)]
pub(super) struct LockAsk {
    /// `None` once the program was told that it waits no more.
    pub(super) reply: Option<LockReply>,
    pub(super) thread: u32,
    pub(super) stage: AskStage,
    /// Of a lock.
    pub(super) asked: Option<AskedLock>,
}

#[derive(Debug, Default)]
struct HeldHere {
    ranges: LockRanges,
    pid: u32,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct LocksHere {
    held: HashMap<LockKey, HeldHere>,
    /// Through which open files locks were taken.
    by_handle: HashMap<u64, HashSet<LockKey>>,
    /// Open files whose locks are lost.
    lost: HashSet<u64>,
    pub(super) asks: HashMap<u64, LockAsk>,
    next: u64,
}

impl LockReply {
    pub(super) fn error(self, errno: i32) {
        let errno = Errno::from_i32(errno);
        match self {
            Self::Done(reply) => reply.error(errno),
            Self::Test(reply) => reply.error(errno),
        }
    }

    pub(super) fn done(self) {
        match self {
            Self::Done(reply) => reply.ok(),
            Self::Test(reply) => reply.locked(0, 0, libc::F_UNLCK, 0),
        }
    }
}

impl LocksHere {
    /// A program waits for an answer from now on; under which number.
    pub(super) fn begin(&mut self, reply: LockReply, thread: u32, asked: Option<AskedLock>) -> u64 {
        self.next += 1;
        let ask = LockAsk { reply: Some(reply), thread, stage: AskStage::Asking, asked };
        self.asks.insert(self.next, ask);
        self.next
    }

    /// A lock is held.
    pub(super) fn hold(&mut self, asked: &AskedLock) {
        let AskedLock { lock: FsLock { inode, owner, range, kind, pid }, handle, .. } = *asked;
        let held = self.held.entry((inode, owner)).or_default();
        held.ranges.set(range, Some(kind));
        held.pid = pid;
        self.by_handle.entry(handle).or_default().insert((inode, owner));
    }

    /// A range is held no more; whether anything of the owner's was.
    pub(super) fn give_up(&mut self, key: LockKey, range: ByteRange) -> bool {
        let Some(held) = self.held.get_mut(&key) else { return false };
        held.ranges.set(range, None);
        if held.ranges.is_empty() {
            self.held.remove(&key);
        }
        true
    }

    pub(super) fn holds(&self, key: LockKey) -> bool {
        self.held.contains_key(&key)
    }

    /// An open file is closed; who has locks by it, and which files' locks were lost with it.
    pub(super) fn closed(&mut self, handle: u64) -> (Vec<LockKey>, Vec<FsInode>) {
        self.lost.remove(&handle);
        let keys = self.by_handle.remove(&handle).unwrap_or_default();
        let (held, lost): (Vec<LockKey>, Vec<LockKey>) =
            keys.into_iter().partition(|key| self.holds(*key));
        (held, lost.into_iter().map(|(inode, _)| inode).collect())
    }

    /// Whether somebody has a lock of a file, or had one that is lost and has it open still.
    pub(super) fn is_locked(&self, inode: FsInode) -> bool {
        let is_of = |key: &LockKey| key.0 == inode;
        let lost = self.lost.iter().filter_map(|handle| self.by_handle.get(handle));
        self.held.keys().any(is_of) || lost.flatten().any(is_of)
    }

    /// What an owner holds.
    pub(super) fn locks_of(&self, key: LockKey) -> Vec<FsLock> {
        let ((inode, owner), held) = (key, self.held.get(&key));
        let of = |held: &HeldHere| {
            let pid = held.pid;
            let lock =
                |(range, kind): (ByteRange, LockKind)| FsLock { inode, owner, range, kind, pid };
            held.ranges.iter().map(lock).collect()
        };
        held.map_or(Vec::new(), of)
    }

    /// Everything that is held.
    pub(super) fn all(&self) -> Vec<FsLock> {
        self.held.keys().flat_map(|key| self.locks_of(*key)).collect()
    }

    /// What an owner held is lost.
    pub(super) fn lose(&mut self, key: LockKey) {
        self.held.remove(&key);
        let its = self.by_handle.iter().filter(|(_, keys)| keys.contains(&key));
        self.lost.extend(its.map(|(handle, _)| *handle));
    }

    pub(super) fn is_lost(&self, handle: u64) -> bool {
        self.lost.contains(&handle)
    }

    /// Requests that wait at the service.
    pub(super) fn queued(&self) -> Vec<(u64, AskedLock)> {
        let queued = self.asks.iter().filter(|(_, ask)| ask.stage == AskStage::Queued);
        queued.filter_map(|(number, ask)| Some((*number, ask.asked?))).collect()
    }
}
