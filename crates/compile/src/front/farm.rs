//! Whoever takes jobs: the border between the manager's loop and what runs compilers elsewhere.
//!
//! The loop is single-threaded and never waits in here. A farm that has news makes its descriptor
//! readable; a farm that wants to be called at a time says so.

use super::source::Preprocessed;
use crate::args::{Job, Reason};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Names a job between the loop and its farm. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What takes jobs and gives verdicts.
///
/// Every submitted ticket gets one verdict, unless it is cancelled before. No method may block.
pub trait Farm {
    /// Readable when [`Farm::turn`] has something to do. It stays the same descriptor.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes a job. One that it cannot take gets its verdict in the next [`Farm::turn`], which the
    /// loop calls right after it has read its wrappers.
    fn submit(&mut self, ticket: Ticket, job: Job);

    /// Takes a job with its preprocessed source. Who reads the files themselves needs none.
    fn submit_preprocessed(&mut self, ticket: Ticket, job: Job, _source: Preprocessed) {
        self.submit(ticket, job);
    }

    /// Nobody wants this job any more: its wrapper has gone, or it runs at home. From here on none
    /// of its outputs is placed, and it gets no verdict. An unknown ticket is none of the farm's
    /// business.
    fn cancel(&mut self, ticket: Ticket);

    /// Does what there is to do and adds to `verdicts` what was decided.
    fn turn(&mut self, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>);

    /// When to call [`Farm::turn`] at the latest; `None`: only when the descriptor is readable.
    fn deadline(&self) -> Option<Instant>;

    /// What it could take now.
    fn capacity(&self) -> Capacity;

    /// Whether a server has claimed the job already, so that taking it home would waste work.
    fn is_claimed(&self, ticket: Ticket) -> bool;

    /// What is wrong with its servers, in words for people; nothing if nothing is known to be.
    fn trouble(&self) -> &str {
        ""
    }

    /// No wrapper is there any more, and the manager will end soon if none comes: what need not be
    /// kept may go.
    fn idle(&mut self) {}
}

/// How much a farm can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Servers that are connected. With none, jobs run at home and are not submitted.
    pub servers: usize,
    /// Slots that they have altogether.
    pub slots: usize,
}

/// How a job ended.
#[derive(Debug)]
pub enum Verdict {
    /// The compiler ran. With status 0 its outputs are placed already; with any other nothing is
    /// placed, and the loop sends the job home before anyone sees the failure.
    Done(Finished),
    /// It could not run remotely, nothing is placed, and the wrapper runs it at home.
    Home(Reason),
}

/// A compiler that ran to its end.
#[derive(Debug, Default)]
pub struct Finished {
    /// As wait(2) encodes it: 0 is success.
    pub status: i32,
    /// What it wrote to standard output, bounded by the farm.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, bounded by the farm.
    pub stderr: Vec<u8>,
    /// For statistics and the timeline.
    pub trace: Trace,
}

/// Where and when a job ran, as far as the farm knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The server, as people call it.
    pub server: String,
    /// Its slot, counted from 0.
    pub slot: u32,
    /// When a server claimed it.
    pub claimed: Option<Instant>,
    /// When the compiler started there.
    pub started: Option<Instant>,
    /// When the compiler had ended there.
    pub ended: Option<Instant>,
    /// Octets that went to the server because of this job.
    pub octets_out: u64,
    /// Octets that came back.
    pub octets_in: u64,
    /// CPU time that the compiler took there, in microseconds.
    pub cpu_us: u64,
}
