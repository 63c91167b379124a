//! A farm without servers: everything runs at home.

use super::farm::{Capacity, Farm, Ticket, Verdict};
use crate::args::{Cause, Job, Reason};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Nobody takes a job.
#[derive(Debug)]
pub struct Nobody {
    quiet: PipeReader,
    _open: PipeWriter,
    refused: Vec<Ticket>,
    why: String,
}

impl Nobody {
    /// A farm of nobody, and why, in words for people.
    ///
    /// # Errors
    /// This machine has no descriptors left.
    pub fn new(why: impl Into<String>) -> io::Result<Self> {
        let (quiet, open) = io::pipe()?;
        Ok(Self { quiet, _open: open, refused: Vec::new(), why: why.into() })
    }
}

impl Farm for Nobody {
    fn fd(&self) -> BorrowedFd<'_> {
        self.quiet.as_fd()
    }

    fn submit(&mut self, ticket: Ticket, _job: Job) {
        self.refused.push(ticket);
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.refused.retain(|refused| *refused != ticket);
    }

    fn turn(&mut self, _now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        let why = Reason::with(Cause::NoServers, &self.why);
        verdicts.extend(self.refused.drain(..).map(|job| (job, Verdict::Home(why.clone()))));
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
