//! Locks through a mount: asked for, waited for, given up.
//!
//! No thread of the kernel's requests waits for a lock, nor for the service because of one: other
//! threads do. `fuser` hands no interrupts over: one thread looks whether somebody who waits has a
//! signal pending. Whoever is killed waits for nothing, not even for a service that does not
//! answer.
//!
//! A lock makes others' changes visible: before one is given up, what was written is sent; once one
//! is granted, the kernel keeps nothing of the file that is old. A lock that was lost, because this
//! machine was cut off for too long, makes reads and writes through the file that it was taken on
//! fail (EIO), until that is closed.

use super::locks::{AskStage, AskedLock, LockKey, LockReply, LocksHere};
use super::notices::LockNotice;
use super::tree::MountedTree;
use crate::client::{FsCaller, FsError, FsLock, LockHow, LockState, has_signal};
use crate::protocol::{ByteRange, FsInode, LockKind};
use fuser::{INodeNo, Notifier, ReplyLock};
use outboard_cluster::workers::Workers;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

/// How often signals are looked for while somebody waits.
const LOOK: Duration = Duration::from_millis(25);
/// Threads that ask the service.
const THREADS: usize = 16;
/// All bytes.
const WHOLE: ByteRange = (0, u64::MAX);

/// What the looking thread is told.
#[derive(Clone, Copy, Debug)]
enum LockEvent {
    /// Somebody waits.
    Asked,
    /// The service has granted what waits under this number.
    Granted(u64),
    /// What is held must be said again: there is a new connection, or the service has told.
    Connected,
}

/// See this file's first lines.
pub(super) struct MountLocks {
    here: Mutex<LocksHere>,
    /// Held while what is held is said again: nothing is given up meanwhile.
    saying: RwLock<()>,
    workers: Workers,
    events: Mutex<Sender<LockEvent>>,
    receiver: Mutex<Option<Receiver<LockEvent>>>,
    kernel: OnceLock<Notifier>,
    has_lost: AtomicBool,
}

impl fmt::Debug for MountLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountLocks").finish_non_exhaustive()
    }
}

impl MountLocks {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        Self {
            here: Mutex::default(),
            saying: RwLock::default(),
            workers: Workers::new("fs-locks", THREADS),
            events: Mutex::new(sender),
            receiver: Mutex::new(Some(receiver)),
            kernel: OnceLock::new(),
            has_lost: AtomicBool::new(false),
        }
    }

    /// Tells the kernel things, once something is mounted.
    pub(super) fn kernel(&self) -> Option<&Notifier> {
        self.kernel.get()
    }

    fn here(&self) -> MutexGuard<'_, LocksHere> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: LockEvent) {
        // Without a thread that looks, nothing is mounted.
        let _told = self.events.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    }

    /// Fails for an open file whose locks are lost.
    pub(super) fn check(&self, handle: u64) -> Result<(), FsError> {
        match self.has_lost.load(Ordering::Acquire) && self.here().is_lost(handle) {
            true => Err(FsError::of(libc::EIO)),
            false => Ok(()),
        }
    }

    fn lose(&self, lock: &FsLock) {
        tracing::error!(
            inode = lock.inode.number,
            "a lock is lost: the service was out of reach for too long"
        );
        self.here().lose((lock.inode, lock.owner));
        self.has_lost.store(true, Ordering::Release);
    }

    /// Ends a request with an error.
    fn fail(&self, number: u64, errno: i32) {
        let ask = self.here().asks.remove(&number);
        if let Some(reply) = ask.and_then(|ask| ask.reply) {
            reply.error(errno);
        }
    }
}

impl MountedTree {
    /// Begins to look after locks.
    pub(super) fn look_after_locks(self: &Arc<Self>, kernel: Notifier) -> std::io::Result<()> {
        let _first = self.locks.kernel.set(kernel);
        let receiver = self.locks.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return Ok(()) };
        let weak = Arc::downgrade(self);
        self.client.on_connection(Box::new({
            let weak = weak.clone();
            move || {
                if let Some(tree) = weak.upgrade() {
                    tree.known().forget_all();
                    tree.locks.tell(LockEvent::Connected);
                }
            }
        }));
        let run = move || look(&weak, &receiver);
        thread::Builder::new().name("fs-locks".into()).spawn(run).map(drop)
    }

    /// The service says something of locks.
    pub(super) fn told_of_locks(&self, notice: LockNotice) {
        self.locks.tell(match notice {
            LockNotice::Granted(number) => LockEvent::Granted(number),
            // What is said again is refused.
            LockNotice::Lost => LockEvent::Connected,
        });
    }

    /// Has a thread do something for locks; false: there is none.
    fn run(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) -> bool {
        let weak = Arc::downgrade(self);
        self.locks.workers.run(move || {
            if let Some(tree) = weak.upgrade() {
                work(&tree);
            }
        })
    }

    fn begin_ask(
        self: &Arc<Self>,
        reply: LockReply,
        caller: &FsCaller,
        asked: Option<AskedLock>,
        work: impl FnOnce(&Arc<Self>, u64) + Send + 'static,
    ) {
        let number = self.locks.here().begin(reply, caller.thread, asked);
        self.locks.tell(LockEvent::Asked);
        if !self.run(move |tree| work(tree, number)) {
            self.locks.fail(number, libc::ENOLCK);
        }
    }

    /// A program asks for a lock.
    pub(super) fn ask_lock(self: &Arc<Self>, caller: FsCaller, asked: AskedLock, reply: LockReply) {
        self.begin_ask(reply, &caller, Some(asked), move |tree, number| {
            tree.settle(&caller, asked.lock.inode);
            tree.lock_now(&caller, number, &asked);
        });
    }

    fn lock_now(self: &Arc<Self>, caller: &FsCaller, number: u64, asked: &AskedLock) {
        let how = if asked.waits { LockHow::Wait(number) } else { LockHow::Try };
        loop {
            let connection = self.client.connections();
            match self.client.lock(caller, &asked.lock, how) {
                Ok(LockState::Granted) => return self.granted(number, connection),
                Ok(LockState::Queued) => match self.queued(number) {
                    true if connection == self.client.connections() => return,
                    // It has left the queue with its connection.
                    true => {}
                    false => return self.cancel(number, asked),
                },
                Err(error) => return self.refused(number, asked, &error),
            }
        }
    }

    /// A lock waits at the service; false if nobody waits for it here.
    fn queued(&self, number: u64) -> bool {
        let mut here = self.locks.here();
        // Where there is none, it was granted meanwhile.
        let Some(ask) = here.asks.get_mut(&number) else { return true };
        let is_awaited = ask.reply.is_some();
        ask.stage = if is_awaited { AskStage::Queued } else { AskStage::Cancelling };
        is_awaited
    }

    /// The service has granted a lock on a connection.
    fn granted(self: &Arc<Self>, number: u64, connection: u64) {
        let (ask, asked) = {
            let mut here = self.locks.here();
            let Some(ask) = here.asks.remove(&number) else { return };
            let Some(asked) = ask.asked else { return };
            if ask.reply.is_some() {
                here.hold(&asked);
                self.client.fence(asked.lock.inode);
            }
            (ask, asked)
        };
        let Some(reply) = ask.reply else { return self.undo(&asked) };
        if connection != self.client.connections() {
            self.locks.tell(LockEvent::Connected);
        }
        let caller = FsCaller { thread: ask.thread, ..FsCaller::default() };
        self.freshen(&caller, asked.lock.inode);
        reply.done();
    }

    fn refused(self: &Arc<Self>, number: u64, asked: &AskedLock, error: &FsError) {
        self.locks.fail(number, error.errno());
        if !matches!(error, FsError::Failed { .. }) {
            // The service may do it yet.
            self.undo(asked);
        }
    }

    /// A lock was granted that nobody wants any more: its owner has what it had before.
    fn undo(self: &Arc<Self>, asked: &AskedLock) {
        let FsLock { inode, owner, range, .. } = asked.lock;
        let undo = move |tree: &Arc<Self>| {
            let _nothing = tree.locks.saying.read().unwrap_or_else(PoisonError::into_inner);
            let nobody = FsCaller::default();
            let held = tree.locks.here().locks_of((inode, owner));
            // What it had before it has again without having been without it.
            for lock in &held {
                if tree.client.lock(&nobody, lock, LockHow::Reclaim).is_err() {
                    tree.locks.lose(lock);
                }
            }
            for gap in gaps(range, held.iter().map(|lock| lock.range).collect()) {
                if let Err(error) = tree.client.unlock(&nobody, inode, owner, gap) {
                    tracing::warn!(%error, "a lock that nobody wants");
                }
            }
        };
        if !self.run(undo) {
            tracing::warn!(inode = inode.number, "a lock stays until this mount ends");
        }
    }

    /// Ends a wait at the service; it may have been granted before.
    fn cancel(self: &Arc<Self>, number: u64, asked: &AskedLock) {
        let nobody = FsCaller::default();
        let connection = self.client.connections();
        match self.client.cancel_lock(&nobody, &asked.lock, number) {
            Ok(true) => self.locks.fail(number, libc::EINTR),
            Ok(false) => match self.client.lock(&nobody, &asked.lock, LockHow::Try) {
                Ok(LockState::Granted) => self.granted(number, connection),
                _ => self.locks.fail(number, libc::EINTR),
            },
            Err(error) => self.refused(number, asked, &error),
        }
    }

    /// A program gives a range up.
    pub(super) fn ask_unlock(
        self: &Arc<Self>,
        caller: FsCaller,
        key: LockKey,
        range: ByteRange,
        reply: LockReply,
    ) {
        self.begin_ask(reply, &caller, None, move |tree, number| {
            tree.settle(&caller, key.0);
            let done = tree.unlock(&caller, key, range);
            let ask = tree.locks.here().asks.remove(&number);
            match (ask.and_then(|ask| ask.reply), done) {
                (Some(reply), Ok(())) => reply.done(),
                (Some(reply), Err(error)) => reply.error(error.errno()),
                (None, _) => {}
            }
        });
    }

    fn unlock(&self, caller: &FsCaller, key: LockKey, range: ByteRange) -> Result<(), FsError> {
        let _said = self.locks.saying.read().unwrap_or_else(PoisonError::into_inner);
        let has_it = {
            let mut here = self.locks.here();
            let has_it = here.give_up(key, range);
            self.unfence(&here, key.0);
            has_it
        };
        match has_it {
            true => self.client.unlock(caller, key.0, key.1, range),
            // Nothing is locked.
            false => Ok(()),
        }
    }

    /// A program asks what is in the way of a lock.
    pub(super) fn ask_test(self: &Arc<Self>, caller: FsCaller, lock: FsLock, reply: ReplyLock) {
        self.begin_ask(LockReply::Test(reply), &caller, None, move |tree, number| {
            let found = tree.client.test_lock(&caller, &lock);
            let ask = tree.locks.here().asks.remove(&number);
            match (ask.and_then(|ask| ask.reply), found) {
                (Some(LockReply::Test(reply)), Ok(Some(((start, end), kind, pid)))) => {
                    let kind = match kind {
                        LockKind::Shared => libc::F_RDLCK,
                        LockKind::Exclusive => libc::F_WRLCK,
                    };
                    reply.locked(start, end, kind, pid);
                }
                (Some(reply), Ok(_)) => reply.done(),
                (Some(reply), Err(error)) => reply.error(error.errno()),
                (None, _) => {}
            }
        });
    }

    /// Whoever changes a file needs no lock of it, once nobody has one.
    fn unfence(&self, here: &LocksHere, inode: FsInode) {
        if !here.is_locked(inode) {
            self.client.unfence(inode);
        }
    }

    /// A process has closed a file: it has no locks of it any more.
    pub(super) fn process_closes(&self, caller: &FsCaller, inode: FsInode, owner: u64) {
        if self.locks.here().holds((inode, owner))
            && let Err(error) = self.unlock(caller, (inode, owner), WHOLE)
        {
            tracing::warn!(%error, "the locks of a file that is closed");
        }
    }

    /// Nobody has this opening of a file any more, nor locks by it.
    pub(super) fn locks_of_closed(self: &Arc<Self>, handle: u64) {
        let keys = {
            let mut here = self.locks.here();
            let (keys, lost) = here.closed(handle);
            lost.into_iter().for_each(|inode| self.unfence(&here, inode));
            keys
        };
        for key in keys {
            let unlock = move |tree: &Arc<Self>| {
                if let Err(error) = tree.unlock(&FsCaller::default(), key, WHOLE) {
                    tracing::warn!(%error, "the locks of a file that is closed");
                }
            };
            if !self.run(unlock) {
                tracing::warn!(inode = key.0.number, "a lock stays until this mount ends");
            }
        }
    }

    /// The kernel keeps nothing of an inode that others have changed.
    fn freshen(&self, caller: &FsCaller, inode: FsInode) {
        let Some(node) = self.inodes().node(inode) else { return };
        let found = self.client.get(caller, inode);
        let keeps = match &found {
            Ok(answer) => self.inodes().keeps(node, &answer.record),
            Err(_) => {
                self.inodes().lose_kept(inode);
                false
            }
        };
        if !keeps {
            self.changed_elsewhere(inode);
        }
        let Some(kernel) = self.locks.kernel.get() else { return };
        // Attributes only: a negative offset leaves the bytes alone.
        let offset = if keeps { -1 } else { 0 };
        if let Err(error) = kernel.inval_inode(INodeNo(node), offset, 0) {
            tracing::debug!(%error, "an invalidation");
        }
    }

    /// Says on a new connection what is held, and what waits.
    fn say_again(self: &Arc<Self>) {
        let nobody = FsCaller::default();
        {
            let _alone = self.locks.saying.write().unwrap_or_else(PoisonError::into_inner);
            let held = self.locks.here().all();
            for lock in held {
                if let Err(FsError::Failed { .. }) =
                    self.client.lock(&nobody, &lock, LockHow::Reclaim)
                {
                    self.locks.lose(&lock);
                }
            }
        }
        let queued = self.locks.here().queued();
        for (number, asked) in queued {
            self.lock_now(&nobody, number, &asked);
        }
    }

    /// Looks who does not wait any more.
    fn look_at_signals(self: &Arc<Self>) {
        let mut cancelled = Vec::new();
        {
            let mut here = self.locks.here();
            for (number, ask) in &mut here.asks {
                if ask.reply.is_none() {
                    continue;
                }
                let signal = has_signal(ask.thread);
                if signal.is_kill
                    && let Some(reply) = ask.reply.take()
                {
                    reply.error(libc::EINTR);
                }
                if signal.is_any && ask.stage == AskStage::Queued {
                    ask.stage = AskStage::Cancelling;
                    cancelled.extend(ask.asked.map(|asked| (*number, asked)));
                }
            }
        }
        for (number, asked) in cancelled {
            if !self.run(move |tree| tree.cancel(number, &asked)) {
                let mut here = self.locks.here();
                // The next look tries it again.
                here.asks.entry(number).and_modify(|ask| ask.stage = AskStage::Queued);
            }
        }
    }

    fn has_asks(&self) -> bool {
        self.locks.here().asks.values().any(|ask| ask.reply.is_some())
    }
}

/// What of a range is in none of others.
fn gaps(range: ByteRange, mut others: Vec<ByteRange>) -> Vec<ByteRange> {
    others.sort_unstable();
    let (mut gaps, mut next) = (Vec::new(), Some(range.0));
    for (start, end) in others {
        let Some(from) = next.filter(|from| *from <= range.1) else { break };
        if start > from {
            gaps.push((from, range.1.min(start - 1)));
        }
        next = if end >= from { end.checked_add(1) } else { next };
    }
    gaps.extend(next.filter(|from| *from <= range.1).map(|from| (from, range.1)));
    gaps
}

/// The looking thread.
fn look(tree: &Weak<MountedTree>, events: &Receiver<LockEvent>) {
    let mut has_asks = false;
    loop {
        let event = match has_asks {
            true => events.recv_timeout(LOOK),
            false => events.recv().map_err(RecvTimeoutError::from),
        };
        let Some(tree) = tree.upgrade() else { return };
        let connection = tree.client.connections();
        let is_done = match event {
            Ok(LockEvent::Granted(number)) => {
                tree.run(move |tree| tree.granted(number, connection))
            }
            Ok(LockEvent::Connected) => tree.run(|tree| tree.say_again()),
            Ok(LockEvent::Asked) => true,
            Err(RecvTimeoutError::Timeout) => {
                tree.look_at_signals();
                true
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !is_done {
            tracing::error!("this machine starts no threads for locks");
        }
        has_asks = tree.has_asks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_others_is_its_gaps() {
        assert_eq!(gaps((3, 9), vec![]), [(3, 9)]);
        assert_eq!(gaps(WHOLE, vec![WHOLE]), []);
        assert_eq!(gaps(WHOLE, vec![(5, 6), (0, 2)]), [(3, 4), (7, u64::MAX)]);
        assert_eq!(gaps((3, 9), vec![(0, 4), (4, 5), (9, 20)]), [(6, 8)]);
        assert_eq!(gaps((3, 9), vec![(10, 20), (0, 2)]), [(3, 9)]);
        assert_eq!(gaps((3, u64::MAX), vec![(7, u64::MAX)]), [(3, 6)]);
    }
}
