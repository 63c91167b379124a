//! The interface between the manager's loop and what runs compilers remotely.
//!
//! The loop is single-threaded, so no method here may block. An executor that has news makes its
//! descriptor readable; one that must be called at a certain time returns that time as its
//! deadline.

use super::source::Preprocessed;
use crate::args::{Job, Reason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Identifies a job between the loop and its executor. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Takes jobs, runs them remotely, and returns a verdict for each.
///
/// Every submitted ticket gets one verdict, unless it is cancelled before. No method may block.
pub trait RemoteExecutor {
    /// Readable when [`RemoteExecutor::turn`] has something to do. It stays the same descriptor.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Sleeps until `events` is readable, which [`RemoteExecutor::fd`] makes readable too. An
    /// executor with connections may serve them meanwhile. May return early.
    fn wait(&self, timeout: Option<Duration>, events: BorrowedFd<'_>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted or not: the descriptor tells what there is to do.
        let _ = poll(&mut [PollFd::from_borrowed_fd(events, PollFlags::IN)], timeout.as_ref());
    }

    /// Takes a job. A job that cannot run gets its verdict in the next [`RemoteExecutor::turn`],
    /// which the loop calls right after it has read its wrappers.
    fn submit(&mut self, ticket: Ticket, job: Job);

    /// Takes a job with its preprocessed source. By default the source is ignored, for executors
    /// that read the job's files themselves.
    fn submit_preprocessed(&mut self, ticket: Ticket, job: Job, _source: Preprocessed) {
        self.submit(ticket, job);
    }

    /// Drops a job: its wrapper has disconnected, or the job runs locally. From now on none of its
    /// outputs is placed, and it gets no verdict. An unknown ticket is ignored.
    fn cancel(&mut self, ticket: Ticket);

    /// Handles its events, and appends new verdicts to `verdicts`.
    fn turn(&mut self, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>);

    /// The latest time of the next [`RemoteExecutor::turn`]; `None`: only when the descriptor is
    /// readable.
    fn deadline(&self) -> Option<Instant>;

    /// How many servers and slots it has.
    fn capacity(&self) -> Capacity;

    /// Whether a server has claimed the job: running it locally as well would waste work.
    fn is_claimed(&self, ticket: Ticket) -> bool;

    /// Jobs that have been on servers for far too long, the oldest first: they may run locally.
    fn slow(&self, _now: Instant) -> Vec<Ticket> {
        Vec::new()
    }

    /// The latest error of its servers, as text for users; empty without one.
    fn trouble(&self) -> &str {
        ""
    }

    /// What it has done so far, for the statistics; `None` without servers.
    fn report(&self) -> Option<Value> {
        None
    }

    /// The last wrapper has disconnected: the executor may free what it only caches. The manager
    /// ends soon unless another wrapper connects.
    fn idle(&mut self) {}
}

/// The size of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Servers that are connected. With none, jobs run locally and are not submitted.
    pub servers: usize,
    /// Slots of all these servers together.
    pub slots: usize,
}

/// How a job ended.
#[derive(Debug)]
pub enum Verdict {
    /// The compiler ran. With status 0 its outputs are placed already. With any other status
    /// nothing is placed, and the loop runs the job locally instead of reporting the failure.
    Done(Finished),
    /// The job could not run remotely: nothing is placed, and the wrapper runs it locally.
    Local(Reason),
}

/// The result of a compiler that ran to its end.
#[derive(Debug, Default)]
pub struct Finished {
    /// The exit status as wait(2) encodes it: 0 is success.
    pub status: i32,
    /// Its standard output, bounded by the executor.
    pub stdout: Vec<u8>,
    /// Its standard error, bounded by the executor.
    pub stderr: Vec<u8>,
    /// Where and when it ran, for statistics and the timeline.
    pub trace: Trace,
}

/// Where and when a job ran, as far as the executor knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The server's name, as in the host list.
    pub server: String,
    /// Its slot, counted from 0.
    pub slot: u32,
    /// When a server claimed it.
    pub claimed: Option<Instant>,
    /// When the compiler started there.
    pub started: Option<Instant>,
    /// When the compiler had ended there.
    pub ended: Option<Instant>,
    /// Bytes that were sent to the server for this job.
    pub bytes_out: u64,
    /// Bytes that came back.
    pub bytes_in: u64,
    /// CPU time of the compiler there, in microseconds.
    pub cpu_us: u64,
}
