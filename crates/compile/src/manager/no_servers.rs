//! An executor without servers: everything runs locally.

use super::executor::{Capacity, RemoteExecutor, Ticket, Verdict};
use crate::args::{Cause, Job, Reason};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Refuses every job: the manager then only counts jobs and bounds local ones.
#[derive(Debug)]
pub struct NoServers {
    never_readable: PipeReader,
    _open: PipeWriter,
    refused: Vec<Ticket>,
    why: String,
}

impl NoServers {
    /// `why` there are no servers, as text for users.
    ///
    /// # Errors
    /// This machine has no descriptors left.
    pub fn new(why: impl Into<String>) -> io::Result<Self> {
        let (never_readable, open) = io::pipe()?;
        Ok(Self { never_readable, _open: open, refused: Vec::new(), why: why.into() })
    }
}

impl RemoteExecutor for NoServers {
    fn fd(&self) -> BorrowedFd<'_> {
        self.never_readable.as_fd()
    }

    fn submit(&mut self, ticket: Ticket, _job: Job) {
        self.refused.push(ticket);
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.refused.retain(|refused| *refused != ticket);
    }

    fn turn(&mut self, _now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        let why = Reason::with(Cause::NoServers, &self.why);
        verdicts.extend(self.refused.drain(..).map(|job| (job, Verdict::Local(why.clone()))));
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    fn is_claimed(&self, _ticket: Ticket) -> bool {
        false
    }

    fn trouble(&self) -> &str {
        &self.why
    }
}
