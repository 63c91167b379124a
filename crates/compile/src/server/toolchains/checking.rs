//! Looks at the files of installed compilers, each on a thread: a file system that hangs delays
//! only the jobs of the compiler that is there.
//!
//! A look is some dozens of attributes. If one has changed, the system's directories are searched
//! as well.

use super::identifying::WAIT_MAX;
use super::{Candidate, candidates};
use crate::toolchain::{CachedIdentity, Hash};
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Looks at a time: more compilers than a server has.
const THREADS_MAX: usize = 64;

/// What a look found.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) compiler: Hash,
    pub(super) began: Instant,
    pub(super) found: LookResult,
}

#[derive(Debug)]
pub(super) enum LookResult {
    Same,
    /// A file has changed; what is in the system's directories.
    Changed(Vec<Candidate>),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Checking {
    /// The compilers that are looked at, and since when, as running time.
    under_way: HashMap<Hash, Duration>,
    workers: Workers,
    reply: mpsc::Sender<Checked>,
    replies: mpsc::Receiver<Checked>,
    /// Of the loop that takes the replies.
    waker: Option<Waker>,
}

impl Checking {
    pub(super) fn new() -> Self {
        let (reply, replies) = mpsc::channel();
        let workers = Workers::new("outboard-look", THREADS_MAX);
        Self { under_way: HashMap::new(), workers, reply, replies, waker: None }
    }

    /// Has a loop woken when there is a reply.
    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Whether a compiler is being looked at, and jobs wait for that.
    pub(super) fn is_in_time(&self, compiler: &Hash, passed: Duration) -> bool {
        self.under_way.get(compiler).is_some_and(|since| passed - *since < WAIT_MAX)
    }

    /// Has a compiler looked at, of which this is `known`, unless it is being looked at.
    pub(super) fn begin(
        &mut self,
        compiler: Hash,
        known: Option<Arc<CachedIdentity>>,
        now: Instant,
        passed: Duration,
    ) {
        if self.under_way.contains_key(&compiler) {
            return;
        }
        let (reply, waker) = (self.reply.clone(), self.waker.clone());
        let look = move || {
            let is_same = known.is_some_and(|known| known.holds(Instant::now()));
            let found = if is_same { LookResult::Same } else { LookResult::Changed(candidates()) };
            // The service may have ended since.
            let _sent = reply.send(Checked { compiler, began: now, found });
            waker.iter().for_each(Waker::wake);
        };
        // If no thread can be started, jobs do not find the compiler.
        if self.workers.run(look) {
            self.under_way.insert(compiler, passed);
        }
    }

    pub(super) fn poll(&mut self) -> Option<Checked> {
        let checked = self.replies.try_recv().ok()?;
        self.under_way.remove(&checked.compiler);
        Some(checked)
    }
}
