//! Compilers that are being identified, each by a thread of its own.
//!
//! Identifying runs a compiler and reads its files: a compiler that sleeps, or a file system that
//! hangs, delays only the jobs that want that compiler.

use crate::toolchain::{CachedIdentity, Learned, Unknown};
use outboard_cluster::waker::Waker;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long jobs wait for a compiler that is being identified, or looked at again.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Threads at a time. Clients name compilers, under as many paths as they like.
const THREADS_MAX: usize = 64;

/// What a thread found out.
#[derive(Debug)]
pub(super) struct Identified {
    pub(super) unknown: Unknown,
    pub(super) answer: CompilerAnswer,
    /// When it was asked.
    pub(super) asked: Instant,
}

#[derive(Debug)]
pub(super) enum CompilerAnswer {
    /// What was remembered is still true.
    Remembered(Arc<CachedIdentity>),
    Learned(Learned),
    /// The program must not be run.
    Refused,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Identifications {
    /// By the compiler's path: the question's number, and when it was asked, as running time.
    under_way: HashMap<PathBuf, (u64, Duration)>,
    asked: u64,
    reply: mpsc::Sender<Identified>,
    replies: mpsc::Receiver<Identified>,
    /// Of the loop that takes the replies.
    waker: Option<Waker>,
}

impl Identifications {
    pub(super) fn new() -> Self {
        let (reply, replies) = mpsc::channel();
        Self { under_way: HashMap::new(), asked: 0, reply, replies, waker: None }
    }

    /// Has a loop woken when there is a reply.
    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Identifies `compiler` on a thread, unless what is `known` still holds, if it `may_run`
    /// there.
    pub(super) fn ask(
        &mut self,
        (compiler, path): (&Path, &OsStr),
        known: Option<Arc<CachedIdentity>>,
        may_run: fn(&Path) -> bool,
        now: Instant,
        passed: Duration,
    ) {
        if self.under_way.contains_key(compiler) || self.under_way.len() >= THREADS_MAX {
            return;
        }
        let (reply, waker) = (self.reply.clone(), self.waker.clone());
        let unknown = Unknown::Compiler { compiler: compiler.into(), path: path.into() };
        let identify = move || {
            let answer = match known.filter(|known| known.holds(Instant::now())) {
                Some(known) => CompilerAnswer::Remembered(known),
                None if may_run(unknown.compiler()) => CompilerAnswer::Learned(unknown.ask()),
                None => CompilerAnswer::Refused,
            };
            // The service may have ended since.
            let _sent = reply.send(Identified { unknown, answer, asked: now });
            waker.iter().for_each(Waker::wake);
        };
        // If no thread can be started, it is identified later, when a job asks for it again.
        if thread::Builder::new().name("outboard-ident".into()).spawn(identify).is_ok() {
            self.asked += 1;
            self.under_way.insert(compiler.into(), (self.asked, passed));
        }
    }

    /// The number of the last question.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Whether one of the questions up to this number may still be answered in time.
    pub(super) fn is_waiting(&self, asked: u64, passed: Duration) -> bool {
        let in_time = |since: Duration| passed - since < WAIT_MAX;
        self.under_way.values().any(|(number, since)| *number <= asked && in_time(*since))
    }

    pub(super) fn poll(&mut self) -> Option<Identified> {
        let identified = self.replies.try_recv().ok()?;
        self.under_way.remove(identified.unknown.compiler());
        Some(identified)
    }
}
