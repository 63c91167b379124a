//! A thread that looks at the files of jobs: it identifies a job's compiler, exports the
//! directories that servers may read, and answers servers' questions about files.
//!
//! The executor sends requests to it and goes on. Each compiler is identified by a further thread.
//! If the thread hangs in a file system, the executor abandons it and starts another one, which
//! exports nothing at first and avoids that file system.

mod preparing;

use crate::args::{Job, Reason};
use crate::toolchain::{Learned, Part, Toolchain, Toolchains, Unknown};
use outboard_cluster::hub::PeerId;
use outboard_export::{
    Answer, Ask, Export, ExportCounters, ExportError, HiddenNames, Position, Sizes, mount_of,
};
use outboard_verbs::SharedRegion;
pub(super) use preparing::ASKED_MAX;
use preparing::Waiting;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long one look at files may take before the thread counts as hung.
pub(super) const HUNG_AFTER: Duration = Duration::from_secs(5);

/// A request of the executor's.
#[derive(Debug)]
pub(super) enum FileRequest {
    /// Prepare everything that a job needs. For a preprocessed job nothing is exported.
    Prepare { ticket: u64, job: Arc<Job>, is_preprocessed: bool },
    /// Answer a server's question.
    Ask { peer: PeerId, ask: u32, what: Ask },
    /// Read the contents of a compiler's part.
    Part { peer: PeerId, part: Part },
    /// A thread has asked a compiler; this is its answer.
    Learned(Unknown, Box<Learned>),
    /// End the thread.
    End,
}

/// A reply to the executor.
#[derive(Debug)]
pub(super) enum FileReply {
    Prepared {
        ticket: u64,
        prepared: Result<PreparedJob, Reason>,
    },
    Answer {
        peer: PeerId,
        ask: u32,
        answer: Answer,
    },
    /// Without contents if the part has changed since it was identified.
    Part {
        peer: PeerId,
        contents: Option<SharedRegion>,
    },
}

/// A job's data that a server needs besides its command line.
#[derive(Debug)]
pub(super) struct PreparedJob {
    pub(super) toolchain: Arc<Toolchain>,
    /// Directories of outputs that servers do not see.
    pub(super) places: Vec<Vec<u8>>,
    /// A server must have replayed the metadata log up to here.
    pub(super) position: Position,
}

/// The file operation that the thread is in.
#[derive(Clone, Debug)]
struct FileOperation {
    since: Instant,
    path: Option<PathBuf>,
}

type CurrentOperation = Arc<Mutex<Option<FileOperation>>>;
/// The export's, as they were when the thread last went to sleep.
type LastCounters = Arc<Mutex<ExportCounters>>;

/// The executor's handle of the thread.
#[derive(Debug)]
pub(super) struct Exporter {
    requests: mpsc::Sender<FileRequest>,
    replies: mpsc::Receiver<FileReply>,
    wake: Arc<OwnedFd>,
    memory: SharedRegion,
    progress: CurrentOperation,
    counters: LastCounters,
    /// When the operation that was under way at the last look began, and the running time of the
    /// first look that saw it.
    seen: Option<(Instant, Duration)>,
    thread: Option<JoinHandle<()>>,
}

/// An abandoned thread, and the mount in which it hangs.
#[derive(Debug)]
pub(super) struct HungThread {
    thread: JoinHandle<()>,
    pub(super) at: PathBuf,
}

impl HungThread {
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Exporter {
    /// Starts a thread that exports nothing yet and avoids everything below `avoided`. It makes
    /// `waker` readable when it has replied.
    ///
    /// # Errors
    /// This machine lacks memory, descriptors, inotify instances or threads.
    pub(super) fn start(
        toolchains: Toolchains,
        avoided: Vec<PathBuf>,
        waker: Arc<OwnedFd>,
    ) -> Result<Self, ExportError> {
        let export = Export::new(Sizes::default(), HiddenNames::Withheld)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(ExportError::Watch)?);
        let (requests, ahead) = mpsc::channel();
        let (reply, replies) = mpsc::channel();
        let (memory, progress) = (export.memory().clone(), CurrentOperation::default());
        let counters = LastCounters::default();
        let worker = Worker {
            export,
            toolchains,
            roots: super::roots::JobRoots::default(),
            avoided,
            asking: HashMap::new(),
            ahead,
            requests: requests.clone(),
            reply,
            wake: Arc::clone(&wake),
            waker,
            progress: Arc::clone(&progress),
            counters: Arc::clone(&counters),
        };
        let thread =
            thread::Builder::new().name("outboard-files".into()).spawn(move || worker.run());
        let refused = |_| ExportError::Watch(rustix::io::Errno::AGAIN);
        let thread = Some(thread.map_err(refused)?);
        let seen = None;
        Ok(Self { requests, replies, wake, memory, progress, counters, seen, thread })
    }

    /// The memory that servers may read.
    pub(super) fn memory(&self) -> &SharedRegion {
        &self.memory
    }

    /// What the export has done; while the thread works, what it had done before.
    pub(super) fn counters(&self) -> ExportCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask(&self, request: FileRequest) {
        // A thread that has ended replies no more.
        let _sent = self.requests.send(request);
        ring(&self.wake);
    }

    pub(super) fn poll(&self) -> Option<FileReply> {
        self.replies.try_recv().ok()
    }

    /// Whether the thread has been in one file operation for too long, by the running time of the
    /// loop that looks.
    pub(super) fn is_hung(&mut self, passed: Duration) -> bool {
        let at = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let began = at.as_ref().map(|at| at.since);
        if self.seen.map(|(seen, _)| seen) != began {
            self.seen = began.map(|began| (began, passed));
        }
        self.seen.is_some_and(|(_, since)| passed - since >= HUNG_AFTER)
    }

    /// The mount in which the thread hangs, if that is known.
    pub(super) fn hangs_at(&self) -> Option<PathBuf> {
        let at = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(mount_of(&at?.path?))
    }

    /// Abandons the thread.
    pub(super) fn leave(mut self) -> Option<HungThread> {
        let at = self.hangs_at()?;
        Some(HungThread { thread: self.thread.take()?, at })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.ask(FileRequest::End);
    }
}

pub(super) fn ring(waker: &OwnedFd) {
    // If the counter is full, a wake-up is pending already.
    let _rung = rustix::io::write(waker, &1_u64.to_ne_bytes());
}

/// The state of the thread.
struct Worker {
    export: Export,
    toolchains: Toolchains,
    roots: super::roots::JobRoots,
    /// Mounts that hang.
    avoided: Vec<PathBuf>,
    /// Questions that threads are asking compilers, since when, and for which jobs.
    asking: HashMap<Unknown, (Instant, Vec<Waiting>)>,
    ahead: mpsc::Receiver<FileRequest>,
    requests: mpsc::Sender<FileRequest>,
    reply: mpsc::Sender<FileReply>,
    wake: Arc<OwnedFd>,
    waker: Arc<OwnedFd>,
    progress: CurrentOperation,
    counters: LastCounters,
}

impl Worker {
    fn run(mut self) {
        loop {
            let mut fds = [
                PollFd::new(&*self.wake, PollFlags::IN),
                PollFd::from_borrowed_fd(self.export.watch_fd(), PollFlags::IN),
            ];
            // Also after an interruption everything is looked at.
            let _ready = poll(&mut fds, None);
            let mut count = [0; 8];
            let _reset = rustix::io::read(&*self.wake, &mut count);
            self.at(None);
            self.export.refresh();
            while let Ok(request) = self.ahead.try_recv() {
                if matches!(request, FileRequest::End) {
                    return;
                }
                self.handle(request);
            }
            let counters = self.export.counters();
            *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
            *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Notes the path of the next file operation.
    fn at(&self, path: Option<&Path>) {
        let at = FileOperation { since: Instant::now(), path: path.map(Path::to_path_buf) };
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn is_avoided(&self, path: &Path) -> bool {
        self.avoided.iter().any(|avoided| path.starts_with(avoided))
    }

    fn handle(&mut self, request: FileRequest) {
        match request {
            FileRequest::Prepare { ticket, job, is_preprocessed } => {
                self.prepare(Waiting { ticket, job, is_preprocessed });
            }
            FileRequest::Ask { peer, ask, what } => {
                self.at(Some(what.path()));
                let answer = self.export.answer(&what);
                self.reply(FileReply::Answer { peer, ask, answer });
            }
            FileRequest::Part { peer, part } => {
                self.at(Some(&part.path));
                self.reply(FileReply::Part { peer, contents: contents(&part) });
            }
            FileRequest::Learned(unknown, learned) => self.learn(&unknown, *learned),
            FileRequest::End => {}
        }
    }

    fn reply(&self, reply: FileReply) {
        // The executor may have abandoned this thread.
        let _replied = self.reply.send(reply);
        ring(&self.waker);
    }
}

/// The contents of a part, if they have not changed since it was identified.
fn contents(part: &Part) -> Option<SharedRegion> {
    let bytes = std::fs::read(&part.path).ok()?;
    if *blake3::hash(&bytes).as_bytes() != part.hash.0 {
        return None;
    }
    let region = SharedRegion::zeroed(bytes.len()).ok()?;
    region.copy_in(0, &bytes).ok()?;
    Some(region)
}
