//! Locks, as the service keeps them: each operation is one request that is answered at once. Who
//! waits is told by a notice. A client that has asked for a lock says from then on that it is
//! there.

use super::error::FsError;
use super::{FsCaller, FsClient, whole};
use crate::protocol::{
    ByteRange, FsInode, FsLayout, FsLockAnswer, FsLockArgs, FsNote, GRANTED, HERE, LOCKED,
    LockKind, QUEUED, RECLAIM, SHARED, TAKEN,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A lock that is asked for, given up or looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLock {
    /// Which file.
    pub inode: FsInode,
    /// For whom.
    pub owner: u64,
    /// First and last byte.
    pub range: ByteRange,
    /// How.
    pub kind: LockKind,
    /// Which process asks.
    pub pid: u32,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHow {
    /// Now or not at all.
    Try,
    /// Waiting under a number, above 0, if others have it.
    Wait(u64),
    /// It is held, as was said on a connection before.
    Reclaim,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is held.
    Granted,
    /// It waits: a notice says when it is granted, as long as the connection lasts.
    Queued,
}

/// Files that are changed under locks only.
#[derive(Debug, Default)]
pub(super) struct FencedFiles {
    all: Mutex<HashSet<FsInode>>,
    is_any: AtomicBool,
    says_here: AtomicBool,
}

impl FencedFiles {
    fn lock(&self) -> MutexGuard<'_, HashSet<FsInode>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`LOCKED`] for a file that is one of them.
    pub(super) fn flag(&self, inode: FsInode) -> u32 {
        let is_one = self.is_any.load(Ordering::Acquire) && self.lock().contains(&inode);
        if is_one { LOCKED } else { 0 }
    }
}

impl FsLock {
    fn args(&self, session: [u64; 2]) -> FsLockArgs {
        let Self { inode, owner, range: (start, end), kind, pid } = *self;
        let kind = kind.number();
        FsLockArgs { session, inode, owner, start, end, kind, pid, ..FsLockArgs::default() }
    }
}

impl FsClient {
    /// Asks for a lock.
    ///
    /// # Errors
    /// [`FsError`]: EAGAIN if others have it, EDEADLK if they wait for its owner, ESTALE for one
    /// that was held and is lost.
    pub fn lock(
        self: &Arc<Self>,
        caller: &FsCaller,
        lock: &FsLock,
        how: LockHow,
    ) -> Result<LockState, FsError> {
        self.say_here()?;
        let mut args = lock.args(self.session);
        match how {
            LockHow::Try => {}
            LockHow::Wait(wait) => args.wait = wait,
            LockHow::Reclaim => args.flags = RECLAIM,
        }
        match self.ask_lock(caller, "lock", &args)?.status {
            GRANTED => Ok(LockState::Granted),
            QUEUED => Ok(LockState::Queued),
            _ => Err(FsError::Answer { entry: "lock" }),
        }
    }

    /// Gives a range up that an owner has locked.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn unlock(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        owner: u64,
        (start, end): ByteRange,
    ) -> Result<(), FsError> {
        let (session, kind) = (self.session, SHARED);
        let args = FsLockArgs { session, inode, owner, start, end, kind, ..FsLockArgs::default() };
        self.ask_lock(caller, "unlock", &args).map(drop)
    }

    /// A lock of another owner that is in the way of one: where, of which kind, and of which
    /// process, if it is this machine's.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn test_lock(
        self: &Arc<Self>,
        caller: &FsCaller,
        lock: &FsLock,
    ) -> Result<Option<(ByteRange, LockKind, u32)>, FsError> {
        let answer = self.ask_lock(caller, "test_lock", &lock.args(self.session))?;
        let kind = LockKind::of(answer.kind);
        match (answer.status, kind) {
            (GRANTED, _) => Ok(None),
            (TAKEN, Some(kind)) => Ok(Some(((answer.start, answer.end), kind, answer.pid))),
            _ => Err(FsError::Answer { entry: "test_lock" }),
        }
    }

    /// Ends a wait; false: there is none, because it was granted or its connection is lost.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn cancel_lock(
        self: &Arc<Self>,
        caller: &FsCaller,
        lock: &FsLock,
        wait: u64,
    ) -> Result<bool, FsError> {
        let args = FsLockArgs { wait, ..lock.args(self.session) };
        Ok(self.ask_lock(caller, "cancel_lock", &args)?.status == GRANTED)
    }

    /// Changes of a file are made only while this client has a lock of it, until
    /// [`unfence`](Self::unfence): one that comes late, when the lock is another's, is EIO.
    pub fn fence(&self, inode: FsInode) {
        self.fenced.lock().insert(inode);
        self.fenced.is_any.store(true, Ordering::Release);
    }

    /// Changes of a file need no lock any more.
    pub fn unfence(&self, inode: FsInode) {
        let mut all = self.fenced.lock();
        all.remove(&inode);
        self.fenced.is_any.store(!all.is_empty(), Ordering::Release);
    }

    /// Has the service know that this client is there.
    fn say_here(self: &Arc<Self>) -> Result<(), FsError> {
        if self.fenced.says_here.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        let run = move || {
            while let Some(client) = weak.upgrade()
                && !client.is_ended.load(Ordering::Acquire)
            {
                client.note(&FsNote::Here);
                drop(client);
                thread::sleep(HERE);
            }
        };
        let started = thread::Builder::new().name("fs-here".into()).spawn(run);
        started.map(drop).map_err(|error| {
            self.fenced.says_here.store(false, Ordering::Release);
            FsError::Machine(error.to_string())
        })
    }

    fn ask_lock(
        &self,
        caller: &FsCaller,
        entry: &'static str,
        args: &FsLockArgs,
    ) -> Result<FsLockAnswer, FsError> {
        whole(&self.ask(caller, entry, &args.bytes())?, entry)
    }
}
