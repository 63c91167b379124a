//! What threads do for a member: reading and writing files, hashing. An answer wakes the loop,
//! unless it comes so soon that the loop finds it by itself.

use super::{MemberError, MemberResult};
use crate::receive::{AtOnce, LentMemory, PublishReport};
use crate::relay::DemandFrom;
use crate::schedule::ChunkSet;
use crate::server::{NodeStore, TakenFiles};
use crate::sign::VerifiedMemory;
use outboard_cluster::hub::{Admitted, PeerId};
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use outboard_secure::NodeId;
use outboard_verbs::SharedSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// Threads that read and write files of one cast.
const THREADS_MAX: usize = 4;
/// An answer that comes within this time does not wake the loop: what wakes the loop meanwhile, or
/// at the latest [its deadline](LOOK_AFTER), finds it.
const QUICK: Duration = Duration::from_millis(2);
/// When the loop must look for [quick answers](WorkThreads::run_quick), after it asked.
pub(crate) const LOOK_AFTER: Duration = Duration::from_millis(4);

/// Where a member's chunks are. Called by threads.
pub(crate) trait ChunkStore: Send + Sync {
    /// Whether a chunk's hash has come. Called by the loop.
    fn is_signed(&self, chunk: u32) -> bool;
    /// Checks a chunk. Asks no disk.
    fn verify(&self, chunk: u32, memory: SharedSlice) -> Result<VerifiedMemory, KeepFault>;
    /// Writes a chunk.
    fn keep(&self, verified: &VerifiedMemory) -> Result<(), KeepFault>;
    /// Writes a chunk if no disk and no thread is waited for. Called by the loop.
    fn keep_at_once(&self, _verified: &VerifiedMemory) -> AtOnce<Result<(), KeepFault>> {
        AtOnce::Never
    }
    /// Reads a chunk.
    fn load(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), String>;
    /// A loaded chunk's memory, if it is not in the slot that it was loaded for. Asks no disk.
    fn mapped(&self, _chunk: u32) -> Option<SharedSlice> {
        None
    }
    /// Chunks that may be loaded at a time.
    fn slots_max(&self) -> u64 {
        u64::MAX
    }
    /// The chunks that may be here without being sent, when that has become known. Asks no disk.
    fn take_claims(&self) -> Option<ChunkSet> {
        None
    }
    /// Whether enough is known to check a chunk. Asks no disk.
    fn can_check(&self, _chunk: u32) -> bool {
        true
    }
    /// Finds out whether a chunk is here; if so, it is written where it belongs.
    fn check(&self, _chunk: u32) -> Result<bool, KeepFault> {
        Ok(false)
    }
}

/// Why a chunk was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeepFault {
    /// Its hash has not come.
    NoRunYet,
    /// It is not what the source has signed.
    Forged(String),
    /// The receiver has ended: why, another chunk's answer tells.
    Ended,
    /// This machine cannot write it, or the source is at fault.
    Local(String),
}

/// What a node is dialled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPurpose {
    /// To be a relay's peer, or the source's.
    Relay,
    /// To read from its memory.
    Read,
}

/// What a thread has done.
pub(crate) enum WorkDone {
    Verified {
        at: (u32, u32),
    },
    Kept {
        at: (u32, u32),
        outcome: Result<(), KeepFault>,
    },
    Loaded {
        at: (u32, u32),
        outcome: Result<(), String>,
    },
    Checked {
        chunk: u32,
        outcome: Result<bool, KeepFault>,
    },
    /// A chunk that was read from a node's memory was checked and written.
    ReadKept {
        from: u32,
        chunk: u32,
        outcome: Result<(), KeepFault>,
        bytes: Vec<u8>,
    },
    /// Chunks were made readable for a node.
    Lent {
        reader: PeerId,
        chunks: Vec<(u32, LentMemory)>,
    },
    Opened(Result<Arc<NodeStore>, String>),
    Published(Result<PublishReport, String>),
    /// A cast that came with its first message is written and published.
    Taken(Result<TakenFiles, String>),
    /// Programs wait for these chunks.
    Demanded {
        chunks: Vec<u32>,
        from: DemandFrom,
    },
    Signed(Result<Vec<u8>, String>),
    /// A thread has panicked.
    Broken,
    Dialled {
        node: u32,
        /// What for.
        purpose: LinkPurpose,
        outcome: Result<(Admitted, NodeId), String>,
    },
}

/// A node's part in a cast, from one beginning to its end: what is still under way when it has
/// ended is dropped, even if the same cast begins here once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(crate) u64);

/// What was done, and for which session.
pub(crate) type CastWork = (SessionId, WorkDone);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct WorkThreads {
    workers: Workers,
    results: mpsc::Sender<CastWork>,
    waker: Waker,
    /// Held by every task.
    tasks: Arc<()>,
}

impl WorkThreads {
    /// Threads, and where their answers come.
    pub(crate) fn new(waker: Waker) -> (Self, mpsc::Receiver<CastWork>) {
        let (results, done) = mpsc::channel();
        let workers = Workers::new("outboard-cast", THREADS_MAX);
        (Self { workers, results, waker, tasks: Arc::default() }, done)
    }

    /// Threads of one cast alone: a disk that does not answer holds up no other.
    pub(crate) fn of_session(&self) -> Self {
        let workers = Workers::new("outboard-cast", THREADS_MAX);
        Self { workers, tasks: Arc::default(), ..self.clone() }
    }

    /// There as long as these threads have anything to do, or anybody may give them something.
    pub(crate) fn tasks(&self) -> Weak<()> {
        Arc::downgrade(&self.tasks)
    }

    /// Has a thread do this. A panic, which has been printed, is an answer as well.
    pub(crate) fn run(
        &self,
        session: SessionId,
        task: impl FnOnce() -> WorkDone + Send + 'static,
    ) -> MemberResult {
        let own = self.clone();
        self.give(move || {
            let done = catch_unwind(AssertUnwindSafe(task)).unwrap_or(WorkDone::Broken);
            own.answer(session, done);
        })
    }

    fn give(&self, task: impl FnOnce() + Send + 'static) -> MemberResult {
        let taken = self.workers.run(task);
        let refused = || MemberError("too much waits for this machine's disks".into());
        if taken { Ok(()) } else { Err(refused()) }
    }

    /// As [`Self::run`], where the loop looks for the answer by itself: if it is there within
    /// [`QUICK`], the loop is not woken for it.
    pub(crate) fn run_quick(
        &self,
        session: SessionId,
        task: impl FnOnce() -> WorkDone + Send + 'static,
    ) -> MemberResult {
        let (own, asked) = (self.clone(), Instant::now());
        self.give(move || {
            let done = catch_unwind(AssertUnwindSafe(task)).unwrap_or(WorkDone::Broken);
            let _sent = own.results.send((session, done));
            // Looked at when the answer is there: this thread may have lost its processor before.
            if asked.elapsed() >= QUICK {
                own.waker.wake();
            }
        })
    }

    /// Hands an answer to the loop, from any thread.
    pub(crate) fn answer(&self, session: SessionId, done: WorkDone) {
        // The loop may have ended.
        let _sent = self.results.send((session, done));
        self.waker.wake();
    }
}
